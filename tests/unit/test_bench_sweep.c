/* bench: ranges in the names of tests, and the names themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "bench/bench.h"

static void expands(const char *text, const char *want)
{
    status st = STATUS_INIT;
    strbuf out = {0};
    strbuf_init(&out, 0);
    assert_int_equal(bench_expand(&out, text, &st), ST_OK);
    assert_string_equal(strbuf_cstr(&out), want);
    strbuf_deinit(&out);
}

static void ranges_double_and_end_with_their_end(void **state)
{
    (void)state;
    expands("pp512", "pp512");
    expands("tg8@512..4096", "tg8@512,tg8@1024,tg8@2048,tg8@4096");
    expands("tg8@512..3000", "tg8@512,tg8@1024,tg8@2048,tg8@3000");
    expands("tb4x1..4@16", "tb4x1@16,tb4x2@16,tb4x4@16");
    expands("tb4x7..7@16", "tb4x7@16");
    expands("sp2x2..4@64+8", "sp2x2@64+8,sp2x4@64+8");
    expands("pp8,tg1@2..4,pp9", "pp8,tg1@2,tg1@4,pp9");
    expands("tb4x1..2@8..16", "tb4x1@8,tb4x1@16,tb4x2@8,tb4x2@16");
    expands("", "");
}

static void what_is_no_range_stays(void **state)
{
    (void)state;
    expands("tg8@..4", "tg8@..4");
    expands("tg8@4..", "tg8@4..");
    expands("tg8@1.4", "tg8@1.4");
    expands("tg8@4..99999999", "tg8@4..99999999");
    expands("tg8@99999999..4", "tg8@99999999..4");
}

static void bad_ranges(void **state)
{
    (void)state;
    static const char *const bad[] = {"tg8@0..4", "tg8@4..2", "pp1,tb2x2..1@3", "tb1..2x3..2@4"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        status st = STATUS_INIT;
        strbuf out = {0};
        strbuf_init(&out, 0);
        assert_int_equal(bench_expand(&out, bad[i], &st), ST_ARG);
        assert_non_null(strstr(st.text, "range"));
        strbuf_deinit(&out);
    }
}

static void what_tests_need(void **state)
{
    (void)state;
    bench_test tests[BENCH_MAX_TESTS];
    int n;
    status st = STATUS_INIT;
    assert_int_equal(bench_parse(tests, &n, "pp100,tg32@200,tb8x5@300", &st), ST_OK);
    assert_int_equal(n, 3);
    assert_int_equal(tests[2].kind, BENCH_TB);
    assert_int_equal(tests[2].n, 8);
    assert_int_equal(tests[2].batch, 5);
    assert_int_equal(tests[2].depth, 300);
    assert_int_equal(bench_context(tests, n), 308);
    assert_int_equal(bench_sessions(tests, n), 5);
    assert_int_equal(bench_parse(tests, &n, "tg8@2..4", &st), ST_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_double_and_end_with_their_end),
        cmocka_unit_test(what_is_no_range_stays),
        cmocka_unit_test(bad_ranges),
        cmocka_unit_test(what_tests_need),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
