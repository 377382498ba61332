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

static void fingerprint_of(uint8_t out[32], const uint8_t *bytes, size_t n, int n_threads)
{
    status st = STATUS_INIT;
    gguf *g = NULL;
    threads *team = NULL;
    fingerprint *f = NULL;
    assert_int_equal(gguf_parse(&g, bytes, n, &st), ST_OK);
    assert_int_equal(threads_new(&team, n_threads, &st), ST_OK);
    assert_int_equal(fingerprint_new(&f, g, team, &st), ST_OK);
    fingerprint_tensor(f, gguf_tensor_at(g, gguf_tensor_count(g) / 2)); /* in any order */
    assert_int_equal(fingerprint_finish(f, out, &st), ST_OK);
    fingerprint_free(f);
    threads_free(team);
    gguf_close(g);
}

/* A file that differs in one byte, of a tensor, of a key's value, or of a name, is another model: the first and the last
 * byte of every tensor, and bytes anywhere in them, chunks of large ones included. */
static void one_byte_is_another_model(void **state)
{
    (void)state;
    status st = STATUS_INIT;
    strbuf file;
    strbuf_init(&file, 0);
    tiny_config c = tiny_llama();
    c.type = DTYPE_F32;
    c.d_ff = 4096; /* several chunks a matrix */
    tiny_gguf(&file, &c);
    size_t n = file.n_bytes;
    uint8_t *bytes = malloc(n), first[32], changed[32];
    memcpy(bytes, strbuf_cstr(&file), n);
    gguf *g = NULL;
    assert_int_equal(gguf_parse(&g, bytes, n, &st), ST_OK);
    assert_true(gguf_find_tensor(g, "blk.1.ffn_up.weight")->n_bytes > 2 * 262144);
    fingerprint_of(first, bytes, n, 1);
    for (int t = 2; t <= 4; t++) {
        fingerprint_of(changed, bytes, n, t);
        assert_memory_equal(changed, first, 32);
    }
    const gguf_kv *kv = gguf_find(g, "llama.context_length");
    uint64_t draw = 1;
    for (size_t i = 0; i <= gguf_tensor_count(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        for (int k = 0; k < 4; k++) {
            draw = draw * 6364136223846793005u + 1442695040888963407u;
            size_t at = !t ? 0 : k == 0 ? 0 : k == 1 ? t->n_bytes - 1 : (size_t)(draw >> 24) % t->n_bytes;
            const void *place = t ? (const void *)(t->data + at)
                                  : k ? (const void *)kv->value : gguf_tensor_at(g, 1)->name.data + 4;
            uint8_t *byte = bytes + ((const uint8_t *)place - bytes);
            *byte ^= 64;
            fingerprint_of(changed, bytes, n, 2);
            assert_memory_not_equal(changed, first, 32);
            *byte ^= 64;
        }
    }
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
