/* half: every value both ways, and every tie between neighbours. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "base/half.h"

/* The value by its definition: sign, exponent, fraction. */
static double half_value(uint16_t h)
{
    int exponent = h >> 10 & 31, fraction = h & 0x3FF;
    double v = exponent == 31 ? (fraction ? NAN : INFINITY)
               : exponent    ? ldexp(1024 + fraction, exponent - 25)
                             : ldexp(fraction, -24);
    return h & 0x8000 ? -v : v;
}

static void every_half_both_ways(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 0x10000; i++) {
        uint16_t h = (uint16_t)i, back = float_to_half(half_to_float(h));
        float f = half_to_float(h);
        if (!!signbit(f) != (h >> 15)) fail_msg("%04X: sign", i);
        if ((h & 0x7FFF) > 0x7C00) { /* a NaN stays one and becomes quiet; its payload stays */
            if (!isnan(f) || back != (h | 0x200)) fail_msg("%04X: NaN became %04X", i, back);
        } else {
            if ((double)f != half_value(h)) fail_msg("%04X: %a, not %a", i, (double)f, half_value(h));
            if (back != h) fail_msg("%04X came back as %04X", i, back);
        }
    }
}

/* Between two neighbours the middle goes to the even one, and the floats beside the middle to the nearer one. */
static void halves_round_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 0x7C00; i++) { /* 7BFF's neighbour, infinity, stands where 65536 would */
        double above = i + 1 == 0x7C00 ? 65536.0 : half_value((uint16_t)(i + 1));
        float middle = (float)((half_value((uint16_t)i) + above) / 2);
        for (uint32_t sign = 0; sign <= 0x8000; sign += 0x8000) {
            float s = sign ? -1.0f : 1.0f;
            if (float_to_half(s * middle) != (sign | (i + (i & 1)))) fail_msg("the middle above %04X", i);
            if (float_to_half(s * nextafterf(middle, 0)) != (sign | i)) fail_msg("below the middle above %04X", i);
            if (float_to_half(s * nextafterf(middle, INFINITY)) != (sign | (i + 1))) fail_msg("above the middle above %04X", i);
        }
    }
}

static void halves_saturate_and_vanish(void **state)
{
    (void)state;
    assert_int_equal(float_to_half(65504.0f), 0x7BFF);
    assert_int_equal(float_to_half(3.4e38f), 0x7C00);
    assert_int_equal(float_to_half(-INFINITY), 0xFC00);
    assert_int_equal(float_to_half(1e-45f), 0);
    assert_int_equal(float_to_half(-1e-45f), 0x8000);
    assert_int_equal(float_to_half(-0.0f), 0x8000);
    assert_true(float_to_half(bits_float(0x7F800001)) > 0x7C00);
    assert_int_equal(float_to_half(1.0f), 0x3C00);
}

static void every_bf16_both_ways(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 0x10000; i++) {
        float f = bf16_to_float((uint16_t)i);
        uint16_t back = float_to_bf16(f);
        if (float_bits(f) != i << 16) fail_msg("%04X: %08X", i, float_bits(f));
        uint32_t want = (i & 0x7FFF) > 0x7F80 ? i | 0x40 : i;
        if (back != want) fail_msg("%04X came back as %04X", i, back);
    }
}

static void bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 0x10000; i++) {
        if ((i & 0x7FFF) >= 0x7F80) continue; /* infinity and NaN */
        uint32_t middle = i << 16 | 0x8000;
        if (float_to_bf16(bits_float(middle)) != i + (i & 1)) fail_msg("the middle above %04X", i);
        if (float_to_bf16(bits_float(middle - 1)) != i) fail_msg("below the middle above %04X", i);
        if (float_to_bf16(bits_float(middle + 1)) != i + 1) fail_msg("above the middle above %04X", i);
    }
    assert_true((float_to_bf16(bits_float(0x7F800001)) & 0x7FFF) > 0x7F80); /* a payload in the low bits alone */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_both_ways),       cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(halves_saturate_and_vanish), cmocka_unit_test(every_bf16_both_ways),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
