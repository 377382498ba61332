/* product_neon.h - products of quantized weights and int8 activations, for product_dotprod.c, which has the dot-product
 * instruction, and product_neon.c, which hasn't. Lane = row; the float operations are those of product_scalar.c, in the
 * same order. Internal to src/kernel. */
#ifndef KVASIR_KERNEL_PRODUCT_NEON_H
#define KVASIR_KERNEL_PRODUCT_NEON_H

#include "kernel/strip_neon.h"

#define GROUP 4 /* panels that share one pass over a tile's activations */

#if defined(__ARM_FEATURE_DOTPROD)
/* sum plus the products of half a strip. */
INLINE i8 half_dot(dtype t, const b32 code[4], const int8_t q[16], i8 sum)
{
    (void)t;
    int8x16_t a = vld1q_s8(q);
    sum.lo = vdotq_laneq_s32(sum.lo, code[0].lo, a, 0), sum.hi = vdotq_laneq_s32(sum.hi, code[0].hi, a, 0);
    sum.lo = vdotq_laneq_s32(sum.lo, code[1].lo, a, 1), sum.hi = vdotq_laneq_s32(sum.hi, code[1].hi, a, 1);
    sum.lo = vdotq_laneq_s32(sum.lo, code[2].lo, a, 2), sum.hi = vdotq_laneq_s32(sum.hi, code[2].hi, a, 2);
    sum.lo = vdotq_laneq_s32(sum.lo, code[3].lo, a, 3), sum.hi = vdotq_laneq_s32(sum.hi, code[3].hi, a, 3);
    return sum;
}
#else
/* Two rows: products of codes 0..7 of four vectors, as four sums. The int16 sums cannot overflow: 4 * 63 * 127 = 32004
 * up to 6 bits, 2 * 128 * 127 = 32512 beyond. */
INLINE int32x4_t two_rows(dtype t, int8x8_t c0, int8x8_t c1, int8x8_t c2, int8x8_t c3, const int8x8_t a[4])
{
    const bool wide = qtypes[t].bits == 8 || t == DTYPE_IQ4_NL || t == DTYPE_IQ4_XS;
    int16x8_t x = vmlal_s8(vmull_s8(c0, a[0]), c1, a[1]);
    if (!wide) return vpaddlq_s16(vmlal_s8(vmlal_s8(x, c2, a[2]), c3, a[3]));
    return vpadalq_s16(vpaddlq_s16(x), vmlal_s8(vmull_s8(c2, a[2]), c3, a[3]));
}

INLINE int32x4_t four_rows(dtype t, int8x16_t c0, int8x16_t c1, int8x16_t c2, int8x16_t c3, const int8x8_t a[4])
{
    return vpaddq_s32(two_rows(t, vget_low_s8(c0), vget_low_s8(c1), vget_low_s8(c2), vget_low_s8(c3), a),
                      two_rows(t, vget_high_s8(c0), vget_high_s8(c1), vget_high_s8(c2), vget_high_s8(c3), a));
}

/* sum plus the products of half a strip. */
INLINE i8 half_dot(dtype t, const b32 code[4], const int8_t q[16], i8 sum)
{
    int32x4_t v = vreinterpretq_s32_s8(vld1q_s8(q));
    const int8x8_t a[4] = {
        vreinterpret_s8_s32(vdup_laneq_s32(v, 0)),
        vreinterpret_s8_s32(vdup_laneq_s32(v, 1)),
        vreinterpret_s8_s32(vdup_laneq_s32(v, 2)),
        vreinterpret_s8_s32(vdup_laneq_s32(v, 3)),
    };
    sum.lo = vaddq_s32(sum.lo, four_rows(t, code[0].lo, code[1].lo, code[2].lo, code[3].lo, a));
    sum.hi = vaddq_s32(sum.hi, four_rows(t, code[0].hi, code[1].hi, code[2].hi, code[3].hi, a));
    return sum;
}
#endif

INLINE i8 i8_mul(i8 a, i8 b)
{
    return (i8){vmulq_s32(a.lo, b.lo), vmulq_s32(a.hi, b.hi)};
}

INLINE i8 i8_times(i8 a, int by)
{
    return (i8){vmulq_n_s32(a.lo, by), vmulq_n_s32(a.hi, by)};
}

