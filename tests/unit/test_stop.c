/* Stop strings over streams that arrive in any pieces, against a search in the whole text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "engine/stop.h"

static uint64_t random_state = 7;

static int roll(int n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int)(random_state >> 33) % n;
}

/* Where the earliest match begins, the longest string there; text length and -1 without one. */
static size_t search(const char *text, const char *const *strings, int n, int *hit)
{
    size_t length = strlen(text);
    *hit = -1;
    for (size_t at = 0; at < length; at++) {
        for (int i = 0; i < n; i++)
            if (strncmp(text + at, strings[i], strlen(strings[i])) == 0 &&
                (*hit < 0 || strlen(strings[i]) > strlen(strings[*hit])))
                *hit = i;
        if (*hit >= 0) return at;
    }
    return length;
}

/* Feeds text in pieces of at most `most` bytes; out gets what is shown. Returns whether it stopped. */
static bool stream(stop_set *s, const char *text, int most, strbuf *out)
{
    size_t n = strlen(text);
    for (size_t at = 0; at < n;) {
        size_t piece = (size_t)roll(most) + 1;
        if (piece > n - at) piece = n - at;
        if (stop_push(s, text + at, piece, out)) return true;
        at += piece;
    }
    return stop_flush(s, out);
}

static void expect(const char *text, const char *const *strings, int n, const char *shown, int hit)
{
    for (int most = 1; most <= 8; most++) {
        status st = STATUS_INIT;
        stop_set s;
        strbuf out;
        strbuf_init(&out, 0);
        assert_int_equal(stop_init(&s, strings, n, &st), ST_OK);
        assert_int_equal(stream(&s, text, most, &out), hit >= 0);
        assert_string_equal(strbuf_cstr(&out), shown);
        assert_int_equal(s.hit, hit);
        strbuf_deinit(&out);
        stop_deinit(&s);
    }
}

static void known_cases(void **state)
{
    (void)state;
    const char *one[] = {"bcd"}, *nested[] = {"aab", "aa", "b"}, *repeat[] = {"aaab"}, *wide[] = {"é", "\xC3\xA8z"};
    expect("abcde", one, 1, "a", 0);
    expect("abc", one, 1, "abc", -1);
    expect("abcbcd", one, 1, "abc", 0);
    expect("", one, 1, "", -1);
    expect("aaaaab", repeat, 1, "aa", 0);
    expect("xaxb", nested, 3, "xax", 2);
    expect("caf\xC3\xA8 \xC3\xA8z", wide, 2, "caf\xC3\xA8 ", 1);
    expect("caf\xC3\xA9", wide, 2, "caf", 0);
    const char *hidden[] = {"abab c", "ba"}; /* the end of the stream decides */
    expect("xaba", hidden, 2, "xa", 1);
    expect("any text", NULL, 0, "any text", -1);
}

/* A longer string at the same place wins only when it is complete first: what has been seen decides, so nothing waits
 * for it. */
static void shorter_string_completes_first(void **state)
{
    (void)state;
    const char *strings[] = {"ab", "abcd"};
    status st = STATUS_INIT;
    stop_set s;
    strbuf out;
    strbuf_init(&out, 0);
    assert_int_equal(stop_init(&s, strings, 2, &st), ST_OK);
    assert_false(stop_push(&s, "a", 1, &out));
    assert_true(stop_push(&s, "b", 1, &out));
    assert_int_equal(s.hit, 0);
    stop_deinit(&s);
    assert_int_equal(stop_init(&s, strings, 2, &st), ST_OK);
    assert_true(stop_push(&s, "abcd", 4, &out));
    assert_int_equal(s.hit, 1);
    assert_int_equal(out.n_bytes, 0);
    stop_deinit(&s);
    strbuf_deinit(&out);
}

static void holds_only_what_may_be_a_start(void **state)
{
    (void)state;
    const char *strings[] = {"\n\nUser:", "END"};
    status st = STATUS_INIT;
    stop_set s;
    strbuf out;
    strbuf_init(&out, 0);
    assert_int_equal(stop_init(&s, strings, 2, &st), ST_OK);
    assert_false(stop_push(&s, "hello\n", 6, &out));
    assert_string_equal(strbuf_cstr(&out), "hello");
    assert_false(stop_push(&s, "\nUsex", 5, &out));
    assert_string_equal(strbuf_cstr(&out), "hello\n\nUsex");
    assert_false(stop_push(&s, " EN", 3, &out));
    assert_string_equal(strbuf_cstr(&out), "hello\n\nUsex ");
    assert_false(stop_flush(&s, &out));
    assert_string_equal(strbuf_cstr(&out), "hello\n\nUsex EN");
    strbuf_deinit(&out);
    stop_deinit(&s);
}

