/* How many rows of prompts a step takes so that running answers keep their pace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/pace.h"

static void without_a_target_or_answers(void **state)
{
    (void)state;
    pace p = {0};
    pace_learn(&p, 4, 100, 1);
    assert_int_equal(pace_rows(&p, 4, 512), 512);
    p.target_s = 0.1;
    assert_int_equal(pace_rows(&p, 0, 512), 512); /* nobody waits for a token */
}

static void begins_carefully(void **state)
{
    (void)state;
    pace p = {.target_s = 0.1};
    assert_int_equal(pace_rows(&p, 1, 512), 4 * PACE_LEAST_ROWS);
    assert_int_equal(pace_rows(&p, 1, 10), 10);
}

static void meets_the_target(void **state)
{
    (void)state;
    pace p = {.target_s = 0.150};
    for (int i = 0; i < 60; i++) pace_learn(&p, 8, 0, 0.020);
    for (int i = 0; i < 60; i++) pace_learn(&p, 8, 100, 0.120); /* 1 ms a row */
    assert_int_equal(pace_rows(&p, 8, 512), 130);
    assert_int_equal(pace_rows(&p, 8, 100), 100);
    for (int i = 0; i < 60; i++) pace_learn(&p, 0, 512, 1.024); /* prompts alone teach it too: 2 ms a row */
    int rows = pace_rows(&p, 8, 512);
    assert_true(rows >= 64 && rows <= 66);
    for (int i = 0; i < 3; i++) pace_learn(&p, 8, 1, 5); /* too few rows to judge by */
    assert_int_equal(pace_rows(&p, 8, 512), rows);
}

static void prompts_get_on_whatever_the_machine(void **state)
{
    (void)state;
    pace p = {.target_s = 0.01, .decode_s = 0.5, .row_s = 0.1};
    assert_int_equal(pace_rows(&p, 8, 512), PACE_LEAST_ROWS);
    assert_int_equal(pace_rows(&p, 8, 5), 5);
    assert_int_equal(pace_rows(&p, 8, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_target_or_answers),
        cmocka_unit_test(begins_carefully),
        cmocka_unit_test(meets_the_target),
        cmocka_unit_test(prompts_get_on_whatever_the_machine),
    };
    return cmocka_run_group_tests_name("pace", tests, NULL, NULL);
}
