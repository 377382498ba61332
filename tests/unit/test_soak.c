/* Thousands of requests over a pool a quarter of what they need, with random cancels, deadlines, forks, priorities and
 * failing allocations: the audit is clean after every step, every completed answer is what it is alone, nothing leaks.
 * TEST_FULL makes 10,000 of them. */
#include <stdlib.h>

#include "talk.h"

#define N_KINDS 48
#define N_SLOTS 24
#define MOST_PROMPT 150

/* What a request is, apart from when it comes. */
typedef struct kind {
    int32_t ids[MOST_PROMPT];
    size_t n;
    generate_params p;
    talk answer;
} kind;

typedef struct soak {
    talk_world *w;
    uint64_t random;
    engine *e;
    kind *kinds; /* [N_KINDS] */
    talk slots[N_SLOTS];
    const kind *of[N_SLOTS]; /* NULL = idle */
    int n_started, n_completed, n_cancelled, n_late, n_failed, n_not_started, n_forks;
} soak;

static uint64_t roll(soak *k, uint64_t n)
{
    return tiny_random(&k->random) % n;
}

/* Prompts of four families, which part at random places; every third answer is greedy. */
static void make_kinds(soak *k, const model *m)
{
    int32_t families[4][MOST_PROMPT];
    engine *e = talk_engine(m, k->w->team, (engine_config){.context = 256, .no_sharing = true});
    for (int i = 0; i < 4; i++) tiny_ids(families[i], MOST_PROMPT, (uint64_t)i);
    for (int i = 0; i < N_KINDS; i++) {
        kind *d = &k->kinds[i];
        d->n = 1 + roll(k, MOST_PROMPT);
        tiny_ids(d->ids, MOST_PROMPT, 100 + (uint64_t)i);
        memcpy(d->ids, families[roll(k, 4)], roll(k, d->n) * sizeof *d->ids);
        d->p = talk_params((int64_t)roll(k, 60));
        d->p.ignore_eos = roll(k, 2);
        d->p.sampling.temperature = (float)roll(k, 3);
        d->p.sampling.seed = roll(k, 5);
        d->p.sampling.choice = (uint32_t)roll(k, 3);
        d->p.salt = roll(k, 2);
        talk_open(&d->answer, e);
        talk_answer(&d->answer, e, d->ids, d->n, &d->p);
        session_free(d->answer.s);
    }
    engine_free(e);
}

/* Starts a random kind in an idle slot: as a fork where another slot has the same prompt's leader. It fails only where
 * memory does. */
static void start(soak *k, int slot)
{
    status st = STATUS_INIT;
    session *leader = NULL;
    const kind *d = &k->kinds[roll(k, N_KINDS)];
    talk *t = &k->slots[slot];
    session_callbacks cb = talk_callbacks(t);
    generate_params p = d->p;
    p.priority = (int)roll(k, 2);
    p.pin_s = roll(k, 40) == 0 ? 1e-6 : 0;
    p.deadline_s = roll(k, 40) == 0 ? 1e-9 : 0;
    for (int i = 0; i < N_SLOTS && !leader; i++)
        if (i != slot && k->of[i] == d && roll(k, 2)) leader = k->slots[i].s;
    bool fails = roll(k, 20) == 0;
    if (fails) mem_fail_after(1 + (int64_t)roll(k, 8));
    int rc = leader ? session_fork(t->s, leader, d->p.sampling.choice, &cb, &st)
                    : session_start(t->s, d->ids, d->n, &p, &cb, &st);
    mem_fail_after(0);
    if (rc) {
        assert_true(fails);
        assert_int_equal(rc, ST_NOMEM);
        assert_false(session_active(t->s));
        k->n_not_started++;
        return;
    }
    k->of[slot] = d;
    k->n_started++;
    k->n_forks += leader != NULL;
}

static void look_at(soak *k, int slot)
{
    talk *t = &k->slots[slot];
    if (!k->of[slot] || session_active(t->s)) return;
    finish_reason r = session_finish(t->s);
    k->n_late += r == FINISH_TIMEOUT;
    k->n_cancelled += r == FINISH_CANCELLED;
    k->n_failed += r == FINISH_ERROR;
    if (r == FINISH_ERROR) assert_int_equal(session_error(t->s)->code, ST_NOMEM);
    if (r == FINISH_LENGTH || r == FINISH_EOS) {
        talk_same(t, &k->of[slot]->answer);
        k->n_completed++;
    }
    k->of[slot] = NULL;
}

