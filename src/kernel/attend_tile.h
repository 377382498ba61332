/* attend_tile.h - one chunk of attention for a tile of query rows, in the order that attention.h fixes. Internal to
 * src/kernel.
 *
 *      attend_tile      which places each row sees (row_tile), where their K and V lie (key_group, value_run),
 *                       and what is fetched from memory meanwhile (fetch_list); no instruction set
 *      attend_ops       the arithmetic, by instruction set and format:
 *          scores       p[r][place] = q[r] . k[place], d ascending
 *          softmax      p := e^(p - m), and m, l; lane i of eight sums the places i, i + 8, ...
 *          values       o[r] += p[r][place] * v[place], places ascending
 *
 * T1 A number is one chain in a fixed order, so neither the tiling nor where blocks begin can be seen in the bits; nor
 *    can the instruction set, for those that multiply and add in one step.
 *
 * Memory: a block holds a few KB of a layer's K or V, far from the next block's. One core reads such runs one after the
 * other at half its bandwidth, because the hardware's prefetcher starts anew in each, and four runs line by line in
 * turn at nearly all of it. So everything is fetched in that order before it is read in its own:
 *
 *      into the second cache   V while its K makes scores, the next chunk's K while V is added up
 *      into the first cache    the next 64 tokens' V while V is added up
 *
 * a line or two between the arithmetic at a time: bursts fill the buffers that reads need too, and cost a sixth of the
 * speed.
 */
#ifndef KVASIR_KERNEL_ATTEND_TILE_H
#define KVASIR_KERNEL_ATTEND_TILE_H

#include "kernel/attention.h"

#define VALUE_BATCH 64 /* tokens whose V stays in the first cache while all rows take them */
#define FETCH_RUNS 4   /* fetched in turn */
#define CACHE_LINE 64
#define TILE_ROWS 6 /* rows that share a load of K or V in registers */

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

/* Runs of equal length; of those before `first` all lines have been fetched, of the FETCH_RUNS from there those before
 * `at`. */
typedef struct fetch_list {
    const uint8_t *run[2 * ATTN_CHUNK / 16 + FETCH_RUNS];
    int n, first;
    size_t run_bytes, at;
} fetch_list;

/* What one call of `values` adds up, and what it fetches meanwhile. */
typedef struct value_batch {
    int n_runs, d_v;
    value_run runs[ATTN_CHUNK];
    const uint8_t *after[VALUE_BATCH]; /* rows of the batch behind this one, four runs in turn; repeated if shorter */
    fetch_list *next;
    bool fetch; /* ask ahead for `after` and `next` */
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

/* n_bytes of a row into the first cache. */
static inline void fetch_row(const uint8_t *row, size_t n_bytes)
{
    for (size_t at = 0; at < n_bytes; at += CACHE_LINE) __builtin_prefetch(row + at, 0, 3);
}

/* How many lines of a run belong to two tokens of V, where a token's row is walked in n_parts parts. */
static inline size_t fetch_pace(const fetch_list *f, int n_parts)
{
    size_t steps = (size_t)((f->n + FETCH_RUNS - 1) / FETCH_RUNS) * (f->run_bytes / CACHE_LINE);
    size_t slots = (size_t)n_parts * (ATTN_CHUNK / 2);
    return steps ? (steps + slots - 1) / slots : 1;
}

/* The next n_lines lines of two of four runs: the first two, then the other two. A few lines at a time, between the
 * arithmetic: more would fill the buffers that what is read now needs too. */
static inline void fetch_pair(fetch_list *f, int which, size_t n_lines)
{
    if (f->first >= f->n) return;
    const uint8_t *const *run = f->run + f->first + 2 * which;
    for (size_t at = f->at; at < f->at + n_lines * CACHE_LINE; at += CACHE_LINE) {
        __builtin_prefetch(run[0] + at, 0, 2);
        __builtin_prefetch(run[1] + at, 0, 2);
    }
    if (which == 0) return;
    f->at += n_lines * CACHE_LINE;
    if (f->at < f->run_bytes) return;
    f->at = 0;
    f->first += FETCH_RUNS;
}

#endif
