/* cache_impl.h - the structures behind cache.h, shared by cache.c (the pools), holds.c (references and room), seq.c
 * (the sequences) and prefix.c (what they share through the radix tree). */
#ifndef KVASIR_CACHE_CACHE_IMPL_H
#define KVASIR_CACHE_CACHE_IMPL_H

#include "cache/cache.h"
#include "cache/tree.h"

typedef struct cache_group {
    kv_group group; /* layers: in the cache's own memory */
    pool *pool;
    size_t layer_bytes, k_head_bytes, v_head_bytes;
    uint64_t copied_rows;
} cache_group;

struct kv_cache {
    cache_group groups[KV_MAX_GROUPS];
    int n_groups;
    int *layers; /* all groups' layer lists */
    const kv_format *format;
    int block_tokens;
    uint64_t capacity_tokens;
    int step_tokens; /* most rows of one append, most draft slots */
    kv_tree *tree;   /* slot g is group g; NULL = nothing is shared by prefix */
    kv_seq *seqs;    /* the live sequences, for the audit */
};

typedef struct seq_group {
    block_id *table; /* [capacity_tokens / B]; entries [first, n) are held, the others BLOCK_NONE */
    uint32_t first, n;
    block_id *drafts; /* [step_tokens / B]; the first n_draft_blocks are held */
    uint32_t n_draft_blocks;
} seq_group;

struct kv_seq {
    kv_cache *cache;
    kv_seq *next, **link; /* *link == this */
    int64_t len;
    uint64_t salt;
    int priority; /* of what the tree gets from it */
    kv_node *node;    /* locked: where the first n_shared blocks end in the tree; NULL = not in the tree */
    int64_t n_shared; /* full blocks that the tree has as well */
    int n_drafts;
    int *parents; /* [step_tokens] of the draft slots */
    seq_group groups[KV_MAX_GROUPS];
    block_id ids[]; /* the memory of tables, drafts and parents */
};

/* holds.c. A reference more, a reference less (ids become BLOCK_NONE); behind: a window has moved on. */
void kv_hold(kv_cache *c, int group, block_id id);
void kv_release(kv_cache *c, int group, block_id *ids, uint32_t n, bool behind);
/* n blocks, cached ones being evicted for them; the caller has looked at kv_available. */
void kv_take(kv_cache *c, int group, block_id *ids, uint32_t n);
/* How many of ids[0..n) can be taken by others when this holder releases them. */
uint32_t kv_owned_alone(const kv_cache *c, int group, const block_id *ids, uint32_t n);
int kv_no_blocks(const kv_cache *c, int group, uint32_t needed, status *st);

/* seq.c. The first row that a query at index >= len sees in this group. */
int64_t kv_first_seen(const kv_cache *c, int group, int64_t len);
/* K and V of n rows, all layers and heads of a group. */
void kv_copy_rows(kv_cache *c, int group, kv_place to, kv_place from, int n);
int kv_check_cut(const kv_seq *s, int64_t n, status *st);

/* prefix.c. The sequence keeps at most its first n_blocks full blocks in common with the tree. */
void kv_seq_unshare(kv_seq *s, int64_t n_blocks);
void kv_seq_leave_tree(kv_seq *s);

/* The audit of one sequence: adds what it holds of a group's pool to refs. */
int kv_seq_audit(const kv_seq *s, int group, uint32_t *refs, status *st);

#endif
