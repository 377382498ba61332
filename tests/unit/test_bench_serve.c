/* The driver of `kvasir bench serve`: what it counts, also of answers that fail and of those that would follow them. */
#include "talk.h"

#include "bench/serve.h"

static int open_world(void **state)
{
    return talk_open_world(state, 1, DTYPE_Q8_0);
}

static void count_ticks(void *user, int n_over)
{
    int *last = user;
    assert_true(n_over > *last);
    *last = n_over;
}

static workload make(work_kind kind, int n_answers, double rate)
{
    workload w;
    status st = STATUS_INIT;
    work_config c = {
        .kind = kind, .n_answers = n_answers, .seed = 3, .scale = 0.1, .rate = rate, .n_vocab = TINY_TOKENS};
    if (workload_new(&w, &c, &st)) fail_msg("%s", st.text);
    return w;
}

static serve_result serve(const talk_world *w, const workload *work, serve_config c, int context)
{
    serve_result r;
    status st = STATUS_INIT;
    int last = 0;
    engine *e = talk_engine(w->llama, w->team, serve_engine_config(work, &c, context));
    if (serve_run(&r, e, work, &c, count_ticks, &last, &st)) fail_msg("%s", st.text);
    assert_int_equal(r.n_finished + r.n_failed + r.n_dropped, r.n_answers);
    assert_int_equal(r.n_answers, work->n_answers);
    engine_free(e);
    return r;
}

/* Few clients or many, arrivals or not, whatever the cache: the same tokens, all of them. */
static void the_same_answers(void **state)
{
    const talk_world *world = *state;
    for (int kind = WORK_CHAT; kind <= WORK_TREE; kind++) {
        workload w = make((work_kind)kind, 12, 0), timed = make((work_kind)kind, 12, 500);
        serve_config c = {.clients = 3, .slo_ttft_s = 1e6, .slo_tpot_s = 1e6};
        serve_result first = serve(world, &w, c, w.longest);
        assert_int_equal(first.n_finished, w.n_answers);
        assert_int_equal(first.n_within_slo, w.n_answers);
        assert_int_equal(first.prompt_tokens, w.prompt_tokens);
        assert_int_equal(first.output_tokens, w.answer_tokens);
        assert_true(first.reused_tokens > 0 && first.max_running <= 3 * w.max_branches);
        for (int baseline = 0; baseline < SERVE_BASELINES; baseline++) {
            c.baseline = (serve_baseline)baseline;
            c.clients = 1 + baseline;
            assert_int_equal(serve(world, &w, c, w.longest + 9).hash, first.hash);
        }
        c.rate = 500;
        serve_result open = serve(world, &timed, c, w.longest);
        assert_int_equal(open.hash, first.hash);
        assert_true(open.seconds >= timed.items[0].arrival_s);
        workload_free(&w);
        workload_free(&timed);
    }
}

/* At a temperature: others than greedy ones, and the same whatever the team and the number of clients. */
static void drawn_answers(void **state)
{
    const talk_world *world = *state;
    workload w = make(WORK_CHAT, 12, 0);
    serve_config c = {.clients = 3, .slo_ttft_s = 1e6, .slo_tpot_s = 1e6};
    uint64_t greedy = serve(world, &w, c, w.longest).hash;
    c.temperature = 1;
    uint64_t drawn = serve(world, &w, c, w.longest).hash;
    assert_true(drawn != greedy);
    status st = STATUS_INIT;
    for (int n = 1; n <= 3; n++) {
        assert_int_equal(threads_resize(world->team, n, &st), ST_OK);
        c.clients = 5 - n;
        assert_int_equal(serve(world, &w, c, w.longest).hash, drawn);
    }
    assert_int_equal(threads_resize(world->team, 1, &st), ST_OK);
    c.seed = 1;
    assert_true(serve(world, &w, c, w.longest).hash != drawn);
    workload_free(&w);
}

/* Third turns are longer than the context: they fail, and the fourth ones are not asked. */
static void what_fails_is_counted(void **state)
{
    const talk_world *world = *state;
    workload w = make(WORK_CHAT, 8, 0);
    serve_config c = {.clients = 2, .slo_ttft_s = 1e6, .slo_tpot_s = 1e6};
    assert_int_equal(w.items[2].n_prompt + w.items[2].n_answer, 38);
    assert_int_equal(w.items[4].n_prompt, 46);
    serve_result r = serve(world, &w, c, 40);
    assert_int_equal(r.n_finished, 4);
    assert_int_equal(r.n_failed, 2);
    assert_int_equal(r.n_dropped, 2);
    assert_int_equal(r.n_within_slo, 4);
    workload_free(&w);
}

static void shares_of_memory(void **state)
{
    (void)state;
    serve_result r = {.used = 5, .internal = 1, .reserved = 3, .external = 1};
    assert_true(serve_waste_percent(&r, r.reserved) == 30);
    r = (serve_result){.used = 0};
    assert_true(serve_waste_percent(&r, 0) == 0);
}

/* Every allocation in turn fails: an error, or answers that failed; nothing is left behind. */
static void short_of_memory(void **state)
{
    const talk_world *world = *state;
    workload w = make(WORK_CHAT, 4, 0);
    serve_config c = {.clients = 1};
    engine *e = talk_engine(world->llama, world->team, serve_engine_config(&w, &c, w.longest));
    int errors = 0;
    uint64_t live = mem_stats().live;
    for (int64_t n = 1; n < 60; n++) {
        serve_result r;
        status st = STATUS_INIT;
        int last = 0;
        mem_fail_after(n);
        int rc = serve_run(&r, e, &w, &c, count_ticks, &last, &st);
        mem_fail_after(0);
        errors += rc == ST_NOMEM;
        assert_true(rc == ST_OK || rc == ST_NOMEM);
        kv_tree_clear(kv_cache_tree(engine_cache(e)));
        assert_true(mem_stats().live <= live + 4); /* the tree keeps its roots */
    }
    assert_true(errors >= 7);
    engine_free(e);
    workload_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_answers),
        cmocka_unit_test(drawn_answers),
        cmocka_unit_test(what_fails_is_counted),
        cmocka_unit_test(shares_of_memory),
        cmocka_unit_test(short_of_memory),
    };
    return cmocka_run_group_tests(tests, open_world, talk_close_world);
}
