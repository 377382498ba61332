#include <assert.h>

#include "cache/cache_impl.h"

#define SHARE_AT_ONCE 64 /* blocks: a step's chunk makes 32 of the default size */

static void unlock(kv_seq *s)
{
    kv_tree_prioritize(s->cache->tree, s->node, s->priority); /* what the sequence added itself */
    kv_tree_unlock(s->cache->tree, s->node);
}

void kv_seq_leave_tree(kv_seq *s)
{
    if (s->node) unlock(s);
    s->node = NULL;
    s->n_shared = 0;
}

void kv_seq_unshare(kv_seq *s, int64_t n_blocks)
{
    if (!s->node || n_blocks >= s->n_shared) return;
    kv_node *upper = kv_tree_lock_prefix(s->cache->tree, s->node, n_blocks);
    unlock(s);
    s->node = upper;
    s->n_shared = kv_node_blocks(upper);
}

/* The group's blocks of the first n rows, as far as a query at index n sees them: those of the tree's path. */
static void hold_path(kv_seq *s, int group, int64_t n_blocks, int64_t n)
{
    seq_group *sg = &s->groups[group];
    sg->first = (uint32_t)(kv_first_seen(s->cache, group, n) / s->cache->block_tokens);
    sg->n = (uint32_t)n_blocks;
    if (sg->first > sg->n) sg->first = sg->n;
    kv_tree_blocks(s->cache->tree, s->node, group, sg->first, sg->n - sg->first, sg->table + sg->first);
    for (uint32_t i = sg->first; i < sg->n; i++) kv_hold(s->cache, group, sg->table[i]);
}

/* The first rows of a block that somebody holds, into a new tail. */
static void copy_tail(kv_seq *s, int group, block_id source, int rows)
{
    seq_group *sg = &s->groups[group];
    pool *p = s->cache->groups[group].pool;
    kv_take(s->cache, group, &sg->table[sg->n], 1);
    kv_copy_rows(s->cache, group, (kv_place){pool_block(p, sg->table[sg->n]), 0},
                 (kv_place){pool_block(p, source), 0}, rows);
    sg->n++;
}

/* The matching rows of the block after the full ones: copied where there is room; else a tail that nobody holds is
 * taken out of the tree. The sources of all groups are held meanwhile: making room in one may evict the node of them
 * all. */
static bool take_matched_rows(kv_seq *s, const kv_match *m)
{
    kv_cache *c = s->cache;
    block_id sources[KV_MAX_GROUPS];
    bool room = true;
    for (int g = 0; g < c->n_groups; g++) {
        kv_tree_blocks(c->tree, m->next, g, m->n_blocks, 1, &sources[g]);
        kv_hold(c, g, sources[g]);
        room &= kv_cache_available(c, g) > 0;
    }
    if (!room && kv_tree_take_tail(c->tree, m->next)) {
        for (int g = 0; g < c->n_groups; g++) s->groups[g].table[s->groups[g].n++] = sources[g];
    } else {
        for (int g = 0; room && g < c->n_groups; g++) copy_tail(s, g, sources[g], m->rows);
        for (int g = 0; g < c->n_groups; g++) kv_release(c, g, &sources[g], 1, false);
        if (!room) return false;
    }
    s->len += m->rows;
    return true;
}

/* Without the rows after its full blocks a sequence sees further back; false when the tree lacks a block there. */
static bool hold_further_back(kv_seq *s)
{
    for (int g = 0; g < s->cache->n_groups; g++) {
        seq_group *sg = &s->groups[g];
        int64_t seen = kv_first_seen(s->cache, g, s->len) / s->cache->block_tokens;
        for (block_id id; sg->first > seen; sg->table[--sg->first] = id) {
            kv_tree_blocks(s->cache->tree, s->node, g, sg->first - 1, 1, &id);
            if (id == BLOCK_NONE) return false;
            kv_hold(s->cache, g, id);
        }
    }
    return true;
}

int64_t kv_seq_match(kv_seq *s, uint64_t salt, const int32_t *ids, int64_t n, int priority)
{
    kv_cache *c = s->cache;
    assert(s->len == 0 && s->n_drafts == 0);
    kv_seq_leave_tree(s);
    s->salt = salt;
    s->priority = priority;
    if (!c->tree) return 0;
    kv_match m = kv_tree_match(c->tree, salt, ids, n);
    status ignored = STATUS_INIT; /* without memory for a node the sequence goes by itself */
    if (kv_tree_lock(c->tree, salt, &m, priority, &s->node, &ignored)) return 0;
    s->n_shared = m.n_blocks;
    s->len = m.n_blocks * c->block_tokens;
    for (int g = 0; g < c->n_groups; g++) hold_path(s, g, m.n_blocks, s->len + m.rows);
    if (m.rows && !take_matched_rows(s, &m) && !hold_further_back(s)) kv_seq_truncate(s, 0, &ignored);
    return s->len;
}

/* Of the blocks that hold_path would hold: how many somebody holds already. */
static uint32_t count_in_use(const kv_cache *c, int group, const kv_match *m)
{
    block_id ids[SHARE_AT_ONCE];
    uint32_t sum = 0;
    int64_t first = kv_first_seen(c, group, m->n_blocks * c->block_tokens + m->rows) / c->block_tokens, n;
    for (; first < m->n_blocks; first += n) {
        n = m->n_blocks - first < SHARE_AT_ONCE ? m->n_blocks - first : SHARE_AT_ONCE;
        kv_tree_blocks(c->tree, m->node, group, first, n, ids);
        for (int64_t i = 0; i < n; i++) sum += pool_refs(c->groups[group].pool, ids[i]) > 0;
    }
    return sum;
}

