/* A program that knows include/kvasir.h alone. */
#include "kvasir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "tiny_model.h"

static int write_model(void **state)
{
    tiny_config c = tiny_script("helo wrd!");
    c.chat_template = "{{ messages }}";
    strbuf b;
    strbuf_init(&b, 0);
    tiny_gguf(&b, &c);
    *state = tiny_write(b.data, b.n_bytes);
    strbuf_deinit(&b);
    return 0;
}

static int remove_model(void **state)
{
    tiny_remove(*state);
    return mem_stats().live != 0;
}

typedef struct answer {
    char text[256];
    size_t n_bytes;
    int n_tokens;
    int32_t last;
} answer;

static void on_token(void *user, int32_t token, const char *text, size_t n_bytes)
{
    answer *a = user;
    assert_true(a->n_bytes + n_bytes < sizeof a->text);
    memcpy(a->text + a->n_bytes, text, n_bytes);
    a->n_bytes += n_bytes;
    a->n_tokens++;
    a->last = token;
}

static void on_progress(void *user, uint64_t done, uint64_t total)
{
    *(uint64_t *)user = done;
    assert_true(done <= total);
}

typedef struct handles {
    kvasir_model *m;
    kvasir_engine *e;
    kvasir_session *s;
} handles;

static void open_all(handles *h, const char *path, const kvasir_engine_options *o)
{
    kvasir_status st = {0};
    uint64_t done = 0;
    kvasir_model_options mo = {.threads = 1, .progress = on_progress, .user = &done};
    if (kvasir_model_load(&h->m, path, &mo, &st) || kvasir_engine_new(&h->e, h->m, o, &st) ||
        kvasir_session_new(&h->s, h->e, &st))
        fail_msg("%s", st.text);
    assert_true(done > 0);
}

static void close_all(handles *h)
{
    kvasir_session_free(h->s);
    kvasir_engine_free(h->e);
    kvasir_model_free(h->m);
}

static void run(handles *h)
{
    kvasir_status st = {0};
    while (kvasir_session_active(h->s))
        if (kvasir_engine_step(h->e, &st) || kvasir_engine_audit(h->e, &st)) fail_msg("%s", st.text);
}

static void a_whole_generation(void **state)
{
    handles h = {0};
    kvasir_status st = {0};
    kvasir_engine_options o = {
        .threads = 2, .context = 64, .chunk = 8, .block_tokens = 8, .kv_format = "f32", .exact = 1};
    open_all(&h, *state, &o);
    assert_true(strlen(kvasir_version()) > 0);
    assert_int_equal(kvasir_model_vocab_size(h.m), TINY_VOCAB);
    assert_int_equal(kvasir_model_context(h.m), 1024);
    assert_string_equal(kvasir_model_chat_template(h.m), "{{ messages }}");
    assert_int_equal(kvasir_engine_context(h.e), 64);
    int32_t ids[8];
    size_t n = 0;
    assert_int_equal(kvasir_tokenize(h.m, "xyh", 3, 1, 1, ids, 8, &n, &st), KVASIR_OK);
    assert_int_equal(n, 3);
    assert_int_equal(ids[2], 'h');
    kvasir_sampling k = kvasir_sampling_defaults();
    k.temperature = 0;
    answer a = {0};
    assert_int_equal(kvasir_session_start(h.s, ids, n, &k, on_token, &a, &st), KVASIR_OK);
    assert_true(kvasir_session_active(h.s));
    assert_int_equal(kvasir_session_finish(h.s), KVASIR_FINISH_NONE);
    run(&h);
    assert_string_equal(a.text, "elo wrd!");
    assert_int_equal(a.n_tokens, 9);
    assert_int_equal(a.last, TINY_END);
    assert_int_equal(kvasir_session_finish(h.s), KVASIR_FINISH_EOS);
    kvasir_cache_info info = kvasir_engine_cache_info(h.e);
    assert_int_equal(info.block_tokens, 8);
    assert_int_equal(info.blocks, 8);
    assert_int_equal(info.free_blocks, 6); /* 11 tokens were in the cache and stay: a full block and a tail */
    assert_int_equal(info.cached_blocks, 2);
    assert_int_equal(info.bytes, 8 * 8 * 2 * (16 + 16) * 4);
    close_all(&h);
}

