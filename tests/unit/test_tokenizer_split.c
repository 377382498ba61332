#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/mem.h"
#include "model/tokenizer_internal.h"

static splitter *open_splitter(const char *name, bool jit)
{
    status st = STATUS_INIT;
    splitter *s = NULL;
    if (splitter_new(&s, (gguf_str){name, strlen(name)}, jit, &st)) fail_msg("%s", st.text);
    return s;
}

typedef struct words {
    size_t n, n_bytes;
    const char *text;
    size_t ends[64]; /* of the first words */
    int fail_at;
} words;

/* Words come in order and leave nothing out. */
static int take_word(void *user, const char *word, size_t n, status *st)
{
    words *w = user;
    assert_ptr_equal(word, w->text + w->n_bytes);
    assert_true(n > 0);
    w->n_bytes += n;
    if (w->n < 64) w->ends[w->n] = w->n_bytes;
    w->n++;
    return w->fail_at && (int)w->n == w->fail_at ? status_set(st, ST_CANCELLED, 0, "enough") : ST_OK;
}

static words split(const splitter *s, const char *text, size_t n)
{
    words w = {.text = text};
    status st = STATUS_INIT;
    if (splitter_run(s, text, n, take_word, &w, &st)) fail_msg("%s", st.text);
    assert_int_equal(w.n_bytes, n);
    return w;
}

static void check_line(const splitter *s, const json_t *line)
{
    const json_t *text = json_object_get(line, "text"), *want = json_object_get(line, "words");
    words w = split(s, json_string_value(text), json_string_length(text));
    size_t end = 0, i;
    const json_t *word;
    json_array_foreach(want, i, word)
    {
        end += json_string_length(word);
        if (i >= w.n || w.ends[i] != end)
            fail_msg("%s: word %zu of %s", json_string_value(json_object_get(line, "pre")), i, json_string_value(text));
    }
    assert_int_equal(w.n, json_array_size(want));
}

/* Hugging Face's tokenizers cut the same texts in the same places, compiled or interpreted. */
static void words_equal_the_reference(void **state)
{
    (void)state;
    FILE *f = fopen("tests/data/splits.jsonl", "r");
    assert_non_null(f);
    json_t *line;
    int n = 0, n_rules = 0;
    char rule[32] = "";
    splitter *s[2] = {NULL, NULL};
    while ((line = json_loadf(f, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL))) {
        const char *pre = json_string_value(json_object_get(line, "pre"));
        for (int jit = 0; jit < 2 && strcmp(pre, rule) != 0; jit++) {
            splitter_free(s[jit]);
            s[jit] = open_splitter(pre, jit);
            n_rules += jit;
        }
        snprintf(rule, sizeof rule, "%s", pre);
        check_line(s[0], line);
        check_line(s[1], line);
        json_decref(line);
        n++;
    }
    splitter_free(s[0]);
    splitter_free(s[1]);
    fclose(f);
    assert_int_equal(n_rules, 7);
    assert_int_equal(n, 7 * 183);
}

static void names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool whole_words, add_bos;
    } known[] = {
        {"default", false, false},          {"gpt-2", false, false},        {"phi-2", false, false},
        {"llama-bpe", true, true},          {"llama3", true, true},         {"llama-v3", true, true},
        {"smaug-bpe", false, false},        {"qwen2", false, false},        {"smollm", false, false},
        {"starcoder", false, false},        {"deepseek-llm", false, false}, {"deepseek-v3", false, false},
        {"deepseek-r1-qwen", false, false},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        splitter *s = open_splitter(known[i].name, true);
        assert_int_equal(splitter_takes_whole_words(s), known[i].whole_words);
        assert_int_equal(splitter_adds_bos(s), known[i].add_bos);
        splitter_free(s);
    }
    static const char *const unknown[] = {"", " ", "llama", "gpt-2 ", "default gpt-2", "2", "tekken"};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        status st = STATUS_INIT;
        splitter *s = NULL;
        assert_int_equal(splitter_new(&s, (gguf_str){unknown[i], strlen(unknown[i])}, true, &st), ST_UNSUPPORTED);
        assert_null(s);
        assert_non_null(strstr(st.text, unknown[i]));
    }
}

