/* vec8.h - eight floats: one AVX2 register, or two of NEON; and eight doubles: twice as many (d8). Loops written over it serve both, and give both the same
 * bits. For files compiled for one of the two alone.
 *
 *      f8_load, f8_load_half   from memory, of any alignment of the element       f8_load_part: n < 8, zeros behind
 *      f8_fma(a, b, c)         a b + c, rounded once                              f8_fnma(a, b, c): c - a b
 *      f8_where_greater        per lane: a > b ? x : y; a NaN is not greater
 *      f8_times_pow2(x, n)     x 2^n for a whole number n in -125..128
 *      f8_evens, f8_odds       lanes 0 2 4 6 of a, then of b; lanes 1 3 5 7
 *      d8_add_exponent(x, n)   x 2^k, where n is 1.5 * 2^52 + k, k whole, and the result neither denormal nor infinite
 */
#ifndef KVASIR_KERNEL_VEC8_H
#define KVASIR_KERNEL_VEC8_H

#if defined(__x86_64__)
#include "kernel/vec8_avx2.h"
#else
#include "kernel/vec8_neon.h"
#endif

#endif
