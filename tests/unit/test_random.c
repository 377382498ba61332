/* Random numbers that depend on nothing but their place. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/random.h"

static void philox_known_answers(void **state)
{
    (void)state;
    const struct {
        uint32_t counter[4], key[2], out[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t out[4];
        random_philox(cases[i].counter, cases[i].key, out);
        assert_memory_equal(out, cases[i].out, sizeof out);
    }
}

static void uniform_depends_on_all_four(void **state)
{
    (void)state;
    double u = random_uniform(1, 2, 3, RANDOM_TOKEN);
    assert_true(u == random_uniform(1, 2, 3, RANDOM_TOKEN));
    assert_true(u != random_uniform((uint64_t)1 << 40 | 1, 2, 3, RANDOM_TOKEN));
    assert_true(u != random_uniform(2, 2, 3, RANDOM_TOKEN));
    assert_true(u != random_uniform(1, 3, 3, RANDOM_TOKEN));
    assert_true(u != random_uniform(1, 2, 4, RANDOM_TOKEN));
    assert_true(u != random_uniform(1, 2, (int64_t)1 << 33 | 3, RANDOM_TOKEN));
    assert_true(u != random_uniform(1, 2, 3, RANDOM_XTC));
    double sum = 0;
    for (int i = 0; i < 10000; i++) {
        u = random_uniform(9, 0, i, RANDOM_TOKEN);
        assert_true(u >= 0 && u < 1);
        sum += u;
    }
    assert_true(fabs(sum / 10000 - 0.5) < 0.01);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(uniform_depends_on_all_four),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
