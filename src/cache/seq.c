#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "cache/cache_impl.h"

static uint32_t blocks_for(const kv_seq *s, int64_t n_rows)
{
    int64_t b = s->cache->block_tokens;
    return (uint32_t)((n_rows + b - 1) / b);
}

int64_t kv_first_seen(const kv_cache *c, int group, int64_t len)
{
    int window = c->groups[group].group.layout.window;
    return window && len >= window ? len - window + 1 : 0;
}

static pool *pool_of(const kv_seq *s, int group)
{
    return s->cache->groups[group].pool;
}

void kv_copy_rows(kv_cache *c, int group, kv_place to, kv_place from, int n)
{
    cache_group *g = &c->groups[group];
    const kv_layout *l = &g->group.layout;
    assert(c->format->exact);
    for (int layer = 0; layer < g->group.n_layers; layer++)
        for (int head = 0; head < l->n_kv_heads; head++) {
            size_t k = kv_k_offset(c, group, layer, head), v = kv_v_offset(c, group, layer, head);
            c->format->copy_k(to.block + k, to.row, from.block + k, from.row, n, c->block_tokens, l->d_k);
            c->format->copy_v(to.block + v, to.row, from.block + v, from.row, n, c->block_tokens, l->d_v);
        }
    g->copied_rows += (uint64_t)n;
}

int kv_seq_new(kv_seq **out, kv_cache *c, status *st)
{
    size_t b = (size_t)c->block_tokens;
    size_t n_table = (c->capacity_tokens + b - 1) / b, n_drafts = ((size_t)c->step_tokens + b - 1) / b;
    size_t n_ids = (n_table + n_drafts) * (size_t)c->n_groups;
    size_t n_bytes = sizeof(kv_seq) + n_ids * sizeof(block_id) + (size_t)c->step_tokens * sizeof(int);
    kv_seq *s = mem_alloc(n_bytes);
    if (!s) return status_nomem(st, n_bytes);
    *s = (kv_seq){.cache = c, .next = c->seqs, .link = &c->seqs, .parents = (int *)(s->ids + n_ids)};
    for (size_t i = 0; i < n_ids; i++) s->ids[i] = BLOCK_NONE;
    block_id *next = s->ids;
    for (int g = 0; g < c->n_groups; g++, next += n_table + n_drafts)
        s->groups[g] = (seq_group){.table = next, .drafts = next + n_table};
    if (s->next) s->next->link = &s->next;
    c->seqs = s;
    *out = s;
    return ST_OK;
}

void kv_seq_free(kv_seq *s)
{
    if (!s) return;
    kv_seq_rollback(s);
    for (int g = 0; g < s->cache->n_groups; g++) {
        seq_group *sg = &s->groups[g];
        kv_release(s->cache, g, sg->table + sg->first, sg->n - sg->first, false);
    }
    kv_seq_leave_tree(s);
    *s->link = s->next;
    if (s->next) s->next->link = s->link;
    mem_free(s);
}

int64_t kv_seq_len(const kv_seq *s)
{
    return s->len;
}

int kv_seq_n_drafts(const kv_seq *s)
{
    return s->n_drafts;
}

/* Blocks at the front of the group's table that an append drops: no query at index >= len sees them. */
static uint32_t n_behind(const kv_seq *s, int group)
{
    uint32_t first = s->groups[group].first;
    uint32_t kept = (uint32_t)(kv_first_seen(s->cache, group, s->len) / s->cache->block_tokens);
    return kept > first ? kept - first : 0;
}

uint32_t kv_seq_append_needs(const kv_seq *s, int group, int n)
{
    const seq_group *sg = &s->groups[group];
    uint32_t more = blocks_for(s, s->len + n) - sg->n;
    uint32_t back = kv_owned_alone(s->cache, group, sg->table + sg->first, n_behind(s, group));
    return more > back ? more - back : 0;
}

uint64_t kv_seq_needs(const kv_seq *s, int group, int64_t n_tokens)
{
    uint64_t most = kv_cache_blocks(s->cache, group, n_tokens), held = s->groups[group].n - s->groups[group].first;
    return most > held ? most - held : 0;
}

