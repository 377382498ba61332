/* Same results as the scalar quantize, bit for bit. */
#include "kernel/product_avx2.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <math.h>

#include "kernel/qblock.h"

#define QUANTIZE_MIN 0x1p-120f

static inline __m256i magnitude(__m256 x)
{
    return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7FFFFFFF));
}

/* The largest |x| of a[0], a[1] all over the low half, of b[0], b[1] all over the high one; as bits, so that a NaN is
 * largest. */
static inline __m256 two_maxima(const __m256 a[2], const __m256 b[2])
{
    __m256i ma = _mm256_max_epi32(magnitude(a[0]), magnitude(a[1])),
            mb = _mm256_max_epi32(magnitude(b[0]), magnitude(b[1]));
    __m256i m = _mm256_max_epi32(_mm256_permute2x128_si256(ma, mb, 0x20), _mm256_permute2x128_si256(ma, mb, 0x31));
    m = _mm256_max_epi32(m, _mm256_shuffle_epi32(m, 0x4E));
    m = _mm256_max_epi32(m, _mm256_shuffle_epi32(m, 0xB1));
    return _mm256_castsi256_ps(m);
}

/* Eight rounded values; zeros where keep is. */
static inline __m256i rounded(__m256 x, __m256 by, __m256 keep)
{
    return _mm256_cvtps_epi32(_mm256_and_ps(keep, _mm256_mul_ps(x, by)));
}

static inline void sums(act_strip *a, __m256i q)
{
    __m256i pairs = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), q), _mm256_set1_epi16(1));
    pairs = _mm256_add_epi32(pairs, _mm256_shuffle_epi32(pairs, 0x4E));
    pairs = _mm256_add_epi32(pairs, _mm256_shuffle_epi32(pairs, 0xB1));
    int s0 = _mm256_extract_epi32(pairs, 0), s1 = _mm256_extract_epi32(pairs, 4);
    a->sum[0] = (int16_t)s0;
    a->sum[1] = (int16_t)s1;
    a->s = fmaf(a->d[1], (float)s1, a->d[0] * (float)s0);
}

static inline void quantize_strip(const float *x, act_strip *a)
{
    const __m256 lowest = _mm256_set1_ps(QUANTIZE_MIN), infinity = _mm256_set1_ps(INFINITY),
                 most = _mm256_set1_ps(127.0f);
    __m256 h0[2] = {_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)},
           h1[2] = {_mm256_loadu_ps(x + 16), _mm256_loadu_ps(x + 24)};
    __m256 max = two_maxima(h0, h1);
    __m256 finite = _mm256_cmp_ps(max, infinity, _CMP_LT_OQ),
           some = _mm256_and_ps(finite, _mm256_cmp_ps(max, lowest, _CMP_GE_OQ));
    __m256 d = _mm256_and_ps(some, _mm256_div_ps(max, most)), inverse = _mm256_div_ps(most, max);
    d = _mm256_blendv_ps(_mm256_set1_ps(NAN), d, finite);
    __m256 inv0 = _mm256_permute2f128_ps(inverse, inverse, 0x00), inv1 = _mm256_permute2f128_ps(inverse, inverse, 0x11);
    __m256 keep0 = _mm256_permute2f128_ps(some, some, 0x00), keep1 = _mm256_permute2f128_ps(some, some, 0x11);
    __m256i low = _mm256_packs_epi32(rounded(h0[0], inv0, keep0), rounded(h0[1], inv0, keep0));
    __m256i high = _mm256_packs_epi32(rounded(h1[0], inv1, keep1), rounded(h1[1], inv1, keep1));
    __m256i q = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)a->q, q);
    a->d[0] = _mm_cvtss_f32(_mm256_castps256_ps128(d));
    a->d[1] = _mm_cvtss_f32(_mm256_extractf128_ps(d, 1));
    sums(a, q);
}

void quantize_avx2(const float *x, int64_t k, act_strip *strips, int col, int n_cols)
{
    for (int64_t s = 0; s < k / STRIP; s++) quantize_strip(x + s * STRIP, &strips[s * n_cols + col]);
}

#endif
