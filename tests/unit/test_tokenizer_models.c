/* The real vocabularies, against what the models' own tokenizers give. Without the models (`make models`) these tests
 * are skipped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "model/tokenizer.h"
#include "real_model.h"

static const struct vocabulary {
    const char *file, *tokens;
    int32_t n_tokens, bos, eos;
    size_t n_letters, n_spaces; /* tokens of 2^20 letters a, of as many spaces */
} models[] = {
    {"smollm2-135m-instruct.gguf", "tests/data/tokens-smollm2.jsonl", 49152, 1, 2, 262144, 16384},
    {"gemma-3-270m.gguf", "tests/data/tokens-gemma3.jsonl", 262144, 2, 1, 131072, 33826},
};

static tokenizer *open_model(const struct vocabulary *m)
{
    char path[4096];
    status st = STATUS_INIT;
    gguf *g = NULL;
    tokenizer *t = NULL;
    if (gguf_open(&g, real_path(path, m->file), &st) == ST_NOT_FOUND) {
        print_message("%s\n", st.text);
        skip();
    }
    if (st.code || tokenizer_new(&t, g, &st)) fail_msg("%s", st.text);
    gguf_close(g);
    return t;
}

static void check_ids(const tokenizer *t, const json_t *text, bool special, const json_t *want)
{
    status st = STATUS_INIT;
    token_list l = {0};
    const char *s = json_string_value(text);
    size_t n = json_string_length(text), i;
    assert_int_equal(tokenizer_encode(t, s, n, (encode_options){.add_special = special, .parse_special = special}, &l,
                                      &st),
                     ST_OK);
    const json_t *id;
    json_array_foreach(want, i, id)
    {
        if (i >= l.n || l.ids[i] != json_integer_value(id)) fail_msg("special %d, entry %zu of \"%s\"", special, i, s);
    }
    assert_int_equal(l.n, json_array_size(want));

    strbuf b;
    strbuf_init(&b, 0);
    size_t skip_bos = special && tokenizer_adds_bos(t);
    assert_int_equal(tokenizer_decode(t, l.ids ? l.ids + skip_bos : NULL, l.n - skip_bos, true, &b, &st), ST_OK);
    assert_int_equal(b.n_bytes, n);
    assert_memory_equal(strbuf_cstr(&b), s, n);
    strbuf_deinit(&b);
    token_list_deinit(&l);
}

static void tokens_equal_the_reference(void **state)
{
    const struct vocabulary *m = *state;
    tokenizer *t = open_model(m);
    assert_int_equal(tokenizer_vocab_size(t), m->n_tokens);
    assert_int_equal(tokenizer_bos(t), m->bos);
    assert_int_equal(tokenizer_eos(t), m->eos);
    assert_true(tokenizer_is_end(t, m->eos));
    FILE *f = fopen(m->tokens, "r");
    assert_non_null(f);
    json_t *line;
    int n = 0;
    for (; (line = json_loadf(f, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL)); n++) {
        const json_t *text = json_object_get(line, "text");
        check_ids(t, text, false, json_object_get(line, "plain"));
        check_ids(t, text, true, json_object_get(line, "special"));
        json_decref(line);
    }
    fclose(f);
    assert_int_equal(n, 320);
    tokenizer_free(t);
}

#define LONG ((size_t)1 << 20)

static void check_run(const tokenizer *t, char c, size_t n_tokens)
{
    char *text = malloc(LONG);
    assert_non_null(text);
    memset(text, c, LONG);
    status st = STATUS_INIT;
    token_list l = {0};
    strbuf b;
    strbuf_init(&b, 0);
    assert_int_equal(tokenizer_encode(t, text, LONG, (encode_options){.parse_special = true}, &l, &st), ST_OK);
    assert_int_equal(l.n, n_tokens);
    assert_int_equal(tokenizer_decode(t, l.ids, l.n, false, &b, &st), ST_OK);
    assert_int_equal(b.n_bytes, LONG);
    assert_memory_equal(b.data, text, LONG);
    strbuf_deinit(&b);
    token_list_deinit(&l);
    free(text);
}

/* Were this quadratic, it would take hours. */
static void long_runs(void **state)
{
    const struct vocabulary *m = *state;
    tokenizer *t = open_model(m);
    check_run(t, 'a', m->n_letters);
    check_run(t, ' ', m->n_spaces);
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"tokens_equal_the_reference (smollm2)", tokens_equal_the_reference, NULL, NULL, (void *)(uintptr_t)&models[0]},
        {"tokens_equal_the_reference (gemma3)", tokens_equal_the_reference, NULL, NULL, (void *)(uintptr_t)&models[1]},
        {"long_runs (smollm2)", long_runs, NULL, NULL, (void *)(uintptr_t)&models[0]},
        {"long_runs (gemma3)", long_runs, NULL, NULL, (void *)(uintptr_t)&models[1]},
    };
    return cmocka_run_group_tests_name("tokenizer_models", tests, NULL, NULL);
}
