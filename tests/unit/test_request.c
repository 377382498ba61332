/* Bodies of requests: every field that is given is obeyed, of no effect and listed, or refused by its name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "serve/request.h"

static const char *const names[] = {"first", "second", NULL};
static const request_rules strict = {.n_vocab = 100, .names = names};
static const request_rules lenient = {.n_vocab = 100, .names = names, .lenient = true};

static int parse(request *r, request_kind kind, const request_rules *rules, const char *body, api_error *e)
{
    *e = (api_error){0};
    return request_parse(r, kind, rules, body, strlen(body), e);
}

#define COMPLETION(more) "{\"prompt\": \"a\", " more "}"

static void assert_accepted(request_kind kind, const char *body)
{
    request r;
    api_error e;
    if (parse(&r, kind, &strict, body, &e)) fail_msg("%s: %s", body, e.message);
    request_deinit(&r);
}

/* The refusal of a body. */
static api_error refusal(request_kind kind, const char *body, int code)
{
    request r;
    api_error e;
    int got = parse(&r, kind, &strict, body, &e);
    if (got != code) fail_msg("%s: %d, %s", body, got, e.message);
    request_deinit(&r);
    return e;
}

static void assert_refused(request_kind kind, const char *body, const char *param, const char *code)
{
    api_error e = refusal(kind, body, strcmp(code, "model_not_found") == 0 ? 404 : 400);
    assert_string_equal(e.param, param);
    assert_string_equal(e.code, code);
}

static void whole_numbers(void **state)
{
    (void)state;
    request r;
    api_error e;
    assert_int_equal(
        parse(&r, REQUEST_COMPLETION, &strict,
              COMPLETION("\"n\": 2.0, \"max_tokens\": 1e2, \"seed\": -9223372036854775808, \"top_k\": -0.0"), &e),
        0);
    assert_int_equal(r.n, 2);
    assert_int_equal(r.max_tokens, 100);
    assert_int_equal(r.params.sampling.seed, (uint64_t)1 << 63);
    request_deinit(&r);
    assert_accepted(REQUEST_COMPLETION, COMPLETION("\"stop_token_ids\": [1.0, 99]"));
    assert_refused(REQUEST_COMPLETION, COMPLETION("\"n\": 2.5"), "n", "invalid_type");
}

/* JSON has no bounds; fields have. */
static void numbers_beyond_64_bits(void **state)
{
    (void)state;
    static const char *const numbers[] = {
        "1e999",   "-1e999", "123456789012345678901234567890", "-9223372036854775809", "9223372036854775808",
        "1.5e400", "1E+400"};
    static const char *const fields[] = {"n",        "max_tokens", "temperature", "seed", "top_logprobs",
                                         "priority", "cache_pin"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char body[256];
        for (size_t k = 0; k < sizeof fields / sizeof *fields; k++) {
            snprintf(body, sizeof body, "{\"messages\": [{\"role\": \"user\", \"content\": \"1e999\"}], \"%s\": %s}",
                     fields[k], numbers[i]);
            assert_refused(REQUEST_CHAT, body, fields[k], "invalid_value");
        }
        snprintf(body, sizeof body, "{\"prompt\": \"\\\" 1e999\", \"metadata\": {\"a\": [%s]}}", numbers[i]);
        assert_accepted(REQUEST_COMPLETION, body);
        snprintf(body, sizeof body, "{\"prompt\": [%s]}", numbers[i]);
        assert_refused(REQUEST_COMPLETION, body, "prompt", "invalid_value");
        snprintf(body, sizeof body, "%s", numbers[i]);
        assert_refused(REQUEST_COMPLETION, body, "", "invalid_type");
    }
    /* What is no number stays none. */
    static const char *const broken[] = {"01e999", "1.e999", "1e999.5", "-",     "--1e999", "1e",
                                         "+1e999", "1e999a", ".5",      "0x1p9", "NaN"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        char body[256];
        snprintf(body, sizeof body, "{\"metadata\": [1e999, %s], \"prompt\": \"a\"}", broken[i]);
        assert_refused(REQUEST_COMPLETION, body, "", "invalid_json");
    }
}

