#include "cache/usage.h"

#include "cache/cache_impl.h"

/* Rows of the sequence's own blocks that no query at index >= len sees. */
static uint64_t behind(const kv_seq *s, int group)
{
    const seq_group *sg = &s->groups[group];
    int64_t b = s->cache->block_tokens, seen = kv_first_seen(s->cache, group, s->len);
    uint64_t n = 0;
    for (int64_t i = sg->first; i < sg->n && i * b < seen; i++)
        if (kv_owned_alone(s->cache, group, &sg->table[i], 1)) n += (uint64_t)(seen < i * b + b ? seen - i * b : b);
    return n;
}

kv_usage kv_cache_usage(const kv_cache *c, int group)
{
    const pool *p = kv_cache_pool(c, group);
    kv_usage u = {.blocks = pool_count(p), .block_bytes = pool_block_bytes(p)};
    int64_t b = c->block_tokens;
    for (const kv_seq *s = c->seqs; s; s = s->next) {
        u.rows_behind += behind(s, group);
        u.rows_unused += (uint64_t)(s->groups[group].n * b - s->len);
        u.rows_unused += (uint64_t)(s->groups[group].n_draft_blocks * b - s->n_drafts);
    }
    u.rows_used = (uint64_t)u.blocks.in_use * (uint64_t)b - u.rows_behind - u.rows_unused;
    return u;
}
