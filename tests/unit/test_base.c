/* status, log, strbuf, utf8, hash, machine */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/strbuf.h"
#include "base/utf8.h"

static bool is_utf8(const char *s)
{
    for (size_t i = 0, n = strlen(s); i < n;) {
        int len = utf8_length(s + i, n - i);
        if (!len) return false;
        i += (size_t)len;
    }
    return true;
}

static void status_keeps_code_position_and_text(void **state)
{
    (void)state;
    status st = STATUS_INIT;
    assert_int_equal(st.code, ST_OK);
    assert_int_equal(status_set(&st, ST_FORMAT, 77, "tensor %d is odd", 3), ST_FORMAT);
    assert_int_equal(st.code, ST_FORMAT);
    assert_int_equal(st.pos, 77);
    assert_string_equal(st.text, "tensor 3 is odd");
    assert_int_equal(status_prefix(&st, "%s", "a.gguf"), ST_FORMAT);
    assert_string_equal(st.text, "a.gguf: tensor 3 is odd");
    assert_int_equal(st.pos, 77);
    assert_int_equal(status_nomem(&st, 12345), ST_NOMEM);
    assert_non_null(strstr(st.text, "12345"));
    assert_true(st.pos == STATUS_NO_POS);
}

static void status_names_are_distinct(void **state)
{
    (void)state;
    for (int a = ST_OK; a <= ST_TIMEOUT; a++) {
        assert_string_not_equal(status_name(a), "unknown");
        for (int b = ST_OK; b < a; b++) assert_string_not_equal(status_name(a), status_name(b));
    }
    assert_string_equal(status_name(1000), "unknown");
}

static void status_text_is_printable_utf8(void **state)
{
    (void)state;
    status st = STATUS_INIT;
    status_set(&st, ST_FORMAT, 0, "key '%s'", "a\x1b[2Jb\x7f-\xff\xc3(\xc3\xa9");
    assert_string_equal(st.text, "key 'a?[2Jb?-?" "?(\xc3\xa9'");
    status_prefix(&st, "\x01\xfe");
    assert_memory_equal(st.text, "??: key ", 8);
}

