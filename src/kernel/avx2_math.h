/* avx2_math.h - eight exponentials, eight hyperbolic tangents, and a sum across lanes, for the AVX2 files alone.
 *
 * M1 A lane's result depends on that lane alone, so a value has the same bits in a full vector and in a padded tail.
 * M2 Errors: exp8 under 2 ulp, tanh8 under 4 ulp. NaN stays NaN.
 */
#ifndef KVASIR_KERNEL_AVX2_MATH_H
#define KVASIR_KERNEL_AVX2_MATH_H

#include <immintrin.h>

/* e^x; exactly 0 below -86.6 (where results near the denormals), infinity above 88.7. */
static inline __m256 exp8(__m256 x)
{
    const __m256 low = _mm256_set1_ps(-86.6f), high = _mm256_set1_ps(88.7f);
    __m256 c = _mm256_max_ps(low, _mm256_min_ps(high, x));
    __m256 n = _mm256_round_ps(_mm256_mul_ps(c, _mm256_set1_ps(0x1.715476p+0f)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    /* c = n ln 2 + r; ln 2 in two parts, the first exact when multiplied by n */
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e4p-1f), c);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.7f7d1cp-20f), r);
    __m256 p = _mm256_set1_ps(0.001381453825160861f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.00836874544620514f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.04166838899254799f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.1666652113199234f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.4999999403953552f));
    p = _mm256_fmadd_ps(_mm256_mul_ps(p, r), r, r);
    p = _mm256_add_ps(p, _mm256_set1_ps(1.0f));
    /* 2^(n - 1), then doubled: n may be 128 */
    __m256i bits = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(126)), 23);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(bits));
    p = _mm256_add_ps(p, p);
    p = _mm256_blendv_ps(p, _mm256_set1_ps(__builtin_inff()), _mm256_cmp_ps(x, high, _CMP_GT_OQ));
    return _mm256_andnot_ps(_mm256_cmp_ps(x, low, _CMP_LT_OQ), p);
}

/* exp8 for x <= 0 (or NaN), in fewer steps; the same value. */
static inline __m256 exp8_falling(__m256 x)
{
    __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(0x1.715476p+0f)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e4p-1f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.7f7d1cp-20f), r);
    __m256 p = _mm256_set1_ps(0.001381453825160861f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.00836874544620514f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.04166838899254799f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.1666652113199234f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.4999999403953552f));
    p = _mm256_fmadd_ps(_mm256_mul_ps(p, r), r, r);
    __m256i bits = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    p = _mm256_mul_ps(_mm256_add_ps(p, _mm256_set1_ps(1.0f)), _mm256_castsi256_ps(bits));
    return _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(-86.6f), _CMP_LT_OQ), p);
}

static inline __m256 tanh8(__m256 x)
{
    const __m256 sign = _mm256_set1_ps(-0.0f), one = _mm256_set1_ps(1.0f);
    __m256 a = _mm256_andnot_ps(sign, x);
    __m256 e = exp8(_mm256_add_ps(a, a));
    __m256 large = _mm256_sub_ps(one, _mm256_div_ps(_mm256_set1_ps(2.0f), _mm256_add_ps(e, one)));
    __m256 x2 = _mm256_mul_ps(a, a);
    __m256 p = _mm256_set1_ps(-0.005704990588128567f);
    p = _mm256_fmadd_ps(p, x2, _mm256_set1_ps(0.02063908986747265f));
    p = _mm256_fmadd_ps(p, x2, _mm256_set1_ps(-0.05373971536755562f));
    p = _mm256_fmadd_ps(p, x2, _mm256_set1_ps(0.13331441581249237f));
    p = _mm256_fmadd_ps(p, x2, _mm256_set1_ps(-0.3333328068256378f));
    __m256 small = _mm256_fmadd_ps(_mm256_mul_ps(p, x2), a, a);
    __m256 t = _mm256_blendv_ps(small, large, _mm256_cmp_ps(a, _mm256_set1_ps(0.625f), _CMP_GT_OQ));
    return _mm256_or_ps(t, _mm256_and_ps(sign, x));
}

/* cap * tanh(x / cap) */
static inline __m256 softcap8(__m256 x, __m256 cap)
{
    return _mm256_mul_ps(cap, tanh8(_mm256_div_ps(x, cap)));
}

/* ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)) */
static inline float sum8(__m256 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}

/* The first n of eight lanes, for masked loads and stores. */
static inline __m256i first_lanes(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

#endif
