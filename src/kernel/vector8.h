/* vector8.h - the kernels over rows of floats, over vec8.h: what vector_avx2.c and vector_neon.c are made of.
 *
 * Tails go through padded vectors, so that an element's bits don't depend on where in the row it lies. Only tails: some
 * processors take a dozen cycles for a masked store.
 */
#ifndef KVASIR_KERNEL_VECTOR8_H
#define KVASIR_KERNEL_VECTOR8_H

#include <math.h>

#include "kernel/kernel.h"
#include "kernel/math8.h"

/* Eight elements from i on, zeros behind the n-th. */
static inline f8 load_at(const float *x, int64_t i, int64_t n)
{
    return n - i >= 8 ? f8_load(x + i) : f8_load_part(x + i, (int)(n - i));
}

static inline void store_at(float *x, int64_t i, int64_t n, f8 v)
{
    if (n - i >= 8) f8_store(x + i, v);
    else f8_store_part(x + i, (int)(n - i), v);
}

/* Lane j of accumulator a sums elements 32i + 8a + j; then one tree. */
static float sum_of_squares(const float *x, int64_t n)
{
    f8 s[4] = {f8_splat(0), f8_splat(0), f8_splat(0), f8_splat(0)};
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        for (int a = 0; a < 4; a++) {
            f8 v = f8_load(x + i + 8 * a);
            s[a] = f8_fma(v, v, s[a]);
        }
    }
    for (int a = 0; i < n; i += 8, a++) {
        f8 v = load_at(x, i, n);
        s[a] = f8_fma(v, v, s[a]);
    }
    return sum8(f8_add(f8_add(s[0], s[1]), f8_add(s[2], s[3])));
}

static void rms_norm(const float *x, const float *weight, float eps, int64_t n, float *out)
{
    f8 inverse = f8_splat(1.0f / sqrtf(sum_of_squares(x, n) / (float)n + eps));
    for (int64_t i = 0; i < n; i += 8) {
        f8 v = f8_mul(load_at(x, i, n), inverse);
        store_at(out, i, n, f8_mul(v, load_at(weight, i, n)));
    }
}

static void add(const float *x, const float *y, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i += 8) store_at(out, i, n, f8_add(load_at(x, i, n), load_at(y, i, n)));
}

static void scale(const float *x, float by, int64_t n, float *out)
{
    f8 b = f8_splat(by);
    for (int64_t i = 0; i < n; i += 8) store_at(out, i, n, f8_mul(load_at(x, i, n), b));
}

/* x / (1 + e^minus_z) */
static inline f8 gate8(f8 x, f8 minus_z)
{
    return f8_div(x, f8_add(f8_splat(1.0f), exp8(minus_z)));
}

static void silu_mul(const float *gate, const float *up, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i += 8) {
        f8 x = load_at(gate, i, n);
        store_at(out, i, n, f8_mul(gate8(x, f8_neg(x)), load_at(up, i, n)));
    }
}

/* gelu_tanh(x) = x / (1 + e^(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3) */
static void gelu_mul(const float *gate, const float *up, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i += 8) {
        f8 x = load_at(gate, i, n);
        f8 u = f8_fma(f8_mul(f8_mul(x, x), x), f8_splat(0.044715f), x);
        f8 y = gate8(x, f8_mul(u, f8_splat(-1.5957691216057308f)));
        store_at(out, i, n, f8_mul(y, load_at(up, i, n)));
    }
}

static void softcap(const float *x, float cap, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i += 8) store_at(out, i, n, softcap8(load_at(x, i, n), f8_splat(cap)));
}

static void rope_pairs(float *x, int n_rot, const float *cos_sin)
{
    for (int i = 0; i < n_rot; i += 8)
        store_at(x, i, n_rot, f8_turn_pairs(load_at(x, i, n_rot), load_at(cos_sin, i, n_rot)));
}

/* The same arithmetic as f8_turn_pairs. */
static void rope_halves(float *x, int n_rot, const float *cos_sin)
{
    int half = n_rot / 2;
    for (int i = 0; i < half; i += 8) {
        f8 lo = load_at(cos_sin, 2 * i, n_rot);
        f8 hi = i + 4 < half ? load_at(cos_sin, 2 * i + 8, n_rot) : f8_splat(0);
        f8 c = f8_evens(lo, hi), s = f8_odds(lo, hi);
        f8 a = load_at(x, i, half), b = load_at(x + half, i, half);
        store_at(x, i, half, f8_fma(a, c, f8_neg(f8_mul(b, s))));
        store_at(x + half, i, half, f8_fma(b, c, f8_mul(a, s)));
    }
}