/* A cut in the middle of a character of any length takes the whole character away. */
static void status_text_is_cut_between_characters(void **state)
{
    (void)state;
    static const char *const characters[] = {"x", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    for (int c = 0; c < 4; c++) {
        char text[1200] = "";
        for (size_t i = 0; i < 1000 / strlen(characters[c]); i++) strcat(text, characters[c]);
        for (int shift = 0; shift < 4; shift++) {
            status st = STATUS_INIT;
            status_set(&st, ST_IO, 0, "%.*s%s", shift, "abc", text);
            assert_true(is_utf8(st.text));
            assert_null(strchr(st.text, '?'));
            assert_in_range(strlen(st.text), sizeof st.text - 4, sizeof st.text - 1);
            status_prefix(&st, "%.*s", shift, "abc");
            assert_true(is_utf8(st.text));
            assert_null(strchr(st.text, '?'));
            status_prefix(&st, "%s", text);
            assert_true(is_utf8(st.text));
            assert_in_range(strlen(st.text), sizeof st.text - 4, sizeof st.text - 1);
        }
    }
}

typedef struct heard {
    int n;
    log_level level;
    char line[64];
} heard;

static void hear(void *user, log_level level, const char *line)
{
    heard *h = user;
    h->n++;
    h->level = level;
    snprintf(h->line, sizeof h->line, "%s", line);
}

static void log_passes_what_is_loud_enough(void **state)
{
    (void)state;
    heard h = {0};
    log_sink sink = {hear, &h, LOG_LEVEL_WARN};
    log_line(&sink, LOG_LEVEL_INFO, "quiet");
    assert_int_equal(h.n, 0);
    log_line(&sink, LOG_LEVEL_WARN, "block %d", 7);
    assert_int_equal(h.n, 1);
    assert_int_equal(h.level, LOG_LEVEL_WARN);
    assert_string_equal(h.line, "block 7");
    log_line(&sink, LOG_LEVEL_ERROR, "lost");
    assert_int_equal(h.n, 2);
    log_line(NULL, LOG_LEVEL_ERROR, "nobody listens");
}

static void strbuf_appends(void **state)
{
    (void)state;
    status st = STATUS_INIT;
    strbuf b;
    strbuf_init(&b, 0);
    assert_string_equal(strbuf_cstr(&b), "");
    for (int i = 0; i < 1000; i++) strbuf_printf(&b, "%03d", i);
    assert_int_equal(b.n_bytes, 3000);
    assert_int_equal(strlen(strbuf_cstr(&b)), 3000);
    for (int i = 0; i < 1000; i++) {
        const char digits[] = {(char)('0' + i / 100), (char)('0' + i / 10 % 10), (char)('0' + i % 10)};
        assert_memory_equal(b.data + 3 * i, digits, 3);
    }
    strbuf_clear(&b);
    assert_string_equal(strbuf_cstr(&b), "");
    strbuf_puts(&b, "ab");
    strbuf_putc(&b, 0);
    strbuf_add(&b, "cd", 2);
    strbuf_add(&b, "", 0);
    assert_int_equal(b.n_bytes, 5);
    assert_memory_equal(b.data, "ab\0cd", 6);
    assert_int_equal(strbuf_check(&b, &st), ST_OK);
    strbuf_deinit(&b);
}

static void strbuf_take_hands_over(void **state)
{
    (void)state;
    uint64_t before = mem_stats().bytes;
    size_t n = 99;
    strbuf b;
    strbuf_init(&b, 8);
    char *fresh = strbuf_take(&b, &n);
    assert_string_equal(fresh, "");
    assert_int_equal(n, 0);
    strbuf_puts(&b, "12345678");
    char *full = strbuf_take(&b, NULL);
    assert_string_equal(full, "12345678");
    assert_int_equal(b.n_bytes, 0);
    strbuf_puts(&b, "123456789"); /* the limit is still in force */
    assert_null(strbuf_take(&b, &n));
    mem_free(fresh);
    mem_free(full);
    strbuf_deinit(&b);
    assert_int_equal(mem_stats().bytes, before);
}

static void strbuf_remembers_the_limit(void **state)
{
    (void)state;
    status st = STATUS_INIT;
    strbuf b;
    strbuf_init(&b, 10);
    strbuf_puts(&b, "0123456789");
    assert_int_equal(strbuf_check(&b, &st), ST_OK);
    strbuf_putc(&b, 'x');
    strbuf_clear(&b);
    strbuf_puts(&b, "far more than ten bytes at once");
    strbuf_puts(&b, "ab"); /* would fit, but comes after the failure */
    assert_int_equal(b.n_bytes, 0);
    assert_int_equal(strbuf_check(&b, &st), ST_LIMIT);
    assert_non_null(strstr(st.text, "10 bytes"));
    strbuf_clear(&b);
    strbuf_printf(&b, "%d", 12);
    assert_int_equal(strbuf_check(&b, &st), ST_OK);
    assert_string_equal(b.data, "12");
    strbuf_deinit(&b);
}

static void strbuf_remembers_a_failed_allocation(void **state)
{
    (void)state;
    uint64_t before = mem_stats().bytes;
    int failures = 0;
    for (int n = 1; n < 10; n++) {
        status st = STATUS_INIT;
        strbuf b;
        strbuf_init(&b, 100000);
        mem_fail_after(n);
        for (int i = 0; i < 2000; i++) strbuf_printf(&b, "%d,", i % 10);
        mem_fail_after(0);
        int rc = strbuf_check(&b, &st);
        if (rc) {
            failures++;
            assert_int_equal(rc, ST_NOMEM);
            assert_null(strbuf_take(&b, NULL));
        } else assert_int_equal(b.n_bytes, 4000);
        assert_memory_equal(strbuf_cstr(&b), "0,1,2,3,", b.n_bytes < 8 ? b.n_bytes : 8);
        strbuf_deinit(&b);
        assert_int_equal(mem_stats().bytes, before);
    }
    assert_int_equal(failures, 7); /* 64 doubled to 4096: seven allocations */
}

static void strbuf_writes_json_strings(void **state)
{
    (void)state;
    strbuf b;
    strbuf_init(&b, 0);
    static const char text[] = "a\"b\\c\nd\te\0f\x7fg\xc3\xa9h\xff\xe2\x82i\xf0\x9f\x98\x80";
    strbuf_json(&b, text, sizeof text - 1);
    assert_string_equal(b.data, "\"a\\\"b\\\\c\\nd\\u0009e\\u0000f\\u007fg\xc3\xa9h\xef\xbf\xbd\xef\xbf\xbdi\xf0\x9f\x98\x80\"");
    strbuf_clear(&b);
    strbuf_json(&b, NULL, 0);
    assert_string_equal(b.data, "\"\"");
    strbuf_deinit(&b);
}

static bool is_scalar(uint32_t cp)
{
    return cp < 0x110000 && (cp < 0xD800 || cp > 0xDFFF);
}

static void utf8_round_trips_every_character(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        if (!is_scalar(cp)) continue;
        char s[4];
        uint32_t back = 0;
        int len = utf8_encode(cp, s);
        if (len != 1 + (cp >= 0x80) + (cp >= 0x800) + (cp >= 0x10000)) fail_msg("U+%04X has %d bytes", cp, len);
        if (utf8_decode(s, 4, &back) != len || back != cp) fail_msg("U+%04X came back as U+%04X", cp, back);
        if (utf8_length(s, (size_t)len - 1) != 0) fail_msg("U+%04X: a cut character has a length", cp);
    }
}