int64_t kv_cache_match(const kv_cache *c, uint64_t salt, const int32_t *ids, int64_t n, uint32_t *in_use)
{
    kv_match m = {0};
    if (c->tree) m = kv_tree_match(c->tree, salt, ids, n);
    for (int g = 0; in_use && g < c->n_groups; g++) in_use[g] = count_in_use(c, g, &m);
    return m.n_blocks * c->block_tokens + m.rows;
}

/* The tree's blocks take the place of the sequence's own where they differ: the same tokens, the same bytes. */
static void adopt(kv_seq *s, int group, int64_t first, int64_t n, const block_id *ids)
{
    seq_group *sg = &s->groups[group];
    for (int64_t i = 0; i < n; i++) {
        block_id *own = &sg->table[first + i];
        if (*own == BLOCK_NONE || ids[i] == *own) continue;
        kv_hold(s->cache, group, ids[i]);
        kv_release(s->cache, group, own, 1, false);
        *own = ids[i];
    }
}

void kv_seq_share(kv_seq *s, const int32_t *ids)
{
    kv_cache *c = s->cache;
    int64_t full = s->len / c->block_tokens;
    while (s->node && s->n_shared < full) {
        int64_t first = s->n_shared, n = full - first < SHARE_AT_ONCE ? full - first : SHARE_AT_ONCE;
        block_id copies[KV_MAX_GROUPS][SHARE_AT_ONCE], *blocks[KV_MAX_GROUPS];
        for (int g = 0; g < c->n_groups; g++) {
            blocks[g] = copies[g];
            for (int64_t i = 0; i < n; i++) copies[g][i] = s->groups[g].table[first + i];
        }
        status ignored = STATUS_INIT; /* without memory for a node the sequence goes on by itself */
        if (kv_tree_insert(c->tree, &s->node, ids + first * c->block_tokens, n, blocks, &ignored)) return;
        for (int g = 0; g < c->n_groups; g++) adopt(s, g, first, n, copies[g]);
        s->n_shared += n;
    }
}

void kv_seq_retire(kv_seq *s, const int32_t *ids)
{
    kv_cache *c = s->cache;
    int rows = (int)(s->len % c->block_tokens);
    status ignored = STATUS_INIT; /* without memory for a node the tail is lost; everything can always be cut off */
    kv_seq_rollback(s);
    kv_seq_share(s, ids);
    if (s->node && rows && c->format->exact && s->n_shared == s->len / c->block_tokens) {
        block_id tails[KV_MAX_GROUPS];
        for (int g = 0; g < c->n_groups; g++) tails[g] = s->groups[g].table[s->n_shared];
        kv_tree_insert_tail(c->tree, s->node, ids + s->len - rows, rows, tails, s->priority, &ignored);
    }
    kv_seq_truncate(s, 0, &ignored);
}

void kv_seq_lend(kv_seq *s)
{
    assert(s->len % s->cache->block_tokens == 0 && s->n_drafts == 0);
    for (int g = 0; g < s->cache->n_groups; g++)
        for (uint32_t i = s->groups[g].first; i < s->groups[g].n; i++) {
            block_id id = s->groups[g].table[i];
            kv_release(s->cache, g, &id, 1, false);
        }
}

void kv_seq_take_back(kv_seq *s)
{
    for (int g = 0; g < s->cache->n_groups; g++)
        for (uint32_t i = s->groups[g].first; i < s->groups[g].n; i++) kv_hold(s->cache, g, s->groups[g].table[i]);
}

int kv_seq_copy(kv_seq *to, const kv_seq *from, int64_t n, status *st)
{
    kv_cache *c = from->cache;
    int rest = (int)(n % c->block_tokens);
    assert(to->cache == c && to != from && to->len == 0 && to->n_drafts == 0);
    if (kv_check_cut(from, n, st)) return st->code;
    for (int g = 0; rest && g < c->n_groups; g++)
        if (kv_cache_available(c, g) == 0) return kv_no_blocks(c, g, 1, st);
    kv_seq_leave_tree(to);
    to->salt = from->salt;
    to->priority = from->priority;
    if (from->node) {
        to->node = kv_tree_lock_prefix(c->tree, from->node, n / c->block_tokens);
        to->n_shared = kv_node_blocks(to->node);
    }
    for (int g = 0; n && g < c->n_groups; g++) {
        const seq_group *source = &from->groups[g];
        seq_group *sg = &to->groups[g];
        uint32_t n_full = (uint32_t)(n / c->block_tokens);
        sg->first = source->first < n_full ? source->first : n_full;
        for (sg->n = sg->first; sg->n < n_full; sg->n++) {
            sg->table[sg->n] = source->table[sg->n];
            kv_hold(c, g, sg->table[sg->n]);
        }
        if (rest) copy_tail(to, g, source->table[n_full], rest);
    }
    to->len = n;
    return ST_OK;
}

int kv_seq_fork(kv_seq **out, const kv_seq *s, int64_t n, status *st)
{
    kv_seq *f;
    if (kv_seq_new(&f, s->cache, st)) return st->code;
    if (kv_seq_copy(f, s, n, st)) return kv_seq_free(f), st->code;
    *out = f;
    return ST_OK;
}
