/* math8.h - eight exponentials, of floats and of doubles, and hyperbolic tangents, over vec8.h.
 *
 * MT1 A lane's result depends on that lane alone, so a value has the same bits in a full vector and in a padded tail.
 * MT2 Errors: exp8 under 2 ulp, tanh8 under 4 ulp. NaN stays NaN.
 */
#ifndef KVASIR_KERNEL_MATH8_H
#define KVASIR_KERNEL_MATH8_H

#include "kernel/vec8.h"

/* e^x within -86.6 .. 88.7; elsewhere anything. */
static inline f8 exp8_inside(f8 x)
{
    f8 n = f8_round(f8_mul(x, f8_splat(0x1.715476p+0f)));
    /* x = n ln 2 + r; ln 2 in two parts, the first exact when multiplied by n */
    f8 r = f8_fnma(n, f8_splat(0x1.62e4p-1f), x);
    r = f8_fnma(n, f8_splat(0x1.7f7d1cp-20f), r);
    f8 p = f8_splat(0.001381453825160861f);
    p = f8_fma(p, r, f8_splat(0.00836874544620514f));
    p = f8_fma(p, r, f8_splat(0.04166838899254799f));
    p = f8_fma(p, r, f8_splat(0.1666652113199234f));
    p = f8_fma(p, r, f8_splat(0.4999999403953552f));
    p = f8_fma(f8_mul(p, r), r, r);
    return f8_times_pow2(f8_add(p, f8_splat(1.0f)), n);
}

/* e^x; exactly 0 below -86.6 (where results near the denormals), infinity above 88.7. */
static inline f8 exp8(f8 x)
{
    const f8 low = f8_splat(-86.6f), high = f8_splat(88.7f);
    f8 p = f8_where_greater(x, high, f8_splat(__builtin_inff()), exp8_inside(f8_max(low, f8_min(high, x))));
    return f8_where_greater(low, x, f8_splat(0), p);
}

/* exp8 for x <= 0 (or NaN), in fewer steps; the same value. */
static inline f8 exp8_falling(f8 x)
{
    return f8_where_greater(f8_splat(-86.6f), x, f8_splat(0), exp8_inside(x));
}

/* 2^x for x <= 0 in double precision, within 2e-12 of it; no less than 2^-1000. */
static inline d8 exp2_d8(d8 x)
{
    const d8 whole = d8_splat(0x1.8p52); /* numbers beside it are whole, and end in their own bits */
    x = d8_max(x, d8_splat(-1000));
    d8 n = d8_add(x, whole);
    d8 r = d8_sub(x, d8_sub(n, whole));
    d8 p = d8_splat(0x1.63d136366db24p-20);
    p = d8_fma(p, r, d8_splat(0x1.00dc4a532fb8ep-16));
    p = d8_fma(p, r, d8_splat(0x1.4308ac85aa947p-13));
    p = d8_fma(p, r, d8_splat(0x1.5d8745a728441p-10));
    p = d8_fma(p, r, d8_splat(0x1.3b2ab7181b755p-7));
    p = d8_fma(p, r, d8_splat(0x1.c6b08dd6fd234p-5));
    p = d8_fma(p, r, d8_splat(0x1.ebfbdff823cedp-3));
    p = d8_fma(p, r, d8_splat(0x1.62e42fef84cf0p-1));
    p = d8_fma(p, r, d8_splat(1));
    return d8_add_exponent(p, n);
}

static inline f8 tanh8(f8 x)
{
    const f8 one = f8_splat(1.0f);
    f8 a = f8_abs(x);
    f8 e = exp8(f8_add(a, a));
    f8 large = f8_sub(one, f8_div(f8_splat(2.0f), f8_add(e, one)));
    f8 x2 = f8_mul(a, a);
    f8 p = f8_splat(-0.005704990588128567f);
    p = f8_fma(p, x2, f8_splat(0.02063908986747265f));
    p = f8_fma(p, x2, f8_splat(-0.05373971536755562f));
    p = f8_fma(p, x2, f8_splat(0.13331441581249237f));
    p = f8_fma(p, x2, f8_splat(-0.3333328068256378f));
    f8 small = f8_fma(f8_mul(p, x2), a, a);
    return f8_with_sign(f8_where_greater(a, f8_splat(0.625f), large, small), x);
}

/* cap * tanh(x / cap) */
static inline f8 softcap8(f8 x, f8 cap)
{
    return f8_mul(cap, tanh8(f8_div(x, cap)));
}

#endif
