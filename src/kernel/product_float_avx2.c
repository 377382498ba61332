/* Products with float activations: F32, F16, BF16 weights, and every quantized type for exact runs. Each strip of a panel
 * becomes 32 x 8 floats in the first-level cache. Lane = row; the float operations are those of product_scalar.c, in the
 * same order. */
#include "kernel/product_avx2.h"

#if defined(__x86_64__)

#include "kernel/strip_avx2.h"

typedef float strip_floats[STRIP][PANEL_ROWS];

/* The four weights of each lane of code vector j. */
INLINE void code_floats(dtype t, __m256i code, __m256 scale, __m256 min, float (*out)[PANEL_ROWS])
{
    for (int b = 0; b < 4; b++) {
        __m256i v = _mm256_slli_epi32(code, 24 - 8 * b);
        v = strip_is_signed(t) ? _mm256_srai_epi32(v, 24) : _mm256_srli_epi32(v, 24);
        v = _mm256_sub_epi32(v, _mm256_set1_epi32(strip_offset(t)));
        __m256 w = _mm256_mul_ps(_mm256_cvtepi32_ps(v), scale);
        _mm256_storeu_ps(out[b], qtypes[t].has_min ? _mm256_add_ps(w, min) : w);
    }
}

INLINE void quantized_floats(dtype t, const uint8_t *block, int s, strip_floats out)
{
    strip w;
    strip_load(t, block, s, &w);
    for (int h = 0; h < 2; h++) {
        __m256 scale = w.scale, min = qtypes[t].has_min ? w.min : _mm256_setzero_ps();
        if (qtypes[t].n_scales == 16) {
            scale = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(_mm256_srai_epi32(w.scale16[h], 16)));
            if (qtypes[t].has_min) min = _mm256_mul_ps(min, _mm256_cvtepi32_ps(_mm256_srli_epi32(w.min16[h], 16 * h)));
        }
        for (int j = 0; j < 4; j++) code_floats(t, w.code[4 * h + j], scale, min, out + 16 * h + 4 * j);
    }
}

/* The switch makes the type a constant in each copy. */
static void strip_to_floats(dtype t, const uint8_t *block, int s, strip_floats out)
{
    switch (t) {
    case DTYPE_Q4_0: quantized_floats(DTYPE_Q4_0, block, s, out); break;
    case DTYPE_Q4_1: quantized_floats(DTYPE_Q4_1, block, s, out); break;
    case DTYPE_Q5_0: quantized_floats(DTYPE_Q5_0, block, s, out); break;
    case DTYPE_Q5_1: quantized_floats(DTYPE_Q5_1, block, s, out); break;
    case DTYPE_Q8_0: quantized_floats(DTYPE_Q8_0, block, s, out); break;
    case DTYPE_Q2_K: quantized_floats(DTYPE_Q2_K, block, s, out); break;
    case DTYPE_Q3_K: quantized_floats(DTYPE_Q3_K, block, s, out); break;
    case DTYPE_Q4_K: quantized_floats(DTYPE_Q4_K, block, s, out); break;
    case DTYPE_Q5_K: quantized_floats(DTYPE_Q5_K, block, s, out); break;
    case DTYPE_Q6_K: quantized_floats(DTYPE_Q6_K, block, s, out); break;
    case DTYPE_IQ4_NL: quantized_floats(DTYPE_IQ4_NL, block, s, out); break;
    case DTYPE_IQ4_XS: quantized_floats(DTYPE_IQ4_XS, block, s, out); break;
    case DTYPE_MXFP4: quantized_floats(DTYPE_MXFP4, block, s, out); break;
    default: break;
    }
}

