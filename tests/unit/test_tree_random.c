/* The radix tree against a flat map of prefixes: random sequences that start, grow, fork, move their window on, end,
 * leaving tails, while blocks are evicted and allocations fail. TEST_FULL makes it a million operations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "cache/tree.h"

enum { B = 4, SLOTS = 2, MAX_BLOCKS = 10, MAX_IDS = MAX_BLOCKS * B, SEQS = 6, ENTRIES = 256 };
static const uint32_t pool_blocks[SLOTS] = {56, 40};

/* One block of the map: the prefix of k blocks that ends with it; of a tail, `rows` of the last one. */
typedef struct entry {
    uint64_t salt, used;
    int k, rows, locks, hits, priority;
    int32_t ids[MAX_IDS];
    block_id blocks[SLOTS];
} entry;

typedef struct sequence {
    bool live;
    uint64_t salt;
    int n, in_tree; /* blocks; those up to the end of its node */
    int32_t ids[MAX_IDS];
    block_id table[SLOTS][MAX_BLOCKS]; /* BLOCK_NONE: not held */
    kv_node *node;
} sequence;

typedef struct world {
    kv_tree *tree;
    pool *pools[SLOTS];
    const evict_policy *policy;
    int window; /* of slot 1 */
    entry map[ENTRIES];
    int n_map;
    block_id rests[2][64]; /* behind, plain: the oldest first */
    int n_rests[2];
    sequence seqs[SEQS];
    uint64_t clock;
    uint32_t random;
    int made_out_of_memory, n_tails, n_taken;
} world;

static uint32_t draw(world *w, uint32_t n)
{
    w->random = w->random * 1664525 + 1013904223;
    return (w->random >> 8) % n;
}

/* ---- The map. */

static int full_blocks(const entry *e)
{
    return e->rows == B ? e->k : e->k - 1;
}

static bool is_prefix(const entry *e, uint64_t salt, const int32_t *ids, int k)
{
    return e->salt == salt && full_blocks(e) >= k && memcmp(e->ids, ids, (size_t)k * B * sizeof *ids) == 0;
}

static entry *find(world *w, uint64_t salt, const int32_t *ids, int k)
{
    for (int i = 0; i < w->n_map; i++)
        if (w->map[i].k == k && is_prefix(&w->map[i], salt, ids, k)) return &w->map[i];
    return NULL;
}

/* Tokens of its last block that ids [n] begin with, where ids have the same blocks before it; else -1. */
static int shared_rows(const entry *e, uint64_t salt, const int32_t *ids, int n)
{
    int at = (e->k - 1) * B, shared = 0;
    if (!is_prefix(e, salt, ids, e->k - 1)) return -1;
    while (at + shared < n && shared < e->rows && ids[at + shared] == e->ids[at + shared]) shared++;
    return shared;
}

static bool is_leaf(world *w, const entry *e)
{
    for (int i = 0; e->rows == B && i < w->n_map; i++)
        if (w->map[i].k > e->k && is_prefix(&w->map[i], e->salt, e->ids, e->k)) return false;
    return e->locks == 0;
}

static void use(world *w, uint64_t salt, const int32_t *ids, int k, bool hit, int priority)
{
    w->clock++;
    for (int i = 1; i <= k; i++) {
        entry *e = find(w, salt, ids, i);
        e->used = w->clock;
        e->hits += hit;
        if (e->priority < priority) e->priority = priority;
    }
}

static double rank_of(const world *w, const entry *e)
{
    if (strcmp(w->policy->name, "lfu") == 0) return e->hits;
    if (strcmp(w->policy->name, "slru") == 0) return e->hits > 0;
    if (strcmp(w->policy->name, "priority") == 0) return e->priority == EVICT_NO_PRIORITY ? 0 : e->priority;
    return 0;
}

/* The map does not know the order of these: it looks which leaves went. */
static bool told(const world *w)
{
    return strcmp(w->policy->name, "fifo") == 0 || strcmp(w->policy->name, "cost") == 0;
}

