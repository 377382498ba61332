#include "engine/usage.h"

#include "cache/usage.h"
#include "engine/engine_state.h"
#include "engine/schedule.h"
#include "engine/session.h"

/* Free blocks that running sessions may still come to need. */
static uint64_t reserved_blocks(const engine *e, int group, uint64_t n_free)
{
    uint64_t sum = 0;
    for (const session *s = e->sessions; e->reserve && s; s = s->next)
        if (s->running) sum += kv_seq_needs(s->seq, group, session_longest(s));
    return sum < n_free ? sum : n_free;
}

engine_usage engine_get_usage(const engine *e)
{
    engine_usage u = {0};
    uint64_t b = (uint64_t)kv_cache_block_tokens(e->cache);
    bool waits = schedule_lacks_blocks(e);
    for (int g = 0; g < kv_cache_n_groups(e->cache); g++) {
        kv_usage k = kv_cache_usage(e->cache, g);
        uint64_t reserved = reserved_blocks(e, g, k.blocks.free), left = k.blocks.free - reserved;
        u.total_bytes += k.blocks.total * k.block_bytes;
        uint64_t internal = (k.rows_behind + k.rows_unused) * k.block_bytes / b;
        u.used_bytes += k.blocks.in_use * k.block_bytes - internal;
        u.internal_bytes += internal;
        u.reserved_bytes += reserved * k.block_bytes;
        u.external_bytes += waits ? left * k.block_bytes : 0;
        u.free_bytes += waits ? 0 : left * k.block_bytes;
        u.cached_bytes += k.blocks.cached * k.block_bytes;
    }
    return u;
}
