/* product.h - matrix products over a team of workers: Y = X W^T for several weights that share their input.
 *
 * Owns (product_scratch): the quantized copy of X. Borrows: weights, X, Y.
 *
 *      rows of X, made on the way --quantize once--> tiles of ACT_COLS columns
 *          --> each weight's panels, one run of them a worker --> Y_i [n][rows_i], gated on the way
 *
 * PR1 Y depends on W, X and the mode alone, bit for bit: not on n, the workers, or what else is in the call.
 * Threads: one product_run at a time per scratch.
 */
#ifndef KVASIR_KERNEL_PRODUCT_H
#define KVASIR_KERNEL_PRODUCT_H

#include <stdbool.h>

#include "base/status.h"
#include "base/threads.h"
#include "kernel/kernel.h"

typedef struct weight {
    dtype type;
    int64_t rows, k;
    void *panels; /* ceil(rows / PANEL_ROWS) panels; NULL = this weight is absent */
    size_t n_bytes;
    bool borrowed; /* panels are the caller's */
} weight;

/* Bytes of a [rows][k] matrix's panels, a multiple of 64. ST_LIMIT if they can't be counted. */
int weight_size(size_t *n_bytes, const kernels *ks, dtype t, int64_t rows, int64_t k, status *st);
/* A [rows][k] matrix, to be packed piece by piece, in memory of its own or, if panels isn't NULL, in weight_size bytes
 * at panels (aligned to 64), which must outlive it; end with weight_deinit. */
int weight_alloc(weight *w, const kernels *ks, dtype t, int64_t rows, int64_t k, void *panels, status *st);
/* Packs rows [first, first + n_rows), which stand at data as in the file; uses the team. first is a multiple of
 * PANEL_ROWS, n_rows too unless they are the last. */
void weight_pack(weight *w, const kernels *ks, threads *team, int64_t first, int64_t n_rows, const void *data);
/* Before packing: each worker writes to the pages of the panels that it will begin with in products, so that a machine
 * with several memories places them where they are read. */
void weight_place(const weight *w, threads *team);
/* All three in one. */
int weight_init(weight *w, const kernels *ks, threads *team, dtype t, int64_t rows, int64_t k, const void *data,
                status *st);
void weight_deinit(weight *w);
/* Row r as floats: an embedding look-up. */
void weight_row(const weight *w, const kernels *ks, int64_t r, float *out);

typedef struct product_scratch {
    act_strip *strips; /* [tiles][k / 32][columns of the tile]: all tiles but the last have ACT_COLS columns */
    int64_t max_k;
    int max_n;
} product_scratch;

int product_scratch_init(product_scratch *s, int64_t max_k, int max_n, status *st);
void product_scratch_deinit(product_scratch *s);

typedef struct product {
    const weight *w;
    const float *bias; /* [rows], or NULL; added after the sum */
    float *y;          /* [n][y_stride], y_stride >= rows */
    int64_t y_stride;
} product;

/* out = act(gate) * up, element by element; out may be gate. */
typedef void gate_fn(const float *gate, const float *up, int64_t n, float *out);

typedef struct product_call {
    const float *x; /* [n][x_stride]; rows as long as the weights' k, which is the same for all */
    int64_t x_stride;
    int n;
    void (*make_row)(void *arg, int row); /* writes that row of x before it is read, by any worker; NULL: it is there */
    void *arg;
    const product *products;
    int n_products;
    gate_fn *gate; /* not NULL: products are gate and up, of one size; gate's y becomes gate(y, up's y) */
    bool exact;    /* float products whatever the type */
} product_call;

/* n <= max_n, k <= max_k of s. */
void product_run(const kernels *ks, threads *team, product_scratch *s, const product_call *c);

#endif