uint32_t kv_seq_releases(const kv_seq *s, int group)
{
    const seq_group *sg = &s->groups[group];
    return kv_owned_alone(s->cache, group, sg->table + sg->first, sg->n - sg->first) + sg->n_draft_blocks;
}

static int append(kv_seq *s, int n, status *st)
{
    assert(n >= 0 && n <= s->cache->step_tokens);
    if ((uint64_t)s->len + (uint64_t)n > s->cache->capacity_tokens)
        return status_set(st, ST_LIMIT, STATUS_NO_POS,
                          "%lld tokens and %d more pass the longest sequence of this KV cache, %llu tokens",
                          (long long)s->len, n, (unsigned long long)s->cache->capacity_tokens);
    for (int g = 0; g < s->cache->n_groups; g++) {
        uint32_t needed = kv_seq_append_needs(s, g, n);
        if (needed > kv_cache_available(s->cache, g)) return kv_no_blocks(s->cache, g, needed, st);
    }
    for (int g = 0; g < s->cache->n_groups; g++) {
        seq_group *sg = &s->groups[g];
        uint32_t behind = n_behind(s, g), end = blocks_for(s, s->len + n);
        kv_release(s->cache, g, sg->table + sg->first, behind, true);
        sg->first += behind;
        kv_take(s->cache, g, sg->table + sg->n, end - sg->n);
        sg->n = end;
    }
    s->len += n;
    return ST_OK;
}

int kv_seq_append(kv_seq *s, int n, status *st)
{
    assert(s->n_drafts == 0);
    return append(s, n, st);
}

/* Whether the first n rows can stand alone: no window group has dropped a row that index n would see. */
int kv_check_cut(const kv_seq *s, int64_t n, status *st)
{
    if (n < 0 || n > s->len)
        return status_set(st, ST_ARG, STATUS_NO_POS, "%lld is no length that a sequence of %lld tokens can be cut to",
                          (long long)n, (long long)s->len);
    for (int g = 0; n && g < s->cache->n_groups; g++) {
        int64_t held = (int64_t)s->groups[g].first * s->cache->block_tokens;
        if (kv_first_seen(s->cache, g, n) < held)
            return status_set(st, ST_ARG, STATUS_NO_POS,
                              "a sequence of %lld tokens can't be cut to %lld: its sliding window of %d tokens has "
                              "moved on to token %lld",
                              (long long)s->len, (long long)n, s->cache->groups[g].group.layout.window,
                              (long long)held);
    }
    return ST_OK;
}

/* Cutting to n rows leaves a tail that others or the tree have too: this sequence needs its own copy. */
static bool cuts_shared(const kv_seq *s, int group, int64_t n)
{
    int64_t b = s->cache->block_tokens;
    if (n % b == 0) return false;
    block_id id = s->groups[group].table[n / b];
    return pool_refs(pool_of(s, group), id) > 1 || pool_kept(pool_of(s, group), id);
}

int kv_seq_truncate(kv_seq *s, int64_t n, status *st)
{
    assert(s->n_drafts == 0);
    if (kv_check_cut(s, n, st)) return st->code;
    uint32_t end = blocks_for(s, n);
    for (int g = 0; g < s->cache->n_groups; g++) {
        const seq_group *sg = &s->groups[g];
        if (cuts_shared(s, g, n) && !kv_cache_available(s->cache, g) &&
            !kv_owned_alone(s->cache, g, sg->table + end, sg->n - end))
            return kv_no_blocks(s->cache, g, 1, st);
    }
    kv_seq_unshare(s, n / s->cache->block_tokens);
    for (int g = 0; g < s->cache->n_groups; g++) {
        seq_group *sg = &s->groups[g];
        pool *p = pool_of(s, g);
        uint32_t kept = end > sg->first ? end : sg->first; /* a window's rows lie above end when all are cut */
        kv_release(s->cache, g, sg->table + kept, sg->n - kept, false);
        sg->n = end;
        if (end == 0) sg->first = 0;
        if (!cuts_shared(s, g, n)) continue;
        block_id own, shared = sg->table[end - 1];
        kv_take(s->cache, g, &own, 1);
        kv_copy_rows(s->cache, g, (kv_place){pool_block(p, own), 0}, (kv_place){pool_block(p, shared), 0},
                  (int)(n % s->cache->block_tokens));
        kv_release(s->cache, g, &shared, 1, false);
        sg->table[end - 1] = own;
    }
    s->len = n;
    return ST_OK;
}