static void rope(float *x, int n_heads, int64_t head_stride, int n_rot, const float *cos_sin, rope_style style)
{
    for (int h = 0; h < n_heads; h++, x += head_stride) {
        if (style == ROPE_PAIRS) rope_pairs(x, n_rot, cos_sin);
        else rope_halves(x, n_rot, cos_sin);
    }
}

static void to_half(const float *x, int64_t n, uint16_t *out)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) f8_store_half(out + i, f8_load(x + i));
    if (i == n) return;
    uint16_t last[8];
    f8_store_half(last, load_at(x, i, n));
    for (int64_t j = i; j < n; j++) out[j] = last[j - i];
}

/* Zero times a number is zero, times anything else NaN, and stays so in the sum. */
static bool span_max(const float *x, int64_t n, float *largest)
{
    f8 odd = f8_splat(0);
    for (int64_t begin = 0; begin < n; begin += SPAN) {
        f8 most = f8_splat(x[begin]);
        int64_t end = n - begin < SPAN ? n : begin + SPAN, i = begin;
        for (; i + 8 <= end; i += 8) {
            f8 v = f8_load(x + i);
            most = f8_max(most, v);
            odd = f8_fma(v, f8_splat(0), odd);
        }
        for (; i < end; i++) {
            f8 v = f8_splat(x[i]);
            most = f8_max(most, v);
            odd = f8_fma(v, f8_splat(0), odd);
        }
        float lanes[8];
        f8_store(lanes, most);
        for (int j = 1; j < 8; j++) lanes[0] = lanes[0] < lanes[j] ? lanes[j] : lanes[0];
        *largest++ = lanes[0];
    }
    return sum8(odd) == 0;
}

static double sum_exp(const float *x, int64_t n, float top, double by)
{
    const d8 largest = d8_splat(top), scale = d8_splat(by * 0x1.71547652b82fep+0); /* 1 / ln 2 */
    d8 s[2] = {d8_splat(0), d8_splat(0)};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int a = 0; a < 2; a++)
            s[a] = d8_add(s[a], exp2_d8(d8_mul(d8_sub(d8_widen(f8_load(x + i + 8 * a)), largest), scale)));
    for (; i < n; i += 8) {
        float last[8];
        for (int j = 0; j < 8; j++) last[j] = i + j < n ? x[i + j] : -INFINITY;
        s[0] = d8_add(s[0], exp2_d8(d8_mul(d8_sub(d8_widen(f8_load(last)), largest), scale)));
    }
    return sum_d8(d8_add(s[0], s[1]));
}

/* Of numbers up to 0: four vectors are added in single precision, lane by lane, and these sums in double. Arguments down
 * to -20 are off by less than 20 * 3 * 2^-24 (the difference, the factor, the product), exponentials by 2 ulp and the two
 * additions by 1 ulp, 4.1e-6 together; behind -20 all of 2^24 are off by less than 2e-7, the sum being at least 1. */
static double sum_exp_f32(const float *x, int64_t n, float top, float by)
{
    const f8 largest = f8_splat(top), factor = f8_splat(by);
    d8 s = d8_splat(0);
    for (int64_t i = 0; i < n; i += 32) {
        float last[32];
        const float *v = x + i;
        if (n - i < 32) {
            for (int j = 0; j < 32; j++) last[j] = i + j < n ? x[i + j] : -INFINITY;
            v = last;
        }
        f8 e[4];
        for (int a = 0; a < 4; a++) e[a] = exp8_falling(f8_mul(f8_sub(f8_load(v + 8 * a), largest), factor));
        s = d8_add(s, d8_widen(f8_add(f8_add(e[0], e[2]), f8_add(e[1], e[3]))));
    }
    return sum_d8(s);
}

static void vector8_fill(kernels *k)
{
    k->rms_norm = rms_norm;
    k->add = add;
    k->scale = scale;
    k->silu_mul = silu_mul;
    k->gelu_mul = gelu_mul;
    k->softcap = softcap;
    k->rope = rope;
    k->to_half = to_half;
    k->span_max = span_max;
    k->sum_exp = sum_exp;
    k->sum_exp_f32 = sum_exp_f32;
}

#endif
