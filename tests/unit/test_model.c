/* Loading a model: what is in memory afterwards, and every way in which a file can be wrong. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "tiny_model.h"

static int open_team(void **state)
{
    status st = STATUS_INIT;
    return threads_new((threads **)state, 2, &st);
}

static int close_team(void **state)
{
    threads_free(*state);
    return mem_stats().live != 0;
}

static const kernels *ks(void)
{
    return kernels_get(CPU_SCALAR);
}

/* Loading must fail with this code and a sentence that holds these words, and leave nothing. */
static void expect_error(threads *team, const tiny_config *c, int code, const char *words)
{
    status st = STATUS_INIT;
    model *m = NULL;
    uint64_t bytes = mem_stats().bytes;
    int rc = tiny_try_load(&m, c, ks(), team, &st);
    if (rc != code || !strstr(st.text, words)) fail_msg("%d, not %d: \"%s\", not \"%s\"", rc, code, st.text, words);
    assert_null(m);
    assert_non_null(strstr(st.text, "/tmp/kvasir-test-")); /* which file */
    assert_int_equal(mem_stats().bytes, bytes);
}

static void what_is_loaded(void **state)
{
    tiny_config c = tiny_llama();
    c.own_head = true;
    c.chat_template = "{{ messages }}";
    model *m = tiny_load(&c, ks(), *state);
    assert_int_equal(m->params.n_layers, 3);
    assert_ptr_equal(m->head, &m->own_head);
    assert_int_equal(m->layers[2].gate.rows, 96);
    assert_int_equal(m->layers[2].gate.k, 64);
    assert_int_equal(m->layers[0].k.rows, 32);
    assert_null(m->layers[0].q_norm);
    assert_null(m->layers[0].post_ffn_norm);
    assert_null(m->layers[0].q_bias);
    assert_string_equal(m->chat_template, "{{ messages }}");
    assert_non_null(strstr(m->name, "kvasir-test-")); /* the file's name where it has none of its own */
    assert_null(strchr(m->name, '/'));
    assert_int_equal(tokenizer_vocab_size(m->tok), TINY_TOKENS);
    assert_true(tokenizer_is_end(m->tok, TINY_END));
    assert_int_equal(m->step_bytes, m->weight_bytes - m->embed.n_bytes);
    model_free(m);
    c = tiny_gemma();
    m = tiny_load(&c, ks(), *state);
    assert_ptr_equal(m->head, &m->embed);
    assert_int_equal(m->step_bytes, m->weight_bytes);
    assert_non_null(m->layers[6].q_norm);
    assert_non_null(m->layers[6].post_attn_norm);
    assert_null(m->chat_template);
    model_free(m);
    model_free(NULL);
}

/* Every number of a matrix arrives at its place. */
static void weights_are_the_files(void **state)
{
    tiny_config c = tiny_llama();
    strbuf b;
    gguf *g = NULL;
    status st = STATUS_INIT;
    strbuf_init(&b, 0);
    c.type = DTYPE_Q8_0;
    tiny_gguf(&b, &c);
    assert_int_equal(gguf_parse(&g, (const uint8_t *)b.data, b.n_bytes, &st), ST_OK);
    model *m = tiny_load(&c, ks(), *state);
    const struct {
        const char *name;
        const weight *w;
    } cases[] = {{"token_embd.weight", &m->embed},
                 {"blk.1.attn_q.weight", &m->layers[1].q},
                 {"blk.2.ffn_down.weight", &m->layers[2].down}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const gguf_tensor *t = gguf_find_tensor(g, cases[i].name);
        float want[96], got[96];
        for (int64_t r = 0; r < t->dims[1]; r++) {
            dtype_to_float(DTYPE_Q8_0, t->data + (size_t)r * dtype_row_bytes(DTYPE_Q8_0, t->dims[0]), want, t->dims[0]);
            weight_row(cases[i].w, ks(), r, got);
            assert_memory_equal(got, want, (size_t)t->dims[0] * sizeof *want);
        }
    }
    model_free(m);
    gguf_close(g);
    strbuf_deinit(&b);
}

