/* What the keys of blocks start from: the same for the same model and settings, another for each thing that changes
 * bits. */
#include "engine/seed.h"
#include "model/fingerprint.h"
#include "talk.h"

#define N_SEEDS 8

static void seed_of(uint8_t out[32], const model *m, const char *format, int block_tokens, bool exact)
{
    status st = STATUS_INIT;
    assert_int_equal(engine_seed(out, m, kv_format_get(format), block_tokens, exact, &st), ST_OK);
}

static void everything_counts(void **state)
{
    talk_world *w = *state;
    uint8_t seeds[N_SEEDS][32], again[32];
    tiny_config like_llama = tiny_llama(), other_type = tiny_llama();
    other_type.type = DTYPE_Q4_0;
    like_llama.type = DTYPE_F32;
    model *same = tiny_load(&like_llama, kernels_get(CPU_AUTO), w->team);
    model *scalar = tiny_load(&like_llama, kernels_get(CPU_SCALAR), w->team);
    model *other = tiny_load(&other_type, kernels_get(CPU_AUTO), w->team);
    seed_of(seeds[0], w->llama, "f16", 16, false);
    seed_of(seeds[1], w->llama, "f32", 16, false);
    seed_of(seeds[2], w->llama, "f16", 32, false);
    seed_of(seeds[3], w->llama, "f16", 16, true);
    seed_of(seeds[4], w->gemma, "f16", 16, false);
    seed_of(seeds[5], scalar, "f16", 16, false);
    seed_of(seeds[6], other, "f16", 16, false);
    model turned = *same; /* one bit of a weight */
    turned.fingerprint[31] ^= 1;
    seed_of(seeds[7], &turned, "f16", 16, false);
    for (int i = 0; i < N_SEEDS; i++)
        for (int j = 0; j < i; j++) assert_memory_not_equal(seeds[i], seeds[j], 32);
    seed_of(again, same, "f16", 16, false);
    assert_memory_equal(again, seeds[0], 32);
    model_free(same);
    model_free(scalar);
    model_free(other);
}

/* A file that differs in one byte of a tensor, of a key's value, or of a name is another model. */
static void one_byte_is_another_model(void **state)
{
    (void)state;
    status st = STATUS_INIT;
    strbuf file;
    strbuf_init(&file, 0);
    tiny_config c = tiny_llama();
    tiny_gguf(&file, &c);
    uint8_t *bytes = malloc(file.n_bytes), first[32], changed[32];
    memcpy(bytes, strbuf_cstr(&file), file.n_bytes);
    gguf *g = NULL;
    assert_int_equal(gguf_parse(&g, bytes, file.n_bytes, &st), ST_OK);
    assert_int_equal(model_fingerprint(first, g, &st), ST_OK);
    const gguf_tensor *t = gguf_find_tensor(g, "blk.1.attn_k.weight");
    const gguf_kv *kv = gguf_find(g, "llama.context_length");
    uint8_t *places[] = {(uint8_t *)(uintptr_t)t->data + 100, (uint8_t *)(uintptr_t)kv->value,
                         (uint8_t *)(uintptr_t)t->name.data + 4};
    for (int i = 0; i < 3; i++) {
        *places[i] ^= 64;
        gguf *h = NULL;
        assert_int_equal(gguf_parse(&h, bytes, file.n_bytes, &st), ST_OK);
        assert_int_equal(model_fingerprint(changed, h, &st), ST_OK);
        assert_memory_not_equal(changed, first, 32);
        gguf_close(h);
        *places[i] ^= 64;
    }
    assert_int_equal(model_fingerprint(changed, g, &st), ST_OK);
    assert_memory_equal(changed, first, 32);
    gguf_close(g);
    free(bytes);
    strbuf_deinit(&file);
}

static int open_world(void **state)
{
    return talk_open_world(state, 1, DTYPE_F32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_counts),
        cmocka_unit_test(one_byte_is_another_model),
    };
    return cmocka_run_group_tests_name("seed", tests, open_world, talk_close_world);
}
