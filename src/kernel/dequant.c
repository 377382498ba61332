/* The blocks as they lie in a file (bytes in order; f16 = binary16, little-endian; h = i / 16 within 32 values):
 *
 *      Q4_0, IQ4_NL  f16 d, 16 bytes: byte j has the codes of j (low nibble) and j + 16 (high)
 *      Q4_1          f16 d, f16 min, nibbles as Q4_0
 *      Q5_0, Q5_1    f16 d, (f16 min,) 32 bits: bit i is the fifth bit of code i, nibbles as Q4_0
 *      Q8_0          f16 d, 32 int8
 *      MXFP4         exponent byte, nibbles as Q4_0
 *      Q2_K          16 bytes (low nibble scale, high minimum), 64 bytes of 2-bit codes, f16 d, f16 dmin
 *      Q3_K          32 bytes: bit s of byte l is the third bit of code 32 s + l, 64 bytes of 2-bit codes, 12 of
 *      scales, f16 d Q4_K          f16 d, f16 dmin, 12 bytes of both, 128 bytes: byte 32 g + l has codes 64 g + l and
 *      64 g + 32 + l Q5_K          f16 d, f16 dmin, 12 bytes, 32 bytes of fifth bits (as Q3_K's third), 128 bytes as
 *      Q4_K Q6_K          128 bytes of low nibbles, 64 bytes of upper bit pairs, 16 int8 scales, f16 d
 *      IQ4_XS        f16 d, 16 bits of upper scale bits, 4 bytes of lower ones, 8 times 16 bytes of nibbles as Q4_0
 *
 * 2-bit codes: byte 32 n + l has, from its lowest bits up, codes 128 n + l, + 32, + 64, + 96.
 */
#include <assert.h>
#include <string.h>

#include "base/half.h"
#include "kernel/qblock.h"

