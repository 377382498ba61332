/* product_float8.h - products with float activations, over vec8.h: F32, F16, BF16 weights, and every quantized type for
 * exact runs, each strip of which becomes 32 x 8 floats in the first-level cache. Lane = row; the float operations are
 * those of product_scalar.c, in the same order. Internal to src/kernel.
 *
 * The file that includes it defines before:
 *      f8 load_floats(dtype t, const uint8_t *p)            eight neighbouring elements of F32, F16 or BF16
 *      void quantized_floats(dtype t, const uint8_t *block, int s, strip_floats out)    strip s of a block of a panel
 */
#ifndef KVASIR_KERNEL_PRODUCT_FLOAT8_H
#define KVASIR_KERNEL_PRODUCT_FLOAT8_H

#include <string.h>

#include "kernel/panel.h"
#include "kernel/vec8.h"

/* The switch makes the type a constant in each copy. */
static void strip_to_floats(dtype t, const uint8_t *block, int s, strip_floats out)
{
    switch (t) {
#define CASE(type)                                                                                                     \
    case DTYPE_##type: quantized_floats(DTYPE_##type, block, s, out); break;
        STRIP_TYPES(CASE)
#undef CASE
    default: break;
    }
}

/* One strip times n_cols (a constant) activation rows: a chain of products each, then one addition. */
INLINE void columns(const float (*w)[PANEL_ROWS], const float *x, int64_t x_stride, int n_cols,
                    float (*sums)[PANEL_ROWS])
{
    f8 t[8];
    for (int c = 0; c < n_cols; c++) t[c] = f8_splat(0);
    for (int i = 0; i < STRIP; i++) {
        f8 wi = f8_load(w[i]);
        for (int c = 0; c < n_cols; c++) t[c] = f8_fma(wi, f8_splat(x[c * x_stride + i]), t[c]);
    }
    for (int c = 0; c < n_cols; c++) f8_store(sums[c], f8_add(f8_load(sums[c]), t[c]));
}

static void strip_columns(const float (*w)[PANEL_ROWS], const act_tile *a, int64_t at, float (*sums)[PANEL_ROWS])
{
    const float *x = a->x + at;
    int c = 0;
    for (; c + 8 <= a->n_cols; c += 8) columns(w, x + c * a->x_stride, a->x_stride, 8, sums + c);
    if (c + 4 <= a->n_cols) {
        columns(w, x + c * a->x_stride, a->x_stride, 4, sums + c);
        c += 4;
    }
    for (; c < a->n_cols; c++) columns(w, x + c * a->x_stride, a->x_stride, 1, sums + c);
}

#define ABREAST 4 /* panels that one or two activation rows meet at once, so that their chains overlap */
#define PAIR 2    /* the same for three or four rows: up to eight chains, with the loads shared best */

/* n_panels of F32, F16 or BF16 times n_cols activation rows, both constants with at most eight chains: in registers,
 * but for the sums of the strips before. */
INLINE void float_tile(dtype t, const uint8_t *panel, int n_panels, int64_t k, const act_tile *a, int first, int n_cols,
                       float *y, int64_t y_stride)
{
    const int64_t size = t == DTYPE_F32 ? 4 : 2, panel_size = k * PANEL_ROWS * size;
    const float *x = a->x + first * a->x_stride;
    f8 sums[ABREAST][4], strip_sums[ABREAST][4];
    for (int p = 0; p < n_panels; p++)
        for (int c = 0; c < n_cols; c++) sums[p][c] = f8_splat(0);
    for (int64_t at = 0; at < k; at += STRIP) {
        int64_t end = k - at < STRIP ? k : at + STRIP;
        for (int p = 0; p < n_panels; p++)
            for (int c = 0; c < n_cols; c++) strip_sums[p][c] = f8_splat(0);
        for (int64_t i = at; i < end; i++)
            for (int p = 0; p < n_panels; p++) {
                f8 w = load_floats(t, panel + i * PANEL_ROWS * size + p * panel_size);
                for (int c = 0; c < n_cols; c++)
                    strip_sums[p][c] = f8_fma(w, f8_splat(x[c * a->x_stride + i]), strip_sums[p][c]);
            }
        for (int p = 0; p < n_panels; p++)
            for (int c = 0; c < n_cols; c++) sums[p][c] = f8_add(sums[p][c], strip_sums[p][c]);
    }
    for (int p = 0; p < n_panels; p++)
        for (int c = 0; c < n_cols; c++) f8_store(y + (first + c) * y_stride + p * PANEL_ROWS, sums[p][c]);
}