/* Whatever decodes must be what encode writes: no overlong form, no surrogate. All strings of up to three bytes. */
static void utf8_takes_only_the_shortest_form(void **state)
{
    (void)state;
    int n_valid[4] = {0};
    for (uint32_t u = 0; u < 1u << 24; u++) {
        char s[3] = {(char)(u >> 16), (char)(u >> 8), (char)u}, again[4];
        uint32_t cp;
        int len = utf8_decode(s, 3, &cp);
        if (len == 0) continue;
        if (len > 3 || utf8_encode(cp, again) != len || memcmp(s, again, (size_t)len) != 0) fail_msg("%06X is no character", u);
        n_valid[len]++;
    }
    assert_int_equal(n_valid[1], 0x80 << 16);
    assert_int_equal(n_valid[2], (0x800 - 0x80) << 8);
    assert_int_equal(n_valid[3], 0x10000 - 0x800 - 0x800);
    static const char *const malformed[] = {"\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf0\x9f\x98x", "\xf0\x9fx\x80"};
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) assert_int_equal(utf8_length(malformed[i], 4), 0);
    assert_int_equal(utf8_length("", 0), 0);
}

static bool bit(const uint8_t *bits, uint32_t i)
{
    return bits[i / 8] >> (i % 8) & 1;
}

/* All strings of three bytes, against the set of all beginnings of characters. */
static void utf8_knows_what_could_be_completed(void **state)
{
    (void)state;
    uint8_t *starts[4] = {NULL, calloc(1, 1 << 5), calloc(1, 1 << 13), calloc(1, 1 << 21)};
    for (uint32_t cp = 0x80; cp < 0x110000; cp++) {
        char s[4];
        if (!is_scalar(cp)) continue;
        int len = utf8_encode(cp, s);
        uint32_t start = 0;
        for (int i = 1; i < len; i++) {
            start = start << 8 | (uint8_t)s[i - 1];
            starts[i][start / 8] |= (uint8_t)(1 << start % 8);
        }
    }
    for (uint32_t u = 0; u < 1u << 24; u++) {
        char s[3] = {(char)(u >> 16), (char)(u >> 8), (char)u};
        int want = bit(starts[3], u) ? 3 : bit(starts[2], u & 0xFFFF) ? 2 : bit(starts[1], u & 0xFF);
        if (utf8_incomplete_tail(s, 3) != want) fail_msg("%06X: tail %d, not %d", u, utf8_incomplete_tail(s, 3), want);
    }
    assert_int_equal(utf8_incomplete_tail("", 0), 0);
    assert_int_equal(utf8_incomplete_tail("\xe2", 1), 1);
    assert_int_equal(utf8_incomplete_tail("\xf0\x9f", 2), 2);
    assert_int_equal(utf8_incomplete_tail("\x80\x80", 2), 0);
    for (uint32_t u = 0; u < 1u << 24; u++) { /* a broken part is the longest beginning of a character, or one byte */
        char s[3] = {(char)(u >> 16), (char)(u >> 8), (char)u};
        bool whole;
        int len = utf8_part(s, 3, &whole), want = utf8_length(s, 3);
        if (whole != (want > 0)) fail_msg("%06X: whole %d, length %d", u, whole, want);
        if (want == 0) want = bit(starts[3], u) ? 3 : bit(starts[2], u >> 8) ? 2 : 1;
        if (len != want) fail_msg("%06X: part %d, not %d", u, len, want);
    }
    for (int i = 1; i < 4; i++) free(starts[i]);
}

static uint64_t hash_of(const char *data, size_t n, size_t piece)
{
    status st = STATUS_INIT;
    hash_stream *h;
    assert_int_equal(hash_new(&h, &st), ST_OK);
    for (size_t i = 0; i < n; i += piece) hash_update(h, data + i, n - i < piece ? n - i : piece);
    uint64_t value = hash_value(h);
    hash_free(h);
    return value;
}