static void bytes_that_are_no_characters_are_words(void **state)
{
    (void)state;
    splitter *s = open_splitter("llama-bpe", true);
    words w = split(s, "ab\xFF\xFE\xC3 c\xE4\xB8", 9);
    assert_int_equal(w.n, 4);
    assert_true(w.ends[0] == 2 && w.ends[1] == 5 && w.ends[2] == 7 && w.ends[3] == 9);
    w = split(s, "\xED\xA0\x80x", 4); /* a surrogate is none either */
    assert_true(w.n == 2 && w.ends[0] == 3);
    splitter_free(s);
}

static void the_callee_may_stop(void **state)
{
    (void)state;
    static const char *const rules[] = {"gpt-2", "deepseek-llm"};
    for (int i = 0; i < 2; i++) {
        splitter *s = open_splitter(rules[i], true);
        for (int at = 1; at <= 4; at++) {
            words w = {.text = "a bb, 12 c\xFF"
                               "d",
                       .fail_at = at};
            status st = STATUS_INIT;
            assert_int_equal(splitter_run(s, w.text, 12, take_word, &w, &st), ST_CANCELLED);
            assert_int_equal(w.n, at);
        }
        splitter_free(s);
    }
}

#define LONG ((size_t)1 << 20)

/* n bytes of one thing, with and without something else at the end. Were any of this quadratic, it would take hours. */
static void check_run(const splitter *s, const char *thing, char *text, size_t n)
{
    for (size_t i = 0, k = strlen(thing); i < n; i++) text[i] = thing[i % k];
    split(s, text, n);
    text[n - 1] = 'x';
    words w = split(s, text, n);
    if (strcmp(thing, " ") == 0) assert_int_equal(w.n, 2); /* the last space goes with the x */
}

static void long_runs(void **state)
{
    (void)state;
    static const char *const rules[] = {"default", "gpt-2",        "llama-bpe",  "qwen2",
                                        "smollm",  "deepseek-llm", "deepseek-v3"};
    static const char *const things[] = {" ",        "a",   "\n",   "1",    "'",
                                         "!",        "\t",  "\x01", "\xFF", "\xE4\xB8\xAD",
                                         "\xCC\x81", " \n", "\r\n", "x ",   "  x"};
    char *text = malloc(LONG);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        for (int jit = 0; jit < 2; jit++) {
            splitter *s = open_splitter(rules[i], jit);
            for (size_t k = 0; k < sizeof things / sizeof things[0]; k++)
                check_run(s, things[k], text, jit || k == 0 ? LONG : LONG / 32);
            splitter_free(s);
        }
    free(text);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    int n = 0, rc;
    do {
        uint64_t before = mem_stats().bytes;
        status st = STATUS_INIT;
        splitter *s = NULL;
        words w = {.text = "ab 12"};
        mem_fail_after(++n);
        rc = splitter_new(&s, (gguf_str){"deepseek-llm", 12}, true, &st);
        if (rc == ST_OK) rc = splitter_run(s, w.text, 5, take_word, &w, &st);
        mem_fail_after(0);
        assert_true(rc == ST_OK || rc == ST_NOMEM);
        splitter_free(s);
        assert_int_equal(mem_stats().bytes, before);
    } while (rc != ST_OK && n < 1000);
    assert_int_equal(rc, ST_OK);
    assert_true(n > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_equal_the_reference),
        cmocka_unit_test(names),
        cmocka_unit_test(bytes_that_are_no_characters_are_words),
        cmocka_unit_test(the_callee_may_stop),
        cmocka_unit_test(long_runs),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("tokenizer_split", tests, NULL, NULL);
}
