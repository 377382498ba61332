/* attention.h - the one attention primitive, and the driver that plans a step over it.
 *
 *      attend(query rows, chunk) -> partial (o, m, l)        o unnormalized, m the row's maximum score, l the sum of e^(s - m)
 *      merge(partial, partial)   -> partial                  the empty partial (o = 0, m = -inf, l = 0) is the identity
 *      out = o / l                                           a row that sees nothing gives zeros
 *
 * A sequence's stored rows are numbered 0, 1, 2, ... in stored order (its positions, unless an eviction policy
 * reordered them). Chunk c is rows [256c, 256c + 256) of that numbering, whatever blocks hold them:
 *
 *      index   0 ............... 255 | 256 ............. 511 | 512 ...
 *      spans   [block 7: 16][block 3: 16]...                          behind a window, blocks are gone: no span, nothing read
 *
 * In memory, the K of one block, layer and KV head is [d_k][block_tokens] (so that scores of 8 tokens are one vector
 * and need no sum across lanes), V is [block_tokens][d_v].
 *
 * A sequence may hold the same index in two representations: exact, and sealed in a lossy format. Which of them a query
 * at position p sees is a function of p and the index alone, so that chunking changes no bit. Each representation is a
 * kind of span, with chunks of its own on the same grid, and a row's partials merge by kind, then by chunk:
 *
 *      index         0 .. sinks | sinks ....... exact_from | exact_from .. p          exact_from = floor(p / S) * S
 *      seen as       ATTN_SINK  | ATTN_SEALED              | ATTN_EXACT               sinks and exact: the same format
 *
 * With an exact format alone exact_from is 0, and all spans are ATTN_EXACT.
 *
 * Canonical order (I6): in a chunk all scores (each a chain over d_k in ascending order), then one maximum, then l by
 * one fixed tree over the chunk's 256 places, then o token by token in ascending order; partials merge by kind, then in
 * ascending chunk order.
 * A1 Rows outside a query's [lo, hi), or masked, contribute nothing and never meet its numbers (0 * NaN; a load may
 *    cover them, those lanes are dropped): bits of a row's output depend on its own q, and on the K and V it sees,
 *    alone.
 * A2 Splitting over workers changes nothing: each chunk's partial is computed apart even when one worker walks them
 *    all.
 * Threads: one attn_run at a time per plan.
 */
#ifndef KVASIR_KERNEL_ATTENTION_H
#define KVASIR_KERNEL_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/threads.h"
#include "kernel/kernel.h"

#define ATTN_CHUNK 256

typedef enum attn_kind { ATTN_SINK, ATTN_SEALED, ATTN_EXACT, ATTN_KINDS } attn_kind;

/* n consecutive stored rows in one block: rows [row, row + n) of the block are indices [index, index + n) of the
 * sequence. Spans of a sequence ascend by kind, then by index, and those of one kind do not overlap. */
typedef struct attn_span {
    uint32_t block; /* its number in its kind's source */
    int32_t kind;   /* attn_kind */
    int32_t row, n;
    int64_t index;
} attn_span;

/* A query row sees indices [lo, hi) of its sequence, each in the kind that the drawing above says; and, when mask is
 * not NULL, of the last mask_n of those only where bit j (mask[j / 64] >> (j % 64)) of index hi - mask_n + j is set
 * (trees of drafts, which are exact). */
typedef struct attn_row {
    int seq; /* from attn_plan_seq */
    int64_t lo, hi;
    int64_t sinks, exact_from; /* both 0 with an exact format; sinks <= exact_from, or exact_from is 0 */
    const uint64_t *mask;      /* borrowed until the last attn_run of the plan */
    int mask_n;
} attn_row;

/* Indices [lo, hi), empty where lo >= hi. */
typedef struct attn_range {
    int64_t lo, hi;
} attn_range;

/* What the row sees in spans of a kind, masks apart. */
static inline attn_range attn_row_range(const attn_row *row, attn_kind kind)
{
    attn_range r = {row->lo, row->hi};
    int64_t sinks = row->sinks < row->exact_from ? row->sinks : row->exact_from;
    if (kind == ATTN_SEALED && r.lo < sinks) r.lo = sinks;
    if (kind == ATTN_EXACT && r.lo < row->exact_from) r.lo = row->exact_from;
    if (kind == ATTN_SINK && r.hi > sinks) r.hi = sinks;
    if (kind == ATTN_SEALED && r.hi > row->exact_from) r.hi = row->exact_from;
    return r;
}

