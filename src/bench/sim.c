#include "bench/sim.h"

#include "base/clock.h"
#include "base/mem.h"
#include "cache/tree.h"

/* How many of n more blocks have room, when what is not locked is evicted for them. */
static uint64_t make_room(kv_tree *tree, uint64_t capacity, uint64_t n)
{
    uint64_t used;
    if (capacity == 0) return n;
    while ((used = kv_tree_count(tree).blocks) + n > capacity && kv_tree_evict_leaf(tree)) {}
    return used >= capacity ? 0 : used + n > capacity ? capacity - used : n;
}

/* A block of the trace is a token here, and a block of one token. */
static int replay(sim_result *out, kv_tree *tree, const trace *t, const trace_request *r, status *st)
{
    kv_node *node;
    const int32_t *ids = t->blocks + r->first;
    kv_match m = kv_tree_match(tree, r->salt, ids, r->n);
    if (kv_tree_lock(tree, r->salt, &m, 0, &node, st)) return st->code;
    uint64_t n = make_room(tree, out->capacity, r->n - (uint64_t)m.n_blocks);
    int rc = kv_tree_insert(tree, &node, ids + m.n_blocks, (int64_t)n, NULL, st);
    kv_tree_unlock(tree, node);
    out->hits += (uint64_t)m.n_blocks;
    return rc;
}

int sim_tree(sim_result *out, const trace *t, const evict_policy *policy, uint64_t capacity, status *st)
{
    kv_tree *tree;
    sim_result r = {policy->name, capacity, t->n_requests, t->n_blocks, 0, 0, 0};
    if (kv_tree_new(&tree, &(kv_tree_config){.block_tokens = 1, .policy = policy}, st)) return st->code;
    double begin = clock_seconds();
    int rc = ST_OK;
    for (size_t i = 0; rc == ST_OK && i < t->n_requests; i++) rc = replay(&r, tree, t, &t->requests[i], st);
    r.seconds = clock_seconds() - begin;
    r.evicted = kv_tree_count(tree).evicted;
    kv_tree_free(tree);
    if (rc == ST_OK) *out = r;
    return rc;
}

/* A ring through the blocks that are cached; the last entry is its seam: next of it was used last. */
typedef struct ring_entry {
    uint32_t prev, next;
} ring_entry;

#define OUTSIDE UINT32_MAX

static void leave(ring_entry *ring, uint32_t i)
{
    ring[ring[i].prev].next = ring[i].next;
    ring[ring[i].next].prev = ring[i].prev;
    ring[i].next = OUTSIDE;
}

int sim_flat_lru(sim_result *out, const trace *t, uint64_t capacity, status *st)
{
    uint32_t seam = t->n_distinct;
    ring_entry *ring = mem_array((size_t)seam + 1, sizeof *ring);
    if (!ring) return status_nomem(st, ((uint64_t)seam + 1) * sizeof *ring);
    for (uint32_t i = 0; i < seam; i++) ring[i].next = OUTSIDE;
    ring[seam] = (ring_entry){seam, seam};
    sim_result r = {SIM_FLAT_LRU, capacity, t->n_requests, t->n_blocks, 0, 0, 0};
    double begin = clock_seconds();
    uint64_t cached = 0;
    for (size_t k = 0; k < t->n_requests; k++) {
        for (uint32_t j = 0; j < t->requests[k].n; j++) {
            uint32_t i = (uint32_t)t->blocks[t->requests[k].first + j];
            if (ring[i].next != OUTSIDE) {
                r.hits++;
                leave(ring, i);
            } else if (cached == capacity && capacity) {
                leave(ring, ring[seam].prev);
                r.evicted++;
            } else {
                cached++;
            }
            ring[i] = (ring_entry){seam, ring[seam].next};
            ring[ring[seam].next].prev = i;
            ring[seam].next = i;
        }
    }
    r.seconds = clock_seconds() - begin;
    mem_free(ring);
    *out = r;
    return ST_OK;
}
