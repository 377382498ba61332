/* avx512_math.h - sixteen exponentials and hyperbolic tangents, for the AVX-512 files alone.
 *
 * MX1 A lane has the bits that math8.h gives it.
 */
#ifndef KVASIR_KERNEL_AVX512_MATH_H
#define KVASIR_KERNEL_AVX512_MATH_H

#include "kernel/math8.h"

/* e^x within -86.6 .. 88.7; elsewhere anything. */
static inline __m512 exp16_inside(__m512 x)
{
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p+0f)),
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62e4p-1f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.7f7d1cp-20f), r);
    __m512 p = _mm512_set1_ps(0.001381453825160861f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.00836874544620514f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.04166838899254799f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.1666652113199234f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.4999999403953552f));
    p = _mm512_fmadd_ps(_mm512_mul_ps(p, r), r, r);
    return _mm512_scalef_ps(_mm512_add_ps(p, _mm512_set1_ps(1.0f)), n);
}

static inline __m512 exp16(__m512 x)
{
    const __m512 low = _mm512_set1_ps(-86.6f), high = _mm512_set1_ps(88.7f);
    __m512 p = exp16_inside(_mm512_max_ps(low, _mm512_min_ps(high, x)));
    p = _mm512_mask_mov_ps(p, _mm512_cmp_ps_mask(x, high, _CMP_GT_OQ), _mm512_set1_ps(__builtin_inff()));
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, low, _CMP_NLT_UQ), p);
}

/* exp16 for x <= 0 (or NaN), in fewer steps; the same value. */
static inline __m512 exp16_falling(__m512 x)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(-86.6f), _CMP_NLT_UQ), exp16_inside(x));
}

static inline __m512 tanh16(__m512 x)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    __m512 a = _mm512_abs_ps(x);
    __m512 e = exp16(_mm512_add_ps(a, a));
    __m512 large = _mm512_sub_ps(one, _mm512_div_ps(_mm512_set1_ps(2.0f), _mm512_add_ps(e, one)));
    __m512 x2 = _mm512_mul_ps(a, a);
    __m512 p = _mm512_set1_ps(-0.005704990588128567f);
    p = _mm512_fmadd_ps(p, x2, _mm512_set1_ps(0.02063908986747265f));
    p = _mm512_fmadd_ps(p, x2, _mm512_set1_ps(-0.05373971536755562f));
    p = _mm512_fmadd_ps(p, x2, _mm512_set1_ps(0.13331441581249237f));
    p = _mm512_fmadd_ps(p, x2, _mm512_set1_ps(-0.3333328068256378f));
    __m512 small = _mm512_fmadd_ps(_mm512_mul_ps(p, x2), a, a);
    __m512 t = _mm512_mask_mov_ps(small, _mm512_cmp_ps_mask(a, _mm512_set1_ps(0.625f), _CMP_GT_OQ), large);
    return _mm512_or_ps(t, _mm512_and_ps(_mm512_set1_ps(-0.0f), x));
}

/* cap * tanh(x / cap) */
static inline __m512 softcap16(__m512 x, __m512 cap)
{
    return _mm512_mul_ps(cap, tanh16(_mm512_div_ps(x, cap)));
}

static inline __mmask16 first_lanes16(int n)
{
    return (__mmask16)((1u << n) - 1);
}

#endif
