/* What the cache's memory is doing: rows counted by hand, and the engine's six parts. */
#include "talk.h"

#include "cache/usage.h"
#include "engine/usage.h"
#include "small_cache.h"

static void counts(const kv_cache *c, int group, uint32_t in_use, uint64_t used, uint64_t behind, uint64_t unused)
{
    kv_usage u = kv_cache_usage(c, group);
    assert_int_equal(u.blocks.in_use, in_use);
    assert_int_equal(u.rows_used, used);
    assert_int_equal(u.rows_behind, behind);
    assert_int_equal(u.rows_unused, unused);
}

/* Blocks of 16, a window of 20. 45 rows: three blocks, 3 rows free in the last; the query at 45 sees rows 26 and up. */
static void rows_of_one_sequence(void **state)
{
    (void)state;
    kv_cache *c = make_cache(config_of(16, "f16", 200, 0));
    kv_seq *s = make_seq(c);
    counts(c, 0, 0, 0, 0, 0);
    append(s, 21); /* the window still sees rows 2..20: two are behind */
    counts(c, 0, 2, 21, 0, 11);
    counts(c, 1, 2, 19, 2, 11);
    append(s, 24); /* the append kept what index 21 saw: block 0 is still held, its 16 rows and 10 more are behind */
    counts(c, 0, 3, 45, 0, 3);
    counts(c, 1, 3, 19, 26, 3);
    append(s, 1); /* now block 0 goes; the query at 46 sees 27 and up */
    counts(c, 0, 3, 46, 0, 2);
    counts(c, 1, 2, 19, 11, 2);
    kv_seq_free(s);
    counts(c, 1, 0, 0, 0, 0);
    kv_cache_free(c);
}

/* Two that share: the shared blocks count once, and whole, though they are behind the window of one. */
static void rows_that_are_shared(void **state)
{
    (void)state;
    kv_cache *c = make_cache(config_of(16, "f16", 200, 0));
    kv_seq *s = make_seq(c);
    append(s, 20);
    kv_seq *f = fork_at(s, 20); /* block 0 shared, 4 rows of block 1 copied */
    counts(c, 0, 3, 16 + 4 + 4, 0, 12 + 12);
    counts(c, 1, 3, 16 + 4 + 4, 0, 12 + 12); /* row 0 is behind for both: shared, so it is not looked at */
    append(f, 20);
    counts(c, 0, 4, 16 + 4 + 24, 0, 12 + 8);
    append(f, 1); /* in the window f has let go of block 0; of its own blocks it sees rows 22 and up */
    counts(c, 0, 4, 16 + 4 + 25, 0, 12 + 7);
    counts(c, 1, 4, 15 + 4 + 19, 1 + 6, 12 + 7);
    kv_seq_free(f);
    kv_seq_free(s);
    kv_cache_free(c);
}

static void rows_of_drafts(void **state)
{
    (void)state;
    kv_cache *c = make_cache(config_of(16, "f16", 200, 0));
    kv_seq *s = make_seq(c);
    append(s, 16);
    draft(s, 18);
    counts(c, 0, 3, 16 + 18, 0, 14);
    kv_seq_rollback(s);
    counts(c, 0, 1, 16, 0, 0);
    kv_seq_free(s);
    kv_cache_free(c);
}

static engine_usage usage_of(const engine *e)
{
    engine_usage u = engine_get_usage(e);
    assert_int_equal(u.total_bytes, kv_cache_bytes(engine_cache(e)));
    assert_int_equal(u.used_bytes + u.internal_bytes + u.reserved_bytes + u.external_bytes + u.free_bytes +
                         u.cached_bytes,
                     u.total_bytes);
    return u;
}

static int open_world(void **state)
{
    return talk_open_world(state, 1, DTYPE_Q8_0);
}

/* A context of 64 tokens: four blocks. The pool has room for `contexts` of them. */
static engine *engine_of(const talk_world *w, int contexts, engine_config c)
{
    c.context = 64;
    engine *one = talk_engine(w->llama, w->team, c);
    c.kv_memory_bytes = kv_cache_bytes(engine_cache(one)) * (uint64_t)contexts;
    c.n_sessions = 4;
    engine_free(one);
    return talk_engine(w->llama, w->team, c);
}

