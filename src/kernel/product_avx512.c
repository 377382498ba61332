/* Products of quantized weights and int8 activations with AVX-512 VNNI. Lane = row; two panels fill a register, the
 * first in the low half. The float operations are those of product_scalar.c, in the same order. */
#include "kernel/fill.h"

#if defined(__x86_64__)

#include "kernel/strip_avx2.h"

#define GROUP 4 /* panels that share one pass over a tile's activations */
/* Bytes between the prefetch and the read of one column: the hardware's own stops at each page's end. */
#define AHEAD 4096

/* A strip of two panels. Codes are unsigned, what to subtract from them is code_offset(). */
typedef struct strip_pair {
    __m512i code[8];
    __m512 scale, min;
    __m512i scale16[2]; /* as int32 */
    __m512i min16[2];   /* as in strip */
} strip_pair;

INLINE int code_offset(dtype t)
{
    return strip_is_signed(t) ? 128 : strip_offset(t);
}

/* Two int16: minus the offset at place h, which meets that half's sum of activations, and 0. */
INLINE int minus_offset(dtype t, int h)
{
    return (int)(((unsigned)-code_offset(t) & 0xFFFF) << 16 * h);
}

INLINE __m512i join(__m256i low, __m256i high)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

INLINE __m512 join_floats(__m256 low, __m256 high)
{
    return _mm512_castsi512_ps(join(_mm256_castps_si256(low), _mm256_castps_si256(high)));
}

/* Strip s of the blocks at a and b. */
INLINE void pair_load(dtype t, const uint8_t *a, const uint8_t *b, int s, strip_pair *out)
{
    strip low, high;
    strip_load(t, a, s, &low);
    strip_load(t, b, s, &high);
    for (int i = 0; i < 8; i++) {
        out->code[i] = join(low.code[i], high.code[i]);
        if (strip_is_signed(t)) out->code[i] = _mm512_xor_si512(out->code[i], _mm512_set1_epi8((char)0x80));
    }
    out->scale = join_floats(low.scale, high.scale);
    if (qtypes[t].has_min) out->min = join_floats(low.min, high.min);
    if (qtypes[t].n_scales != 16) return;
    for (int h = 0; h < 2; h++) {
        out->scale16[h] = _mm512_srai_epi32(join(low.scale16[h], high.scale16[h]), 16);
        if (qtypes[t].has_min) out->min16[h] = join(low.min16[h], high.min16[h]);
    }
}

INLINE __m512i four_bytes(const void *p)
{
    int32_t v;
    memcpy(&v, p, 4);
    return _mm512_set1_epi32(v);
}

/* sum plus the products of half a strip. */
INLINE __m512i half_dot(const __m512i code[4], const int8_t q[16], __m512i sum)
{
    sum = _mm512_dpbusd_epi32(sum, code[0], four_bytes(q));
    sum = _mm512_dpbusd_epi32(sum, code[1], four_bytes(q + 4));
    sum = _mm512_dpbusd_epi32(sum, code[2], four_bytes(q + 8));
    return _mm512_dpbusd_epi32(sum, code[3], four_bytes(q + 12));
}

/* f(i0) * d0 + f(i1) * d1 */
INLINE __m512 scaled(__m512i i0, __m512i i1, const act_strip *a)
{
    __m512 t = _mm512_mul_ps(_mm512_cvtepi32_ps(i0), _mm512_set1_ps(a->d[0]));
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(i1), _mm512_set1_ps(a->d[1]), t);
}

/* y plus the product of a strip with one activation row's. */
INLINE __m512 strip_product(dtype t, const strip_pair *w, const act_strip *a, __m512 y)
{
    const bool by_half = qtypes[t].n_scales == 16;
    __m512i i0 = _mm512_setzero_si512(), i1 = i0, sums = four_bytes(a->sum);
    if (code_offset(t)) {
        i0 = _mm512_dpwssd_epi32(i0, sums, _mm512_set1_epi32(minus_offset(t, 0)));
        i1 = _mm512_dpwssd_epi32(i1, sums, _mm512_set1_epi32(minus_offset(t, 1)));
    }
    i0 = half_dot(w->code, a->q, i0);
    i1 = half_dot(w->code + 4, a->q + 16, i1);
    if (by_half) {
        i0 = _mm512_mullo_epi32(i0, w->scale16[0]);
        i1 = _mm512_mullo_epi32(i1, w->scale16[1]);
    }
    y = _mm512_fmadd_ps(scaled(i0, i1, a), w->scale, y);
    if (!qtypes[t].has_min) return y;
    if (!by_half) return _mm512_fmadd_ps(w->min, _mm512_set1_ps(a->s), y);
    __m512 u = scaled(_mm512_madd_epi16(sums, w->min16[0]), _mm512_madd_epi16(sums, w->min16[1]), a);
    return _mm512_fmadd_ps(w->min, u, y);
}

