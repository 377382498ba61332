/* cache_impl.h - the structures behind cache.h, shared by cache.c (the pools) and seq.c (the sequences). */
#ifndef KVASIR_CACHE_CACHE_IMPL_H
#define KVASIR_CACHE_CACHE_IMPL_H

#include "cache/cache.h"

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
    int n_drafts;
    int *parents; /* [step_tokens] of the draft slots */
    seq_group groups[KV_MAX_GROUPS];
    block_id ids[]; /* the memory of tables, drafts and parents */
};

/* The audit of one sequence: adds what it holds of a group's pool to refs. */
int kv_seq_audit(const kv_seq *s, int group, uint32_t *refs, status *st);

#endif