const int8_t qcodes_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
const int8_t qcodes_mxfp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static uint16_t u16_at(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

int qblock_value(dtype t, uint8_t code)
{
    switch (t) {
    case DTYPE_Q8_0: return (int8_t)code;
    case DTYPE_IQ4_NL:
    case DTYPE_IQ4_XS: return qcodes_iq4[code];
    case DTYPE_MXFP4: return qcodes_mxfp4[code];
    default: return code - qtypes[t].offset;
    }
}

float qblock_d(dtype t, uint16_t d)
{
    if (t != DTYPE_MXFP4) return half_to_float(d);
    return bits_float(d < 2 ? 0x00200000u << d : (uint32_t)(d - 1) << 23); /* 2^(d - 128) */
}

/* Bits [from, from + count) of each of n bytes (a multiple of 8) are or-ed into bits [to, ...) of n codes. */
static inline void take_bits(const uint8_t *src, int n, int from, int count, int to, uint8_t *code)
{
    const uint64_t mask = ((1u << count) - 1) * 0x0101010101010101u;
    for (int i = 0; i < n; i += 8) {
        uint64_t bytes, codes;
        memcpy(&bytes, src + i, 8);
        memcpy(&codes, code + i, 8);
        codes |= (bytes >> from & mask) << to;
        memcpy(code + i, &codes, 8);
    }
}

/* 16 bytes: 32 codes, low nibbles first. */
static void nibbles(const uint8_t *src, uint8_t *code)
{
    for (int j = 0; j < 16; j++) {
        code[j] = src[j] & 15;
        code[16 + j] = src[j] >> 4;
    }
}

/* Bit i of 32 belongs to code i. */
static void fifth_bits(const uint8_t *src, uint8_t *code)
{
    const uint64_t each = 0x0101010101010101u, diagonal = 0x8040201008040201u;
    for (int i = 0; i < 4; i++) {
        uint64_t picked = src[i] * each & diagonal, codes; /* byte b keeps bit b */
        memcpy(&codes, code + 8 * i, 8);
        codes |= ((picked + 0x7F * each) >> 7 & each) << 4;
        memcpy(code + 8 * i, &codes, 8);
    }
}

static void two_bit_codes(const uint8_t *src, uint8_t *code)
{
    for (int s = 0; s < 8; s++) take_bits(src + s / 4 * 32, 32, 2 * (s % 4), 2, 0, code + 32 * s);
}

/* Bit s of byte l belongs to code 32 s + l. */
static void bit_planes(const uint8_t *src, int to, uint8_t *code)
{
    for (int s = 0; s < 8; s++) take_bits(src, 32, s, 1, to, code + 32 * s);
}

/* Eight 6-bit scales and eight 6-bit minimums in 12 bytes: bytes 0-3 and 4-7 have the first four of each whole, and
 * above them the upper bits of the last four, whose lower bits are bytes 8-11. */
static void scales_q4_k(const uint8_t *src, qblock *b)
{
    for (int j = 0; j < 4; j++) {
        b->scale[j] = src[j] & 63;
        b->min[j] = src[4 + j] & 63;
        b->scale[4 + j] = (int8_t)((src[8 + j] & 15) | src[j] >> 6 << 4);
        b->min[4 + j] = (uint8_t)(src[8 + j] >> 4 | src[4 + j] >> 6 << 4);
    }
}

static void from_q2_k(const uint8_t *src, qblock *b)
{
    for (int j = 0; j < 16; j++) {
        b->scale[j] = src[j] & 15;
        b->min[j] = src[j] >> 4;
    }
    two_bit_codes(src + 16, b->code);
    b->d = u16_at(src + 80);
    b->dmin = u16_at(src + 82);
}

/* Sixteen 6-bit scales in 12 bytes: nibbles in bytes 0-7, bit pairs in bytes 8-11. */
static void from_q3_k(const uint8_t *src, qblock *b)
{
    const uint8_t *s = src + 96;
    for (int j = 0; j < 16; j++) {
        int low = j < 8 ? s[j] & 15 : s[j - 8] >> 4, high = s[8 + j % 4] >> 2 * (j / 4) & 3;
        b->scale[j] = (int8_t)((low | high << 4) - 32);
    }
    two_bit_codes(src + 32, b->code);
    bit_planes(src, 2, b->code);
    b->d = u16_at(src + 108);
}

static void from_q6_k(const uint8_t *src, qblock *b)
{
    for (int s = 0; s < 8; s++) {
        int n = s / 4, part = s % 4;
        take_bits(src + 64 * n + 32 * (part % 2), 32, part / 2 * 4, 4, 0, b->code + 32 * s);
        take_bits(src + 128 + 32 * n, 32, 2 * part, 2, 4, b->code + 32 * s);
    }
    memcpy(b->scale, src + 192, 16);
    b->d = u16_at(src + 208);
}

static void from_iq4_xs(const uint8_t *src, qblock *b)
{
    b->d = u16_at(src);
    for (int j = 0; j < 8; j++) {
        int low = src[4 + j / 2] >> j % 2 * 4 & 15, high = u16_at(src + 2) >> 2 * j & 3;
        b->scale[j] = (int8_t)((low | high << 4) - 32);
        nibbles(src + 8 + 16 * j, b->code + 32 * j);
    }
}

static void from_q4_k(const uint8_t *src, qblock *b, bool five_bits)
{
    b->d = u16_at(src);
    b->dmin = u16_at(src + 2);
    scales_q4_k(src + 4, b);
    const uint8_t *low = src + (five_bits ? 48 : 16);
    for (int s = 0; s < 8; s++) take_bits(low + s / 2 * 32, 32, 4 * (s % 2), 4, 0, b->code + 32 * s);
    if (five_bits) bit_planes(src + 16, 4, b->code);
}

/* The types with blocks of 32 and nibbles. */
static void from_small(dtype t, const uint8_t *src, qblock *b)
{
    const qtype *q = &qtypes[t];
    b->d = t == DTYPE_MXFP4 ? src[0] : u16_at(src);
    src += t == DTYPE_MXFP4 ? 1 : 2;
    if (q->has_min) {
        b->dmin = u16_at(src);
        src += 2;
    }
    nibbles(src + (q->bits == 5 ? 4 : 0), b->code);
    if (q->bits == 5) fifth_bits(src, b->code);
}

void qblock_from_file(dtype t, const uint8_t *src, qblock *b)
{
    memset(b->code, 0, (size_t)qtype_elems(t));
    switch (t) {
    case DTYPE_Q8_0:
        b->d = u16_at(src);
        memcpy(b->code, src + 2, 32);
        break;
    case DTYPE_Q2_K: from_q2_k(src, b); break;
    case DTYPE_Q3_K: from_q3_k(src, b); break;
    case DTYPE_Q4_K: from_q4_k(src, b, false); break;
    case DTYPE_Q5_K: from_q4_k(src, b, true); break;
    case DTYPE_Q6_K: from_q6_k(src, b); break;
    case DTYPE_IQ4_XS: from_iq4_xs(src, b); break;
    default: from_small(t, src, b); break;
    }
}

void qblock_to_float(dtype t, const qblock *b, float *out)
{
    const qtype *q = &qtypes[t];
    float d = qblock_d(t, b->d), dmin = q->has_min ? half_to_float(b->dmin) : 0;
    int n = qtype_elems(t), per_scale = q->n_scales ? n / q->n_scales : n;
    for (int g = 0; g * per_scale < n; g++) {
        float scale = q->n_scales ? d * b->scale[g] : d;
        float min = q->n_scales ? -(dmin * b->min[g]) : dmin;
        for (int i = g * per_scale; i < (g + 1) * per_scale; i++) {
            float w = scale * (float)qblock_value(t, b->code[i]);
            out[i] = q->has_min ? w + min : w;
        }
    }
}

void dtype_to_float(dtype t, const void *row, float *out, int64_t n)
{
    const uint8_t *src = row;
    const dtype_info *info = dtype_get(t);
    assert(info && n % info->block_elems == 0);
    for (int64_t i = 0; i < n; i += info->block_elems, src += info->block_bytes) {
        qblock b;
        if (t == DTYPE_F32) memcpy(out + i, src, 4);
        else if (t == DTYPE_F16) out[i] = half_to_float(u16_at(src));
        else if (t == DTYPE_BF16) out[i] = bf16_to_float(u16_at(src));
        else {
            qblock_from_file(t, src, &b);
            qblock_to_float(t, &b, out + i);
        }
    }
}
