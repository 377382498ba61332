/* Priorities where they are easily lost: among idle sessions, behind a shared prefix; and what waiting leaves alone. */
#include "talk.h"

static int open_world(void **state)
{
    return talk_open_world(state, 2, DTYPE_Q8_0);
}

static generate_params of_priority(int64_t max_tokens, int priority)
{
    generate_params p = talk_params(max_tokens);
    p.ignore_eos = true;
    p.priority = priority;
    return p;
}

/* A session that waits for its first prompt stands nowhere: those before it and behind it keep their order. */
static void idle_sessions_hide_nobody(void **state)
{
    talk_world *w = *state;
    int32_t ids[20];
    talk k[3];
    engine *e = talk_engine(w->llama, w->team, (engine_config){.context = 200, .n_sessions = 3, .n_running = 1});
    generate_params high = of_priority(3, 5), low = of_priority(3, 3);
    talk_open(&k[0], e);
    tiny_ids(ids, 20, 1);
    talk_start(&k[0], ids, 20, &high);
    talk_open(&k[1], e); /* idle */
    talk_open(&k[2], e);
    tiny_ids(ids, 20, 2);
    talk_start(&k[2], ids, 20, &low);
    talk_step(e);
    assert_true(session_running(k[0].s));
    assert_false(session_running(k[2].s));
    talk_run(e);
    assert_int_equal(session_get_stats(k[2].s).preemptions, 0);
    for (int j = 0; j < 3; j++) session_free(k[j].s);
    engine_free(e);
}

/* The same where starting again was refused: the parameters that came with it don't count. */
static void refused_starts_hide_nobody(void **state)
{
    talk_world *w = *state;
    int32_t ids[20];
    talk k[3];
    status st = STATUS_INIT;
    engine *e = talk_engine(w->llama, w->team, (engine_config){.context = 200, .n_sessions = 3, .n_running = 1});
    generate_params first = of_priority(1, 9), bad = of_priority(1, -9);
    bad.deadline_s = -1;
    tiny_ids(ids, 20, 1);
    for (int j = 0; j < 3; j++) talk_open(&k[j], e);
    talk_answer(&k[0], e, ids, 20, &first); /* stands before the others */
    assert_int_equal(talk_try(&k[0], ids, 20, &bad, &st), ST_ARG);
    generate_params high = of_priority(3, 5), low = of_priority(3, 3);
    talk_start(&k[1], ids, 20, &high);
    talk_start(&k[2], ids, 20, &low);
    talk_step(e);
    assert_true(session_running(k[1].s));
    assert_false(session_running(k[2].s));
    talk_run(e);
    for (int j = 0; j < 3; j++) session_free(k[j].s);
    engine_free(e);
}

/* A prefix that a session of lower priority computes isn't waited for: others may keep that one from its rows. */
static void no_waiting_for_lower_priorities(void **state)
{
    talk_world *w = *state;
    int32_t shared[150], own[300];
    talk k[3];
    engine *e = talk_engine(w->llama, w->team, (engine_config){.context = 400, .n_sessions = 3, .chunk = 32});
    tiny_ids(shared, 150, 1);
    tiny_ids(own, 300, 2);
    generate_params p[] = {of_priority(2, 0), of_priority(2, 1), of_priority(2, 2)};
    for (int j = 0; j < 3; j++) talk_open(&k[j], e);
    talk_start(&k[0], shared, 150, &p[0]);
    talk_step(e);
    talk_start(&k[1], own, 300, &p[1]); /* takes all rows for ten steps */
    talk_start(&k[2], shared, 150, &p[2]);
    talk_step(e);
    assert_true(session_running(k[2].s));
    assert_int_equal(session_get_stats(k[2].s).reused_tokens, 32);
    talk_run(e);
    for (int j = 0; j < 3; j++) {
        assert_int_equal(session_finish(k[j].s), FINISH_LENGTH);
        session_free(k[j].s);
    }
    engine_free(e);
}

static bool count_hits(void *user, const kv_node_info *n)
{
    *(uint64_t *)user += n->hits;
    return true;
}