static void ends_and_options(void **state)
{
    handles h = {0};
    kvasir_status st = {0};
    open_all(&h, *state, NULL);
    int32_t id = 'h';
    kvasir_sampling k = kvasir_sampling_defaults();
    k.temperature = 0;
    answer a = {0};
    k.stop = (const char *[]){"wr"}, k.n_stop = 1;
    assert_int_equal(kvasir_session_start(h.s, &id, 1, &k, on_token, &a, &st), KVASIR_OK);
    run(&h);
    assert_string_equal(a.text, "elo ");
    assert_int_equal(kvasir_session_finish(h.s), KVASIR_FINISH_STOP);
    k = kvasir_sampling_defaults();
    k.max_tokens = 3;
    a = (answer){0};
    assert_int_equal(kvasir_session_start(h.s, &id, 1, &k, on_token, &a, &st), KVASIR_OK);
    run(&h);
    assert_int_equal(a.n_tokens, 3);
    assert_int_equal(kvasir_session_finish(h.s), KVASIR_FINISH_LENGTH);
    assert_int_equal(kvasir_session_error(h.s)->code, KVASIR_OK);
    /* Sampling may be the default, the callback absent. */
    assert_int_equal(kvasir_session_start(h.s, &id, 1, NULL, NULL, NULL, &st), KVASIR_OK);
    assert_int_equal(kvasir_engine_step(h.e, &st), KVASIR_OK);
    kvasir_session_cancel(h.s);
    assert_int_equal(kvasir_session_finish(h.s), KVASIR_FINISH_CANCELLED);
    close_all(&h);
    kvasir_session_free(NULL);
    kvasir_engine_free(NULL);
    kvasir_model_free(NULL);
}

static void texts_and_tokens(void **state)
{
    handles h = {0};
    kvasir_status st = {0};
    open_all(&h, *state, NULL);
    const char *text = "abc<|end|>\xC3\xA9";
    int32_t ids[32], short_list[2];
    size_t n = 0, n_bytes = 0;
    assert_int_equal(kvasir_tokenize(h.m, text, strlen(text), 0, 1, ids, 32, &n, &st), KVASIR_OK);
    assert_int_equal(n, 5);
    assert_int_equal(ids[0], TINY_AB);
    assert_int_equal(ids[2], TINY_END);
    assert_int_equal(kvasir_tokenize(h.m, text, strlen(text), 0, 0, NULL, 0, &n, &st), KVASIR_OK);
    assert_int_equal(n, 11);
    assert_int_equal(kvasir_tokenize(h.m, text, strlen(text), 0, 1, short_list, 2, &n, &st), KVASIR_OK);
    assert_int_equal(n, 5);
    assert_memory_equal(short_list, ids, sizeof short_list);
    char out[32] = {0};
    assert_int_equal(kvasir_detokenize(h.m, ids, 5, 1, out, sizeof out, &n_bytes, &st), KVASIR_OK);
    assert_int_equal(n_bytes, strlen(text));
    assert_string_equal(out, text);
    memset(out, 0, sizeof out);
    assert_int_equal(kvasir_detokenize(h.m, ids, 5, 0, out, 2, &n_bytes, &st), KVASIR_OK);
    assert_int_equal(n_bytes, 5);
    assert_string_equal(out, "ab");
    ids[1] = 100000;
    assert_int_equal(kvasir_detokenize(h.m, ids, 5, 0, out, 2, &n_bytes, &st), KVASIR_ARG);
    assert_int_equal(st.pos, 1);
    close_all(&h);
}

static void failures_leave_nothing(void **state)
{
    kvasir_status st = {0};
    handles h = {0};
    kvasir_model *m = NULL;
    kvasir_engine *e = NULL;
    kvasir_session *s = NULL;
    assert_int_equal(kvasir_model_load(&m, "/tmp/no such model.gguf", NULL, &st), KVASIR_NOT_FOUND);
    assert_true(strlen(st.text) > 10);
    kvasir_model_options bad = {.threads = -1};
    assert_int_equal(kvasir_model_load(&m, *state, &bad, &st), KVASIR_ARG);
    assert_null(m);
    open_all(&h, *state, NULL);
    const kvasir_engine_options wrong[] = {{.kv_format = "q1"}, {.threads = 100000}, {.context = -1},
                                           {.sessions = -1},    {.chunk = -1},       {.block_tokens = 3}};
    uint64_t bytes = mem_stats().bytes;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(kvasir_engine_new(&e, h.m, &wrong[i], &st), KVASIR_ARG);
        assert_null(e);
        assert_int_equal(mem_stats().bytes, bytes);
    }
    kvasir_engine_options small = {.context = 1000, .kv_memory_bytes = 1000};
    assert_int_equal(kvasir_engine_new(&e, h.m, &small, &st), KVASIR_LIMIT);
    assert_int_equal(kvasir_session_new(&s, h.e, &st), KVASIR_LIMIT);
    assert_int_equal(kvasir_session_start(h.s, NULL, 0, NULL, NULL, NULL, &st), KVASIR_ARG);
    assert_int_equal(mem_stats().bytes, bytes);
    for (int i = 0; i < 3; i++) {
        mem_fail_after(i + 1);
        if (i == 0) assert_int_equal(kvasir_model_load(&m, *state, NULL, &st), KVASIR_NOMEM);
        if (i == 1) assert_int_equal(kvasir_engine_new(&e, h.m, NULL, &st), KVASIR_NOMEM);
        mem_fail_after(1);
        assert_int_equal(kvasir_session_new(&s, h.e, &st), KVASIR_NOMEM);
        assert_int_equal(mem_stats().bytes, bytes);
    }
    mem_fail_after(0);
    close_all(&h);
}