/* The same with one panel, in half the width. */
INLINE __m256i narrow_half_dot(dtype t, const __m256i code[4], const int8_t q[16], __m256i sum)
{
    const __m256i flip = _mm256_set1_epi8(strip_is_signed(t) ? (char)0x80 : 0);
    for (int j = 0; j < 4; j++) {
        int32_t v;
        memcpy(&v, q + 4 * j, 4);
        sum = _mm256_dpbusd_epi32(sum, _mm256_xor_si256(code[j], flip), _mm256_set1_epi32(v));
    }
    return sum;
}

INLINE __m256 narrow_scaled(__m256i i0, __m256i i1, const act_strip *a)
{
    __m256 t = _mm256_mul_ps(_mm256_cvtepi32_ps(i0), _mm256_set1_ps(a->d[0]));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(i1), _mm256_set1_ps(a->d[1]), t);
}

INLINE __m256 narrow_strip_product(dtype t, const strip *w, const act_strip *a, __m256 y)
{
    const bool by_half = qtypes[t].n_scales == 16;
    __m256i i0 = _mm256_setzero_si256(), i1 = i0, sums = _mm512_castsi512_si256(four_bytes(a->sum));
    if (code_offset(t)) {
        i0 = _mm256_dpwssd_epi32(i0, sums, _mm256_set1_epi32(minus_offset(t, 0)));
        i1 = _mm256_dpwssd_epi32(i1, sums, _mm256_set1_epi32(minus_offset(t, 1)));
    }
    i0 = narrow_half_dot(t, w->code, a->q, i0);
    i1 = narrow_half_dot(t, w->code + 4, a->q + 16, i1);
    if (by_half) {
        i0 = _mm256_mullo_epi32(i0, _mm256_srai_epi32(w->scale16[0], 16));
        i1 = _mm256_mullo_epi32(i1, _mm256_srai_epi32(w->scale16[1], 16));
    }
    y = _mm256_fmadd_ps(narrow_scaled(i0, i1, a), w->scale, y);
    if (!qtypes[t].has_min) return y;
    if (!by_half) return _mm256_fmadd_ps(w->min, _mm256_set1_ps(a->s), y);
    __m256 u = narrow_scaled(_mm256_madd_epi16(sums, w->min16[0]), _mm256_madd_epi16(sums, w->min16[1]), a);
    return _mm256_fmadd_ps(w->min, u, y);
}

/* One panel times one activation row: the sum in a register. A panel at a time, since that reads memory in one long
 * run; two side by side in the full width stream at half the speed. */
INLINE void one_column(dtype t, const uint8_t *block, int64_t k, const act_strip *a, float *y)
{
    __m256 sum = _mm256_setzero_ps();
    for (int64_t i = 0; i < k / qtype_elems(t); i++, block += panel_block_bytes(t))
        for (int s = 0; s < qtypes[t].strips; s++, a++) {
            strip w;
            prefetch_strip(t, (uintptr_t)block + AHEAD, s, true);
            strip_load(t, block, s, &w);
            sum = narrow_strip_product(t, &w, a, sum);
        }
    _mm256_storeu_ps(y, sum);
}

/* n_panels <= GROUP times many activation rows: a strip is unpacked once, the sums wait in the first-level cache. */
INLINE void many_columns(dtype t, const uint8_t *panel, int n_panels, int64_t k, const act_tile *tile, float *y,
                         int64_t y_stride)
{
    _Alignas(64) float sums[GROUP / 2][ACT_COLS][2 * PANEL_ROWS];
    const int64_t size = k / qtype_elems(t) * panel_block_bytes(t);
    const act_strip *a = tile->strips;
    const int n = tile->n_cols;
    for (int p = 0; p < n_panels; p += 2) memset(sums[p / 2], 0, (size_t)n * sizeof sums[0][0]);
    for (int64_t i = 0; i < k / qtype_elems(t); i++, panel += panel_block_bytes(t))
        for (int s = 0; s < qtypes[t].strips; s++, a += n)
            for (int p = 0; p < n_panels; p += 2) {
                const uint8_t *low = panel + p * size, *high = p + 1 < n_panels ? low + size : low;
                float(*sum)[2 * PANEL_ROWS] = sums[p / 2];
                strip_pair w;
                prefetch_strip(t, (uintptr_t)low + (uintptr_t)(n_panels * size), s, false);
                prefetch_strip(t, (uintptr_t)high + (uintptr_t)(n_panels * size), s, false);
                pair_load(t, low, high, s, &w);
                for (int c = 0; c < n; c++)
                    _mm512_store_ps(sum[c], strip_product(t, &w, &a[c], _mm512_load_ps(sum[c])));
            }
    for (int c = 0; c < n; c++)
        for (int p = 0; p < n_panels; p++)
            memcpy(y + c * y_stride + p * PANEL_ROWS, sums[p / 2][c] + p % 2 * PANEL_ROWS, PANEL_ROWS * sizeof *y);
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

void product_fill_avx512(kernels *k)
{
    for (uint32_t t = 0; t < DTYPE_COUNT; t++)
        if (dtype_get(t) && dtype_is_quantized(t)) k->product[t] = product_quantized;
}

#endif