/* Phi-3 stores q, k, v in one matrix and gate, up in another: parts in that order. */
static void fused_matrices(void **state)
{
    tiny_config c = tiny_llama();
    c.arch = "phi3";
    c.fused = true;
    strbuf b;
    gguf *g = NULL;
    status st = STATUS_INIT;
    strbuf_init(&b, 0);
    tiny_gguf(&b, &c);
    assert_int_equal(gguf_parse(&g, (const uint8_t *)b.data, b.n_bytes, &st), ST_OK);
    const float *qkv = (const void *)gguf_find_tensor(g, "blk.0.attn_qkv.weight")->data;
    const float *up = (const void *)gguf_find_tensor(g, "blk.0.ffn_up.weight")->data;
    model *m = tiny_load(&c, ks(), *state);
    const model_layer *y = &m->layers[0];
    const struct {
        const weight *w;
        const float *rows;
        int64_t first, n;
    } parts[] = {
        {&y->q, qkv, 0, 64}, {&y->k, qkv, 64, 32}, {&y->v, qkv, 96, 32}, {&y->gate, up, 0, 96}, {&y->up, up, 96, 96}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        assert_int_equal(parts[i].w->rows, parts[i].n);
        for (int64_t r = 0; r < parts[i].n; r++) {
            float row[64];
            weight_row(parts[i].w, ks(), r, row);
            assert_memory_equal(row, parts[i].rows + (parts[i].first + r) * 64, sizeof row);
        }
    }
    model_free(m);
    gguf_close(g);
    strbuf_deinit(&b);
    c.misshapen = "blk.0.attn_qkv.weight";
    expect_error(*state, &c, ST_FORMAT, "blk.0.attn_qkv.weight is 64 x 129");
    c.misshapen = "blk.1.ffn_up.weight";
    expect_error(*state, &c, ST_FORMAT, "blk.1.ffn_up.weight is 64 x 193");
}

static const char *const llama_tensors[] = {"token_embd.weight",        "output_norm.weight",
                                            "blk.0.attn_norm.weight",   "blk.0.attn_q.weight",
                                            "blk.1.attn_k.weight",      "blk.2.attn_v.weight",
                                            "blk.0.attn_output.weight", "blk.1.ffn_norm.weight",
                                            "blk.0.ffn_gate.weight",    "blk.0.ffn_up.weight",
                                            "blk.2.ffn_down.weight"};
static const char *const gemma_tensors[] = {"blk.6.attn_q_norm.weight", "blk.6.attn_k_norm.weight",
                                            "blk.3.post_attention_norm.weight", "blk.6.post_ffw_norm.weight"};

#define N_OF(a) (sizeof(a) / sizeof *(a))

static void each_tensor_faulty(threads *team, tiny_config c, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        tiny_config bad = c;
        bad.without_tensor = names[i];
        expect_error(team, &bad, ST_FORMAT, names[i]);
        bad = c;
        bad.misshapen = names[i];
        if (strcmp(names[i], "token_embd.weight")) expect_error(team, &bad, ST_FORMAT, names[i]);
        bad = c;
        bad.unknown = names[i];
        expect_error(team, &bad, ST_UNSUPPORTED, names[i]);
    }
}

static void faulty_tensors_are_named(void **state)
{
    each_tensor_faulty(*state, tiny_llama(), llama_tensors, N_OF(llama_tensors));
    each_tensor_faulty(*state, tiny_gemma(), gemma_tensors, N_OF(gemma_tensors));
    tiny_config c = tiny_llama();
    c.arch = "qwen2";
    const char *biases[] = {"blk.1.attn_q.bias", "blk.0.attn_k.bias", "blk.2.attn_v.bias"};
    each_tensor_faulty(*state, c, biases, 3);
    c = tiny_llama();
    c.unknown = "blk.0.attn_q.weight";
    expect_error(*state, &c, ST_UNSUPPORTED, "IQ2_XXS");
    c = tiny_llama();
    c.own_head = true;
    c.misshapen = "output.weight";
    expect_error(*state, &c, ST_FORMAT, "output.weight is 64 x 265, but the model's parameters ask for 64 x 264");
}