/* A session that waits for blocks, its prefix in the cache, doesn't use that prefix in every step. */
static void waiting_uses_nothing(void **state)
{
    talk_world *w = *state;
    const model *models[] = {w->llama, w->gemma};
    int32_t ids[150], other[90];
    for (int i = 0; i < 2; i++) {
        engine *whole = talk_engine(models[i], w->team, (engine_config){.context = 200});
        uint64_t memory = kv_cache_bytes(engine_cache(whole));
        engine_free(whole);
        talk k[2];
        engine *e = talk_engine(models[i], w->team,
                                (engine_config){.context = 200, .n_sessions = 2, .kv_memory_bytes = memory});
        const kv_cache *c = engine_cache(e);
        generate_params p = of_priority(2, 0), q = of_priority(60, 0);
        tiny_ids(ids, 150, 1);
        tiny_ids(other, 90, 2);
        for (int j = 0; j < 2; j++) talk_open(&k[j], e);
        talk_answer(&k[0], e, ids, 100, &p);
        talk_start(&k[1], other, 90, &q);
        talk_step(e);
        for (int j = 88; j < 150; j++) ids[j] ^= 1; /* 88 rows are in the cache: five blocks and eight rows */
        talk_start(&k[0], ids, 150, &p);
        uint64_t before = 0, after = 0;
        kv_tree_walk(kv_cache_tree(c), count_hits, &before);
        for (int j = 0; j < 20; j++) {
            talk_step(e);
            assert_false(session_running(k[0].s));
        }
        kv_tree_walk(kv_cache_tree(c), count_hits, &after);
        assert_int_equal(after, before);
        assert_int_equal(kv_cache_copied_rows(c, 0), 0);
        talk_run(e);
        assert_int_equal(session_finish(k[0].s), FINISH_LENGTH);
        for (int j = 0; j < 2; j++) session_free(k[j].s);
        engine_free(e);
    }
}

/* What a session of higher priority left in the tree outlives what others did, by that policy. */
static void priority_of_what_is_kept(void **state)
{
    talk_world *w = *state;
    int32_t ids[100];
    engine *e = talk_engine(w->llama, w->team,
                            (engine_config){.context = 200, .evict = evict_policy_get("priority"),
                                            .kv_memory_bytes = talk_memory(w->llama, w->team, 200)});
    talk k;
    talk_open(&k, e);
    generate_params p = talk_params(2);
    p.priority = 1;
    tiny_ids(ids, 60, 1);
    talk_answer(&k, e, ids, 60, &p);
    p.priority = 0;
    for (int i = 0; i < 6; i++) {
        tiny_ids(ids, 100, 50 + (uint64_t)i);
        talk_answer(&k, e, ids, 100, &p);
    }
    tiny_ids(ids, 60, 1);
    talk_answer(&k, e, ids, 60, &p);
    assert_int_equal(session_get_stats(k.s).reused_tokens, 59);
    session_free(k.s);
    engine_free(e);
}

/* Who could not enter anyhow puts off nobody. */
static void no_preemption_in_vain(void **state)
{
    talk_world *w = *state;
    int32_t ids[3][150];
    talk k[3];
    uint64_t memory = talk_memory(w->llama, w->team, 200);
    engine *e = talk_engine(w->llama, w->team,
                            (engine_config){.context = 200, .n_sessions = 3, .kv_memory_bytes = memory});
    for (int j = 0; j < 3; j++) {
        talk_open(&k[j], e);
        tiny_ids(ids[j], 150, (uint64_t)j);
    }
    generate_params equal = of_priority(12, 1), low = of_priority(10, 0);
    talk_start(&k[0], ids[0], 130, &equal);
    talk_start(&k[1], ids[1], 30, &low);
    talk_step(e);
    assert_int_equal(engine_get_stats(e).running, 2);
    talk_start(&k[2], ids[2], 150, &equal); /* more than the first one leaves, with or without the second */
    for (int i = 0; i < 9; i++) {
        talk_step(e);
        assert_true(session_running(k[0].s));
        assert_false(session_running(k[2].s));
    }
    assert_int_equal(k[1].n, 10);
    assert_int_equal(engine_get_stats(e).preemptions, 0);
    talk_run(e);
    for (int j = 0; j < 3; j++) assert_int_equal(session_finish(k[j].s), FINISH_LENGTH);
    for (int j = 0; j < 3; j++) session_free(k[j].s);
    engine_free(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_sessions_hide_nobody),
        cmocka_unit_test(refused_starts_hide_nobody),
        cmocka_unit_test(no_waiting_for_lower_priorities),
        cmocka_unit_test(priority_of_what_is_kept),
        cmocka_unit_test(no_preemption_in_vain),
        cmocka_unit_test(waiting_uses_nothing),
    };
    return cmocka_run_group_tests_name("priority", tests, open_world, talk_close_world);
}
