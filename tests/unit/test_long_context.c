/* The real models over long contexts: logits at the end don't depend on how the text was cut on the way there, and the
 * window's group holds no more blocks than at the beginning. TEST_FULL takes them to their full length. Fails without
 * the models (`make models` fetches them; $KVASIR_MODELS tells where they are). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/mem.h"
#include "real_model.h"

#define N_LAST 4 /* tokens at the end, one by one, whose logits count */

typedef struct listener {
    hash_stream *hash;
    size_t n_bytes;
} listener;

static void hear(void *user, int i, int64_t position, const float *logits)
{
    (void)i;
    (void)position;
    listener *l = user;
    hash_update(l->hash, logits, l->n_bytes);
}

static void check_groups(const kv_cache *c, const kv_seq *s, int chunk)
{
    int block = kv_cache_block_tokens(c);
    status st = STATUS_INIT;
    for (int g = 0; g < kv_cache_n_groups(c); g++) {
        int window = kv_cache_group(c, g)->layout.window;
        int64_t held = (int64_t)pool_count(kv_cache_pool(c, g)).in_use * block, len = kv_seq_len(s);
        if (!window) assert_in_range(held, len, len + block - 1);
        else assert_in_range(held, len < window ? len : window, window + chunk + 2 * block);
    }
    if (kv_cache_audit(c, &st)) fail_msg("%s", st.text);
}

static uint64_t hash_end(const model *m, threads *team, const int32_t *ids, int n, int chunk, bool no_split)
{
    status st = STATUS_INIT;
    engine *e = NULL;
    kv_seq *s = NULL;
    listener l = {.n_bytes = (size_t)m->params.n_vocab * sizeof(float)};
    engine_config c = {.context = n, .chunk = chunk, .no_split = no_split};
    if (engine_new(&e, m, team, &c, &st)) fail_msg("%s", st.text);
    assert_int_equal(kv_seq_new(&s, engine_cache(e), &st), ST_OK);
    assert_int_equal(hash_new(&l.hash, &st), ST_OK);
    for (int at = 0, step; at < n; at += step) {
        int left = n - N_LAST - at;
        step = left <= 0 ? 1 : left < chunk ? left : chunk;
        feed f = {s, ids + at, step, false};
        if (engine_feed(e, &f, 1, left <= 0 ? hear : NULL, &l, &st)) fail_msg("%s", st.text);
        check_groups(engine_cache(e), s, chunk);
    }
    uint64_t hash = hash_value(l.hash);
    hash_free(l.hash);
    kv_seq_free(s);
    engine_free(e);
    return hash;
}

static void check(const char *file, int n)
{
    status st = STATUS_INIT;
    threads *team = NULL;
    assert_int_equal(threads_new(&team, 2, &st), ST_OK);
    model *m = load_real(file, CPU_AUTO, team);
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    read_text(m, ids, n);
    uint64_t want = hash_end(m, team, ids, n, 512, false);
    assert_int_equal(threads_resize(team, 3, &st), ST_OK);
    assert_true(hash_end(m, team, ids, n, 300, true) == want);
    free(ids);
    model_free(m);
    threads_free(team);
}

static void smollm2(void **state)
{
    (void)state;
    check(SMOLLM2, getenv("TEST_FULL") ? 8192 : 2048);
}

static void gemma3(void **state)
{
    (void)state;
    check(GEMMA3, getenv("TEST_FULL") ? 32768 : 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smollm2),
        cmocka_unit_test(gemma3),
    };
    return cmocka_run_group_tests_name("long_context", tests, NULL, NULL);
}