/* Memory that runs out ends a session, which can say so. */
static void errors_can_be_read(void **state)
{
    handles h = {0};
    kvasir_status st = {0};
    kvasir_engine_options o = {.context = 64};
    open_all(&h, *state, &o);
    int32_t id = 'h';
    int n_failed = 0;
    for (int n = 1; n < 8; n++) {
        assert_int_equal(kvasir_session_start(h.s, &id, 1, NULL, NULL, NULL, &st), KVASIR_OK);
        mem_fail_after(n);
        while (kvasir_session_active(h.s)) assert_int_equal(kvasir_engine_step(h.e, &st), KVASIR_OK);
        mem_fail_after(0);
        if (kvasir_session_finish(h.s) != KVASIR_FINISH_ERROR) continue;
        assert_int_equal(kvasir_session_error(h.s)->code, KVASIR_NOMEM);
        assert_non_null(strstr(kvasir_session_error(h.s)->text, "memory"));
        n_failed++;
    }
    assert_true(n_failed > 0);
    close_all(&h);
}

/* A prompt and its answer are at most the context together. */
static void context_is_shared_by_prompt_and_answer(void **state)
{
    handles h = {0};
    kvasir_status st = {0};
    kvasir_engine_options o = {.context = 64};
    open_all(&h, *state, &o);
    int32_t ids[65];
    for (int i = 0; i < 65; i++) ids[i] = 'a' + i % 26;
    kvasir_sampling k = kvasir_sampling_defaults();
    k.ignore_eos = 1;
    answer a = {0};
    assert_int_equal(kvasir_session_start(h.s, ids, 60, &k, on_token, &a, &st), KVASIR_OK);
    while (kvasir_session_active(h.s)) assert_int_equal(kvasir_engine_step(h.e, &st), KVASIR_OK);
    assert_int_equal(a.n_tokens, 4);
    assert_int_equal(kvasir_session_finish(h.s), KVASIR_FINISH_CONTEXT);
    assert_int_equal(kvasir_session_start(h.s, ids, 64, &k, on_token, &a, &st), KVASIR_LIMIT);
    assert_non_null(strstr(st.text, "no room for an answer"));
    k.max_tokens = 0;
    assert_int_equal(kvasir_session_start(h.s, ids, 64, &k, on_token, &a, &st), KVASIR_OK);
    assert_int_equal(kvasir_session_finish(h.s), KVASIR_FINISH_LENGTH);
    assert_int_equal(kvasir_session_start(h.s, ids, 65, &k, on_token, &a, &st), KVASIR_LIMIT);
    close_all(&h);
}

static void forks(void **state)
{
    handles h = {0};
    kvasir_status st = {0};
    kvasir_session *fork = NULL;
    kvasir_engine_options o = {.context = 64, .sessions = 2, .running = 2, .itl_target_s = 1};
    open_all(&h, *state, &o);
    assert_int_equal(kvasir_session_new(&fork, h.e, &st), KVASIR_OK);
    int32_t id = 'h';
    answer a = {0}, b = {0};
    kvasir_sampling k = kvasir_sampling_defaults();
    k.deadline_s = 1e-9;
    k.priority = 1;
    assert_int_equal(kvasir_session_start(h.s, &id, 1, &k, on_token, &a, &st), KVASIR_OK);
    run(&h);
    assert_int_equal(kvasir_session_finish(h.s), KVASIR_FINISH_TIMEOUT);
    k.deadline_s = 0;
    k.temperature = 0;
    assert_int_equal(kvasir_session_start(h.s, &id, 1, &k, on_token, &a, &st), KVASIR_OK);
    assert_int_equal(kvasir_session_fork(fork, h.s, 1, on_token, &b, &st), KVASIR_OK);
    while (kvasir_session_active(fork)) run(&h);
    run(&h);
    assert_string_equal(a.text, "elo wrd!");
    assert_string_equal(b.text, "elo wrd!");
    kvasir_session_free(fork);
    close_all(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_generation), cmocka_unit_test(ends_and_options),
        cmocka_unit_test(texts_and_tokens),   cmocka_unit_test(failures_leave_nothing),
        cmocka_unit_test(errors_can_be_read), cmocka_unit_test(context_is_shared_by_prompt_and_answer),
        cmocka_unit_test(forks),
    };
    return cmocka_run_group_tests(tests, write_model, remove_model);
}