static bool goes_before(const world *w, const entry *a, const entry *b)
{
    double x = rank_of(w, a), y = rank_of(w, b);
    return x < y || (x == y && a->used < b->used);
}

static entry *victim(world *w)
{
    entry *v = NULL;
    for (int i = 0; i < w->n_map; i++) {
        entry *e = &w->map[i];
        if (!is_leaf(w, e) || (told(w) && pool_kept(w->pools[0], e->blocks[0]))) continue;
        if (!v || goes_before(w, e, v)) v = e;
    }
    return v;
}

/* ---- Resting blocks. */

static void map_wake(world *w, block_id id)
{
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < w->n_rests[l]; i++) {
            if (w->rests[l][i] != id) continue;
            w->n_rests[l]--;
            memmove(&w->rests[l][i], &w->rests[l][i + 1], (size_t)(w->n_rests[l] - i) * sizeof id);
            return;
        }
}

static void hold(world *w, int slot, block_id id)
{
    pool_ref(w->pools[slot], id);
    if (slot == 0 || pool_refs(w->pools[slot], id) > 1) return;
    kv_tree_wake(w->tree, slot, id);
    map_wake(w, id);
}

static void release(world *w, int slot, block_id id, bool behind)
{
    pool_unref(w->pools[slot], id);
    if (slot == 0 || !pool_kept(w->pools[slot], id) || pool_refs(w->pools[slot], id)) return;
    kv_tree_rest(w->tree, slot, id, behind);
    w->rests[behind ? 0 : 1][w->n_rests[behind ? 0 : 1]++] = id;
}

/* ---- Checks. */

static void check_match(world *w, uint64_t salt, const int32_t *ids, int n)
{
    kv_match m = kv_tree_match(w->tree, salt, ids, n);
    int walked = 0, best = 0, most = 0;
    bool served = false, lacking = false, seen = true; /* seen: all blocks that the window sees from the rows' end */
    for (entry *e; (walked + 1) * B <= n && (e = find(w, salt, ids, walked + 1)) != NULL;) {
        bool usable = true;
        walked++;
        for (int row = 0; row < walked * B; row++)
            for (int slot = 0; slot < SLOTS; slot++)
                if (slot == 0 || row > walked * B - w->window)
                    usable &= find(w, salt, ids, row / B + 1)->blocks[slot] != BLOCK_NONE;
        if (usable) best = walked;
    }
    for (int i = 0; i < w->n_map; i++) {
        const entry *e = &w->map[i];
        int shared = e->k == walked + 1 ? shared_rows(e, salt, ids, n) : -1;
        if (shared < 0) continue;
        bool has = e->blocks[0] != BLOCK_NONE && e->blocks[1] != BLOCK_NONE;
        if (shared > most) served = lacking = false;
        if (shared >= most) most = shared, served |= has, lacking |= !has;
    }
    for (int row = 0; row < walked * B; row++)
        if (row > walked * B + most - w->window) seen &= find(w, salt, ids, row / B + 1)->blocks[1] != BLOCK_NONE;
    if (!seen || most == 0) assert_int_equal(m.rows, 0);
    else if (m.rows == 0) assert_true(lacking);
    else assert_true(m.rows == most && served);
    if (m.rows) best = walked;
    assert_int_equal(m.n_blocks, best);
    for (int slot = 0; m.rows && slot < SLOTS; slot++) {
        block_id id;
        kv_tree_blocks(w->tree, m.next, slot, best, 1, &id);
        assert_int_not_equal(id, BLOCK_NONE);
    }
    if (best) assert_in_range(best, 1, kv_node_blocks(m.node));
}

typedef struct visit {
    world *w;
    int n;
} visit;

