/* tree.h - the radix tree: which prefixes the cache holds, and in which blocks.
 *
 * Owns: nodes, the runs of tokens and block ids in them, the order of eviction. Borrows: the slots' pools, whose blocks
 * it keeps (pool_keep) without holding references.
 *
 *      root of salt 0
 *       |-- [t0 .. t31 | b4 b9]  A              two full blocks of 16 tokens; one id a slot for each
 *       |     |-- [t32 .. t47 | b1]  B  locks 1    a sequence ends here: it, A and the root stay
 *       |     \-- [u32 .. u79 | b7 b2 b5]  C       an unlocked leaf: b5 is evicted before b2 and b7
 *       |           \-- (u80 .. u84 | b8)  E       a tail: 5 rows of b8, what a sequence left in its last block
 *       \-- [v0 .. v15 | b3]  D
 *
 *      a sequence that ends after ..  under C there is then
 *      u80 .. u82                     (u80 .. u84): nothing new
 *      u80 .. u90                     (u80 .. u90): the longer tail in E's place
 *      u80 u81 x82                    (u80 .. u84) and (u80 u81 x82)
 *      u80 .. u95, a full block       [u80 .. u95]: E is gone
 *
 * A slot is one (model, group): a tree may serve several, each with its own pool. A slot with a window needs, at a hit
 * of n tokens, only the blocks of rows > n - window; the others may be missing (BLOCK_NONE), and are the first to go.
 *
 * T1 A node's run is never empty (roots apart); no child of it begins with all that another's first block holds, so
 *    full blocks differ and a tail is where nothing longer is. Siblings are ordered by tokens, so that the one that
 *    shares most with a prompt is a neighbour of where the prompt would stand.
 * T2 Every block in the tree is kept in its slot's pool, and stands in one place of the tree.
 * T3 A locked node and all above it stay; without a lock and without children a node can be evicted, the last block of
 *    its run first.
 * T4 Keys: a full block's key = SHA-256(key of the block before it, its tokens); the first one's predecessor is
 *    SHA-256(seed, salt). A hit compares tokens; keys name blocks to tiers and peers (I4).
 * T5 match: O(matched tokens + nodes log siblings); insert the same; evict O(log nodes). Nothing else walks the tree
 *    but the audit and kv_tree_walk.
 * T6 Operations do all or nothing; only the inserts, lock and lock_prefix allocate.
 * T7 A tail is a leaf with one partial block (1 .. B - 1 rows), which every slot has. It is never locked nor a parent,
 *    has no key, and is evicted like any leaf, hence before what it follows. A match copies rows of it, as of any block
 *    that a prompt shares in part. Divergent ends have a tail each, a conversation that goes on has one at most.
 * Threads: one writer (the engine's step).
 */
#ifndef KVASIR_CACHE_TREE_H
#define KVASIR_CACHE_TREE_H

#include "cache/evict.h"
#include "cache/pool.h"

typedef struct kv_tree kv_tree;
typedef struct kv_node kv_node;

#define KV_TREE_SLOTS 16

typedef struct kv_tree_slot {
    pool *pool;
    int window; /* tokens; 0 = all */
} kv_tree_slot;

typedef struct kv_tree_config {
    int block_tokens; /* 1.. (1 in simulations, where an id stands for a block of a trace) */
    const kv_tree_slot *slots;
    int n_slots;                /* 0: a tree without blocks, to simulate */
    const evict_policy *policy; /* NULL = lru */
    const uint8_t *seed;        /* [32] everything but tokens and salt that changes a block's bytes; NULL = zeros */
    bool whole_blocks;          /* the format can't split rows: matches end at blocks */
} kv_tree_config;

int kv_tree_new(kv_tree **out, const kv_tree_config *c, status *st);
void kv_tree_free(kv_tree *t); /* drops every block; no node may be locked */

/* What a prompt finds. Valid until the tree changes. */
typedef struct kv_match {
    kv_node *node;    /* where the last full block of the match stands (a root when there is none) */
    int64_t n_blocks; /* full blocks that match */
    int rows;         /* rows of the next block, full or a tail, that match as well, to be copied; 0 = none */
    kv_node *next;    /* of that block, number n_blocks from the root, when rows > 0 */
} kv_match;

/* The longest prefix of ids [0, n) in the tree that every slot can serve; its rows are of the block that shares most,
 * if every slot has that one. A window may have what it sees from the end of the rows alone, and miss a block that it
 * would see from before them. Changes nothing. */
kv_match kv_tree_match(const kv_tree *t, uint64_t salt, const int32_t *ids, int64_t n);
/* Locks the match's full blocks (a node is split where they end inside one) and counts a use of the path, and of the
 * tail whose rows match. priority:
 * the highest of those given counts (policy "priority"). The root of the salt is made where it is missing.
 * ST_NOMEM: nothing is locked. */
