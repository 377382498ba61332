/* vec8_neon.h - vec8.h for NEON. */
#ifndef KVASIR_KERNEL_VEC8_NEON_H
#define KVASIR_KERNEL_VEC8_NEON_H

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

typedef struct f8 {
    float32x4_t lo, hi;
} f8;

static inline f8 f8_load(const float *p)
{
    return (f8){vld1q_f32(p), vld1q_f32(p + 4)};
}

static inline f8 f8_load_part(const float *p, int n)
{
    float all[8] = {0};
    memcpy(all, p, (size_t)n * sizeof *p);
    return f8_load(all);
}

static inline f8 f8_load_half(const uint8_t *p)
{
    float16x8_t h = vreinterpretq_f16_u8(vld1q_u8(p));
    return (f8){vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)};
}

static inline void f8_store(float *p, f8 x)
{
    vst1q_f32(p, x.lo);
    vst1q_f32(p + 4, x.hi);
}

static inline void f8_store_part(float *p, int n, f8 x)
{
    float all[8];
    f8_store(all, x);
    memcpy(p, all, (size_t)n * sizeof *p);
}

/* Lanes begin..end - 1 to p[begin], ... */
static inline void f8_store_lanes(float *p, int begin, int end, f8 x)
{
    float all[8];
    f8_store(all, x);
    memcpy(p + begin, all + begin, (size_t)(end - begin) * sizeof *p);
}

static inline void f8_store_half(uint16_t *p, f8 x)
{
    vst1q_u16(p, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.lo), x.hi)));
}

static inline f8 f8_splat(float x)
{
    return (f8){vdupq_n_f32(x), vdupq_n_f32(x)};
}

static inline f8 f8_add(f8 a, f8 b)
{
    return (f8){vaddq_f32(a.lo, b.lo), vaddq_f32(a.hi, b.hi)};
}

static inline f8 f8_sub(f8 a, f8 b)
{
    return (f8){vsubq_f32(a.lo, b.lo), vsubq_f32(a.hi, b.hi)};
}

static inline f8 f8_mul(f8 a, f8 b)
{
    return (f8){vmulq_f32(a.lo, b.lo), vmulq_f32(a.hi, b.hi)};
}

static inline f8 f8_div(f8 a, f8 b)
{
    return (f8){vdivq_f32(a.lo, b.lo), vdivq_f32(a.hi, b.hi)};
}

static inline f8 f8_fma(f8 a, f8 b, f8 c)
{
    return (f8){vfmaq_f32(c.lo, a.lo, b.lo), vfmaq_f32(c.hi, a.hi, b.hi)};
}

static inline f8 f8_fnma(f8 a, f8 b, f8 c)
{
    return (f8){vfmsq_f32(c.lo, a.lo, b.lo), vfmsq_f32(c.hi, a.hi, b.hi)};
}

static inline f8 f8_min(f8 a, f8 b)
{
    return (f8){vminq_f32(a.lo, b.lo), vminq_f32(a.hi, b.hi)};
}

static inline f8 f8_max(f8 a, f8 b)
{
    return (f8){vmaxq_f32(a.lo, b.lo), vmaxq_f32(a.hi, b.hi)};
}

/* The larger; b where a is NaN. */
static inline f8 f8_max_number(f8 a, f8 b)
{
    return (f8){vmaxnmq_f32(a.lo, b.lo), vmaxnmq_f32(a.hi, b.hi)};
}

static inline f8 f8_neg(f8 x)
{
    return (f8){vnegq_f32(x.lo), vnegq_f32(x.hi)};
}

static inline f8 f8_abs(f8 x)
{
    return (f8){vabsq_f32(x.lo), vabsq_f32(x.hi)};
}

/* The positive x with the sign of s. */
static inline f8 f8_with_sign(f8 x, f8 s)
{
    const uint32x4_t sign = vdupq_n_u32(0x80000000);
    return (f8){vbslq_f32(sign, s.lo, x.lo), vbslq_f32(sign, s.hi, x.hi)};
}

/* To the nearest whole number, halves to the even one. */
static inline f8 f8_round(f8 x)
{
    return (f8){vrndnq_f32(x.lo), vrndnq_f32(x.hi)};
}

