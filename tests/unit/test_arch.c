/* What a file says about its network: every number read, bounded, and named where it is wrong. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/groups.h"
#include "tiny_model.h"

static int read_arch(arch_params *p, const tiny_config *c, status *st)
{
    strbuf b;
    gguf *g = NULL;
    strbuf_init(&b, 0);
    tiny_gguf(&b, c);
    int rc = gguf_parse(&g, (const uint8_t *)b.data, b.n_bytes, st);
    if (rc == ST_OK) rc = arch_read(p, g, st);
    gguf_close(g);
    strbuf_deinit(&b);
    return rc;
}

static arch_params good(const tiny_config *c)
{
    status st = STATUS_INIT;
    arch_params p;
    if (read_arch(&p, c, &st)) fail_msg("%s", st.text);
    return p;
}

static void table(void **state)
{
    (void)state;
    const char *names[] = {"llama", "qwen2", "qwen3", "phi3", "smollm3", "gemma2", "gemma3"};
    int n = 0;
    for (const arch_traits *t; (t = arch_traits_at(n)); n++) {
        assert_string_equal(t->name, names[n]);
        assert_true(strlen(t->models) > 0);
        tiny_config c = tiny_llama();
        c.arch = t->name;
        assert_ptr_equal(good(&c).traits, t);
    }
    assert_int_equal(n, 7);
    assert_null(arch_traits_at(-1));
}

static void llama(void **state)
{
    (void)state;
    tiny_config c = tiny_llama();
    arch_params p = good(&c);
    assert_int_equal(p.n_layers, 3);
    assert_int_equal(p.d_model, 64);
    assert_int_equal(p.n_heads, 4);
    assert_int_equal(p.n_kv_heads, 2);
    assert_int_equal(p.d_k, 16);
    assert_int_equal(p.d_v, 16);
    assert_int_equal(p.d_ff, 96);
    assert_int_equal(p.n_vocab, TINY_VOCAB);
    assert_int_equal(p.context_length, 1024);
    assert_int_equal(p.n_rot, 16);
    assert_int_equal(p.window, 0);
    assert_true(p.attn_scale == 0.25f && p.embed_scale == 1 && p.attn_softcap == 0 && p.logit_softcap == 0);
    assert_true(p.rope.base == 10000 && p.rope.factor == 1 && p.rope.original_context == 1024);
    for (int l = 0; l < 3; l++) assert_true(!arch_layer_windowed(&p, l) && arch_layer_has_rope(&p, l));
    c.window = 9; /* no pattern: all layers */
    p = good(&c);
    for (int l = 0; l < 3; l++) assert_true(arch_layer_windowed(&p, l));
    /* What the file may leave out. */
    c = tiny_llama();
    c.without_key = "attention.head_count_kv";
    assert_int_equal(good(&c).n_kv_heads, 4);
    c.without_key = "attention.key_length";
    assert_int_equal(good(&c).d_k, 16);
    c.without_key = "rope.dimension_count";
    assert_int_equal(good(&c).n_rot, 16);
    c.without_tensor = "token_embd.weight"; /* then by its tokens */
    assert_int_equal(good(&c).n_vocab, TINY_TOKENS);
}

static void gemma(void **state)
{
    (void)state;
    tiny_config c = tiny_gemma();
    c.scaling = "linear";
    arch_params p = good(&c);
    assert_true(p.embed_scale == 8 && p.attn_scale == 1 / sqrtf(24));
    for (int l = 0; l < 7; l++) assert_int_equal(arch_layer_windowed(&p, l), l != 5);
    /* Scaling holds for global layers alone; the windowed ones keep their base. */
    assert_true(p.rope.base == 1000000 && p.rope.scaling == ROPE_SCALING_LINEAR && p.rope.factor == 4);
    assert_true(p.rope_window.base == 10000 && p.rope_window.scaling == ROPE_SCALING_NONE);
    kv_groups g = {0};
    kv_groups_init(&g, &p);
    assert_int_equal(g.n, 2);
    assert_int_equal(g.group[0].layout.window, 20);
    assert_int_equal(g.group[0].n_layers, 6);
    assert_int_equal(g.group[1].layout.window, 0);
    assert_int_equal(g.group[1].n_layers, 1);
    assert_int_equal(g.group[1].layers[0], 5);
    assert_int_equal(g.group_of[5], 1);
    assert_int_equal(g.index_of[6], 5);
    c.arch = "gemma2";
    c.n_layers = 4;
    p = good(&c);
    for (int l = 0; l < 4; l++) assert_int_equal(arch_layer_windowed(&p, l), l % 2 == 0);
    assert_true(p.attn_softcap == 50 && p.logit_softcap == 30);
    c.arch = "smollm3";
    c.window = 0;
    p = good(&c);
    for (int l = 0; l < 4; l++) assert_int_equal(arch_layer_has_rope(&p, l), l != 3);
    kv_groups_init(memset(&g, 0, sizeof g), &p);
    assert_int_equal(g.n, 1);
}

