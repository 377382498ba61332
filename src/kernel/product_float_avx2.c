#include "kernel/product_avx2.h"

#if defined(__x86_64__)

#include "kernel/strip_avx2.h"
#include "kernel/vec8.h"

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

/* Eight neighbouring elements of F32, F16 or BF16. */
INLINE f8 load_floats(dtype t, const uint8_t *p)
{
    if (t == DTYPE_F32) return _mm256_castsi256_ps(load32(p));
    if (t == DTYPE_F16) return load_half8(p);
    __m128i h = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

#include "kernel/product_float8.h"

void product_float_avx2(dtype t, const void *panels, int n_panels, int64_t k, const act_tile *a, float *y,
                        int64_t y_stride)
{
    product_float8(t, panels, n_panels, k, a, y, y_stride);
}

#endif