/* f(i0) * d0 + f(i1) * d1 */
INLINE f8 scaled(i8 i0, i8 i1, const act_strip *a)
{
    return f8_fma(i8_floats(i1), f8_splat(a->d[1]), f8_mul(i8_floats(i0), f8_splat(a->d[0])));
}

/* The sum of value times activation over half h. */
INLINE i8 half_product(dtype t, const strip *w, const act_strip *a, int h)
{
    int32x4_t start = vdupq_n_s32(-strip_offset(t) * a->sum[h]);
    i8 sum = half_dot(t, w->code + 4 * h, a->q + 16 * h, (i8){start, start});
    return qtypes[t].n_scales == 16 ? i8_mul(sum, w->scale16[h]) : sum;
}

/* y plus the product of a strip with one activation row's. */
INLINE f8 strip_product(dtype t, const strip *w, const act_strip *a, f8 y)
{
    y = f8_fma(scaled(half_product(t, w, a, 0), half_product(t, w, a, 1), a), w->scale, y);
    if (!qtypes[t].has_min) return y;
    if (qtypes[t].n_scales != 16) return f8_fma(w->min, f8_splat(a->s), y);
    f8 u = scaled(i8_times(w->min16[0], a->sum[0]), i8_times(w->min16[1], a->sum[1]), a);
    return f8_fma(w->min, u, y);
}

/* One panel times one activation row: the sum in registers. */
INLINE void one_column(dtype t, const uint8_t *block, int64_t k, const act_strip *a, float *y)
{
    f8 sum = f8_splat(0);
    for (int64_t i = 0; i < k / qtype_elems(t); i++, block += panel_block_bytes(t)) {
        for (int s = 0; s < qtypes[t].strips; s++, a++) {
            strip w;
            strip_load(t, block, s, &w);
            sum = strip_product(t, &w, a, sum);
        }
    }
    f8_store(y, sum);
}

/* n_panels <= GROUP times many activation rows: a strip is unpacked once, the sums wait in the first-level cache. */
INLINE void many_columns(dtype t, const uint8_t *panel, int n_panels, int64_t k, const act_tile *tile, float *y,
                         int64_t y_stride)
{
    float sums[GROUP][ACT_COLS][PANEL_ROWS];
    const int64_t panel_size = k / qtype_elems(t) * panel_block_bytes(t);
    const act_strip *a = tile->strips;
    const int n = tile->n_cols;
    for (int p = 0; p < n_panels; p++) memset(sums[p], 0, (size_t)n * sizeof sums[p][0]);
    for (int64_t i = 0; i < k / qtype_elems(t); i++, panel += panel_block_bytes(t)) {
        for (int s = 0; s < qtypes[t].strips; s++, a += n) {
            for (int p = 0; p < n_panels; p++) {
                strip w;
                strip_load(t, panel + p * panel_size, s, &w);
                for (int c = 0; c < n; c++) f8_store(sums[p][c], strip_product(t, &w, &a[c], f8_load(sums[p][c])));
            }
        }
    }
    for (int c = 0; c < n; c++) {
        for (int p = 0; p < n_panels; p++) memcpy(y + c * y_stride + p * PANEL_ROWS, sums[p][c], sizeof sums[p][c]);
    }
}

INLINE void product(dtype t, const void *panels, int n_panels, int64_t k, const act_tile *a, float *y, int64_t y_stride)
{
    const int64_t panel_size = k / qtype_elems(t) * panel_block_bytes(t);
    const uint8_t *panel = panels;
    if (a->n_cols == 1) {
        for (int p = 0; p < n_panels; p++) one_column(t, panel + p * panel_size, k, a->strips, y + p * PANEL_ROWS);
        return;
    }
    for (int p = 0; p < n_panels; p += GROUP)
        many_columns(t, panel + p * panel_size, n_panels - p < GROUP ? n_panels - p : GROUP, k, a, y + p * PANEL_ROWS,
                     y_stride);
}

/* The switch makes the type a constant in each copy of the loops. */
static void product_quantized(dtype t, const void *panels, int n, int64_t k, const act_tile *a, float *y,
                              int64_t stride)
{
    switch (t) {
#define CASE(type)                                                                                                     \
    case DTYPE_##type: product(DTYPE_##type, panels, n, k, a, y, stride); break;
        STRIP_TYPES(CASE)
#undef CASE
    default: break;
    }
}

#endif
