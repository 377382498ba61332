/* strip_avx2.h - a panel's strip in registers, for the AVX2 files alone. Panel bytes: see panel.h.
 *
 * Every function is inlined with a constant type, so that a strip's arrays are registers and its switches vanish.
 */
#ifndef KVASIR_KERNEL_STRIP_AVX2_H
#define KVASIR_KERNEL_STRIP_AVX2_H

#include <immintrin.h>
#include <string.h>

#include "kernel/panel.h"

/* Codes of half h: code[4 h + j], lane = row, four inputs a lane; unsigned unless strip_is_signed. */
typedef struct strip {
    __m256i code[8];
    __m256 scale, min;  /* one scale per 32 inputs: of the strip, min to be added; scales per 16: d, and -dmin */
    __m256i scale16[2]; /* scales per 16: of each half, as int16 twice in a lane */
    __m256i min16[2];   /* minimums per 16: that of half h in int16 number h of a lane, 0 in the other */
} strip;

/* Types whose codes are int8 values; the others' are unsigned, less the type's offset. */
INLINE bool strip_is_signed(dtype t)
{
    return t == DTYPE_Q8_0 || t == DTYPE_IQ4_NL || t == DTYPE_IQ4_XS;
}

/* What to subtract from a code in a strip to get the value. */
INLINE int strip_offset(dtype t)
{
    return t == DTYPE_MXFP4 ? 12 : qtypes[t].offset;
}

INLINE __m256i load32(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

INLINE __m256 load_half8(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* Eight bytes to 32-bit lanes. */
INLINE __m256i load_u8(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

INLINE __m256i load_i8(const uint8_t *p)
{
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

INLINE __m256 load_d(dtype t, const uint8_t *p)
{
    if (t != DTYPE_MXFP4) return load_half8(p);
    __m256i e = load_u8(p), one = _mm256_set1_epi32(1);
    __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e); /* 2^(e - 128) below the normal numbers */
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, one), 23);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(small, normal, _mm256_cmpgt_epi32(e, one)));
}

/* Bits [from, from + count) of every byte to bits [to, ...): constant arguments. */
INLINE __m256i move_bits(__m256i v, int from, int to, int count)
{
    v = from > to ? _mm256_srli_epi16(v, from - to) : from < to ? _mm256_slli_epi16(v, to - from) : v;
    return _mm256_and_si256(v, _mm256_set1_epi8((char)(((1 << count) - 1) << to)));
}

INLINE __m256i or_bits(__m256i code, __m256i v, int from, int to, int count)
{
    return _mm256_or_si256(code, move_bits(v, from, to, count));
}

INLINE void load_nibbles(const uint8_t *plane, __m256i code[8])
{
    __m256i a = load32(plane), b = load32(plane + 32), c = load32(plane + 64), d = load32(plane + 96);
    code[0] = move_bits(a, 0, 0, 4);
    code[1] = move_bits(b, 0, 0, 4);
    code[2] = move_bits(c, 0, 0, 4);
    code[3] = move_bits(d, 0, 0, 4);
    code[4] = move_bits(a, 4, 0, 4);
    code[5] = move_bits(b, 4, 0, 4);
    code[6] = move_bits(c, 4, 0, 4);
    code[7] = move_bits(d, 4, 0, 4);
}

INLINE void or_pairs(const uint8_t *plane, int to, __m256i code[8])
{
    __m256i a = load32(plane), b = load32(plane + 32);
    code[0] = or_bits(code[0], a, 0, to, 2);
    code[1] = or_bits(code[1], a, 2, to, 2);
    code[2] = or_bits(code[2], a, 4, to, 2);
    code[3] = or_bits(code[3], a, 6, to, 2);
    code[4] = or_bits(code[4], b, 0, to, 2);
    code[5] = or_bits(code[5], b, 2, to, 2);
    code[6] = or_bits(code[6], b, 4, to, 2);
    code[7] = or_bits(code[7], b, 6, to, 2);
}

INLINE void or_bit(const uint8_t *plane, int to, __m256i code[8])
{
    __m256i v = load32(plane);
    code[0] = or_bits(code[0], v, 0, to, 1);
    code[1] = or_bits(code[1], v, 1, to, 1);
    code[2] = or_bits(code[2], v, 2, to, 1);
    code[3] = or_bits(code[3], v, 3, to, 1);
    code[4] = or_bits(code[4], v, 4, to, 1);
    code[5] = or_bits(code[5], v, 5, to, 1);
    code[6] = or_bits(code[6], v, 6, to, 1);
    code[7] = or_bits(code[7], v, 7, to, 1);
}