/* Over an alphabet of two or three letters strings overlap with themselves and each other all the time. */
static void random_streams_equal_search(void **state)
{
    (void)state;
    int n_hits = 0;
    for (int round = 0; round < 20000; round++) {
        char text[41], bytes[4][7];
        const char *strings[4];
        int letters = 2 + roll(2), length = roll(40), n = 1 + roll(4), hit;
        for (int i = 0; i < length; i++) text[i] = (char)('a' + roll(letters));
        text[length] = 0;
        size_t longest = 0;
        for (int i = 0; i < n; i++) {
            int m = 1 + roll(6);
            for (int j = 0; j < m; j++) bytes[i][j] = (char)('a' + roll(letters));
            bytes[i][m] = 0;
            strings[i] = bytes[i];
            longest = strlen(bytes[i]) > longest ? strlen(bytes[i]) : longest;
        }
        size_t end = search(text, strings, n, &hit);
        status st = STATUS_INIT;
        stop_set s;
        strbuf out;
        strbuf_init(&out, 0);
        assert_int_equal(stop_init(&s, strings, n, &st), ST_OK);
        assert_int_equal(stream(&s, text, 1 + roll(9), &out), hit >= 0);
        /* Which string is complete first may depend on the pieces where one begins with another; where the text ends
         * does not. */
        assert_int_equal(out.n_bytes, end);
        assert_memory_equal(strbuf_cstr(&out), text, end);
        n_hits += hit >= 0;
        strbuf_deinit(&out);
        stop_deinit(&s);
    }
    assert_in_range(n_hits, 2000, 18000);
}

static void bytes_may_be_zero(void **state)
{
    (void)state;
    const char *strings[] = {"stop"};
    status st = STATUS_INIT;
    stop_set s;
    strbuf out;
    strbuf_init(&out, 0);
    assert_int_equal(stop_init(&s, strings, 1, &st), ST_OK);
    assert_true(stop_push(&s, "a\0sto\0stop", 10, &out));
    assert_int_equal(out.n_bytes, 6);
    assert_memory_equal(out.data, "a\0sto\0", 6);
    strbuf_deinit(&out);
    stop_deinit(&s);
}

static void bad_strings_are_refused(void **state)
{
    (void)state;
    char longest[STOP_MAX_BYTES + 2];
    memset(longest, 'x', sizeof longest);
    longest[STOP_MAX_BYTES] = 0;
    const char *many[STOP_MAX_STRINGS + 1], *strings[] = {"fine", ""};
    for (int i = 0; i <= STOP_MAX_STRINGS; i++) many[i] = longest;
    uint64_t before = mem_stats().bytes;
    status st = STATUS_INIT;
    stop_set s;
    assert_int_equal(stop_init(&s, many, STOP_MAX_STRINGS, &st), ST_OK);
    stop_deinit(&s);
    assert_int_equal(stop_init(&s, many, STOP_MAX_STRINGS + 1, &st), ST_ARG);
    assert_non_null(strstr(st.text, "16"));
    assert_int_equal(stop_init(&s, strings, 2, &st), ST_ARG);
    assert_int_equal(st.pos, 1);
    longest[STOP_MAX_BYTES] = 'x';
    longest[STOP_MAX_BYTES + 1] = 0;
    assert_int_equal(stop_init(&s, many, 1, &st), ST_ARG);
    assert_int_equal(mem_stats().bytes, before);
}

static void short_memory_is_told(void **state)
{
    (void)state;
    const char *strings[] = {"one", "two"};
    uint64_t before = mem_stats().bytes;
    for (int n = 1; n <= 2; n++) {
        status st = STATUS_INIT;
        stop_set s;
        mem_fail_after(n);
        assert_int_equal(stop_init(&s, strings, 2, &st), ST_NOMEM);
        assert_int_equal(mem_stats().bytes, before);
    }
    status st = STATUS_INIT;
    stop_set s;
    strbuf out;
    strbuf_init(&out, 0);
    assert_int_equal(stop_init(&s, strings, 2, &st), ST_OK);
    mem_fail_after(1);
    assert_false(stop_push(&s, "abc", 3, &out));
    assert_int_equal(strbuf_check(&out, &st), ST_NOMEM);
    stop_deinit(&s);
    strbuf_deinit(&out);
    assert_int_equal(mem_stats().bytes, before);
}

/* Strings that end in barred pieces are text; those that end behind them may begin there. */
static void barred_text_ends_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *barred, *rest, *shown;
        int hit;
    } cases[] = {
        {"xstopx", "ystopz", "xstopxy", 0}, {"xst", "opz", "x", 0},      {"xstop", "ped", "xstopped", -1},
        {"stop", "", "stop", -1},           {"aab", "a", "a", 2},        {"aab", "c", "aabc", -1},
        {"stopst", "opx", "stop", 0},       {"aabaa", "b", "aab", 1},
    };
    static const char *const strings[] = {"stop", "aab", "aba"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        status st = STATUS_INIT;
        stop_set s;
        strbuf out;
        strbuf_init(&out, 0);
        assert_int_equal(stop_init(&s, strings, 3, &st), ST_OK);
        s.barred = true;
        for (const char *c = cases[i].barred; *c; c++) assert_false(stop_push(&s, c, 1, &out));
        s.barred = false;
        bool hit = stream(&s, cases[i].rest, 3, &out);
        if (strcmp(strbuf_cstr(&out), cases[i].shown) != 0) fail_msg("%zu: shows '%s'", i, strbuf_cstr(&out));
        assert_int_equal(hit ? s.hit : -1, cases[i].hit);
        strbuf_deinit(&out);
        stop_deinit(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(barred_text_ends_nothing),
        cmocka_unit_test(known_cases),
        cmocka_unit_test(shorter_string_completes_first),
        cmocka_unit_test(holds_only_what_may_be_a_start),
        cmocka_unit_test(random_streams_equal_search),
        cmocka_unit_test(bytes_may_be_zero),
        cmocka_unit_test(bad_strings_are_refused),
        cmocka_unit_test(short_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
