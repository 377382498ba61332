/* strip_neon.h - a panel's strip in registers, for the NEON files alone. Panel bytes: see panel.h.
 *
 * Every function is inlined with a constant type, so that a strip's arrays are registers and its switches vanish.
 */
#ifndef KVASIR_KERNEL_STRIP_NEON_H
#define KVASIR_KERNEL_STRIP_NEON_H

#include <string.h>

#include "kernel/panel.h"
#include "kernel/vec8.h"

/* A vector of the panel: 8 lanes (rows) of four bytes, rows 0..3 in lo. */
typedef struct b32 {
    int8x16_t lo, hi;
} b32;

typedef struct i8 {
    int32x4_t lo, hi;
} i8;

/* Codes of half h: code[4 h + j], signed; to get the value, strip_offset is subtracted. */
typedef struct strip {
    b32 code[8];
    f8 scale, min;           /* one scale per 32 inputs: of the strip, min to be added; scales per 16: d, and -dmin */
    i8 scale16[2], min16[2]; /* scales per 16, minimums per 16: of each half */
} strip;

/* What to subtract from a code in a strip to get the value. */
INLINE int strip_offset(dtype t)
{
    return qtypes[t].offset;
}

INLINE f8 i8_floats(i8 x)
{
    return (f8){vcvtq_f32_s32(x.lo), vcvtq_f32_s32(x.hi)};
}

/* Eight bytes to 32-bit lanes. */
INLINE i8 load_i8(const uint8_t *p)
{
    int16x8_t x = vmovl_s8(vld1_s8((const int8_t *)p));
    return (i8){vmovl_s16(vget_low_s16(x)), vmovl_s16(vget_high_s16(x))};
}

INLINE i8 load_u8(const uint8_t *p)
{
    int16x8_t x = vreinterpretq_s16_u16(vmovl_u8(vld1_u8(p)));
    return (i8){vmovl_s16(vget_low_s16(x)), vmovl_s16(vget_high_s16(x))};
}

/* 2^(e - 128): below the normal numbers for e < 2 */
INLINE float32x4_t exponent_floats(int32x4_t e)
{
    const int32x4_t one = vdupq_n_s32(1);
    int32x4_t small = vshlq_s32(vdupq_n_s32(0x00200000), e), normal = vshlq_n_s32(vsubq_s32(e, one), 23);
    return vreinterpretq_f32_s32(vbslq_s32(vcgtq_s32(e, one), normal, small));
}

INLINE f8 load_d(dtype t, const uint8_t *p)
{
    if (t != DTYPE_MXFP4) return f8_load_half(p);
    i8 e = load_u8(p);
    return (f8){exponent_floats(e.lo), exponent_floats(e.hi)};
}

INLINE b32 load32(const uint8_t *p)
{
    return (b32){vreinterpretq_s8_u8(vld1q_u8(p)), vreinterpretq_s8_u8(vld1q_u8(p + 16))};
}

/* Bits [from, from + count) of every byte to bits [to, ...): constant arguments. */
INLINE int8x16_t move_bits(int8x16_t v, int from, int to, int count)
{
    uint8x16_t u = vreinterpretq_u8_s8(v);
    if (from != to) u = vshlq_u8(u, vdupq_n_s8((int8_t)(to - from)));
    return vreinterpretq_s8_u8(vandq_u8(u, vdupq_n_u8((uint8_t)(((1 << count) - 1) << to))));
}

INLINE b32 or_bits(b32 code, b32 v, int from, int to, int count)
{
    return (b32){vorrq_s8(code.lo, move_bits(v.lo, from, to, count)),
                 vorrq_s8(code.hi, move_bits(v.hi, from, to, count))};
}

INLINE void load_nibbles(const uint8_t *plane, b32 code[8])
{
    for (int j = 0; j < 4; j++) {
        b32 v = load32(plane + 32 * j);
        code[j] = (b32){move_bits(v.lo, 0, 0, 4), move_bits(v.hi, 0, 0, 4)};
        code[4 + j] = (b32){move_bits(v.lo, 4, 0, 4), move_bits(v.hi, 4, 0, 4)};
    }
}

