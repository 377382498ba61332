#include <assert.h>

#include "cache/cache_impl.h"

void kv_hold(kv_cache *c, int group, block_id id)
{
    pool *p = c->groups[group].pool;
    bool rested = pool_state(p, id) == BLOCK_CACHED;
    pool_ref(p, id);
    if (rested && c->groups[group].group.layout.window) kv_tree_wake(c->tree, group, id);
}

void kv_release(kv_cache *c, int group, block_id *ids, uint32_t n, bool behind)
{
    pool *p = c->groups[group].pool;
    for (uint32_t i = 0; i < n; i++) {
        pool_unref(p, ids[i]);
        if (pool_state(p, ids[i]) == BLOCK_CACHED && c->groups[group].group.layout.window)
            kv_tree_rest(c->tree, group, ids[i], behind);
        ids[i] = BLOCK_NONE;
    }
}

void kv_take(kv_cache *c, int group, block_id *ids, uint32_t n)
{
    pool *p = c->groups[group].pool;
    while (pool_count(p).free < n) {
        bool evicted = kv_tree_evict(c->tree, group);
        assert(evicted);
        (void)evicted;
    }
    for (uint32_t i = 0; i < n; i++) ids[i] = pool_take(p);
}

uint32_t kv_owned_alone(const kv_cache *c, int group, const block_id *ids, uint32_t n)
{
    const pool *p = c->groups[group].pool;
    uint32_t alone = 0;
    for (uint32_t i = 0; i < n; i++) alone += pool_refs(p, ids[i]) == 1 && pool_state(p, ids[i]) == BLOCK_IN_USE;
    return alone;
}

int kv_no_blocks(const kv_cache *c, int group, uint32_t needed, status *st)
{
    return status_set(st, ST_LIMIT, STATUS_NO_POS,
                      "the KV cache is full: %u blocks of %d tokens are needed and %u of %u can be had; wait "
                      "until other requests are over, or give the cache more memory (--kv-memory)",
                      needed, c->block_tokens, kv_cache_available(c, group),
                      pool_count(c->groups[group].pool).total);
}