/* The 27B members of the two families scale by another width. */
static void large_gemmas(void **state)
{
    (void)state;
    tiny_config c = tiny_gemma();
    c.d_k = c.d_v = 24;
    c.n_layers = 62;
    assert_true(good(&c).attn_scale == 1 / sqrtf(16));
    c.arch = "gemma2";
    assert_true(good(&c).attn_scale == 1 / sqrtf(24));
    c.n_layers = 46;
    assert_true(good(&c).attn_scale == 1 / sqrtf(16));
}

static void scaling_kinds(void **state)
{
    (void)state;
    const char *names[] = {"none", "linear", "yarn", "longrope"};
    for (int i = 0; i < 4; i++) {
        tiny_config c = tiny_llama();
        c.scaling = names[i];
        arch_params p = good(&c);
        assert_int_equal(p.rope.scaling, i);
        assert_int_equal(p.rope.original_context, 256);
        assert_true(p.rope.yarn_beta_fast == 32 && p.rope.yarn_beta_slow == 1);
        c.key_is = "rope.scaling.original_context_length"; /* 0: the context */
        assert_int_equal(good(&c).rope.original_context, 1024);
    }
}

static void wrong_numbers_are_named(void **state)
{
    (void)state;
    const struct {
        const char *key;
        uint64_t value;
        int code;
    } cases[] = {
        {"block_count", 0, ST_FORMAT},
        {"block_count", ARCH_MAX_LAYERS + 1, ST_FORMAT},
        {"embedding_length", 0, ST_FORMAT},
        {"embedding_length", UINT32_MAX, ST_FORMAT},
        {"feed_forward_length", 0, ST_FORMAT},
        {"context_length", 0, ST_FORMAT},
        {"context_length", UINT32_MAX, ST_FORMAT},
        {"attention.head_count", 0, ST_FORMAT},
        {"attention.head_count", 100000, ST_FORMAT},
        {"attention.head_count_kv", 0, ST_FORMAT},
        {"attention.head_count_kv", 5, ST_FORMAT},
        {"attention.head_count_kv", 3, ST_FORMAT},
        {"attention.key_length", 12, ST_UNSUPPORTED},
        {"attention.key_length", 584, ST_FORMAT},
        {"attention.value_length", 4, ST_FORMAT},
        {"rope.dimension_count", 15, ST_FORMAT},
        {"rope.dimension_count", 18, ST_FORMAT},
        {"rope.dimension_count", 0, ST_FORMAT},
        {"rope.scaling.factor", 0x7FC00000, ST_FORMAT}, /* NaN */
        {"rope.scaling.factor", 0, ST_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tiny_config c = tiny_llama();
        c.without_tensor =
            "token_embd.weight"; /* the tensors are built with the good numbers: arch_read doesn't look */
        c.scaling = "linear";
        c.key_is = cases[i].key;
        c.value = cases[i].value;
        status st = STATUS_INIT;
        arch_params p;
        int rc = read_arch(&p, &c, &st);
        if (rc != cases[i].code)
            fail_msg("%s = %llu gives %d: %s", cases[i].key, (unsigned long long)cases[i].value, rc, st.text);
        assert_true(strlen(st.text) > 10);
        if (rc == ST_FORMAT && cases[i].value != 3) assert_non_null(strstr(st.text, cases[i].key));
    }
}

static void missing_keys_are_named(void **state)
{
    (void)state;
    const char *keys[] = {"general.architecture", "block_count",    "embedding_length",
                          "feed_forward_length",  "context_length", "attention.head_count"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        tiny_config c = tiny_llama();
        c.without_key = keys[i];
        status st = STATUS_INIT;
        arch_params p;
        assert_int_equal(read_arch(&p, &c, &st), ST_FORMAT);
        assert_non_null(strstr(st.text, keys[i]));
    }
}

static void unknown_names(void **state)
{
    (void)state;
    status st = STATUS_INIT;
    arch_params p;
    tiny_config c = tiny_llama();
    c.arch = "mamba";
    assert_int_equal(read_arch(&p, &c, &st), ST_UNSUPPORTED);
    assert_non_null(strstr(st.text, "mamba"));
    c.arch = "llam";
    assert_int_equal(read_arch(&p, &c, &st), ST_UNSUPPORTED);
    c.arch = "llama";
    c.scaling = "su";
    assert_int_equal(read_arch(&p, &c, &st), ST_UNSUPPORTED);
    assert_non_null(strstr(st.text, "'su'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table),
        cmocka_unit_test(llama),
        cmocka_unit_test(gemma),
        cmocka_unit_test(large_gemmas),
        cmocka_unit_test(scaling_kinds),
        cmocka_unit_test(wrong_numbers_are_named),
        cmocka_unit_test(missing_keys_are_named),
        cmocka_unit_test(unknown_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
