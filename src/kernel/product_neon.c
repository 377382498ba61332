/* What every NEON has: products without the dot-product instruction, and with float activations; quantize. */
#include "kernel/fill.h"

#if defined(__aarch64__)

#include <math.h>

#include "base/half.h"
#include "kernel/product_neon.h"

#define QUANTIZE_MIN 0x1p-120f

/* The four weights of each lane of code vector j, rows 0..3 or 4..7. */
INLINE void code_floats(dtype t, int8x16_t code, float32x4_t scale, float32x4_t min, float *out)
{
    int32x4_t lanes = vreinterpretq_s32_s8(vsubq_s8(code, vdupq_n_s8((int8_t)strip_offset(t))));
    for (int b = 0; b < 4; b++, out += PANEL_ROWS) {
        int32x4_t v = vshrq_n_s32(vshlq_s32(lanes, vdupq_n_s32(24 - 8 * b)), 24);
        float32x4_t w = vmulq_f32(vcvtq_f32_s32(v), scale);
        vst1q_f32(out, qtypes[t].has_min ? vaddq_f32(w, min) : w);
    }
}

INLINE void quantized_floats(dtype t, const uint8_t *block, int s, strip_floats out)
{
    strip w;
    strip_load(t, block, s, &w);
    for (int h = 0; h < 2; h++) {
        f8 scale = w.scale, min = qtypes[t].has_min ? w.min : f8_splat(0);
        if (qtypes[t].n_scales == 16) {
            scale = f8_mul(scale, i8_floats(w.scale16[h]));
            if (qtypes[t].has_min) min = f8_mul(min, i8_floats(w.min16[h]));
        }
        for (int j = 0; j < 4; j++) {
            float *at = out[16 * h + 4 * j];
            code_floats(t, w.code[4 * h + j].lo, scale.lo, min.lo, at);
            code_floats(t, w.code[4 * h + j].hi, scale.hi, min.hi, at + 4);
        }
    }
}

/* Eight neighbouring elements of F32, F16 or BF16. */
INLINE f8 load_floats(dtype t, const uint8_t *p)
{
    if (t == DTYPE_F32) return (f8){vreinterpretq_f32_u8(vld1q_u8(p)), vreinterpretq_f32_u8(vld1q_u8(p + 16))};
    if (t == DTYPE_F16) return f8_load_half(p);
    uint16x8_t h = vreinterpretq_u16_u8(vld1q_u8(p));
    return (f8){vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h), 16)),
                vreinterpretq_f32_u32(vshll_high_n_u16(h, 16))};
}

#include "kernel/product_float8.h"

/* Sixteen values to int8; zeros where `keep` is false. */
INLINE int8x16_t rounded(const float *x, float by, bool keep)
{
    const uint32x4_t mask = vdupq_n_u32(keep ? 0xFFFFFFFF : 0);
    int16x8_t half[2];
    for (int i = 0; i < 2; i++) {
        f8 v = f8_mul(f8_load(x + 8 * i), f8_splat(by));
        int32x4_t lo = vcvtnq_s32_f32(vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(v.lo), mask)));
        int32x4_t hi = vcvtnq_s32_f32(vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(v.hi), mask)));
        half[i] = vcombine_s16(vmovn_s32(lo), vmovn_s32(hi));
    }
    return vcombine_s8(vmovn_s16(half[0]), vmovn_s16(half[1]));
}

/* The largest |x| of sixteen, as bits, so that a NaN is the largest. */
INLINE uint32_t largest(const float *x)
{
    const uint32x4_t magnitude = vdupq_n_u32(0x7FFFFFFF);
    uint32x4_t max = vdupq_n_u32(0);
    for (int i = 0; i < 16; i += 4) max = vmaxq_u32(max, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + i)), magnitude));
    return vmaxvq_u32(max);
}

INLINE void quantize_half(const float *x, act_strip *a, int h)
{
    uint32_t bits = largest(x);
    float max = bits_float(bits);
    bool finite = bits < 0x7F800000, some = finite && max >= QUANTIZE_MIN;
    int8x16_t q = rounded(x, some ? 127.0f / max : 0, some);
    vst1q_s8(a->q + 16 * h, q);
    a->d[h] = some ? max / 127.0f : finite ? 0 : NAN;
    a->sum[h] = vaddlvq_s8(q);
}

/* Same results as the scalar one, bit for bit. */
static void quantize(const float *x, int64_t k, act_strip *strips, int col, int n_cols)
{
    for (int64_t s = 0; s < k / STRIP; s++) {
        act_strip *a = &strips[s * n_cols + col];
        for (int h = 0; h < 2; h++) quantize_half(x + s * STRIP + 16 * h, a, h);
        a->s = fmaf(a->d[1], (float)a->sum[1], a->d[0] * (float)a->sum[0]);
    }
}

void product_fill_neon(kernels *k)
{
    k->quantize = quantize;
    for (uint32_t t = 0; t < DTYPE_COUNT; t++) {
        if (!dtype_get(t)) continue;
        k->product[t] = dtype_is_quantized(t) ? product_quantized : product_float8;
        k->product_exact[t] = product_float8;
    }
}

#endif