int kv_seq_draft(kv_seq *s, int n, const int *parents, status *st)
{
    assert(n >= 0);
    if (n > s->cache->step_tokens - s->n_drafts)
        return status_set(st, ST_LIMIT, STATUS_NO_POS,
                          "%d drafts and %d more pass the most that a sequence may have, %d", s->n_drafts, n,
                          s->cache->step_tokens);
    uint32_t end = blocks_for(s, s->n_drafts + n);
    for (int g = 0; g < s->cache->n_groups; g++) {
        uint32_t needed = end - s->groups[g].n_draft_blocks;
        if (needed > kv_cache_available(s->cache, g)) return kv_no_blocks(s->cache, g, needed, st);
    }
    for (int g = 0; g < s->cache->n_groups; g++) {
        seq_group *sg = &s->groups[g];
        kv_take(s->cache, g, sg->drafts + sg->n_draft_blocks, end - sg->n_draft_blocks);
        sg->n_draft_blocks = end;
    }
    for (int i = 0; i < n; i++, s->n_drafts++) {
        int parent = parents ? parents[i] : s->n_drafts - 1;
        assert(parent >= -1 && parent < s->n_drafts);
        s->parents[s->n_drafts] = parent;
    }
    return ST_OK;
}

int kv_seq_draft_parent(const kv_seq *s, int slot)
{
    assert(slot >= 0 && slot < s->n_drafts);
    return s->parents[slot];
}

void kv_seq_rollback(kv_seq *s)
{
    for (int g = 0; g < s->cache->n_groups; g++) {
        seq_group *sg = &s->groups[g];
        kv_release(s->cache, g, sg->drafts, sg->n_draft_blocks, false);
        sg->n_draft_blocks = 0;
    }
    s->n_drafts = 0;
}

/* How many slots from slots[0] on are neighbours that move together: from one draft block into one tail block. */
static int neighbours(const int *slots, int n, int64_t index, int block_tokens)
{
    int run = 1;
    while (run < n && slots[run] == slots[0] + run && slots[run] % block_tokens && (index + run) % block_tokens) run++;
    return run;
}

int kv_seq_commit(kv_seq *s, const int *slots, int n, status *st)
{
    int64_t len = s->len;
    for (int i = 0; i < n; i++) assert(slots[i] >= 0 && slots[i] < s->n_drafts);
    if (append(s, n, st)) return st->code;
    for (int g = 0; g < s->cache->n_groups; g++)
        for (int i = 0, run; i < n; i += run) {
            run = neighbours(slots + i, n - i, len + i, s->cache->block_tokens);
            kv_copy_rows(s->cache, g, kv_seq_place(s, g, len + i), kv_seq_draft_place(s, g, slots[i]), run);
        }
    kv_seq_rollback(s);
    return ST_OK;
}

kv_place kv_seq_place(const kv_seq *s, int group, int64_t index)
{
    int64_t b = s->cache->block_tokens;
    assert(index >= (int64_t)s->groups[group].first * b && index < s->len);
    return (kv_place){pool_block(pool_of(s, group), s->groups[group].table[index / b]), (int)(index % b)};
}

kv_place kv_seq_draft_place(const kv_seq *s, int group, int slot)
{
    int b = s->cache->block_tokens;
    assert(slot >= 0 && slot < s->n_drafts);
    return (kv_place){pool_block(pool_of(s, group), s->groups[group].drafts[slot / b]), slot % b};
}