/* n_panels (a constant) times all activation rows: the panels come from memory once, then from a cache. */
INLINE void float_panels(dtype t, const uint8_t *panel, int n_panels, int64_t k, const act_tile *a, float *y,
                         int64_t y_stride)
{
    int c = 0;
    if (n_panels <= PAIR) {
        for (; c + 4 <= a->n_cols; c += 4) float_tile(t, panel, n_panels, k, a, c, 4, y, y_stride);
        if (a->n_cols - c == 3) {
            float_tile(t, panel, n_panels, k, a, c, 3, y, y_stride);
            return;
        }
    }
    if (a->n_cols - c == 2) float_tile(t, panel, n_panels, k, a, c, 2, y, y_stride);
    if (a->n_cols - c == 1) float_tile(t, panel, n_panels, k, a, c, 1, y, y_stride);
}

INLINE void float_product(dtype t, const uint8_t *panel, int n_panels, int64_t k, const act_tile *a, float *y,
                          int64_t y_stride)
{
    const size_t panel_size = panel_bytes(t, k);
    int p = 0;
    if (a->n_cols <= 2)
        for (; p + ABREAST <= n_panels; p += ABREAST)
            float_panels(t, panel + (size_t)p * panel_size, ABREAST, k, a, y + p * PANEL_ROWS, y_stride);
    for (; p + PAIR <= n_panels; p += PAIR)
        float_panels(t, panel + (size_t)p * panel_size, PAIR, k, a, y + p * PANEL_ROWS, y_stride);
    if (p < n_panels) float_panels(t, panel + (size_t)p * panel_size, 1, k, a, y + p * PANEL_ROWS, y_stride);
}

static void quantized_product(dtype t, const uint8_t *panel, int n_panels, int64_t k, const act_tile *a, float *y,
                              int64_t y_stride)
{
    const int elems = qtype_elems(t);
    for (int p = 0; p < n_panels; p++, y += PANEL_ROWS) {
        float sums[ACT_COLS][PANEL_ROWS];
        memset(sums, 0, (size_t)a->n_cols * sizeof sums[0]);
        for (int64_t at = 0; at < k; at += STRIP) {
            _Alignas(32) strip_floats w;
            strip_to_floats(t, panel, (int)(at % elems / STRIP), w);
            strip_columns((const float(*)[PANEL_ROWS])w, a, at, sums);
            if ((at + STRIP) % elems == 0) panel += panel_block_bytes(t);
        }
        for (int c = 0; c < a->n_cols; c++) memcpy(y + c * y_stride, sums[c], sizeof sums[c]);
    }
}

static void product_float8(dtype t, const void *panels, int n_panels, int64_t k, const act_tile *a, float *y,
                           int64_t y_stride)
{
    switch (t) {
    case DTYPE_F32: float_product(DTYPE_F32, panels, n_panels, k, a, y, y_stride); break;
    case DTYPE_F16: float_product(DTYPE_F16, panels, n_panels, k, a, y, y_stride); break;
    case DTYPE_BF16: float_product(DTYPE_BF16, panels, n_panels, k, a, y, y_stride); break;
    default: quantized_product(t, panels, n_panels, k, a, y, y_stride);
    }
}

#endif