INLINE void or_pairs(const uint8_t *plane, int to, b32 code[8])
{
    b32 a = load32(plane), b = load32(plane + 32);
    for (int j = 0; j < 4; j++) {
        code[j] = or_bits(code[j], a, 2 * j, to, 2);
        code[4 + j] = or_bits(code[4 + j], b, 2 * j, to, 2);
    }
}

INLINE void or_bit(const uint8_t *plane, int to, b32 code[8])
{
    b32 v = load32(plane);
    for (int j = 0; j < 8; j++) code[j] = or_bits(code[j], v, j, to, 1);
}

INLINE void look_up(const int8_t *book, b32 code[8])
{
    int8x16_t table = vld1q_s8(book);
    for (int j = 0; j < 8; j++) {
        code[j].lo = vqtbl1q_s8(table, vreinterpretq_u8_s8(code[j].lo));
        code[j].hi = vqtbl1q_s8(table, vreinterpretq_u8_s8(code[j].hi));
    }
}

INLINE void load_codes(dtype t, const uint8_t *p, b32 code[8])
{
    const uint8_t *rest = p + panel_low_bytes(t);
    const int bits = qtypes[t].bits;
    if (bits == 8) {
        for (int j = 0; j < 8; j++) code[j] = load32(p + 32 * j);
        return;
    }
    if (bits >= 4) load_nibbles(p, code);
    else {
        for (int j = 0; j < 8; j++) code[j].lo = code[j].hi = vdupq_n_s8(0);
        or_pairs(p, 0, code);
    }
    if (bits == 3) or_bit(rest, 2, code);
    if (bits == 5) or_bit(rest, 4, code);
    if (bits == 6) or_pairs(rest, 4, code);
    if (t == DTYPE_IQ4_NL || t == DTYPE_IQ4_XS) look_up(qcodes_iq4, code);
    if (t == DTYPE_MXFP4) look_up(qcodes_mxfp4, code);
}

/* The scale (and minimum) of each row for half h of strip s. */
INLINE void load_scale16(dtype t, const uint8_t *block, int s, int h, strip *out)
{
    const uint8_t *p = block + panel_scales_at(t) + (2 * s + h) * PANEL_ROWS;
    if (t == DTYPE_Q2_K) {
        i8 both = load_u8(p);
        const int32x4_t low = vdupq_n_s32(15);
        out->scale16[h] = (i8){vandq_s32(both.lo, low), vandq_s32(both.hi, low)};
        out->min16[h] = (i8){vshrq_n_s32(both.lo, 4), vshrq_n_s32(both.hi, 4)};
    } else out->scale16[h] = load_i8(p);
}

/* Strip s of a block of a panel. */
INLINE void strip_load(dtype t, const uint8_t *block, int s, strip *out)
{
    const qtype q = qtypes[t];
    f8 d = load_d(t, block);
    if (q.n_scales == 0) {
        out->scale = d;
        if (q.has_min) out->min = f8_load_half(block + panel_dmin_at(t));
    } else if (q.n_scales == 8) {
        out->scale = f8_mul(d, i8_floats(load_i8(block + panel_scales_at(t) + s * PANEL_ROWS)));
        if (q.has_min) {
            f8 m = i8_floats(load_u8(block + panel_mins_at(t) + s * PANEL_ROWS));
            out->min = f8_neg(f8_mul(f8_load_half(block + panel_dmin_at(t)), m));
        }
    } else {
        out->scale = d;
        if (q.has_min) out->min = f8_neg(f8_load_half(block + panel_dmin_at(t)));
        load_scale16(t, block, s, 0, out);
        load_scale16(t, block, s, 1, out);
    }
    load_codes(t, block + panel_strips_at(t) + s * panel_strip_bytes(t), out->code);
}

#endif
