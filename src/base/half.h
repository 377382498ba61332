/* half.h - IEEE binary16 and bfloat16 <-> float, in portable C (round to nearest even; NaN stays NaN). */
#ifndef KVASIR_BASE_HALF_H
#define KVASIR_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static inline float bits_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7FFF;
    if (rest >= 0x7C00) return bits_float(sign | 0x7F800000 | (rest & 0x3FF) << 13);
    if (rest >= 0x0400) return bits_float(sign | ((rest << 13) + 0x38000000));
    float f = (float)rest * 0x1p-24f; /* subnormal: exact */
    return sign ? -f : f;
}

static inline uint16_t float_to_half(float f)
{
    uint32_t u = float_bits(f);
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    u &= 0x7FFFFFFF;
    if (u > 0x7F800000) return (uint16_t)(sign | 0x7E00 | (u >> 13 & 0x1FF));
    if (u >= 0x477FF000) return (uint16_t)(sign | 0x7C00); /* 65520 and above round to infinity */
    if (u < 0x38800000) { /* subnormal half: let the float adder round at 2^-24 */
        float shifted = bits_float(u) + 0.5f;
        return (uint16_t)(sign | (float_bits(shifted) - 0x3F000000));
    }
    u += 0xC8000FFF + (u >> 13 & 1);
    return (uint16_t)(sign | u >> 13);
}

static inline float bf16_to_float(uint16_t h)
{
    return bits_float((uint32_t)h << 16);
}

static inline uint16_t float_to_bf16(float f)
{
    uint32_t u = float_bits(f);
    if ((u & 0x7FFFFFFF) > 0x7F800000) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}

#endif