static void hash_sees_the_bytes_not_the_pieces(void **state)
{
    (void)state;
    char data[1000];
    for (int i = 0; i < 1000; i++) data[i] = (char)(i * i % 251);
    assert_true(hash_of(data, 0, 1) == 0x2D06800538D394C2); /* XXH3's value of nothing */
    uint64_t whole = hash_of(data, 1000, 1000);
    for (size_t piece = 1; piece < 1000; piece += 37) assert_true(hash_of(data, 1000, piece) == whole);
    assert_true(hash_of(data, 999, 1000) != whole);
    data[500] ^= 1;
    assert_true(hash_of(data, 1000, 1000) != whole);
}

static void machine_has_memory(void **state)
{
    (void)state;
    uint64_t physical = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    assert_in_range(machine_free_bytes(), 1, physical);
    const size_t n = (size_t)64 << 20;
    char *p = mem_pages_alloc(n);
    for (size_t i = 0; i < n; i += 4096) p[i] = 1;
    assert_in_range(machine_peak_rss_bytes(), n, physical);
    mem_pages_free(p, n);
}

/* Beside Python's bytes.decode("utf-8", "replace"). */
static void broken_utf8_becomes_one_character_a_part(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *text; /* '?' for U+FFFD */
        int n;                    /* characters */
    } cases[] = {
        {"", "", 0},
        {"\xF0\x9F", "?", 1},
        {"\xE3\x83", "?", 1},
        {"\xE2\x82\xC3\xA9", "?\xC3\xA9", 2},
        {"\xE2\x82\xE2\x82\xAC", "?\xE2\x82\xAC", 2},
        {"\x80\x80\x80", "???", 3},
        {"\xF0\x9F\x98", "?", 1},
        {"\xF0\x9F\x98x\xF0", "?x?", 3},
        {"\xED\xA0\x80", "???", 3}, /* a surrogate */
        {"\xC0\xAF", "??", 2},      /* an overlong form */
        {"\xE0\x80\x80", "???", 3},
        {"\xF4\x90\x80\x80", "????", 4},
        {"\xF8\x88", "??", 2},
        {"\xFE\xFF", "??", 2},
        {"\xF1\x80\x80\xE1\x80\xC2\x62", "???b", 4},
        {"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80", 1},
    };
    strbuf got, want;
    strbuf_init(&got, 0), strbuf_init(&want, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t n = strlen(cases[i].bytes);
        strbuf_clear(&got), strbuf_clear(&want);
        strbuf_utf8(&got, cases[i].bytes, n);
        for (const char *s = cases[i].text; *s; s++)
            if (*s == '?') strbuf_puts(&want, UTF8_REPLACEMENT);
            else strbuf_putc(&want, *s);
        assert_string_equal(strbuf_cstr(&got), strbuf_cstr(&want));
        assert_int_equal(utf8_valid(cases[i].bytes, n), strcmp(cases[i].bytes, cases[i].text) == 0);
        for (size_t cut = 0; cut <= n; cut++) { /* counted in two pieces */
            utf8_counter c = {0};
            utf8_count(&c, cases[i].bytes, cut);
            utf8_count(&c, cases[i].bytes + cut, n - cut);
            assert_int_equal(c.n, cases[i].n);
        }
    }
    strbuf_deinit(&got), strbuf_deinit(&want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_keeps_code_position_and_text),
        cmocka_unit_test(status_names_are_distinct),
        cmocka_unit_test(status_text_is_printable_utf8),
        cmocka_unit_test(status_text_is_cut_between_characters),
        cmocka_unit_test(log_passes_what_is_loud_enough),
        cmocka_unit_test(strbuf_appends),
        cmocka_unit_test(strbuf_take_hands_over),
        cmocka_unit_test(strbuf_remembers_the_limit),
        cmocka_unit_test(strbuf_remembers_a_failed_allocation),
        cmocka_unit_test(strbuf_writes_json_strings),
        cmocka_unit_test(utf8_round_trips_every_character),
        cmocka_unit_test(utf8_takes_only_the_shortest_form),
        cmocka_unit_test(utf8_knows_what_could_be_completed),
        cmocka_unit_test(broken_utf8_becomes_one_character_a_part),
        cmocka_unit_test(hash_sees_the_bytes_not_the_pieces),
        cmocka_unit_test(machine_has_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