static bool check_node(void *user, const kv_node_info *n)
{
    visit *v = user;
    int32_t path[MAX_IDS];
    if (n->first_block == 0 && n->n_blocks == 0) return true;
    const entry *any = v->w->map;
    for (int64_t i = 0; i < n->n_blocks; i++, v->n++) {
        for (int j = 0; j < v->w->n_map; j++) { /* slot 0 names it */
            any = &v->w->map[j];
            if (any->blocks[0] == n->blocks[0][i]) break;
        }
        assert_int_equal(any->blocks[0], n->blocks[0][i]);
        assert_int_equal(any->blocks[1], n->blocks[1][i]);
        assert_int_equal(any->k, n->first_block + i + 1);
        assert_true(any->salt == n->salt);
        assert_int_equal(any->rows, n->tail_rows ? n->tail_rows : B);
        assert_memory_equal(any->ids + (any->k - 1) * B, n->ids + i * B, (size_t)any->rows * sizeof(int32_t));
        assert_int_equal(any->hits, n->hits);
        assert_int_equal(any->locks, i + 1 == n->n_blocks ? n->locks : 0);
    }
    memcpy(path, any->ids, sizeof path);
    for (int k = 1; k <= full_blocks(any); k++) assert_non_null(find(v->w, n->salt, path, k));
    return true;
}

static void check_all(world *w)
{
    status st = STATUS_INIT;
    if (kv_tree_audit(w->tree, &st)) fail_msg("%s", st.text);
    visit v = {w, 0};
    kv_tree_walk(w->tree, check_node, &v);
    assert_int_equal(v.n, w->n_map);
    kv_tree_counts c = kv_tree_count(w->tree);
    int n_tails = 0;
    for (int i = 0; i < w->n_map; i++) n_tails += w->map[i].rows < B;
    assert_int_equal(c.blocks, w->n_map);
    assert_int_equal(c.tails, n_tails);
    for (int slot = 0; slot < SLOTS; slot++) {
        uint32_t refs[64] = {0};
        for (int i = 0; i < SEQS; i++)
            for (int k = 0; w->seqs[i].live && k < w->seqs[i].n; k++)
                if (w->seqs[i].table[slot][k] != BLOCK_NONE) refs[w->seqs[i].table[slot][k]]++;
        if (pool_audit(w->pools[slot], refs, &st)) fail_msg("%s", st.text);
    }
}

/* ---- Eviction. */

static void forget(world *w, entry *e)
{
    if (e->blocks[1] != BLOCK_NONE) map_wake(w, e->blocks[1]);
    *e = w->map[--w->n_map];
}

static bool forget_resting(world *w, int list)
{
    if (w->n_rests[list] == 0) return false;
    block_id id = w->rests[list][0];
    map_wake(w, id);
    for (int i = 0; i < w->n_map; i++) {
        if (w->map[i].blocks[1] != id) continue;
        w->map[i].blocks[1] = BLOCK_NONE;
        if (w->map[i].rows < B) forget(w, &w->map[i]);
        break;
    }
    return true;
}

static bool evict(world *w, int slot)
{
    bool cached = pool_count(w->pools[slot]).cached > 0, frees[ENTRIES];
    for (block_id id = 0; id < pool_blocks[slot]; id++) frees[id] = pool_state(w->pools[slot], id) == BLOCK_CACHED;
    uint32_t had = pool_count(w->pools[slot]).free;
    bool got = kv_tree_evict(w->tree, slot);
    assert_int_equal(pool_count(w->pools[slot]).free, had + got);
    bool done = !cached || (slot == 1 && forget_resting(w, 0));
    for (entry *e; (told(w) || !done) && (e = victim(w)) != NULL;) {
        done |= e->blocks[slot] != BLOCK_NONE && frees[e->blocks[slot]];
        forget(w, e);
    }
    if (!done && slot == 1) done = forget_resting(w, 1);
    assert_int_equal(got, done && cached);
    return got;
}

