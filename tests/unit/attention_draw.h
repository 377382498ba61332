/* attention_draw.h - for tests of attention (included after cmocka.h): random numbers by name, and equality of bits. */
#ifndef KVASIR_TESTS_ATTENTION_DRAW_H
#define KVASIR_TESTS_ATTENTION_DRAW_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static inline float draw(uint64_t identity, int what, int64_t i) /* [-1, 1), a value that a half holds exactly */
{
    uint64_t r = mix(identity * 0x9E3779B97F4A7C15u + (uint64_t)what * 0x1234567u + (uint64_t)i * 0xD1342543DE82EF95u);
    return (float)((int)(r % 1024) - 512) / 512.0f;
}

static inline void assert_same_bits(const float *a, const float *b, size_t n)
{
    assert_memory_equal(a, b, n * sizeof *a);
}

#endif
