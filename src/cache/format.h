/* format.h - how a block's bytes encode K and V.
 *
 * One layer of a block, for a GQA layout with B tokens a block (element = 2 bytes for f16, 4 for f32):
 *
 *      head 0: K [d_k][B] | head 0: V [B][d_v] | head 1: K | head 1: V | ...
 *
 * K is stored by channel, so that the scores of 8 neighbouring tokens are one vector; V by token. A block holds its
 * layers one after the other with a constant stride: a layer of a block can travel alone, a whole block is one run of
 * bytes.
 *
 * KF1 A format whose `exact` is set encodes each row by itself: bytes of a row depend on that row alone, and copying
 *    them is copying it.
 * Threads: formats are constant; write_k and write_v may run in parallel for different rows, layers or heads.
 */
#ifndef KVASIR_CACHE_FORMAT_H
#define KVASIR_CACHE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel/attention.h"
#include "kernel/kernel.h"

typedef void kv_attend_fn(const attend_args *a);

typedef struct kv_format {
    const char *name; /* "f32", "f16" */
    double bits;      /* per element, settings included: what sizes are computed from */
    int group_tokens; /* G: block sizes are multiples of it; 1 for exact formats */
    bool exact;       /* rows can be copied and split anywhere (KF1) */
    /* Encodes one head's row of d floats of one layer. k, v point at that layer and head in the block. */
    void (*write_k)(const kernels *ks, uint8_t *k, int block_tokens, int row, const float *x, int d);
    void (*write_v)(const kernels *ks, uint8_t *v, int block_tokens, int row, const float *x, int d);
    /* The inverse, for copies between formats, tests and evaluation. */
    void (*read_k)(const uint8_t *k, int block_tokens, int row, float *x, int d);
    void (*read_v)(const uint8_t *v, int block_tokens, int row, float *x, int d);
    /* Copies n exact rows between blocks of the same format (copy on divergence, commit of drafts). */
    void (*copy_k)(uint8_t *dst, int dst_row, const uint8_t *src, int src_row, int n, int block_tokens, int d);
    void (*copy_v)(uint8_t *dst, int dst_row, const uint8_t *src, int src_row, int n, int block_tokens, int d);
    /* The kernel that attends over it. */
    kv_attend_fn *(*attend)(const kernels *ks);
} kv_format;

/* NULL for an unknown name. */
const kv_format *kv_format_get(const char *name);
const kv_format *kv_format_at(int i); /* NULL past the last: for listings */

#endif