/* A matrix may be said to have more dimensions than two, of 1. */
static void dimensions_of_one_are_none(void **state)
{
    tiny_config c = tiny_llama();
    c.deep = "blk.1.attn_q.weight";
    model *m = tiny_load(&c, ks(), *state);
    assert_int_equal(m->layers[1].q.rows, m->layers[0].q.rows);
    model_free(m);
}

static void numbers_that_are_none_are_named(void **state)
{
    const char *names[] = {"output_norm.weight", "blk.1.attn_norm.weight", "blk.2.ffn_norm.weight"};
    const float values[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < N_OF(names); i++) {
        tiny_config c = tiny_llama();
        strbuf b;
        strbuf_init(&b, 0);
        tiny_gguf(&b, &c);
        status st = STATUS_INIT;
        gguf *g;
        assert_int_equal(gguf_parse(&g, (const uint8_t *)b.data, b.n_bytes, &st), ST_OK);
        size_t offset = gguf_find_tensor(g, names[i])->file_offset + 5 * sizeof(float);
        gguf_close(g);
        memcpy(b.data + offset, &values[i], sizeof(float));
        char *path = tiny_write(b.data, b.n_bytes);
        strbuf_deinit(&b);
        model *m = NULL;
        model_options o = {.ks = ks(), .team = *state};
        assert_int_equal(model_load(&m, path, &o, &st), ST_FORMAT);
        assert_null(m);
        assert_non_null(strstr(st.text, names[i]));
        assert_non_null(strstr(st.text, "element 5"));
        tiny_remove(path);
    }
}

/* Numbers that contradict the tensors. */
static void parameters_must_fit_the_tensors(void **state)
{
    const struct {
        const char *key;
        uint64_t value;
    } cases[] = {{"embedding_length", 128},
                 {"attention.head_count", 8},
                 {"attention.head_count_kv", 1},
                 {"attention.key_length", 24},
                 {"attention.value_length", 24},
                 {"feed_forward_length", 64},
                 {"block_count", 4}};
    for (size_t i = 0; i < N_OF(cases); i++) {
        tiny_config c = tiny_llama();
        c.key_is = cases[i].key;
        c.value = cases[i].value;
        expect_error(*state, &c, ST_FORMAT, strcmp(cases[i].key, "block_count") ? " x " : "blk.3.");
    }
}

static void rope_divisors(void **state)
{
    tiny_config c = tiny_llama();
    model *m = tiny_load(&c, ks(), *state);
    double theta[8];
    memcpy(theta, m->rope.theta, sizeof theta);
    model_free(m);
    c.factors = "rope_freqs.weight";
    c.factor = 1;
    m = tiny_load(&c, ks(), *state);
    for (int i = 0; i < 8; i++) assert_true(m->rope.theta[i] == theta[i] / (i + 1));
    model_free(m);
    c.factor = 0;
    expect_error(*state, &c, ST_FORMAT, "RoPE factor 0");
    /* LongRoPE: a set up to the original context of 256 is required, and one beyond it. */
    for (int i = 0; i < 4; i++) {
        c.scaling = "longrope";
        c.factor = 1;
        c.factors = i % 2 ? "rope_factors_long.weight" : "rope_factors_short.weight";
        strbuf b;
        strbuf_init(&b, 0);
        tiny_gguf(&b, &c);
        char *path = tiny_write(b.data, b.n_bytes);
        strbuf_deinit(&b);
        status st = STATUS_INIT;
        model_options o = {.ks = ks(), .team = *state, .context = i < 2 ? 256 : 257};
        int rc = model_load(&m, path, &o, &st);
        assert_int_equal(rc, i / 2 == i % 2 ? ST_OK : ST_FORMAT);
        if (rc == ST_OK) {
            assert_true(m->rope.theta[1] == theta[1] / 2);
            model_free(m);
        } else assert_non_null(strstr(st.text, i % 2 ? "rope_factors_short" : "rope_factors_long"));
        tiny_remove(path);
    }
}

