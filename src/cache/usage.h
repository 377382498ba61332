/* usage.h - what a pool's blocks hold: rows that sequences see, and room that nobody uses.
 *
 *      window 20, B = 16, 45 rows:   [dropped][16..31: 26..31 seen][32..44: 13 of 16 rows]    the query at 45 sees 26..
 *                                              10 rows behind                3 rows unused
 *
 * rows_used + rows_behind + rows_unused = in_use * B. A block that several sequences hold is counted once, and is used
 * as a whole: one that is behind the window of one is in front of another's.
 * Threads: as cache.h.
 */
#ifndef KVASIR_CACHE_USAGE_H
#define KVASIR_CACHE_USAGE_H

#include "cache/cache.h"

typedef struct kv_usage {
    pool_counts blocks;
    uint64_t block_bytes;
    uint64_t rows_used;
    uint64_t rows_behind; /* a window has moved on, the next append releases their block or the one after */
    uint64_t rows_unused; /* of tails and drafts */
} kv_usage;

/* Walks the sequences, not their blocks. */
kv_usage kv_cache_usage(const kv_cache *c, int group);

#endif
