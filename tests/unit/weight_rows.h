/* weight_rows.h - for tests: rows of any weight type as they lie in a file, random or extreme. */
#ifndef KVASIR_TESTS_WEIGHT_ROWS_H
#define KVASIR_TESTS_WEIGHT_ROWS_H

#include <string.h>

#include "base/half.h"
#include "kernel/qblock.h"

static const dtype weight_types[] = {DTYPE_F32,  DTYPE_F16,    DTYPE_BF16,   DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0,
                                     DTYPE_Q5_1, DTYPE_Q8_0,   DTYPE_Q2_K,   DTYPE_Q3_K, DTYPE_Q4_K, DTYPE_Q5_K,
                                     DTYPE_Q6_K, DTYPE_IQ4_NL, DTYPE_IQ4_XS, DTYPE_MXFP4};
#define N_WEIGHT_TYPES (int)(sizeof weight_types / sizeof weight_types[0])

/* ALL_HIGH: bytes 0x80, so -128 for Q8_0. */
typedef enum content { RANDOM, ALL_ZERO, ALL_ONES, ALL_HIGH, TINY_SCALES, N_CONTENTS } content;

static inline uint32_t rows_draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

static inline float rows_uniform(uint64_t *seed) /* [-1, 1) */
{
    return (float)rows_draw(seed) * 0x1p-30f - 1;
}

static inline void put_half(uint8_t *p, float f)
{
    uint16_t h = float_to_half(f);
    memcpy(p, &h, 2);
}

/* Sets the block's d (and dmin); byte offsets as in dequant.c. */
static inline void set_scales(dtype t, uint8_t *b, float d, float dmin, uint64_t *seed)
{
    switch (t) {
    case DTYPE_MXFP4: b[0] = (uint8_t)(d < 0x1p-20f ? rows_draw(seed) % 3 : 120 + rows_draw(seed) % 10); break;
    case DTYPE_Q2_K: put_half(b + 80, d), put_half(b + 82, dmin); break;
    case DTYPE_Q3_K: put_half(b + 108, d); break;
    case DTYPE_Q6_K: put_half(b + 208, d); break;
    default:
        put_half(b, d);
        if (qtypes[t].has_min) put_half(b + 2, dmin);
    }
}

/* `rows` rows of k weights into data, with scales of sensible size. */
static inline void weight_rows_fill(dtype t, int64_t rows, int64_t k, content what, uint64_t *seed, uint8_t *data)
{
    size_t n_bytes = dtype_row_bytes(t, k) * (size_t)rows, block_bytes = (size_t)dtype_get(t)->block_bytes;
    for (size_t i = 0; i < n_bytes; i++) {
        uint8_t byte = (uint8_t)rows_draw(seed);
        data[i] = what == ALL_ZERO ? 0 : what == ALL_ONES ? 0xFF : what == ALL_HIGH ? 0x80 : byte;
    }
    for (size_t i = 0; i < n_bytes; i += block_bytes) {
        float size = what == TINY_SCALES ? 0x1p-24f : what == ALL_ZERO ? 0 : 1;
        float v = rows_uniform(seed) * size;
        uint16_t h = float_to_bf16(v);
        if (t == DTYPE_F32) memcpy(data + i, &v, 4);
        else if (t == DTYPE_F16) put_half(data + i, v);
        else if (t == DTYPE_BF16) memcpy(data + i, &h, 2);
        else
            set_scales(t, data + i, what == TINY_SCALES ? 0x1p-24f * (float)(1 + rows_draw(seed) % 5) : v * 0.01f,
                       rows_uniform(seed) * 0.01f * size, seed);
    }
}

#endif