INLINE void look_up(const int8_t *book, int offset, __m256i code[8])
{
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)book);
    __m256i table = _mm256_broadcastsi128_si256(_mm_add_epi8(b, _mm_set1_epi8((char)offset)));
    code[0] = _mm256_shuffle_epi8(table, code[0]);
    code[1] = _mm256_shuffle_epi8(table, code[1]);
    code[2] = _mm256_shuffle_epi8(table, code[2]);
    code[3] = _mm256_shuffle_epi8(table, code[3]);
    code[4] = _mm256_shuffle_epi8(table, code[4]);
    code[5] = _mm256_shuffle_epi8(table, code[5]);
    code[6] = _mm256_shuffle_epi8(table, code[6]);
    code[7] = _mm256_shuffle_epi8(table, code[7]);
}

INLINE void load_codes(dtype t, const uint8_t *p, __m256i code[8])
{
    const uint8_t *rest = p + panel_low_bytes(t);
    int bits = qtypes[t].bits;
    if (bits == 8) {
        code[0] = load32(p);
        code[1] = load32(p + 32);
        code[2] = load32(p + 64);
        code[3] = load32(p + 96);
        code[4] = load32(p + 128);
        code[5] = load32(p + 160);
        code[6] = load32(p + 192);
        code[7] = load32(p + 224);
        return;
    }
    if (bits >= 4) load_nibbles(p, code);
    else {
        code[0] = code[1] = code[2] = code[3] = code[4] = code[5] = code[6] = code[7] = _mm256_setzero_si256();
        or_pairs(p, 0, code);
    }
    if (bits == 3) or_bit(rest, 2, code);
    if (bits == 5) or_bit(rest, 4, code);
    if (bits == 6) or_pairs(rest, 4, code);
    if (t == DTYPE_IQ4_NL || t == DTYPE_IQ4_XS) look_up(qcodes_iq4, 0, code);
    if (t == DTYPE_MXFP4) look_up(qcodes_mxfp4, strip_offset(t), code);
}

/* The int16 scale (and minimum) of each row for half h of strip s, in both places of its lane. */
INLINE void load_scale16(dtype t, const uint8_t *block, int s, int h, strip *out)
{
    const uint8_t *p = block + panel_scales_at(t) + (2 * s + h) * PANEL_ROWS;
    __m256i v = _mm256_and_si256(load_i8(p), _mm256_set1_epi32(0xFFFF));
    if (t == DTYPE_Q2_K) {
        out->min16[h] = _mm256_slli_epi32(_mm256_srli_epi32(load_u8(p), 4), 16 * h);
        v = _mm256_and_si256(v, _mm256_set1_epi32(15));
    }
    out->scale16[h] = _mm256_or_si256(v, _mm256_slli_epi32(v, 16));
}

/* Strip s of a block of a panel. */
INLINE void strip_load(dtype t, const uint8_t *block, int s, strip *out)
{
    const qtype q = qtypes[t];
    __m256 d = load_d(t, block), sign = _mm256_set1_ps(-0.0f);
    if (q.n_scales == 0) {
        out->scale = d;
        if (q.has_min) out->min = load_half8(block + panel_dmin_at(t));
    } else if (q.n_scales == 8) {
        out->scale = _mm256_mul_ps(d, _mm256_cvtepi32_ps(load_i8(block + panel_scales_at(t) + s * PANEL_ROWS)));
        if (q.has_min) {
            __m256 m = _mm256_cvtepi32_ps(load_u8(block + panel_mins_at(t) + s * PANEL_ROWS));
            out->min = _mm256_xor_ps(_mm256_mul_ps(load_half8(block + panel_dmin_at(t)), m), sign);
        }
    } else {
        out->scale = d;
        if (q.has_min) out->min = _mm256_xor_ps(load_half8(block + panel_dmin_at(t)), sign);
        load_scale16(t, block, s, 0, out);
        load_scale16(t, block, s, 1, out);
    }
    load_codes(t, block + panel_strips_at(t) + s * panel_strip_bytes(t), out->code);
}

/* Asks for strip s of the block at `block`, which may lie past the end of the panels. */
INLINE void prefetch_strip(dtype t, uintptr_t block, int s, bool once)
{
    const int n = panel_block_bytes(t) / qtypes[t].strips;
    for (int i = 0; i < n; i += 64) {
        const void *line = (const void *)(block + (uintptr_t)(s * n + i));
        if (once) _mm_prefetch(line, _MM_HINT_NTA);
        else _mm_prefetch(line, _MM_HINT_T1);
    }
}

#endif
