/* The real models: one hash of the logits, however the work is cut. Fails without the models (`make models` fetches them). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/mem.h"
#include "engine/engine.h"

#define N_IDS 80

static const char *const files[] = {"smollm2-135m-instruct.gguf", "gemma-3-270m.gguf"};

static model *load(const char *file, cpu_level level, threads *team)
{
    char path[4096];
    const char *folder = getenv("KVASIR_MODELS"), *home = getenv("HOME");
    if (folder) snprintf(path, sizeof path, "%s/%s", folder, file);
    else snprintf(path, sizeof path, "%s/.local/share/kvasir/models/%s", home ? home : "", file);
    status st = STATUS_INIT;
    model *m = NULL;
    model_options o = {.ks = kernels_get(level), .team = team};
    if (model_load(&m, path, &o, &st)) fail_msg("%s (`make models` fetches the models)", st.text);
    return m;
}

/* Tokens of a text that says how it goes on. */
static void read_ids(const model *m, int32_t *ids, int n)
{
    static const char text[] = "A key-value cache keeps, for every token that a model has read, what its layers made "
                               "of it: a key that later tokens "
                               "look for, and a value that they take from it. So a new token costs one pass through "
                               "the weights and one look at all "
                               "that came before, instead of a pass over the whole text again. The price is memory: it "
                               "grows with every token, every "
                               "layer and every head, and on long texts it outgrows the weights themselves.";
    token_list l = {0};
    status st = STATUS_INIT;
    encode_options o = {.add_special = true};
    assert_int_equal(tokenizer_encode(m->tok, text, sizeof text - 1, o, &l, &st), ST_OK);
    assert_true(l.n >= (size_t)n);
    memcpy(ids, l.ids, (size_t)n * sizeof *ids);
    token_list_deinit(&l);
}

typedef struct way {
    int chunk, threads, block_tokens;
    bool in_batch; /* beside two other sequences */
} way;

typedef struct listener {
    hash_stream *hash;
    int n_vocab;
} listener;

static void hear(void *user, int i, int64_t position, const float *logits)
{
    (void)position;
    listener *l = user;
    if (i == 0) hash_update(l->hash, logits, (size_t)l->n_vocab * sizeof *logits);
}

static uint64_t hash_of(const model *m, threads *team, const int32_t *ids, int n_ids, way w)
{
    status st = STATUS_INIT;
    engine *e = NULL;
    kv_seq *seqs[3] = {0};
    int n_seqs = w.in_batch ? 3 : 1;
    assert_int_equal(threads_resize(team, w.threads, &st), ST_OK);
    engine_config c = {.context = 128, .chunk = w.chunk * n_seqs, .n_sessions = n_seqs, .block_tokens = w.block_tokens};
    if (engine_new(&e, m, team, &c, &st)) fail_msg("%s", st.text);
    listener l = {.n_vocab = m->params.n_vocab};
    assert_int_equal(hash_new(&l.hash, &st), ST_OK);
    for (int i = 0; i < n_seqs; i++) assert_int_equal(kv_seq_new(&seqs[i], engine_cache(e), &st), ST_OK);
    for (int at = 0; at < n_ids; at += w.chunk) {
        int n = n_ids - at < w.chunk ? n_ids - at : w.chunk;
        /* The others read the same tokens from another place on. */
        feed feeds[] = {{seqs[0], ids + at, n, true}, {seqs[1], ids, n, false}, {seqs[2], ids + n_ids - n, n, false}};
        if (engine_feed(e, feeds, n_seqs, hear, &l, &st)) fail_msg("%s", st.text);
    }
    uint64_t hash = hash_value(l.hash);
    hash_free(l.hash);
    for (int i = 0; i < n_seqs; i++) kv_seq_free(seqs[i]);
    engine_free(e);
    return hash;
}

static void check(const char *file, cpu_level level, int n_ids, const way *ways, size_t n_ways)
{
    status st = STATUS_INIT;
    threads *team = NULL;
    uint64_t live = mem_stats().live;
    assert_int_equal(threads_new(&team, 2, &st), ST_OK);
    model *m = load(file, level, team);
    int32_t ids[N_IDS];
    read_ids(m, ids, n_ids);
    uint64_t want = hash_of(m, team, ids, n_ids, ways[0]);
    for (size_t i = 1; i < n_ways; i++) {
        way w = ways[i];
        uint64_t got = hash_of(m, team, ids, n_ids, w);
        if (got != want)
            fail_msg("%s, %s: chunk %d, %d threads, blocks of %d%s: hash %016llx, not %016llx", file, m->ks->name,
                     w.chunk, w.threads, w.block_tokens, w.in_batch ? ", in a batch" : "", (unsigned long long)got,
                     (unsigned long long)want);
    }
    ids[0]++;
    assert_true(hash_of(m, team, ids, n_ids, ways[0]) != want);
    model_free(m);
    threads_free(team);
    assert_int_equal(mem_stats().live, live);
}

static const way all_ways[] = {{512, 1, 16, false}, {1, 2, 16, false},  {7, 1, 16, false},
                               {64, 3, 16, false},  {512, 2, 8, false}, {512, 3, 32, false},
                               {7, 2, 8, true},     {64, 1, 32, true},  {512, 2, 16, true}};

static void smollm2(void **state)
{
    (void)state;
    check(files[0], CPU_AUTO, N_IDS, all_ways, sizeof all_ways / sizeof *all_ways);
}

static void gemma3(void **state)
{
    (void)state;
    check(files[1], CPU_AUTO, N_IDS, all_ways, sizeof all_ways / sizeof *all_ways);
}

static void scalar_kernels(void **state)
{
    (void)state;
    const way ways[] = {{512, 1, 16, false}, {1, 2, 8, false}, {3, 3, 32, true}};
    for (int i = 0; i < 2; i++) check(files[i], CPU_SCALAR, 4, ways, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smollm2),
        cmocka_unit_test(gemma3),
        cmocka_unit_test(scalar_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
