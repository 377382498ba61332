/* sim.h - replaying a trace through the cache's tree and policies, without a model.
 *
 * Each request in turn: what the cache has of its blocks is a hit; then all of them are in the cache, as far as they
 * fit at once, others having been evicted for them.
 *
 *   tree        a hit is a block of the longest prefix in the tree; what is matched is locked while room is made
 *   flat        one list of blocks without a tree, as a comparison: every block is looked up by itself, in order
 */
#ifndef KVASIR_BENCH_SIM_H
#define KVASIR_BENCH_SIM_H

#include "bench/trace.h"
#include "cache/evict.h"

#define SIM_FLAT_LRU "flat-lru"

typedef struct sim_result {
    const char *policy;
    uint64_t capacity; /* blocks; 0 = no end */
    uint64_t requests, blocks, hits, evicted;
    double seconds;
} sim_result;

int sim_tree(sim_result *out, const trace *t, const evict_policy *policy, uint64_t capacity, status *st);
int sim_flat_lru(sim_result *out, const trace *t, uint64_t capacity, status *st);

#endif
