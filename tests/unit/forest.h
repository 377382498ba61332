/* A radix tree over real pools, and sequences of letters that come and go in it. */
#ifndef FOREST_H
#define FOREST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cache/tree.h"

enum { B = 4, MAX_SLOTS = 2, MAX_BLOCKS = 64 };

/* A tree over real pools; of slot 1, the window is in tokens. */
typedef struct forest {
    kv_tree *t;
    pool *pools[MAX_SLOTS];
    int n_slots;
} forest;

static inline forest plant(int n_slots, int window)
{
    forest f = {.n_slots = n_slots};
    status st = STATUS_INIT;
    kv_tree_slot slots[MAX_SLOTS];
    for (int i = 0; i < n_slots; i++) {
        assert_int_equal(pool_new(&f.pools[i], 64, MAX_BLOCKS, &st), ST_OK);
        slots[i] = (kv_tree_slot){f.pools[i], i ? window : 0};
    }
    kv_tree_config c = {.block_tokens = B, .slots = slots, .n_slots = n_slots};
    assert_int_equal(kv_tree_new(&f.t, &c, &st), ST_OK);
    return f;
}

static inline void audit(const kv_tree *t)
{
    status st = STATUS_INIT;
    if (kv_tree_audit(t, &st)) fail_msg("%s", st.text);
}

static inline void fell(forest *f)
{
    audit(f->t);
    kv_tree_free(f->t);
    for (int i = 0; i < f->n_slots; i++) {
        assert_int_equal(pool_count(f->pools[i]).free, MAX_BLOCKS);
        pool_free(f->pools[i]);
    }
}

/* Letters stand for tokens. */
static inline const int32_t *tokens(const char *text)
{
    static int32_t ids[8][256];
    static int turn;
    int32_t *out = ids[turn++ % 8];
    for (int i = 0; text[i]; i++) out[i] = text[i];
    return out;
}

static inline kv_match match(const forest *f, uint64_t salt, const char *text)
{
    return kv_tree_match(f->t, salt, tokens(text), (int64_t)strlen(text));
}

static inline void assert_match(const forest *f, uint64_t salt, const char *text, int n_blocks, int rows)
{
    kv_match m = match(f, salt, text);
    assert_int_equal(m.n_blocks, n_blocks);
    assert_int_equal(m.rows, rows);
    assert_true(rows == 0 || m.next);
}

static inline kv_node *lock(forest *f, uint64_t salt, const char *text)
{
    kv_node *n = NULL;
    status st = STATUS_INIT;
    kv_match m = match(f, salt, text);
    assert_int_equal(kv_tree_lock(f->t, salt, &m, 0, &n, &st), ST_OK);
    audit(f->t);
    return n;
}

/* Appends the whole blocks of text to a locked node, with blocks of the caller's in ids[slot]. */
static inline kv_node *append(forest *f, kv_node *n, const char *text, block_id ids[MAX_SLOTS][MAX_BLOCKS])
{
    status st = STATUS_INIT;
    int n_blocks = (int)strlen(text) / B;
    block_id *blocks[MAX_SLOTS] = {ids[0], ids[1]};
    for (int slot = 0; slot < f->n_slots; slot++)
        for (int i = 0; i < n_blocks; i++) ids[slot][i] = pool_take(f->pools[slot]);
    assert_int_equal(kv_tree_insert(f->t, &n, tokens(text), n_blocks, blocks, &st), ST_OK);
    return n;
}

static inline void let_go(forest *f, int slot, block_id id, bool behind)
{
    pool_unref(f->pools[slot], id);
    if (pool_state(f->pools[slot], id) == BLOCK_CACHED) kv_tree_rest(f->t, slot, id, behind);
}

/* A sequence that comes and goes: its text is cached from then on. */
static inline void put(forest *f, uint64_t salt, const char *text)
{
    block_id ids[MAX_SLOTS][MAX_BLOCKS];
    kv_node *n = lock(f, salt, text);
    int64_t have = kv_node_blocks(n);
    n = append(f, n, text + have * B, ids);
    for (int slot = 0; slot < f->n_slots; slot++)
        for (int i = 0; i < (int)strlen(text) / B - have; i++) let_go(f, slot, ids[slot][i], false);
    kv_tree_unlock(f->t, n);
    audit(f->t);
}

#endif
