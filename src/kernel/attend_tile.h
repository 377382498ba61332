/* attend_tile.h - one chunk of attention for a tile of query rows, in the order that attention.h fixes. Internal to
 * src/kernel.
 *
 *      attend_tile      which places each row sees (row_tile), where their K and V lie (key_group, value_run); no
 *                       instruction set
 *      attend_ops       the arithmetic, by instruction set and format:
 *          scores       p[r][place] = q[r] . k[place], d ascending
 *          softmax      p := e^(p - m), and m, l; lane i of eight sums the places i, i + 8, ...
 *          values       o[r] += p[r][place] * v[place], places ascending
 *
 * AT1 A number is one chain in a fixed order, so neither the tiling nor where blocks begin can be seen in the bits; nor
 *    can the instruction set, for those that multiply and add in one step.
 */
#ifndef KVASIR_KERNEL_ATTEND_TILE_H
#define KVASIR_KERNEL_ATTEND_TILE_H

#include "kernel/attention.h"

#define VALUE_BATCH 64 /* tokens whose V stays in the first cache while all rows take them */
#define TILE_ROWS 6    /* rows that share a load of K or V in registers */

/* K of some consecutive rows of a block; lanes [begin, end) are places place + lane of the chunk. */
typedef struct key_group {
    const uint8_t *k;
    int place, begin, end;
} key_group;

/* V rows of n consecutive places. */
typedef struct value_run {
    const uint8_t *v;
    int place, n;
} value_run;

/* What one call of `values` adds up. */
typedef struct value_batch {
    int n_runs, d_v;
    value_run runs[VALUE_BATCH];
} value_batch;

/* The rows of the call that see part of this chunk, with the places they see. */
typedef struct row_tile {
    int n;
    const float *q[ATTEND_ROWS];
    float *p[ATTEND_ROWS], *o[ATTEND_ROWS], *m[ATTEND_ROWS], *l[ATTEND_ROWS];
    const attn_row *row[ATTEND_ROWS];
    int lo[ATTEND_ROWS], hi[ATTEND_ROWS];
    int first, last;        /* the union of all [lo, hi) */
    int dense_lo, dense_hi; /* places that every row sees, masks apart; empty when dense_lo >= dense_hi */
} row_tile;

typedef struct attend_ops {
    size_t elem_bytes;
    int group_tokens; /* lanes of a key_group; at most block_tokens */
    /* n_rows rows q against n groups, softcapped, into p. Places that lie in no group are left alone. */
    void (*scores)(const attend_args *a, const key_group *g, int n, const float *const *q, float *const *p, int n_rows);
    /* p[begin, end) := e^(p - *m), *m its maximum, *l the sum; begin and end are multiples of 16. A row whose maximum
     * is -inf gets zeros for p, and keeps *m and *l. */
    void (*softmax)(float *p, int begin, int end, float *m, float *l);
    /* o += p V over the batch's places, for n_rows rows. */
    void (*values)(const value_batch *b, const float *const *p, float *const *o, int n_rows);
} attend_ops;

void attend_tile(const attend_args *a, const attend_ops *ops);

/* How many rows the next tile takes of n left: tiles as equal as can be. */
static inline int tile_rows(int n)
{
    int tiles = (n + TILE_ROWS - 1) / TILE_ROWS;
    return (n + tiles - 1) / tiles;
}

#endif
