/* tree_impl.h - the structures behind tree.h, shared by tree.c (match, lock, insert), tree_node.c (nodes and runs),
 * tree_tail.c (partial blocks), tree_order.c (siblings), tree_evict.c, tree_walk.c, tree_audit.c and tree_key.c.
 *
 *      node --run--> [ spare start | tokens of n blocks | spare ]         cap blocks of B tokens
 *                    [ spare start | n ids of slot 0    | spare ] ...     cap ids a slot
 *
 *      parent --children--> treap of siblings, in the order of their first blocks' tokens (roots: of their salts)
 *
 * A split leaves what the upper node took as spare at the start of the lower one's run, so that it costs what the upper
 * one copies; when the spare is the larger part, the run is cut down to size.
 */
#ifndef KVASIR_CACHE_TREE_IMPL_H
#define KVASIR_CACHE_TREE_IMPL_H

#include "cache/tree.h"

struct kv_node {
    evict_entry evict;     /* first: an entry's address is its node's */
    kv_node *parent;       /* NULL: a root */
    kv_node *left, *right; /* siblings */
    kv_node *children;     /* top of their treap */
    union {
        int32_t *run;
        uint64_t salt; /* of a root, which has no run */
    };
    uint32_t first, n; /* blocks above, blocks of the run */
    uint32_t start, cap;
    uint32_t n_children, locks;
    uint32_t tail_rows; /* of a tail, whose run is one partial block: 1 .. B - 1; 0 = full blocks */
    uint32_t height; /* random: no sibling stands above a higher one */
};

typedef enum rest_list { REST_NONE, REST_BEHIND, REST_PLAIN, REST_LISTS } rest_list;

/* Where a windowed slot's block stands in the tree. */
typedef struct resident {
    kv_node *node;       /* NULL: not in the tree */
    uint32_t index;      /* counted from the root: splits don't change it */
    block_id prev, next; /* in its list; BLOCK_NONE at the ends */
    rest_list list;
} resident;

typedef struct tree_slot {
    pool *pool;
    int64_t window; /* tokens; 0 = all */
    resident *residents;   /* [blocks of the pool], NULL without a window */
    struct {
        block_id head, tail; /* the head has rested longest */
        uint32_t n;
    } rests[REST_LISTS];
} tree_slot;

struct kv_tree {
    int block_tokens, n_slots;
    bool whole_blocks;
    uint8_t seed[32];
    void *digest; /* EVP_MD_CTX: hashing allocates nothing */
    tree_slot slots[KV_TREE_SLOTS];
    kv_node *roots; /* top of their treap */
    evict_order order;
    kv_tree_counts counts; /* bytes: of nodes and runs alone */
    uint64_t random;
};

/* How far the child of a node that shares most with a prompt shares it. */
typedef struct tree_step {
    kv_node *child;  /* NULL: none shares a token */
    uint32_t blocks; /* whole blocks, at most child->n; 0 of a tail */
    int rows;        /* rows of the block after those; 0 when they are all of the run */
} tree_step;

/* ---- tree_node.c */
static inline const int32_t *node_tokens(const kv_tree *t, const kv_node *n)
{
    return n->run + (size_t)n->start * (size_t)t->block_tokens;
}
static inline block_id *node_ids(const kv_tree *t, const kv_node *n, int slot)
{
    return (block_id *)n->run + (size_t)n->cap * (size_t)(t->block_tokens + slot) + n->start;
}
/* Tokens of the block that a node has among its siblings. */
static inline int64_t node_first_tokens(const kv_tree *t, const kv_node *n)
{
    return n->tail_rows ? (int64_t)n->tail_rows : t->block_tokens;
}
int node_new(kv_tree *t, kv_node **out, uint32_t cap, status *st); /* cap 0: a root */
void node_free(kv_tree *t, kv_node *n);
int node_reserve(kv_tree *t, kv_node *n, uint32_t more, status *st); /* room for more blocks */
/* ids [n_blocks][block_tokens], blocks[slot][at .. at + n_blocks): go to the end of the run, which has room. */
void node_append(kv_tree *t, kv_node *n, const int32_t *ids, block_id *const *blocks, int64_t at, uint32_t n_blocks);
/* The first k blocks of lower become upper's, which takes its place; lower is its child. */
void node_split(kv_tree *t, kv_node *lower, kv_node *upper, uint32_t k);
/* The tree takes a block over from whoever holds a reference to it. */
void node_keep(kv_tree *t, kv_node *n, int slot, uint32_t i, block_id id);
void node_settle(kv_tree *t, kv_node *n); /* into the order of eviction or out of it (T3) */
void node_remove(kv_tree *t, kv_node *n); /* an empty one, with neither locks nor children; then roots left like that */

/* ---- tree_order.c: treaps of siblings */
void order_add(const kv_tree *t, kv_node **top, kv_node *n);
void order_remove(const kv_tree *t, kv_node **top, kv_node *n);
void order_replace(const kv_tree *t, kv_node **top, const kv_node *old, kv_node *with); /* whose first block is equal */
kv_node *order_first(kv_node *top);
kv_node *order_next(const kv_tree *t, kv_node *top, const kv_node *n);
kv_node *order_root(const kv_tree *t, uint64_t salt);
/* The child that shares most of ids [0, n) with its first block; *shared < block_tokens unless it is all of it, and at
 * most a tail's rows. */
kv_node *order_nearest(const kv_tree *t, kv_node *top, const int32_t *ids, int64_t n, int *shared);
int order_compare(const kv_tree *t, const kv_node *a, const kv_node *b); /* <, =, > 0 */

/* ---- tree_tail.c */
void tail_drop(kv_tree *t, kv_node *tail); /* what it holds stands elsewhere in the tree, or with a sequence */
void tail_use(kv_tree *t, kv_node *tail, int priority, bool hit);

/* ---- tree_evict.c */
/* The slot's pool gets a block back; true when that frees it. */
bool evict_let_go(tree_slot *s, block_id id);
void rest_remove(tree_slot *s, block_id id);

/* ---- tree_walk.c */
kv_node *walk_first(const kv_tree *t);
kv_node *walk_next(const kv_tree *t, kv_node *n, int *depth); /* adds to depth how many levels it is below n */

#endif
