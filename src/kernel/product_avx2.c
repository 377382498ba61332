/* Products of quantized weights and int8 activations. Lane = row; the float operations are those of product_scalar.c,
 * in the same order. */
#include "kernel/product_avx2.h"

#if defined(__x86_64__)

#include <math.h>

#include "kernel/fill.h"
#include "kernel/strip_avx2.h"

#define GROUP 4 /* panels that share one pass over a tile's activations */
/* Bytes between the prefetch and the read of one column: the hardware's own stops at each page's end. */
#define AHEAD 4096

INLINE __m256i four_bytes(const int8_t *q)
{
    int32_t v;
    memcpy(&v, q, 4);
    return _mm256_set1_epi32(v);
}

/* Code times activation, neighbours added: |code| <= 128 fits once, see half_dot. */
INLINE __m256i pair_dot(dtype t, __m256i code, const int8_t *q)
{
    if (strip_is_signed(t)) return _mm256_maddubs_epi16(_mm256_abs_epi8(code), _mm256_sign_epi8(four_bytes(q), code));
    return _mm256_maddubs_epi16(code, four_bytes(q));
}

/* Sum over one half of a strip, times `factor` (two int16 a lane). The int16 sums cannot overflow:
 * 2 * 128 * 127 = 32512 (signed types), 4 * 63 * 127 = 32004 (6 bits), 8 * 31 * 127 = 31496 (5 bits and less). */
INLINE __m256i half_dot(dtype t, const __m256i code[4], const int8_t q[16], __m256i factor)
{
    __m256i a = pair_dot(t, code[0], q), b = pair_dot(t, code[1], q + 4), c = pair_dot(t, code[2], q + 8),
            d = pair_dot(t, code[3], q + 12);
    if (strip_is_signed(t)) {
        __m256i ab = _mm256_add_epi32(_mm256_madd_epi16(a, factor), _mm256_madd_epi16(b, factor));
        return _mm256_add_epi32(ab, _mm256_add_epi32(_mm256_madd_epi16(c, factor), _mm256_madd_epi16(d, factor)));
    }
    a = _mm256_add_epi16(a, b);
    c = _mm256_add_epi16(c, d);
    if (qtypes[t].bits == 6) return _mm256_add_epi32(_mm256_madd_epi16(a, factor), _mm256_madd_epi16(c, factor));
    return _mm256_madd_epi16(_mm256_add_epi16(a, c), factor);
}

/* f(i0) * d0 + f(i1) * d1 */
INLINE __m256 scaled(__m256i i0, __m256i i1, const act_strip *a)
{
    __m256 t = _mm256_mul_ps(_mm256_cvtepi32_ps(i0), _mm256_set1_ps(a->d[0]));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(i1), _mm256_set1_ps(a->d[1]), t);
}

/* y plus the product of a strip with one activation row's. */
INLINE __m256 strip_product(dtype t, const strip *w, const act_strip *a, __m256 y)
{
    const bool by_half = qtypes[t].n_scales == 16;
    const __m256i ones = _mm256_set1_epi16(1), even = _mm256_set1_epi32(0xFFFF);
    __m256i f0 = by_half ? w->scale16[0] : ones, f1 = by_half ? w->scale16[1] : ones;
    __m256i i0 = half_dot(t, w->code, a->q, f0), i1 = half_dot(t, w->code + 4, a->q + 16, f1);
    __m256i sums = four_bytes((const int8_t *)(const void *)a->sum);
    if (strip_offset(t)) {
        const __m256i minus = _mm256_set1_epi16((short)-strip_offset(t));
        i0 = _mm256_add_epi32(i0, _mm256_madd_epi16(sums, _mm256_and_si256(even, _mm256_mullo_epi16(f0, minus))));
        i1 = _mm256_add_epi32(i1, _mm256_madd_epi16(sums, _mm256_andnot_si256(even, _mm256_mullo_epi16(f1, minus))));
    }
    y = _mm256_fmadd_ps(scaled(i0, i1, a), w->scale, y);
    if (!qtypes[t].has_min) return y;
    if (!by_half) return _mm256_fmadd_ps(w->min, _mm256_set1_ps(a->s), y);
    __m256 u = scaled(_mm256_madd_epi16(sums, w->min16[0]), _mm256_madd_epi16(sums, w->min16[1]), a);
    return _mm256_fmadd_ps(w->min, u, y);
}

/* One panel times one activation row: the sum in a register. A panel at a time, since that reads memory in one long
 * run. */
INLINE void one_column(dtype t, const uint8_t *block, int64_t k, const act_strip *a, float *y)
{
    __m256 sum = _mm256_setzero_ps();
    for (int64_t i = 0; i < k / qtype_elems(t); i++, block += panel_block_bytes(t))
        for (int s = 0; s < qtypes[t].strips; s++, a++) {
            strip w;
            prefetch_strip(t, (uintptr_t)block + AHEAD, s, true);
            strip_load(t, block, s, &w);
            sum = strip_product(t, &w, a, sum);
        }
    _mm256_storeu_ps(y, sum);
}

/* n_panels <= GROUP times many activation rows: a strip is unpacked once, the sums wait in the first-level cache. */
INLINE void many_columns(dtype t, const uint8_t *panel, int n_panels, int64_t k, const act_tile *tile, float *y,
                         int64_t y_stride)
{
    _Alignas(32) float sums[GROUP][ACT_COLS][PANEL_ROWS];
    const int64_t panel_size = k / qtype_elems(t) * panel_block_bytes(t);
    const act_strip *a = tile->strips;
    const int n = tile->n_cols;
    for (int p = 0; p < n_panels; p++) memset(sums[p], 0, (size_t)n * sizeof sums[p][0]);
    for (int64_t i = 0; i < k / qtype_elems(t); i++, panel += panel_block_bytes(t))
        for (int s = 0; s < qtypes[t].strips; s++, a += n)
            for (int p = 0; p < n_panels; p++) {
                strip w;
                prefetch_strip(t, (uintptr_t)(panel + p * panel_size) + (uintptr_t)(n_panels * panel_size), s, false);
                strip_load(t, panel + p * panel_size, s, &w);
                for (int c = 0; c < n; c++)
                    _mm256_store_ps(sums[p][c], strip_product(t, &w, &a[c], _mm256_load_ps(sums[p][c])));
            }
    for (int c = 0; c < n; c++)
        for (int p = 0; p < n_panels; p++) memcpy(y + c * y_stride + p * PANEL_ROWS, sums[p][c], sizeof sums[p][c]);
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
#define CASE(type) case DTYPE_##type: product(DTYPE_##type, panels, n, k, a, y, stride); break;
        STRIP_TYPES(CASE)
#undef CASE
    default: break;
    }
}

void product_fill_avx2(kernels *k)
{
    k->quantize = quantize_avx2;
    for (uint32_t t = 0; t < DTYPE_COUNT; t++) {
        if (!dtype_get(t)) continue;
        k->product[t] = dtype_is_quantized(t) ? product_quantized : product_float_avx2;
        k->product_exact[t] = product_float_avx2;
    }
}

#endif