static block_id take(world *w, int slot)
{
    block_id id;
    while ((id = pool_take(w->pools[slot])) == BLOCK_NONE)
        if (!evict(w, slot)) return BLOCK_NONE;
    return id;
}

/* ---- Sequences. */

/* A prompt that often begins as another. */
static int draw_prompt(world *w, int32_t *ids, uint64_t *salt)
{
    int n = 1 + (int)draw(w, MAX_IDS), kept = 0;
    *salt = draw(w, 3) ? 7 : UINT64_MAX;
    if (w->n_map && draw(w, 4)) {
        const entry *e = &w->map[draw(w, (uint32_t)w->n_map)];
        *salt = e->salt;
        kept = (int)draw(w, (uint32_t)(e->k * B + 1));
        memcpy(ids, e->ids, sizeof e->ids);
    }
    for (int i = kept; i < MAX_IDS; i++) ids[i] = (int32_t)draw(w, 2) * 5 - 3;
    return n > kept ? n : kept;
}

static entry *entry_of(world *w, block_id first_slot)
{
    entry *e = w->map;
    while (e->blocks[0] != first_slot) e++;
    return e;
}

/* A match with rows of a tail may take it out of the tree, as a sequence without room for a copy does. */
static void take_tail(world *w, kv_match m, const block_id blocks[SLOTS])
{
    for (int slot = 0; slot < SLOTS; slot++) hold(w, slot, blocks[slot]);
    bool is_tail = entry_of(w, blocks[0])->rows < B;
    assert_int_equal(kv_tree_take_tail(w->tree, m.next), is_tail);
    if (is_tail) forget(w, entry_of(w, blocks[0]));
    w->n_taken += is_tail;
    for (int slot = 0; slot < SLOTS; slot++) release(w, slot, blocks[slot], false);
}

static void start(world *w, sequence *s)
{
    status st = STATUS_INIT;
    int n = draw_prompt(w, s->ids, &s->salt), priority = (int)draw(w, 5) - 2;
    kv_match m = kv_tree_match(w->tree, s->salt, s->ids, n);
    check_match(w, s->salt, s->ids, n);
    block_id next[SLOTS];
    for (int slot = 0; m.rows && slot < SLOTS; slot++) kv_tree_blocks(w->tree, m.next, slot, m.n_blocks, 1, &next[slot]);
    if (draw(w, 4) == 0) mem_fail_after(1 + draw(w, 3));
    int rc = kv_tree_lock(w->tree, s->salt, &m, priority, &s->node, &st);
    mem_fail_after(0);
    if (rc) {
        assert_int_equal(rc, ST_NOMEM);
        w->made_out_of_memory++;
        return;
    }
    s->live = true;
    s->n = s->in_tree = (int)m.n_blocks;
    assert_int_equal(kv_node_blocks(s->node), s->n);
    for (int slot = 0; slot < SLOTS; slot++) {
        kv_tree_blocks(w->tree, s->node, slot, 0, s->n, s->table[slot]);
        for (int k = 0; k < s->n; k++) {
            if (slot == 1 && (k + 1) * B - 1 <= s->n * B - w->window) s->table[slot][k] = BLOCK_NONE;
            if (s->table[slot][k] != BLOCK_NONE) hold(w, slot, s->table[slot][k]);
        }
    }
    use(w, s->salt, s->ids, s->n, true, priority);
    if (s->n) find(w, s->salt, s->ids, s->n)->locks++;
    if (m.rows == 0) return;
    entry *e = entry_of(w, next[0]);
    if (e->rows < B) {
        e->used = ++w->clock;
        e->hits++;
        if (e->priority < priority) e->priority = priority;
    }
    if (draw(w, 3) == 0) take_tail(w, m, next);
}