static void bad_files(void **state)
{
    status st = STATUS_INIT;
    model *m = NULL;
    model_options o = {.ks = ks(), .team = *state};
    assert_int_equal(model_load(&m, "/tmp/no such model.gguf", &o, &st), ST_NOT_FOUND);
    assert_int_equal(model_load(&m, "/tmp", &o, &st), ST_IO);
    assert_null(m);
    char *empty = tiny_write("", 0);
    assert_int_equal(model_load(&m, empty, &o, &st), ST_FORMAT);
    tiny_remove(empty);
    /* Cut anywhere, it is an error and leaves nothing. */
    tiny_config c = tiny_llama();
    strbuf b;
    strbuf_init(&b, 0);
    tiny_gguf(&b, &c);
    uint64_t bytes = mem_stats().bytes;
    for (size_t n = 1; n < b.n_bytes; n += b.n_bytes / 61) {
        char *path = tiny_write(b.data, n);
        assert_int_equal(model_load(&m, path, &o, &st), ST_FORMAT);
        tiny_remove(path);
        assert_int_equal(mem_stats().bytes, bytes);
    }
    strbuf_deinit(&b);
}

typedef struct progress {
    uint64_t done, total;
    int n;
} progress;

static void on_progress(void *user, uint64_t done, uint64_t total)
{
    progress *p = user;
    assert_true(done > p->done && done <= total);
    p->done = done;
    p->total = total;
    p->n++;
}

static void progress_reaches_the_end(void **state)
{
    tiny_config c = tiny_gemma();
    strbuf b;
    strbuf_init(&b, 0);
    tiny_gguf(&b, &c);
    char *path = tiny_write(b.data, b.n_bytes);
    strbuf_deinit(&b);
    progress p = {0};
    status st = STATUS_INIT;
    model *m = NULL;
    model_options o = {.ks = ks(), .team = *state, .progress = on_progress, .user = &p};
    assert_int_equal(model_load(&m, path, &o, &st), ST_OK);
    assert_int_equal(p.done, p.total);
    assert_true(p.n > 7 * 11);
    model_free(m);
    tiny_remove(path);
}

static void short_memory_leaks_nothing(void **state)
{
    tiny_config c = tiny_gemma();
    c.chat_template = "x";
    c.factors = "rope_freqs.weight";
    c.factor = 1;
    strbuf b;
    strbuf_init(&b, 0);
    tiny_gguf(&b, &c);
    char *path = tiny_write(b.data, b.n_bytes);
    strbuf_deinit(&b);
    model_options o = {.ks = ks(), .team = *state};
    uint64_t live = mem_stats().live, bytes = mem_stats().bytes, calls = mem_stats().calls;
    status st = STATUS_INIT;
    model *m = NULL;
    assert_int_equal(model_load(&m, path, &o, &st), ST_OK);
    int n_calls = (int)(mem_stats().calls - calls);
    model_free(m);
    assert_true(n_calls > 20);
    int n_loaded = 0;
    for (int n = 1; n <= n_calls; n++) {
        m = NULL;
        mem_fail_after(n);
        int rc = model_load(&m, path, &o, &st);
        if (rc != (m ? ST_OK : ST_NOMEM)) fail_msg("allocation %d: %d, %s", n, rc, st.text);
        n_loaded += m != NULL;
        model_free(m);
        assert_int_equal(mem_stats().live, live);
        assert_int_equal(mem_stats().bytes, bytes);
    }
    assert_in_range(n_loaded, 0, 16); /* patterns do without memory for machine code: they are interpreted */
    mem_fail_after(0);
    tiny_remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_loaded),
        cmocka_unit_test(weights_are_the_files),
        cmocka_unit_test(fused_matrices),
        cmocka_unit_test(faulty_tensors_are_named),
        cmocka_unit_test(dimensions_of_one_are_none),
        cmocka_unit_test(numbers_that_are_none_are_named),
        cmocka_unit_test(parameters_must_fit_the_tensors),
        cmocka_unit_test(rope_divisors),
        cmocka_unit_test(bad_files),
        cmocka_unit_test(progress_reaches_the_end),
        cmocka_unit_test(short_memory_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, open_team, close_team);
}