/* Eight neighbouring elements of F32, F16 or BF16. */
INLINE __m256 load_floats(dtype t, const uint8_t *p)
{
    if (t == DTYPE_F32) return _mm256_castsi256_ps(load32(p));
    if (t == DTYPE_F16) return load_half8(p);
    __m128i h = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

INLINE void half_floats(dtype t, const uint8_t *p, int n, strip_floats out)
{
    for (int i = 0; i < n; i++) _mm256_storeu_ps(out[i], load_floats(t, p + i * PANEL_ROWS * 2));
}

/* n inputs of a panel from input `at` on, as floats: in place when they are, else in buffer. */
static const float (*panel_floats(dtype t, const uint8_t *panel, int64_t at, int n, strip_floats buffer))[PANEL_ROWS]
{
    if (t == DTYPE_F32) return (const float(*)[PANEL_ROWS])(const void *)panel + at;
    if (dtype_is_quantized(t)) {
        int64_t block = at / qtype_elems(t);
        strip_to_floats(t, panel + block * panel_block_bytes(t), (int)(at % qtype_elems(t) / STRIP), buffer);
        return (const float(*)[PANEL_ROWS])buffer;
    }
    const uint8_t *p = panel + at * PANEL_ROWS * 2;
    if (t == DTYPE_F16) half_floats(DTYPE_F16, p, n, buffer);
    else half_floats(DTYPE_BF16, p, n, buffer);
    return (const float(*)[PANEL_ROWS])buffer;
}

/* One strip times n_cols (a constant) activation rows: a chain of n products each, then one addition. */
INLINE void columns(const float (*w)[PANEL_ROWS], int n, const float *x, int64_t x_stride, int n_cols,
                    float (*sums)[PANEL_ROWS])
{
    __m256 t[8];
    for (int c = 0; c < n_cols; c++) t[c] = _mm256_setzero_ps();
    for (int i = 0; i < n; i++) {
        __m256 wi = _mm256_loadu_ps(w[i]);
        for (int c = 0; c < n_cols; c++) t[c] = _mm256_fmadd_ps(wi, _mm256_set1_ps(x[c * x_stride + i]), t[c]);
    }
    for (int c = 0; c < n_cols; c++) _mm256_storeu_ps(sums[c], _mm256_add_ps(_mm256_loadu_ps(sums[c]), t[c]));
}

static void strip_columns(const float (*w)[PANEL_ROWS], int n, const act_tile *a, int64_t at, float (*sums)[PANEL_ROWS])
{
    const float *x = a->x + at;
    int c = 0;
    for (; c + 8 <= a->n_cols; c += 8) columns(w, n, x + c * a->x_stride, a->x_stride, 8, sums + c);
    if (c + 4 <= a->n_cols) {
        columns(w, n, x + c * a->x_stride, a->x_stride, 4, sums + c);
        c += 4;
    }
    for (; c < a->n_cols; c++) columns(w, n, x + c * a->x_stride, a->x_stride, 1, sums + c);
}

#define ABREAST 4 /* panels that one activation row meets at once, so that their chains overlap */

/* n_panels (a constant, at most ABREAST) of F32, F16 or BF16 times one activation row: everything in registers. */
INLINE void float_column(dtype t, const uint8_t *panel, int n_panels, int64_t k, const float *x, float *y)
{
    const int64_t size = t == DTYPE_F32 ? 4 : 2, panel_size = k * PANEL_ROWS * size;
    __m256 sums[ABREAST], strip_sums[ABREAST];
    for (int p = 0; p < n_panels; p++) sums[p] = _mm256_setzero_ps();
    for (int64_t at = 0; at < k; at += STRIP) {
        int64_t end = k - at < STRIP ? k : at + STRIP;
        for (int p = 0; p < n_panels; p++) strip_sums[p] = _mm256_setzero_ps();
        for (int64_t i = at; i < end; i++) {
            const uint8_t *w = panel + i * PANEL_ROWS * size;
            __m256 xi = _mm256_set1_ps(x[i]);
            for (int p = 0; p < n_panels; p++)
                strip_sums[p] = _mm256_fmadd_ps(load_floats(t, w + p * panel_size), xi, strip_sums[p]);
        }
        for (int p = 0; p < n_panels; p++) sums[p] = _mm256_add_ps(sums[p], strip_sums[p]);
    }
    for (int p = 0; p < n_panels; p++) _mm256_storeu_ps(y + p * PANEL_ROWS, sums[p]);
}

INLINE void float_columns(dtype t, const uint8_t *panel, int n_panels, int64_t k, const float *x, float *y)
{
    const size_t panel_size = panel_bytes(t, k);
    int p = 0;
    for (; p + ABREAST <= n_panels; p += ABREAST)
        float_column(t, panel + (size_t)p * panel_size, ABREAST, k, x, y + p * PANEL_ROWS);
    for (; p < n_panels; p++) float_column(t, panel + (size_t)p * panel_size, 1, k, x, y + p * PANEL_ROWS);
}

static void many_columns(dtype t, const uint8_t *panel, int n_panels, int64_t k, const act_tile *a, float *y,
                         int64_t y_stride)
{
    const size_t panel_size = panel_bytes(t, k);
    for (int p = 0; p < n_panels; p++, panel += panel_size, y += PANEL_ROWS) {
        float sums[ACT_COLS][PANEL_ROWS];
        memset(sums, 0, (size_t)a->n_cols * sizeof sums[0]);
        for (int64_t at = 0; at < k; at += STRIP) {
            _Alignas(32) strip_floats buffer;
            int n = k - at < STRIP ? (int)(k - at) : STRIP;
            strip_columns(panel_floats(t, panel, at, n, buffer), n, a, at, sums);
        }
        for (int c = 0; c < a->n_cols; c++) memcpy(y + c * y_stride, sums[c], sizeof sums[c]);
    }
}

void product_float_avx2(dtype t, const void *panels, int n_panels, int64_t k, const act_tile *a, float *y,
                        int64_t y_stride)
{
    if (a->n_cols > 1 || dtype_is_quantized(t)) many_columns(t, panels, n_panels, k, a, y, y_stride);
    else if (t == DTYPE_F32) float_columns(DTYPE_F32, panels, n_panels, k, a->x, y);
    else if (t == DTYPE_F16) float_columns(DTYPE_F16, panels, n_panels, k, a->x, y);
    else float_columns(DTYPE_BF16, panels, n_panels, k, a->x, y);
}

#endif