static void what_is_wrong_with_a_body(void **state)
{
    (void)state;
    static const struct {
        const char *body, *param, *code;
    } cases[] = {
        {"", "", "invalid_json"},
        {" ", "", "invalid_json"},
        {"{\"prompt\": \"a\"} x", "", "invalid_json"},
        {"[]", "", "invalid_type"},
        {"\"\\u0000\"", "", "invalid_type"},
        {"{\"prompt\": \"a\", \"prompt\": \"b\"}", "prompt", "duplicate_key"},
        {"{\"prompt\": \"a\", \"metadata\": {\"k\": 1, \"k\": 2}}", "k", "duplicate_key"},
        {"{\"prompt\": \"\\ud800\"}", "", "invalid_encoding"},
        {"{\"prompt\": \"\xff\"}", "", "invalid_encoding"},
        {"{\"a\\u0000b\": 1}", "", "unsupported_value"},
        {"{\"prompt\": 1e999}", "prompt", "invalid_type"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_refused(REQUEST_COMPLETION, cases[i].body, cases[i].param, cases[i].code);
    assert_accepted(REQUEST_COMPLETION, "\xEF\xBB\xBF{\"prompt\": \"a\\u0000b\"}");
    char deep[8000];
    snprintf(deep, sizeof deep, "{\"metadata\": %03000d, \"prompt\": \"a\"}", 0);
    memset(strstr(deep, "000"), '[', 3000);
    assert_refused(REQUEST_COMPLETION, deep, "", "too_deep");
}

/* Where a parser looks for the end of a number, a word, a name, a text. */
static void zero_bytes_are_no_json(void **state)
{
    (void)state;
    static const char body[] = "{\"metadata\": [1 , true , null , {\"a\" : 2.5 } , \"b\" ] , \"prompt\" : \"a c\" } ";
    char broken[sizeof body];
    request r;
    api_error e = {0};
    assert_int_equal(request_parse(&r, REQUEST_COMPLETION, &strict, body, sizeof body - 1, &e), 0);
    request_deinit(&r);
    for (size_t i = 0; i < sizeof body - 1; i++) {
        if (body[i] != ' ') continue;
        memcpy(broken, body, sizeof body);
        broken[i] = 0;
        assert_int_equal(request_parse(&r, REQUEST_COMPLETION, &strict, broken, sizeof body - 1, &e), 400);
        assert_string_equal(e.code, "invalid_json");
        request_deinit(&r);
    }
}

static void fields_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const refused[] = {"grammar",       "guided_choice",        "structured_outputs", "suffix",
                                          "chat_template", "chat_template_kwargs", "functions"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char body[256];
        snprintf(body, sizeof body, COMPLETION("\"%s\": {\"a\": 1}"), refused[i]);
        assert_refused(REQUEST_COMPLETION, body, refused[i], "unsupported_parameter");
        snprintf(body, sizeof body, COMPLETION("\"%s\": {}"), refused[i]);
        assert_accepted(REQUEST_COMPLETION, body);
        snprintf(body, sizeof body, COMPLETION("\"%s\": null"), refused[i]);
        assert_accepted(REQUEST_COMPLETION, body);
    }
    assert_accepted(REQUEST_COMPLETION, COMPLETION("\"min_tokens\": 16"));
    assert_refused(REQUEST_COMPLETION, COMPLETION("\"min_tokens\": 17"), "min_tokens", "invalid_value");
    assert_accepted(REQUEST_COMPLETION, COMPLETION("\"min_tokens\": 17, \"n_predict\": -1"));
    assert_refused(REQUEST_COMPLETION, COMPLETION("\"min_tokens\": -1"), "min_tokens", "invalid_value");
    assert_refused(REQUEST_TOKENIZE, "{\"content\": \"a\", \"min_tokens\": 1}", "min_tokens", "unsupported_parameter");
    assert_refused(REQUEST_COMPLETION, COMPLETION("\"messages\": []"), "messages", "unsupported_parameter");
    assert_refused(REQUEST_DETOKENIZE, "{\"tokens\": [1], \"stream\": true}", "stream", "unsupported_parameter");
    assert_refused(REQUEST_TOKENIZE, "{\"content\": \"a\", \"prompt\": \"b\"}", "prompt", "invalid_value");
    assert_refused(REQUEST_COMPLETION, COMPLETION("\"max_token\": 3"), "max_token", "unknown_parameter");
    assert_non_null(strstr(refusal(REQUEST_COMPLETION, COMPLETION("\"max_token\": 3"), 400).message, "'max_tokens'?"));
    assert_non_null(strstr(refusal(REQUEST_COMPLETION, "{\"promt\": \"a\"}", 400).message, "'prompt'?"));
    assert_refused(REQUEST_COMPLETION, COMPLETION("\"a\\\"\\u00e9\": 3"), "a\"\u00e9", "unknown_parameter");
    assert_refused(REQUEST_COMPLETION, COMPLETION("\"stream_options\": {\"x\": 1}"), "stream_options.x",
                   "unknown_parameter");
    assert_refused(REQUEST_COMPLETION, COMPLETION("\"max_tokens\": 3, \"n_predict\": 4"), "n_predict", "invalid_value");
    assert_accepted(REQUEST_COMPLETION,
                    COMPLETION("\"max_tokens\": 3, \"n_predict\": 3, \"max_completion_tokens\": 3"));
    assert_accepted(REQUEST_COMPLETION, COMPLETION("\"max_new_tokens\": 3, \"num_predict\": 3"));
    assert_refused(REQUEST_COMPLETION, COMPLETION("\"max_tokens\": 3, \"max_new_tokens\": 4"), "max_new_tokens",
                   "invalid_value");
    assert_refused(REQUEST_COMPLETION, COMPLETION("\"max_new_tokens\": -1"), "max_new_tokens", "invalid_value");
    assert_accepted(REQUEST_COMPLETION, COMPLETION("\"num_predict\": -1"));
    assert_refused(REQUEST_COMPLETION, COMPLETION("\"dry_multiplier\": 1, \"dry_sequence_breakers\": [\"a\"]"),
                   "dry_sequence_breakers", "unsupported_parameter");
    assert_accepted(REQUEST_COMPLETION, COMPLETION("\"dry_sequence_breakers\": [\"a\"]"));
    assert_refused(REQUEST_COMPLETION, COMPLETION("\"model\": \"third\""), "model", "model_not_found");
    assert_refused(REQUEST_COMPLETION, COMPLETION("\"model\": \"first\\u0000\""), "model", "model_not_found");
    assert_accepted(REQUEST_COMPLETION, COMPLETION("\"model\": \"second\""));
}

static void lenient_rules_name_what_they_ignore(void **state)
{
    (void)state;
    request r;
    api_error e;
    assert_int_equal(parse(&r, REQUEST_COMPLETION, &lenient,
                           COMPLETION(
                               "\"model\": \"third\", \"grammar\": \"x\", \"a\\r\\nb: \\u00e9\": 1, \"store\": true, "
                               "\"stream_options\": {\"x\": 1}, \"no_such\": null"),
                           &e),
                     0);
    assert_string_equal(r.ignored, "model, stream_options.x, grammar, a??b????, no_such");
    request_deinit(&r);
    char body[8000];
    size_t n = (size_t)snprintf(body, sizeof body, "{\"prompt\": \"a\"");
    for (int i = 0; i < 64; i++) n += (size_t)snprintf(body + n, sizeof body - n, ", \"a_field_number_%d\": 1", i);
    snprintf(body + n, sizeof body - n, "}");
    assert_int_equal(parse(&r, REQUEST_COMPLETION, &lenient, body, &e), 0);
    assert_true(strlen(r.ignored) < sizeof r.ignored && strstr(r.ignored, "a_field_number_9, "));
    assert_string_equal(r.ignored + strlen(r.ignored) - 5, ", ...");
    request_deinit(&r);
    snprintf(body + n, sizeof body - n, ", \"more\": 1}");
    assert_int_equal(parse(&r, REQUEST_COMPLETION, &lenient, body, &e), 400);
    assert_string_equal(e.param, "more");
    request_deinit(&r);
    assert_int_equal(parse(&r, REQUEST_COMPLETION, &lenient, COMPLETION("\"temperature\": 9"), &e), 400);
    request_deinit(&r);
}

static void lower_priorities_go_first(void **state)
{
    (void)state;
    request r;
    api_error e;
    assert_int_equal(parse(&r, REQUEST_COMPLETION, &strict, COMPLETION("\"priority\": 2147483647"), &e), 0);
    assert_int_equal(r.params.priority, -2147483647);
    request_deinit(&r);
    assert_refused(REQUEST_COMPLETION, COMPLETION("\"priority\": -2147483648"), "priority", "invalid_value");
    assert_refused(REQUEST_COMPLETION, COMPLETION("\"priority\": -1"), "priority", "invalid_value");
    const request_rules generous = {.n_vocab = 100, .min_priority = -5};
    assert_int_equal(parse(&r, REQUEST_COMPLETION, &generous, COMPLETION("\"priority\": -5"), &e), 0);
    assert_int_equal(r.params.priority, 5);
    request_deinit(&r);
    assert_int_equal(parse(&r, REQUEST_COMPLETION, &generous, COMPLETION("\"priority\": -6"), &e), 400);
    request_deinit(&r);
}

static void every_field_is_in_the_manual(void **state)
{
    (void)state;
    strbuf manual;
    status st = STATUS_INIT;
    char quoted[64];
    size_t n = 0;
    strbuf_init(&manual, 0);
    assert_int_equal(file_read(&manual, "docs/SERVER.md", 1 << 20, &st), ST_OK);
    const char *name;
    for (size_t i = 0; field_at(i) || known_field_at(n); i++) {
        name = field_at(i) ? field_at(i)->name : known_field_at(n++)->name;
        snprintf(quoted, sizeof quoted, "`%s`", name);
        if (!strstr(strbuf_cstr(&manual), quoted)) fail_msg("docs/SERVER.md lacks %s", quoted);
    }
    assert_true(n > 50);
    /* And what it calls known is. */
    const char *p = strstr(strbuf_cstr(&manual), "## Fields of other servers");
    assert_non_null(p);
    const char *next = strstr(p + 2, "\n## "), *end = next ? next : p + strlen(p);
    for (size_t length; (p = strchr(p, '`')) && p < end; p += length + 2) {
        length = strcspn(p + 1, "`");
        snprintf(quoted, sizeof quoted, "%.*s", (int)length, p + 1);
        if (!known_field_find(quoted) && strncmp(quoted, "dry_", 4) != 0) fail_msg("docs/SERVER.md lists %s", quoted);
    }
    strbuf_deinit(&manual);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_numbers),
        cmocka_unit_test(numbers_beyond_64_bits),
        cmocka_unit_test(what_is_wrong_with_a_body),
        cmocka_unit_test(zero_bytes_are_no_json),
        cmocka_unit_test(fields_are_refused_by_name),
        cmocka_unit_test(lenient_rules_name_what_they_ignore),
        cmocka_unit_test(lower_priorities_go_first),
        cmocka_unit_test(every_field_is_in_the_manual),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