static generate_params whole_context(void)
{
    generate_params p = talk_params(-1);
    p.ignore_eos = true;
    return p;
}

/* Each of two sets four of the twelve blocks aside. */
static void memory_set_aside(void **state)
{
    const talk_world *w = *state;
    int32_t ids[20];
    tiny_ids(ids, 20, 3);
    generate_params p = whole_context();
    talk *k = calloc(3, sizeof *k);
    engine *e = engine_of(w, 3, (engine_config){.no_sharing = true, .reserve = true});
    uint64_t block = pool_block_bytes(kv_cache_pool(engine_cache(e), 0));
    assert_int_equal(usage_of(e).free_bytes, 12 * block);
    for (int i = 0; i < 2; i++) {
        talk_open(&k[i], e);
        talk_start(&k[i], ids, 20, &p);
    }
    talk_step(e); /* 20 rows each: two blocks, 12 rows free in the second */
    engine_usage u = usage_of(e);
    assert_int_equal(u.used_bytes, 2 * 20 * block / 16);
    assert_int_equal(u.internal_bytes, 2 * 12 * block / 16);
    assert_int_equal(u.reserved_bytes, 2 * 2 * block);
    assert_int_equal(u.free_bytes, 4 * block);
    assert_int_equal(u.external_bytes, 0);
    for (int i = 0; i < 2; i++) session_free(k[i].s);
    assert_int_equal(usage_of(e).free_bytes, 12 * block);
    engine_free(e);
    free(k);
}

/* A prompt of three blocks waits: one block is free and none can have it. */
static void memory_too_little(void **state)
{
    const talk_world *w = *state;
    int32_t ids[48];
    tiny_ids(ids, 48, 3);
    generate_params p = whole_context();
    talk *k = calloc(2, sizeof *k);
    engine *e = engine_of(w, 1, (engine_config){.no_sharing = true});
    uint64_t block = pool_block_bytes(kv_cache_pool(engine_cache(e), 0));
    talk_open(&k[0], e);
    talk_open(&k[1], e);
    talk_start(&k[0], ids, 40, &p);
    talk_step(e);
    assert_int_equal(usage_of(e).external_bytes, 0);
    talk_start(&k[1], ids, 41, &p);
    talk_step(e);
    engine_usage u = usage_of(e);
    assert_false(session_running(k[1].s));
    assert_int_equal(u.external_bytes, block);
    assert_int_equal(u.used_bytes, 41 * block / 16);
    assert_int_equal(u.internal_bytes, 7 * block / 16);
    session_cancel(k[1].s);
    talk_step(e);
    assert_int_equal(usage_of(e).external_bytes, 0);
    assert_int_equal(usage_of(e).free_bytes, block);
    session_free(k[0].s);
    session_free(k[1].s);
    engine_free(e);
    free(k);
}

/* What the tree keeps of an answer that is over is nobody's: cached. */
static void memory_that_is_cached(void **state)
{
    const talk_world *w = *state;
    int32_t ids[40];
    tiny_ids(ids, 40, 3);
    generate_params p = talk_params(4);
    talk k;
    engine *e = engine_of(w, 2, (engine_config){0});
    uint64_t block = pool_block_bytes(kv_cache_pool(engine_cache(e), 0));
    talk_open(&k, e);
    talk_answer(&k, e, ids, 40, &p);
    engine_usage u = usage_of(e);
    assert_int_equal(u.cached_bytes, 3 * block); /* 43 rows: two full blocks and a tail */
    assert_int_equal(u.free_bytes, 5 * block);
    assert_int_equal(u.used_bytes, 0);
    session_free(k.s);
    engine_free(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_one_sequence), cmocka_unit_test(rows_that_are_shared),
        cmocka_unit_test(rows_of_drafts),       cmocka_unit_test(memory_set_aside),
        cmocka_unit_test(memory_too_little),    cmocka_unit_test(memory_that_is_cached),
    };
    return cmocka_run_group_tests(tests, open_world, talk_close_world);
}