/* Spans of blocks [first, n) of ids, whose rows begin at `base` and end before `end`. */
static int add_spans(const kv_seq *s, const block_id *ids, uint32_t first, uint32_t n, int64_t base,
                     int64_t end, attn_span *out, int n_out, int max)
{
    int64_t b = s->cache->block_tokens;
    for (uint32_t i = first; i < n; i++, n_out++) {
        int64_t index = base + i * b, left = end - index;
        if (n_out < max)
            out[n_out] = (attn_span){.block = ids[i],
                                     .kind = ATTN_EXACT,
                                     .n = (int32_t)(left < b ? left : b),
                                     .index = index};
    }
    return n_out;
}

int kv_seq_spans(const kv_seq *s, int group, attn_span *out, int max)
{
    const seq_group *sg = &s->groups[group];
    int n = add_spans(s, sg->table, sg->first, sg->n, 0, s->len, out, 0, max);
    return add_spans(s, sg->drafts, 0, sg->n_draft_blocks, s->len, s->len + s->n_drafts, out, n, max);
}

static bool any_in_flight(const pool *p, const block_id *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (pool_state(p, ids[i]) == BLOCK_IN_FLIGHT) return true;
    return false;
}

bool kv_seq_ready(const kv_seq *s)
{
    for (int g = 0; g < s->cache->n_groups; g++) {
        const seq_group *sg = &s->groups[g];
        const pool *p = pool_of(s, g);
        if (pool_count(p).in_flight == 0) continue;
        if (any_in_flight(p, sg->table + sg->first, sg->n - sg->first) ||
            any_in_flight(p, sg->drafts, sg->n_draft_blocks))
            return false;
    }
    return true;
}

/* Counts ids[0..n) as held; false when one of them can't be. */
static bool count_held(const pool *p, const block_id *ids, uint32_t n, uint32_t *refs)
{
    for (uint32_t i = 0; i < n; i++) {
        if (ids[i] >= pool_count(p).total) return false;
        refs[ids[i]]++;
    }
    return true;
}

int kv_seq_audit(const kv_seq *s, int group, uint32_t *refs, status *st)
{
    const seq_group *sg = &s->groups[group];
    const pool *p = pool_of(s, group);
    if (sg->n != blocks_for(s, s->len) || sg->n_draft_blocks != blocks_for(s, s->n_drafts) || sg->first > sg->n)
        return status_set(st, ST_FORMAT, STATUS_NO_POS,
                          "a sequence of %lld tokens and %d drafts holds blocks [%u, %u) and %u", (long long)s->len,
                          s->n_drafts, sg->first, sg->n, sg->n_draft_blocks);
    if ((int64_t)sg->first * s->cache->block_tokens > kv_first_seen(s->cache, group, s->len))
        return status_set(st, ST_FORMAT, STATUS_NO_POS,
                          "a sequence of %lld tokens has dropped block %u, which its window still sees",
                          (long long)s->len, sg->first - 1);
    if (!count_held(p, sg->table + sg->first, sg->n - sg->first, refs) ||
        !count_held(p, sg->drafts, sg->n_draft_blocks, refs))
        return status_set(st, ST_FORMAT, STATUS_NO_POS,
                          "a sequence of %lld tokens holds a block that is not of this pool", (long long)s->len);
    if (s->n_shared > s->len / s->cache->block_tokens || (s->node && kv_node_blocks(s->node) != s->n_shared))
        return status_set(st, ST_FORMAT, STATUS_NO_POS, "a sequence of %lld tokens shares %lld blocks with the tree",
                          (long long)s->len, (long long)s->n_shared);
    block_id tail = s->len % s->cache->block_tokens ? sg->table[sg->n - 1] : BLOCK_NONE;
    if (tail != BLOCK_NONE && (pool_refs(p, tail) != 1 || pool_kept(p, tail)))
        return status_set(st, ST_FORMAT, STATUS_NO_POS,
                          "block %u is the tail of a sequence and has %u holders, or is in the tree", tail,
                          pool_refs(p, tail));
    return ST_OK;
}