/* What a tail does to the map; whether the map keeps its blocks. */
static bool map_insert_tail(world *w, const sequence *s, int rows, const block_id blocks[SLOTS], int priority)
{
    entry *e = NULL, *shorter = NULL;
    for (entry *at = w->map; at < w->map + w->n_map; at++) {
        int shared = at->k == s->n + 1 ? shared_rows(at, s->salt, s->ids, s->n * B + rows) : -1;
        if (shared == rows) e = at;
        else if (shared == at->rows) shorter = at;
    }
    bool is_new = !e;
    if (!is_new && e->rows > rows) return false;
    if (is_new && shorter) {
        e = shorter;
        map_wake(w, e->blocks[1]);
    } else if (is_new) {
        e = &w->map[w->n_map++];
        *e = (entry){.salt = s->salt, .k = s->n + 1, .priority = EVICT_NO_PRIORITY};
    }
    if (is_new) {
        e->rows = rows;
        memcpy(e->ids, s->ids, sizeof e->ids);
        memcpy(e->blocks, blocks, sizeof e->blocks);
    }
    e->used = ++w->clock;
    if (e->priority < priority) e->priority = priority;
    return is_new;
}

/* The sequence lets go in the middle of a block. */
static void leave_tail(world *w, sequence *s)
{
    status st = STATUS_INIT;
    int rows = 1 + (int)draw(w, B - 1), priority = (int)draw(w, 5) - 2;
    block_id blocks[SLOTS] = {take(w, 0), BLOCK_NONE};
    if (blocks[0] != BLOCK_NONE) blocks[1] = take(w, 1);
    for (int i = 0; i < rows; i++)
        if (draw(w, 4) == 0) s->ids[s->n * B + i] = (int32_t)draw(w, 2) * 5 - 3;
    if (blocks[1] != BLOCK_NONE) {
        if (draw(w, 4) == 0) mem_fail_after(1 + draw(w, 3));
        int rc = kv_tree_insert_tail(w->tree, s->node, s->ids + s->n * B, rows, blocks, priority, &st);
        mem_fail_after(0);
        w->made_out_of_memory += rc == ST_NOMEM;
        assert_true(rc == ST_OK || rc == ST_NOMEM);
        bool kept = !rc && map_insert_tail(w, s, rows, blocks, priority);
        w->n_tails += kept;
        for (int slot = 0; slot < SLOTS; slot++) assert_int_equal(pool_kept(w->pools[slot], blocks[slot]), kept);
    }
    for (int slot = 0; slot < SLOTS; slot++)
        if (blocks[slot] != BLOCK_NONE) release(w, slot, blocks[slot], false);
}

static void end(world *w, sequence *s)
{
    if (s->in_tree == s->n && s->n < MAX_BLOCKS && draw(w, 4)) leave_tail(w, s);
    for (int slot = 0; slot < SLOTS; slot++)
        for (int k = s->n - 1; k >= 0; k--)
            if (s->table[slot][k] != BLOCK_NONE) release(w, slot, s->table[slot][k], false);
    kv_tree_unlock(w->tree, s->node);
    use(w, s->salt, s->ids, s->in_tree, false, EVICT_NO_PRIORITY);
    if (s->in_tree) find(w, s->salt, s->ids, s->in_tree)->locks--;
    s->live = false;
}

/* What an insert has to do to the map and to the caller's table. */
static void map_insert(world *w, sequence *s, block_id fresh[SLOTS][MAX_BLOCKS])
{
    if (s->in_tree) find(w, s->salt, s->ids, s->in_tree)->locks--;
    w->clock++;
    for (int k = s->in_tree; k < s->n; k++) {
        entry *e = find(w, s->salt, s->ids, k + 1);
        if (!e) {
            for (int i = w->n_map - 1; i >= 0; i--) /* a tail gives way to the block that begins as it does */
                if (w->map[i].k == k + 1 && w->map[i].rows < B &&
                    shared_rows(&w->map[i], s->salt, s->ids, s->n * B) == w->map[i].rows)
                    forget(w, &w->map[i]);
            e = &w->map[w->n_map++];
            *e = (entry){.salt = s->salt, .k = k + 1, .rows = B, .priority = EVICT_NO_PRIORITY, .used = w->clock};
            memcpy(e->ids, s->ids, (size_t)e->k * B * sizeof *e->ids);
            for (int slot = 0; slot < SLOTS; slot++) e->blocks[slot] = s->table[slot][k];
        }
        for (int slot = 0; slot < SLOTS; slot++) {
            if (e->blocks[slot] == BLOCK_NONE) e->blocks[slot] = s->table[slot][k];
            assert_int_equal(fresh[slot][k - s->in_tree], e->blocks[slot]);
        }
    }
    if (s->n) find(w, s->salt, s->ids, s->n)->locks++;
}