static inline bool attn_row_sees(const attn_row *row, attn_kind kind, int64_t index)
{
    attn_range seen = attn_row_range(row, kind);
    if (index < seen.lo || index >= seen.hi) return false;
    int64_t j = index - (row->hi - row->mask_n);
    return !row->mask || j < 0 || (row->mask[j / 64] >> (j % 64) & 1);
}

/* What one call of an attend kernel gets: query rows of one KV head against one chunk. */
typedef struct attend_args {
    const float *const *q;      /* [n_rows] rows of d_k floats, already scaled */
    int n_rows;                 /* 1..ATTEND_ROWS */
    int d_k, d_v, block_tokens; /* d_k, d_v multiples of 8 in 8..576; block_tokens a power of two in 8..256 */
    float softcap;              /* 0 = none; else score = softcap * tanh(score / softcap) */
    attn_kind kind;             /* of the chunk */
    const attn_span *spans;     /* parts inside this chunk */
    int n_spans;
    const uint8_t *blocks; /* block 0 of the kind's source; the others follow, block_bytes apart */
    size_t block_bytes;
    size_t k_offset, v_offset;   /* from a block's first byte to this layer's and KV head's K and V */
    int64_t chunk_begin;         /* index of the chunk's first place */
    const attn_row *const *rows; /* [n_rows] what each query row sees */
    float *const *o;             /* [n_rows] out: d_v floats */
    float *m, *l;                /* [n_rows] out */
    float *scratch;              /* [n_rows][ATTN_CHUNK] */
} attend_args;

static inline const uint8_t *attend_block(const attend_args *a, const attn_span *s)
{
    return a->blocks + (size_t)s->block * a->block_bytes;
}

#define ATTEND_ROWS 48

typedef struct attn_shape {
    int n_heads, n_kv_heads, d_k, d_v;
    int block_tokens; /* most that a span has, of any kind: a power of two in 8..256 */
} attn_shape;

/* Where the blocks of a kind are, where a layer's K and V lie in them, and what reads them. */
typedef struct attn_source {
    void (*attend)(const attend_args *a); /* of the blocks' format, from the kernel table */
    const uint8_t *blocks;                /* block 0 */
    size_t block_bytes;
    int block_tokens;
    size_t k_offset, v_offset;           /* of KV head 0 */
    size_t k_head_stride, v_head_stride; /* bytes from one KV head to the next */
} attn_source;

/* A layer's K and V in each kind that its rows see, and how its scores are made. */
typedef struct attn_layer {
    attn_source source[ATTN_KINDS];
    float scale, softcap;
} attn_layer;

/* Results are the same bits any way. */
typedef enum attn_how {
    ATTN_SPLIT = 1,  /* one row's chunks may go to different workers */
    ATTN_CASCADE = 2 /* a chunk that several sequences hold in the same blocks is read once for the rows of all */
} attn_how;

typedef struct attn_plan attn_plan;

/* All memory that steps of up to max_rows rows, max_seqs sequences and max_spans spans (of all sequences together)
 * need. Most of it:
 *   for each worker, 4 * ATTEND_ROWS * (d_k + ATTN_CHUNK + d_v) bytes: a tile's queries and scores, and a partial;
 *   for split rows, a partial of 4 * (d_v + 2) bytes for each head and chunk that the blocks of max_spans spans can
 *   fill, or 4 MiB where that is more (pages never touched cost nothing). Rows beyond that aren't split. */
int attn_plan_new(attn_plan **out, const kernels *ks, attn_shape shape, int max_workers, int max_rows, int max_seqs,
                  int max_spans, status *st);
void attn_plan_free(attn_plan *p);

/* Once per step: reset, add sequences and rows (in batch order), build; then every layer of the group runs the same
 * plan. */
void attn_plan_reset(attn_plan *p);
/* Returns the sequence's number in this plan. The spans are copied. */
int attn_plan_seq(attn_plan *p, const attn_span *spans, int n_spans);
void attn_plan_row(attn_plan *p, const attn_row *row);
/* how: of attn_how. */
void attn_plan_build(attn_plan *p, int n_workers, unsigned how);

/* q [n_rows][n_heads * d_k] (not scaled: the driver multiplies by layer->scale), out [n_rows][n_heads * d_v]. */
void attn_run(attn_plan *p, threads *team, const attn_layer *layer, const float *q, float *out);

#endif
