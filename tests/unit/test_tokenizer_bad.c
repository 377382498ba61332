/* Files that are wrong, texts that are too long, memory that is short. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"
#include "vocab_build.h"

static vocab V; /* too large for some stacks */

static void check_refused(int code, const char *words)
{
    status st = STATUS_INIT;
    uint64_t before = mem_stats().bytes;
    tokenizer *t = vocab_open(&V, &st);
    tokenizer_free(t);
    if (t || st.code != code || !strstr(st.text, words)) fail_msg("wanted \"%s\", got %d: %s", words, st.code, st.text);
    assert_int_equal(mem_stats().bytes, before);
}

#define REFUSED(change, code, words) (vocab_bpe(&V, "gpt-2"), (void)(change), check_refused(code, words))
#define SPM_REFUSED(change, code, words) (vocab_spm(&V), (void)(change), check_refused(code, words))

static void wrong_files(void **state)
{
    (void)state;
    REFUSED(V.model = "bert", ST_UNSUPPORTED, "\"bert\"");
    REFUSED(V.model = "", ST_UNSUPPORTED, "tokenizer.ggml.model");
    REFUSED(V.pre = "tekken", ST_UNSUPPORTED, "\"tekken\"");
    REFUSED(V.pre = "gpt", ST_UNSUPPORTED, "\"gpt\"");
    REFUSED(V.pre = "", ST_UNSUPPORTED, "pre-tokenizer");
    REFUSED(V.n_tokens = V.n_types = 0, ST_FORMAT, "tokens");
    REFUSED(V.n_types--, ST_FORMAT, "token_type has 255 entries for 256 tokens");
    REFUSED(V.n_types++, ST_FORMAT, "token_type");
    REFUSED(V.types[3] = 7, ST_FORMAT, "token 3 has the unknown type 7");
    REFUSED(V.types[3] = -1, ST_FORMAT, "token 3");
    REFUSED(V.types[3] = 6, ST_FORMAT, "token 3 is a byte");
    REFUSED(vocab_add(&V, "a", 1, 0), ST_FORMAT, "tokens 97 and 256");
    REFUSED((vocab_add(&V, "<x>", 3, 0), vocab_add(&V, "<x>", 4, 0)), ST_FORMAT, "tokens 256 and 257");
    REFUSED(V.n_merges = -1, ST_FORMAT, "merges");
    REFUSED(vocab_merge(&V, "a b"), ST_FORMAT, "merge 0 (a b)"); /* "ab" is no token */
    REFUSED((vocab_add(&V, "ab", 1, 0), vocab_merge(&V, "a b"), vocab_merge(&V, "a xx")), ST_FORMAT, "merge 1");
    REFUSED((vocab_add(&V, "ab", 3, 0), vocab_merge(&V, "a b")), ST_FORMAT,
            "merge 0"); /* text never becomes a control token */
    REFUSED(vocab_merge(&V, "ab"), ST_FORMAT, "merge 0");
    REFUSED(vocab_merge(&V, "a "), ST_FORMAT, "merge 0");
    REFUSED(vocab_merge(&V, " a"), ST_FORMAT, "merge 0");
    REFUSED(vocab_merge(&V, ""), ST_FORMAT, "merge 0");
    REFUSED(V.bos = 256, ST_FORMAT, "bos_token_id is 256");
    REFUSED(V.eos = 1 << 30, ST_FORMAT, "eos_token_id");
    REFUSED(V.eot = 300, ST_FORMAT, "eot_token_id");
    REFUSED(V.eom = 300, ST_FORMAT, "eom_token_id");
    SPM_REFUSED(V.n_scores = -1, ST_FORMAT, "scores is missing");
    SPM_REFUSED(V.n_scores--, ST_FORMAT, "scores has 258 entries");
    SPM_REFUSED(strcpy(V.names[5], "<0x2>"), ST_FORMAT, "token 5 is a byte");
    SPM_REFUSED(strcpy(V.names[5], "<0xG2>"), ST_FORMAT, "token 5");
    SPM_REFUSED(V.unknown = 259, ST_FORMAT, "unknown_token_id");
}

static void a_text_beyond_the_limit(void **state)
{
    (void)state;
    status st = STATUS_INIT;
    vocab_mixed(&V, true);
    tokenizer *t = vocab_open(&V, &st);
    assert_non_null(t);
    token_list l = {0};
    assert_int_equal(tokenizer_encode(t, "x", INT32_MAX, (encode_options){0}, &l, &st),
                     ST_LIMIT); /* refused before it is read */
    assert_int_equal(l.n, 0);
    tokenizer_free(t);
}

/* What fails leaves its output as it was. */
static int use_all(const uint8_t *file, size_t n_bytes, token_list *l, strbuf *b, status *st)
{
    static const char text[] = "a a\xC3\xA9 it's<control> \xFF "
                               "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    gguf *g = NULL;
    tokenizer *t = NULL;
    detokenizer d = {0};
    if (gguf_parse(&g, file, n_bytes, st) || tokenizer_new(&t, g, st)) {
        assert_null(t);
    } else if (tokenizer_encode(t, text, sizeof text - 1, (encode_options){.add_special = true, .parse_special = true},
                                l, st)) {
        assert_int_equal(l->n, 0);
    } else if (tokenizer_decode(t, l->ids, l->n, true, b, st)) {
        assert_int_equal(b->n_bytes, 0);
    } else {
        for (size_t i = 0; i < 300 && detokenizer_push(&d, t, l->ids[i % l->n], true, b, st) == ST_OK; i++) {}
    }
    tokenizer_free(t);
    gguf_close(g);
    return st->code;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (int spm = 0; spm < 2; spm++) {
        strbuf file;
        strbuf_init(&file, 0);
        vocab_mixed(&V, spm);
        put_vocab(&file, &V);
        int n = 0, rc;
        do {
            uint64_t before = mem_stats().bytes;
            status st = STATUS_INIT;
            token_list l = {0};
            strbuf b;
            strbuf_init(&b, 0);
            mem_fail_after(++n);
            rc = use_all((const uint8_t *)file.data, file.n_bytes, &l, &b, &st);
            mem_fail_after(0);
            assert_true(rc == ST_OK || rc == ST_NOMEM);
            token_list_deinit(&l);
            strbuf_deinit(&b);
            assert_int_equal(mem_stats().bytes, before);
        } while (rc != ST_OK && n < 10000);
        assert_int_equal(rc, ST_OK);
        assert_true(n > 10);
        strbuf_deinit(&file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_files),
        cmocka_unit_test(a_text_beyond_the_limit),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("tokenizer_bad", tests, NULL, NULL);
}