static void insert(world *w, sequence *s)
{
    status st = STATUS_INIT;
    int fresh_n = s->n - s->in_tree;
    block_id fresh[SLOTS][MAX_BLOCKS], *blocks[SLOTS] = {fresh[0], fresh[1]};
    for (int slot = 0; slot < SLOTS; slot++)
        memcpy(fresh[slot], s->table[slot] + s->in_tree, (size_t)fresh_n * sizeof(block_id));
    if (draw(w, 4) == 0) mem_fail_after(1 + draw(w, 5));
    kv_node *was = s->node;
    int rc = kv_tree_insert(w->tree, &s->node, s->ids + s->in_tree * B, fresh_n, blocks, &st);
    mem_fail_after(0);
    if (rc) {
        assert_int_equal(rc, ST_NOMEM);
        assert_ptr_equal(s->node, was);
        w->made_out_of_memory++;
        return;
    }
    map_insert(w, s, fresh);
    for (int slot = 0; slot < SLOTS; slot++)
        for (int k = s->in_tree; k < s->n; k++) {
            block_id own = s->table[slot][k], got = fresh[slot][k - s->in_tree];
            if (own == got || own == BLOCK_NONE) continue;
            hold(w, slot, got);
            release(w, slot, own, false);
            s->table[slot][k] = got;
        }
    s->in_tree = s->n;
    assert_int_equal(kv_node_blocks(s->node), s->n);
}

/* New blocks; one that finds no memory stops there. */
static void grow(world *w, sequence *s)
{
    for (int more = 1 + (int)draw(w, 3); more && s->n < MAX_BLOCKS; more--) {
        block_id a = take(w, 0), b = a == BLOCK_NONE ? BLOCK_NONE : take(w, 1);
        if (b == BLOCK_NONE) {
            if (a != BLOCK_NONE) pool_unref(w->pools[0], a);
            return;
        }
        for (int i = 0; i < B; i++)
            if (draw(w, 4) == 0) s->ids[s->n * B + i] = (int32_t)draw(w, 2) * 5 - 3;
        s->table[0][s->n] = a;
        s->table[1][s->n++] = b;
    }
}

static void move_window(world *w, sequence *s)
{
    for (int k = 0; k < s->n && (k + 1) * B - 1 <= s->n * B - w->window; k++) {
        if (s->table[1][k] == BLOCK_NONE) continue;
        release(w, 1, s->table[1][k], true);
        s->table[1][k] = BLOCK_NONE;
    }
}

static void fork_off(world *w, const sequence *s, sequence *to)
{
    int n = (int)draw(w, (uint32_t)s->n + 1);
    *to = *s;
    to->n = n;
    to->node = kv_tree_lock_prefix(w->tree, s->node, n);
    to->in_tree = (int)kv_node_blocks(to->node);
    assert_in_range(to->in_tree, 0, n);
    assert_true(n < s->in_tree || to->in_tree == s->in_tree);
    for (int slot = 0; slot < SLOTS; slot++)
        for (int k = 0; k < n; k++)
            if (to->table[slot][k] != BLOCK_NONE) hold(w, slot, to->table[slot][k]);
    if (to->in_tree) find(w, to->salt, to->ids, to->in_tree)->locks++;
}

