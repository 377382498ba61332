/* Products with float activations: F32, F16, BF16 weights, and every quantized type for exact runs, each strip of which
 * becomes 32 x 8 floats in the first-level cache. Lane = row; the float operations are those of product_scalar.c, in
 * the same order. */
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

/* One strip times n_cols (a constant) activation rows: a chain of products each, then one addition. */
INLINE void columns(const float (*w)[PANEL_ROWS], const float *x, int64_t x_stride, int n_cols,
                    float (*sums)[PANEL_ROWS])
{
    __m256 t[8];
    for (int c = 0; c < n_cols; c++) t[c] = _mm256_setzero_ps();
    for (int i = 0; i < STRIP; i++) {
        __m256 wi = _mm256_loadu_ps(w[i]);
        for (int c = 0; c < n_cols; c++) t[c] = _mm256_fmadd_ps(wi, _mm256_set1_ps(x[c * x_stride + i]), t[c]);
    }
    for (int c = 0; c < n_cols; c++) _mm256_storeu_ps(sums[c], _mm256_add_ps(_mm256_loadu_ps(sums[c]), t[c]));
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
    __m256 sums[ABREAST][4], strip_sums[ABREAST][4];
    for (int p = 0; p < n_panels; p++)
        for (int c = 0; c < n_cols; c++) sums[p][c] = _mm256_setzero_ps();
    for (int64_t at = 0; at < k; at += STRIP) {
        int64_t end = k - at < STRIP ? k : at + STRIP;
        for (int p = 0; p < n_panels; p++)
            for (int c = 0; c < n_cols; c++) strip_sums[p][c] = _mm256_setzero_ps();
        for (int64_t i = at; i < end; i++)
            for (int p = 0; p < n_panels; p++) {
                __m256 w = load_floats(t, panel + i * PANEL_ROWS * size + p * panel_size);
                for (int c = 0; c < n_cols; c++)
                    strip_sums[p][c] = _mm256_fmadd_ps(w, _mm256_set1_ps(x[c * a->x_stride + i]), strip_sums[p][c]);
            }
        for (int p = 0; p < n_panels; p++)
            for (int c = 0; c < n_cols; c++) sums[p][c] = _mm256_add_ps(sums[p][c], strip_sums[p][c]);
    }
    for (int p = 0; p < n_panels; p++)
        for (int c = 0; c < n_cols; c++) _mm256_storeu_ps(y + (first + c) * y_stride + p * PANEL_ROWS, sums[p][c]);
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

void product_float_avx2(dtype t, const void *panels, int n_panels, int64_t k, const act_tile *a, float *y,
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