int kv_tree_lock(kv_tree *t, uint64_t salt, const kv_match *m, int priority, kv_node **out, status *st);
void kv_tree_unlock(kv_tree *t, kv_node *n); /* a use ends: the path is the last used now */
/* What insert makes has no priority yet (it counts as 0): gives it to the path that ends at n, where it is higher. */
void kv_tree_prioritize(kv_tree *t, kv_node *n, int priority);
/* A second lock on the path, as far as n_blocks blocks (a node is split where they end inside one). Never fails: without
 * memory for a split it is on the node above. Returns the node; kv_node_blocks tells how far it reaches. */
kv_node *kv_tree_lock_prefix(kv_tree *t, kv_node *locked, int64_t n_blocks);
int64_t kv_node_blocks(const kv_node *n); /* from the root to the end of its run */

/* ids [n_blocks][block_tokens] and blocks[slot][n_blocks] follow the locked node, which is where a sequence ended so
 * far. Blocks that the tree has already stay the tree's: their ids replace those in blocks (the caller refs them and
 * unrefs its own); where a slot of the tree lacks one it takes the caller's. New ones are kept. BLOCK_NONE = the caller
 * has none. The lock moves to the new end, *node. blocks NULL when the tree has no slots. ST_NOMEM: nothing changed.
 * A run of the caller's alone grows in place; one that others used gets a child, whose hits are its own. */
int kv_tree_insert(kv_tree *t, kv_node **node, const int32_t *ids, int64_t n_blocks, block_id *const *blocks,
                   status *st);
/* rows (1 .. B - 1) tokens ids and blocks[slot], of which so many rows are written, follow the locked node, where a
 * sequence ends that lets go: a tail (T7), unless the tree has those rows. A shorter tail with the same beginning gives
 * way. ST_NOMEM: nothing changed. */
int kv_tree_insert_tail(kv_tree *t, kv_node *node, const int32_t *ids, int rows, const block_id *blocks, int priority,
                        status *st);
/* The tree gives up the tail whose rows match (kv_match.next), its blocks being held by the caller, whose own they are
 * from now on. False, and nothing changed, where rows are of a full block. */
bool kv_tree_take_tail(kv_tree *t, kv_node *next);
/* Block ids of a slot along the path that ends at n: blocks [first, first + count) counted from the root. */
void kv_tree_blocks(const kv_tree *t, const kv_node *n, int slot, int64_t first, int64_t count, block_id *out);

/* A windowed slot's kept block has no reference any more. behind: since a window moved on (evicted before others). For
 * slots without a window there is nothing to tell, here and below. */
void kv_tree_rest(kv_tree *t, int slot, block_id id, bool behind);
/* It has one again. */
void kv_tree_wake(kv_tree *t, int slot, block_id id);
/* Frees at least one block of the slot's pool if any of its blocks is CACHED; false when none is, or only such as a
 * lock without references keeps. A slot without a window: the policy's leaf loses its last block, in all slots. A
 * windowed one: blocks behind windows, oldest first; then leaves; then what rests. */
bool kv_tree_evict(kv_tree *t, int slot);
/* Without slots: drops the policy's block. */
bool kv_tree_evict_leaf(kv_tree *t);
/* Evicts until no unlocked node is left. */
void kv_tree_clear(kv_tree *t);

/* The key (T4) of block `index`, counted from the root, on the path that ends at n. */
void kv_tree_key(const kv_tree *t, const kv_node *n, int64_t index, uint8_t out[32]);
/* Those of blocks [first, first + count), in one pass over the path. */
void kv_tree_keys(const kv_tree *t, const kv_node *n, int64_t first, int64_t count, uint8_t (*out)[32]);

typedef struct kv_tree_counts {
    uint64_t nodes, blocks, tails; /* now; blocks: tails included */
    uint64_t bytes;                /* memory of the tree itself */
    uint64_t inserted, evicted;    /* blocks, ever, tails included */
    uint64_t absorbed;             /* tails, ever, that gave way to more rows, or that a sequence took back */
    uint64_t evicted_behind;       /* windowed blocks, ever, while their node stayed */
} kv_tree_counts;
kv_tree_counts kv_tree_count(const kv_tree *t);
const char *kv_tree_policy(const kv_tree *t);

/* Depth first, parents before children, salts in ascending order. fn returns false to stop. */
typedef struct kv_node_info {
    uint64_t salt;
    int depth;                     /* nodes above, the root not counted */
    const int32_t *ids;            /* [n_blocks * block_tokens], of a tail [tail_rows] */
    int64_t n_blocks, first_block; /* of the run; blocks above it */
    int tail_rows;                 /* of a tail, whose n_blocks is 1; 0: full blocks */
    int locks, n_children;
    uint64_t hits;
    const block_id *const *blocks; /* [slot][n_blocks] */
} kv_node_info;
void kv_tree_walk(const kv_tree *t, bool (*fn)(void *user, const kv_node_info *n), void *user);

/* Recounts from scratch: T1-T3, T7, counts, kept blocks of the pools, eviction order's bookkeeping. ST_FORMAT with what
 * does not add up. */
int kv_tree_audit(const kv_tree *t, status *st);

#endif