static void check_blocks(world *w, const sequence *s)
{
    block_id got[MAX_BLOCKS];
    int first = (int)draw(w, (uint32_t)s->in_tree + 1), n = (int)draw(w, (uint32_t)(s->in_tree - first) + 1);
    for (int slot = 0; slot < SLOTS; slot++) {
        kv_tree_blocks(w->tree, s->node, slot, first, n, got);
        for (int k = 0; k < n; k++) assert_int_equal(got[k], find(w, s->salt, s->ids, first + k + 1)->blocks[slot]);
    }
}

static void operate(world *w)
{
    sequence *s = &w->seqs[draw(w, SEQS)], *other = &w->seqs[draw(w, SEQS)];
    if (draw(w, 10) == 0) {
        evict(w, (int)draw(w, SLOTS));
    } else if (!s->live) {
        if (other->live && draw(w, 3) == 0) fork_off(w, other, s);
        else start(w, s);
    } else {
        switch (draw(w, 12)) {
        case 0:
        case 1:
        case 2:
        case 3: grow(w, s); break;
        case 4:
        case 5:
        case 6:
        case 7: insert(w, s); break;
        case 8: move_window(w, s); break;
        case 9: check_blocks(w, s); break;
        default: end(w, s);
        }
    }
    int32_t ids[MAX_IDS];
    uint64_t salt;
    int n = draw_prompt(w, ids, &salt);
    check_match(w, salt, ids, n);
}

static void run(const evict_policy *policy, int n, uint32_t seed, int *n_taken, int *n_absorbed)
{
    static world w;
    uint64_t live = mem_stats().live;
    status st = STATUS_INIT;
    memset(&w, 0, sizeof w);
    w.random = seed;
    w.policy = policy;
    w.window = B + 1 + (int)(seed % B); /* of all remainders */
    kv_tree_slot slots[SLOTS];
    for (int i = 0; i < SLOTS; i++) {
        assert_int_equal(pool_new(&w.pools[i], 64, pool_blocks[i], &st), ST_OK);
        slots[i] = (kv_tree_slot){w.pools[i], i ? w.window : 0};
    }
    kv_tree_config c = {.block_tokens = B, .slots = slots, .n_slots = SLOTS, .policy = policy};
    assert_int_equal(kv_tree_new(&w.tree, &c, &st), ST_OK);
    for (int i = 0; i < n; i++) {
        operate(&w);
        check_all(&w);
    }
    assert_true(w.made_out_of_memory > n / 300);
    assert_true(w.n_tails > n / 100);
    *n_taken += w.n_taken;
    *n_absorbed += (int)kv_tree_count(w.tree).absorbed - w.n_taken;
    assert_true(kv_tree_count(w.tree).evicted > (uint64_t)n / 8);
    assert_true(kv_tree_count(w.tree).evicted_behind > (uint64_t)n / 50);
    for (int i = 0; i < SEQS; i++)
        if (w.seqs[i].live) end(&w, &w.seqs[i]);
    check_all(&w);
    kv_tree_free(w.tree);
    for (int i = 0; i < SLOTS; i++) {
        assert_int_equal(pool_count(w.pools[i]).free, pool_blocks[i]);
        pool_free(w.pools[i]);
    }
    assert_int_equal(mem_stats().live, live);
}

static void test_random_operations(void **state)
{
    (void)state;
    const evict_policy *p;
    int n = getenv("TEST_FULL") ? 1000000 : 48000, n_policies = 0, n_taken = 0, n_absorbed = 0;
    while (evict_policy_at(n_policies)) n_policies++;
    for (int i = 0; (p = evict_policy_at(i % n_policies)) != NULL && i < 4 * n_policies; i++)
        run(p, n / n_policies / 4, 1 + (uint32_t)i, &n_taken, &n_absorbed);
    assert_true(n_taken > n / 1000 && n_absorbed > n / 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_operations)};
    return cmocka_run_group_tests_name("tree_random", tests, NULL, NULL);
}