static void step(soak *k, int n_requests)
{
    status st = STATUS_INIT;
    for (int i = 0; i < N_SLOTS; i++) {
        look_at(k, i);
        if (!k->of[i] && k->n_started < n_requests && roll(k, 4) == 0) start(k, i);
        else if (k->of[i] && roll(k, 400) == 0) session_cancel(k->slots[i].s);
    }
    if (roll(k, 30) == 0) { /* a client that goes takes its session along */
        int i = (int)roll(k, N_SLOTS);
        session_free(k->slots[i].s);
        k->of[i] = NULL;
        talk_open(&k->slots[i], k->e);
    }
    if (roll(k, 20) == 0) mem_fail_after(1 + (int64_t)roll(k, 4));
    int rc = engine_step(k->e, &st);
    mem_fail_after(0);
    if (rc || kv_cache_audit(engine_cache(k->e), &st)) fail_msg("%s", st.text);
}

static uint64_t quarter_of_need(const soak *k, const model *m)
{
    engine *e = talk_engine(m, k->w->team, (engine_config){.context = 216, .n_sessions = 8});
    uint64_t bytes = kv_cache_bytes(engine_cache(e)) / 4;
    engine_free(e);
    return bytes;
}

static void run(void **state, const model *m, const char *policy)
{
    soak *k = calloc(1, sizeof *k);
    k->w = *state;
    k->random = 7;
    k->kinds = calloc(N_KINDS, sizeof *k->kinds);
    make_kinds(k, m);
    k->e = talk_engine(m, k->w->team,
                       (engine_config){.context = 216, .n_sessions = N_SLOTS, .n_running = 8, .chunk = 64,
                                       .kv_memory_bytes = quarter_of_need(k, m),
                                       .evict = evict_policy_get(policy)});
    for (int i = 0; i < N_SLOTS; i++) talk_open(&k->slots[i], k->e);
    int n_requests = getenv("TEST_FULL") ? 10000 : 400;
    uint64_t early_bytes = 0;
    for (int i = 0; k->n_started < n_requests || engine_n_active(k->e); i++) {
        if (i > 400 * n_requests) fail_msg("no end after %d steps", i);
        step(k, n_requests);
        if (!early_bytes && k->n_started > n_requests / 2) early_bytes = mem_stats().bytes;
    }
    for (int i = 0; i < N_SLOTS; i++) look_at(k, i);
    engine_stats s = engine_get_stats(k->e);
    assert_true(k->n_completed > n_requests / 2);
    assert_true(k->n_not_started > 0 && k->n_forks > 0);
    assert_true(k->n_cancelled > 0 && k->n_late > 0 && s.preemptions > 0 && s.reused_tokens > 0);
    assert_true(mem_stats().bytes < early_bytes + early_bytes / 10);
    kv_cache *c = engine_cache(k->e);
    for (int g = 0; g < kv_cache_n_groups(c); g++) assert_int_equal(pool_count(kv_cache_pool(c, g)).in_use, 0);
    kv_tree_clear(kv_cache_tree(c));
    for (int g = 0; g < kv_cache_n_groups(c); g++) {
        pool_counts n = pool_count(kv_cache_pool(c, g));
        assert_int_equal(n.free, n.total);
    }
    for (int i = 0; i < N_SLOTS; i++) session_free(k->slots[i].s);
    engine_free(k->e);
    free(k->kinds);
    free(k);
}

static void llama(void **state)
{
    run(state, ((talk_world *)*state)->llama, "lru");
}

static void gemma(void **state)
{
    run(state, ((talk_world *)*state)->gemma, "lru");
}

static void other_policies(void **state)
{
    run(state, ((talk_world *)*state)->llama, "cost");
    run(state, ((talk_world *)*state)->gemma, "slru");
}

static int open_world(void **state)
{
    return talk_open_world(state, 2, DTYPE_Q8_0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama),
        cmocka_unit_test(gemma),
        cmocka_unit_test(other_policies),
    };
    return cmocka_run_group_tests_name("soak", tests, open_world, talk_close_world);
}