static inline f8 f8_where_greater(f8 a, f8 b, f8 x, f8 y)
{
    return (f8){vbslq_f32(vcgtq_f32(a.lo, b.lo), x.lo, y.lo), vbslq_f32(vcgtq_f32(a.hi, b.hi), x.hi, y.hi)};
}

static inline float32x4_t half_pow2(float32x4_t n)
{
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(126)), 23));
}

/* By 2^(n - 1), then doubled: n may be 128. */
static inline f8 f8_times_pow2(f8 x, f8 n)
{
    x = f8_mul(x, (f8){half_pow2(n.lo), half_pow2(n.hi)});
    return f8_add(x, x);
}

/* ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)) */
static inline float sum8(f8 x)
{
    float32x4_t s = vaddq_f32(x.lo, x.hi);
    float32x2_t t = vadd_f32(vget_low_f32(s), vget_high_f32(s));
    return vget_lane_f32(t, 0) + vget_lane_f32(t, 1);
}

static inline float f8_first(f8 x)
{
    return vgetq_lane_f32(x.lo, 0);
}

static inline f8 f8_evens(f8 a, f8 b)
{
    return (f8){vuzp1q_f32(a.lo, a.hi), vuzp1q_f32(b.lo, b.hi)};
}

static inline f8 f8_odds(f8 a, f8 b)
{
    return (f8){vuzp2q_f32(a.lo, a.hi), vuzp2q_f32(b.lo, b.hi)};
}

static inline float32x4_t turn_two_pairs(float32x4_t x, float32x4_t cos_sin)
{
    float32x4_t turned = vmulq_f32(vrev64q_f32(x), vtrn2q_f32(cos_sin, cos_sin)); /* b s, a s */
    const uint32x4_t minus = vreinterpretq_u32_u64(vdupq_n_u64(0x80000000));
    turned = vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(turned), minus));
    return vfmaq_f32(turned, x, vtrn1q_f32(cos_sin, cos_sin));
}

/* Pairs (a, b) turned by pairs (cos, sin): fma(a, c, -(b s)), fma(b, c, a s). */
static inline f8 f8_turn_pairs(f8 x, f8 cos_sin)
{
    return (f8){turn_two_pairs(x.lo, cos_sin.lo), turn_two_pairs(x.hi, cos_sin.hi)};
}

typedef struct d8 {
    float64x2_t v[4];
} d8;

static inline d8 d8_splat(double x)
{
    float64x2_t v = vdupq_n_f64(x);
    return (d8){{v, v, v, v}};
}

static inline d8 d8_widen(f8 x)
{
    return (d8){{vcvt_f64_f32(vget_low_f32(x.lo)), vcvt_high_f64_f32(x.lo), vcvt_f64_f32(vget_low_f32(x.hi)),
                 vcvt_high_f64_f32(x.hi)}};
}

static inline d8 d8_add(d8 a, d8 b)
{
    for (int i = 0; i < 4; i++) a.v[i] = vaddq_f64(a.v[i], b.v[i]);
    return a;
}

static inline d8 d8_sub(d8 a, d8 b)
{
    for (int i = 0; i < 4; i++) a.v[i] = vsubq_f64(a.v[i], b.v[i]);
    return a;
}

static inline d8 d8_mul(d8 a, d8 b)
{
    for (int i = 0; i < 4; i++) a.v[i] = vmulq_f64(a.v[i], b.v[i]);
    return a;
}

static inline d8 d8_max(d8 a, d8 b)
{
    for (int i = 0; i < 4; i++) a.v[i] = vmaxq_f64(a.v[i], b.v[i]);
    return a;
}

static inline d8 d8_fma(d8 a, d8 b, d8 c)
{
    for (int i = 0; i < 4; i++) c.v[i] = vfmaq_f64(c.v[i], a.v[i], b.v[i]);
    return c;
}

static inline d8 d8_add_exponent(d8 x, d8 n)
{
    for (int i = 0; i < 4; i++) {
        int64x2_t k = vshlq_n_s64(vreinterpretq_s64_f64(n.v[i]), 52);
        x.v[i] = vreinterpretq_f64_s64(vaddq_s64(vreinterpretq_s64_f64(x.v[i]), k));
    }
    return x;
}

/* ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)) */
static inline double sum_d8(d8 x)
{
    return vaddvq_f64(vaddq_f64(vaddq_f64(x.v[0], x.v[2]), vaddq_f64(x.v[1], x.v[3])));
}

#endif
