/* product.h - matrix products over a team of workers: Y = X W^T for several weights that share their input.
 *
 * Owns (product_scratch): the quantized copy of X. Borrows: weights, X, Y.
 *
 *      X [n][k] --quantize once--> tiles of ACT_COLS columns --> each weight's panels, over workers --> Y_i [n][rows_i]
 *
 * P1 Y depends on W, X and the mode alone, bit for bit: not on n, the workers, or what else is in the call.
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
} weight;

/* A [rows][k] matrix in memory of its own, to be packed piece by piece; free with weight_deinit. */
int weight_alloc(weight *w, const kernels *ks, dtype t, int64_t rows, int64_t k, status *st);
/* Packs rows [first, first + n_rows), which stand at data as in the file; uses the team. first is a multiple of
 * PANEL_ROWS, n_rows too unless they are the last. */
void weight_pack(weight *w, const kernels *ks, threads *team, int64_t first, int64_t n_rows, const void *data);
/* Both in one. */
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

/* All weights have the same k = x's row length. exact: float products whatever the type. n <= max_n, k <= max_k. */
void product_run(const kernels *ks, threads *team, product_scratch *s, bool exact, const float *x, int64_t x_stride,
                 int n, const product *p, int n_products);

#endif
