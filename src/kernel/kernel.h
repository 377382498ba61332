/* kernel.h - the kernel table: every inner loop that has more than one version.
 *
 * The scalar references fill the table first; instruction sets then overwrite entries, each over a copy of
 * the table before it. x86-64: AVX2 (with FMA and F16C), AVX-512 (F, BW, VL, DQ and VNNI). AArch64: NEON, its dot
 * products. Choose once at start:
 *
 *      const kernels *k = kernels_get(CPU_AUTO);      what CPUID offers
 *      const kernels *k = kernels_get(CPU_SCALAR);    the references, for checks
 *
 * Products. A weight matrix [rows][k] is repacked at load into panels of PANEL_ROWS rows, in an order private to the
 * table (panel.h), so one layout serves one activation row and many:
 *
 *      panel 0: rows 0..7     | strip 0 | strip 1 | ...      a strip: 32 inputs of all eight rows: codes, scales, minimums
 *      panel 1: rows 8..15    | strip 0 | ...                (super-blocks of 256 keep shared scales beside 8 strips)
 *
 * Activations of quantized weights are int8 in blocks of 16 (act_strip). Those of F32, F16 and BF16 weights stay float.
 *
 * K1 y[row] of a product is one chain of float operations in ascending input order; it depends on neither the number of
 *    activation rows nor the number of panels in the call (I5). The same holds for every other entry, row by row.
 * K2 Entries allocate nothing, keep no state, and accept unaligned float arrays; panels are aligned to 64 bytes.
 * K3 Every entry of another ISA is checked against the scalar one by check-kernel (I8): the products give the same
 *    bits.
 * Threads: the tables are constant; any number of threads may use them.
 */
#ifndef KVASIR_KERNEL_KERNEL_H
#define KVASIR_KERNEL_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel/dtype.h"

#define PANEL_ROWS 8
#define ACT_COLS 64 /* most activation rows in one call of a product */
#define SPAN 256    /* elements of a row of logits whose largest is kept */

typedef enum cpu_level { CPU_AUTO, CPU_SCALAR, CPU_AVX2, CPU_AVX512, CPU_NEON, CPU_DOTPROD, CPU_LEVELS } cpu_level;

/* 32 consecutive activations of one row, as two blocks of 16: x[i] ~ d[i / 16] * q[i], d = max|x| / 127, q in
 * -127..127. A block whose maximum is under 2^-120 becomes zeros; one with an infinity or a NaN gets d = NaN, and so
 * does what it meets. */
typedef struct act_strip {
    int8_t q[32];
    float d[2];
    float s;        /* d[0] * sum[0] + d[1] * sum[1]: what a weight type with a minimum per 32 inputs multiplies */
    int16_t sum[2]; /* of q over each half: what an offset of the codes multiplies */
} act_strip;

/* Up to ACT_COLS activation rows ("columns" of the product). */
typedef struct act_tile {
    const act_strip *strips; /* [k / 32][n_cols] for quantized weights */
    const float *x;          /* [n_cols][x_stride] for float weights and for exact products */
    int64_t x_stride;
    int n_cols;
} act_tile;

/* y[c * y_stride + p * PANEL_ROWS + r] = sum over k of panel p's row r times activation row c, for r < PANEL_ROWS.
 * t: the type of the panels, the index of the entry. y never overlaps x. */
typedef void product_fn(dtype t, const void *panels, int n_panels, int64_t k, const act_tile *a, float *y,
                        int64_t y_stride);

typedef enum rope_style {
    ROPE_PAIRS, /* element 2i turns with 2i + 1 (llama, smollm3) */
    ROPE_HALVES /* element i turns with i + n_rot / 2 (qwen, phi, gemma) */
} rope_style;

struct attend_args;

typedef struct kernels {
    const char *name; /* the level's */

    /* Weights. `rows` points at n_rows (1..PANEL_ROWS) rows as in the file, dtype_row_bytes(t, k) apart; missing rows
     * read as zero. k is a multiple of the type's block_elems. */
    size_t (*panel_bytes)(dtype t, int64_t k);
    void (*pack)(dtype t, const void *rows, int n_rows, int64_t k, void *panel);
    /* exactly dtype_to_float of that row */
    void (*unpack_row)(dtype t, const void *panel, int row, int64_t k, float *out);

    /* Writes the strips of one activation row: strips[s * n_cols + col] for s < k / 32. k is a multiple of 32. */
    void (*quantize)(const float *x, int64_t k, act_strip *strips, int col, int n_cols);
    product_fn *product[DTYPE_COUNT]; /* NULL where dtype_get gives NULL */
    product_fn *product_exact[DTYPE_COUNT]; /* float activations, float products, whatever the type */

    /* Rows of n floats; out may be x. */
    void (*rms_norm)(const float *x, const float *weight, float eps, int64_t n, float *out);
    void (*add)(const float *x, const float *y, int64_t n, float *out);
    void (*scale)(const float *x, float by, int64_t n, float *out);
    void (*silu_mul)(const float *gate, const float *up, int64_t n, float *out); /* silu(gate) * up */
    void (*gelu_mul)(const float *gate, const float *up, int64_t n, float *out); /* gelu_tanh(gate) * up */
    void (*softcap)(const float *x, float cap, int64_t n, float *out);           /* cap * tanh(x / cap) */
    /* Turns the first n_rot elements of each of n_heads heads, head_stride floats apart, in place.
     * cos_sin: n_rot / 2 pairs {cos, sin} of this row's position. */
    void (*rope)(float *x, int n_heads, int64_t head_stride, int n_rot, const float *cos_sin, rope_style style);
    void (*to_half)(const float *x, int64_t n, uint16_t *out);

    /* Rows of logits. The largest of each SPAN elements (the last span may be shorter); false where one of the n is no
     * finite number, and then the largest mean nothing. */
    bool (*span_max)(const float *x, int64_t n, float *largest);
    /* Sum of e^((x - top) * by), in double precision: within 1e-11 of it. x: numbers up to top, or -infinity; by > 0. */
    double (*sum_exp)(const float *x, int64_t n, float top, double by);
    /* The same in single precision: within 5e-6 of it, for by up to 1000 and n up to 2^24. */
    double (*sum_exp_f32)(const float *x, int64_t n, float top, float by);
    /* Ascending i with least <= x[i] < below; returns how many. */
    int (*find_between)(const float *x, int n, float least, float below, int32_t *i);

    /* One chunk of attention for a tile of query rows; see attention.h. By format of the cache. */
    void (*attend_f32)(const struct attend_args *a);
    void (*attend_f16)(const struct attend_args *a);
    /* a := merge(a, b) of two partials over d_v elements; see attention.h. */
    void (*merge)(float *o, float *m, float *l, const float *o2, float m2, float l2, int d_v);
} kernels;

/* Never NULL for CPU_AUTO and CPU_SCALAR; NULL when this machine lacks the level asked for. */
const kernels *kernels_get(cpu_level level);
/* "auto", "scalar", "avx2", ...: for every level below CPU_LEVELS, those of other machines too. */
const char *cpu_level_name(cpu_level level);

#endif
