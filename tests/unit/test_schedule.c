/* Many sessions, one step: who runs, who waits, what is shared, who makes room. Everything that a session says is
 * compared with what it says alone. */
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "talk.h"

static int open_world(void **state)
{
    return talk_open_world(state, 2, DTYPE_Q8_0);
}

static generate_params sampled(int64_t max_tokens, uint64_t seed)
{
    generate_params p = talk_params(max_tokens);
    p.ignore_eos = true;
    p.sampling.temperature = 1;
    p.sampling.seed = seed;
    return p;
}

/* What a session says when nobody else is there and nothing is shared. */
static void alone(talk *k, const model *m, threads *team, const int32_t *ids, size_t n, const generate_params *p)
{
    engine *e = talk_engine(m, team, (engine_config){.context = 400, .no_sharing = true});
    talk_open(k, e);
    talk_answer(k, e, ids, n, p);
    session_free(k->s);
    engine_free(e);
}

static session_stats stats_of(const talk *k)
{
    return session_get_stats(k->s);
}

/* A second request with the first one's prompt waits for it instead of computing it twice. */
static void waits_for_a_prefix_that_is_coming(void **state)
{
    talk_world *w = *state;
    const model *models[] = {w->llama, w->gemma};
    int32_t ids[150];
    tiny_ids(ids, 150, 3);
    for (int i = 0; i < 2; i++) {
        generate_params p = sampled(10, 5), q = sampled(10, 6);
        talk *k = calloc(4, sizeof *k);
        engine *e = talk_engine(models[i], w->team, (engine_config){.context = 400, .n_sessions = 2, .chunk = 32});
        talk_open(&k[0], e);
        talk_open(&k[1], e);
        talk_start(&k[0], ids, 150, &p);
        talk_step(e); /* 32 rows of the first prompt */
        talk_start(&k[1], ids, 140, &q);
        talk_step(e);
        assert_true(session_running(k[0].s));
        assert_false(session_running(k[1].s));
        talk_run(e);
        assert_true(stats_of(&k[1]).reused_tokens >= 128); /* all full blocks below token 139, or rows of the next */
        engine_stats s = engine_get_stats(e);
        assert_true(s.computed_rows <= 150 + 140 - 128 + 9 + 9);
        assert_int_equal(s.prompt_tokens, 290);
        assert_int_equal(s.reused_tokens, stats_of(&k[1]).reused_tokens);
        assert_int_equal(s.generated_tokens, 20);
        alone(&k[2], models[i], w->team, ids, 150, &p);
        alone(&k[3], models[i], w->team, ids, 140, &q);
        talk_same(&k[0], &k[2]);
        talk_same(&k[1], &k[3]);
        session_free(k[0].s);
        session_free(k[1].s);
        engine_free(e);
        free(k);
    }
}

/* The same where the first one's whole prompt goes into one step, with room left for the second one's rows. */
static void waits_for_a_prefix_of_this_step(void **state)
{
    talk_world *w = *state;
    int32_t ids[150];
    tiny_ids(ids, 150, 3);
    generate_params p = sampled(3, 5);
    talk *k = calloc(2, sizeof *k);
    engine *e = talk_engine(w->llama, w->team, (engine_config){.context = 400, .n_sessions = 2, .chunk = 200});
    for (int i = 0; i < 2; i++) {
        talk_open(&k[i], e);
        talk_start(&k[i], ids, 150, &p);
    }
    talk_run(e);
    assert_int_equal(stats_of(&k[0]).reused_tokens, 0);
    assert_true(stats_of(&k[1]).reused_tokens >= 144);
    talk_same(&k[0], &k[1]);
    session_free(k[0].s);
    session_free(k[1].s);
    engine_free(e);
    free(k);
}

/* A finished answer stays findable down to the token, also behind sliding windows, and for the same salt only. */
static void finished_answers_stay_findable(void **state)
{
    talk_world *w = *state;
    const model *models[] = {w->llama, w->gemma};
    int32_t ids[150], other[150];
    tiny_ids(ids, 150, 3);
    memcpy(other, ids, sizeof ids);
    other[105] ^= 1;
    for (int i = 0; i < 2; i++) {
        generate_params p = talk_params(4);
        talk k;
        engine *e = talk_engine(models[i], w->team, (engine_config){.context = 400});
        talk_open(&k, e);
        talk_answer(&k, e, ids, 150, &p);
        assert_int_equal(stats_of(&k).reused_tokens, 0);
        talk_answer(&k, e, ids, 150, &p);
        assert_int_equal(stats_of(&k).reused_tokens, 149); /* the last token is always computed */
        talk_answer(&k, e, ids, 144, &p);
        assert_int_equal(stats_of(&k).reused_tokens, 143);
        talk_answer(&k, e, other, 150, &p);
        assert_int_equal(stats_of(&k).reused_tokens, 105); /* six blocks and nine rows of the seventh */
        p.salt = 77;
        talk_answer(&k, e, ids, 150, &p);
        assert_int_equal(stats_of(&k).reused_tokens, 0);
        session_free(k.s);
        engine_free(e);
    }
}

#define N_FORKS 16

/* n answers to one prompt: the prompt is computed once, at most a block's rows are copied a branch. */
static void forks_share_one_prefill(void **state)
{
    talk_world *w = *state;
    const model *models[] = {w->llama, w->gemma};
    int32_t ids[125];
    tiny_ids(ids, 125, 9);
    for (int i = 0; i < 2; i++) {
        talk *k = calloc(N_FORKS + 1, sizeof *k);
        generate_params p = sampled(12, 42);
        engine *e = talk_engine(models[i], w->team, (engine_config){.context = 400, .n_sessions = N_FORKS});
        for (int j = 0; j < N_FORKS; j++) talk_open(&k[j], e);
        talk_start(&k[0], ids, 125, &p);
        for (int j = 1; j < N_FORKS; j++) {
            status st = STATUS_INIT;
            session_callbacks cb = talk_callbacks(&k[j]);
            assert_int_equal(session_fork(k[j].s, k[0].s, (uint32_t)j, &cb, &st), ST_OK);
        }
        talk_run(e);
        assert_int_equal(engine_get_stats(e).computed_rows, 125 + N_FORKS * 11);
        for (int g = 0; g < kv_cache_n_groups(engine_cache(e)); g++)
            assert_int_equal(kv_cache_copied_rows(engine_cache(e), g), (N_FORKS - 1) * (125 % 16));
        int n_different = 0;
        for (int j = 0; j < N_FORKS; j++) {
            p.sampling.choice = (uint32_t)j;
            alone(&k[N_FORKS], models[i], w->team, ids, 125, &p);
            talk_same(&k[j], &k[N_FORKS]);
            n_different += memcmp(k[j].tokens, k[0].tokens, 12 * sizeof *k[j].tokens) != 0;
            assert_int_equal(k[j].n_finished, 1);
        }
        assert_true(n_different >= N_FORKS - 2);
        for (int j = 0; j < N_FORKS; j++) session_free(k[j].s);
        engine_free(e);
        free(k);
    }
}

/* A fork of a session that has begun its answer begins at the prompt; one whose leader is cancelled goes by itself; one
 * without a place in the batch waits for one. */
static void forks_of_other_moments(void **state)
{
    talk_world *w = *state;
    int32_t ids[60];
    tiny_ids(ids, 60, 11);
    status st = STATUS_INIT;
    generate_params p = sampled(20, 1), q = p;
    q.sampling.choice = 1;
    talk *k = calloc(6, sizeof *k);
    alone(&k[4], w->llama, w->team, ids, 60, &p);
    alone(&k[5], w->llama, w->team, ids, 60, &q);
    engine *e =
        talk_engine(w->llama, w->team, (engine_config){.context = 400, .n_sessions = 4, .n_running = 2, .chunk = 16});
    for (int j = 0; j < 4; j++) talk_open(&k[j], e);
    session_callbacks cb[4];
    for (int j = 0; j < 4; j++) cb[j] = talk_callbacks(&k[j]);

    assert_int_equal(session_fork(k[1].s, k[0].s, 1, &cb[1], &st), ST_ARG); /* none of what has not begun */
    talk_start(&k[0], ids, 60, &p); /* one late, */
    while (k[0].n < 5) talk_step(e);
    assert_int_equal(session_fork(k[1].s, k[0].s, 1, &cb[1], &st), ST_OK);
    talk_run(e);
    talk_same(&k[0], &k[4]);
    talk_same(&k[1], &k[5]);

    talk_start(&k[0], ids, 60, &p); /* one of a leader that goes, */
    cb[1] = talk_callbacks(&k[1]);
    assert_int_equal(session_fork(k[1].s, k[0].s, 1, &cb[1], &st), ST_OK);
    session_cancel(k[0].s);
    talk_run(e);
    assert_int_equal(k[0].n, 0);
    assert_int_equal(k[0].n_finished, 1);
    talk_same(&k[1], &k[5]);

    talk_start(&k[0], ids, 60, &p); /* and more than there are places. */
    for (int j = 1; j < 4; j++) {
        cb[j] = talk_callbacks(&k[j]);
        assert_int_equal(session_fork(k[j].s, k[0].s, j % 2 ? 1 : 0, &cb[j], &st), ST_OK);
    }
    while (engine_n_active(e)) {
        talk_step(e);
        assert_true(engine_get_stats(e).running <= 2);
    }
    for (int j = 0; j < 4; j++) talk_same(&k[j], &k[4 + j % 2]);
    for (int j = 0; j < 4; j++) session_free(k[j].s);
    engine_free(e);
    free(k);
}

/* Four answers that together need twice the pool: all of them are what they are alone, the oldest is never put off. */
static void exhaustion_fails_nobody(void **state)
{
    talk_world *w = *state;
    const model *models[] = {w->llama, w->gemma};
    for (int i = 0; i < 2; i++) {
        uint64_t memory = talk_memory(models[i], w->team, 200);
        engine *e = talk_engine(models[i], w->team,
                                (engine_config){.context = 200, .n_sessions = 4, .kv_memory_bytes = memory});
        talk *k = calloc(8, sizeof *k);
        int32_t ids[4][50];
        for (int j = 0; j < 4; j++) {
            generate_params p = sampled(60, (uint64_t)j);
            tiny_ids(ids[j], 50, 100 + (uint64_t)j);
            talk_open(&k[j], e);
            talk_start(&k[j], ids[j], 50, &p);
            alone(&k[4 + j], models[i], w->team, ids[j], 50, &p);
        }
        talk_run(e);
        for (int j = 0; j < 4; j++) {
            assert_int_equal(session_finish(k[j].s), FINISH_LENGTH);
            talk_same(&k[j], &k[4 + j]);
        }
        assert_int_equal(stats_of(&k[0]).preemptions, 0);
        assert_true(engine_get_stats(e).preemptions > 0);
        for (int j = 0; j < 4; j++) session_free(k[j].s);
        engine_free(e);
        free(k);
    }
}

/* With one place, sessions are served by age; higher priorities first, and in place of lower ones. */
static void order(void **state)
{
    talk_world *w = *state;
    int32_t ids[4][20];
    talk *k = calloc(4, sizeof *k);
    engine *e = talk_engine(w->llama, w->team, (engine_config){.context = 200, .n_sessions = 4, .n_running = 1});
    for (int j = 3; j >= 0; j--) talk_open(&k[j], e);
    for (int j = 0; j < 4; j++) {
        generate_params p = sampled(5, 1);
        p.priority = j == 3;
        tiny_ids(ids[j], 20, (uint64_t)j);
        talk_start(&k[j], ids[j], 20, &p);
        if (j < 2) talk_step(e);
    }
    assert_true(session_running(k[0].s));
    talk_step(e);
    assert_true(session_running(k[3].s)); /* the latest, of higher priority */
    assert_false(session_running(k[0].s));
    assert_int_equal(stats_of(&k[0]).preemptions, 1);
    int ended[4], n = 0;
    while (engine_n_active(e)) {
        talk_step(e);
        for (int j = 0; j < 4; j++)
            if (k[j].n_finished == 1) ended[n++] = j, k[j].n_finished = 2;
    }
    const int expected[] = {3, 0, 1, 2};
    assert_memory_equal(ended, expected, sizeof expected);
    for (int j = 0; j < 4; j++) session_free(k[j].s);
    engine_free(e);
    free(k);
}

/* A long prompt that doesn't fit yet holds back short ones behind it. */
static void nobody_jumps_the_queue(void **state)
{
    talk_world *w = *state;
    int32_t ids[150], brief[8];
    tiny_ids(ids, 150, 1);
    tiny_ids(brief, 8, 2);
    generate_params p = sampled(40, 1), q = sampled(2, 1);
    uint64_t memory = talk_memory(w->llama, w->team, 200);
    engine *e = talk_engine(w->llama, w->team,
                            (engine_config){.context = 200, .n_sessions = 3, .kv_memory_bytes = memory});
    talk k[3];
    for (int j = 0; j < 3; j++) talk_open(&k[j], e);
    talk_start(&k[0], ids, 100, &p);
    talk_step(e);
    ids[0] ^= 1; /* another prompt */
    talk_start(&k[1], ids, 150, &p);
    talk_start(&k[2], brief, 8, &q);
    for (int i = 0; i < 20; i++) {
        talk_step(e);
        assert_false(session_running(k[1].s));
        assert_int_equal(k[2].n, 0);
    }
    talk_run(e);
    for (int j = 0; j < 3; j++) assert_int_equal(session_finish(k[j].s), FINISH_LENGTH);
    assert_int_equal(engine_get_stats(e).preemptions, 0);
    for (int j = 0; j < 3; j++) session_free(k[j].s);
    engine_free(e);
}

static void deadlines_and_cancels_free_within_a_step(void **state)
{
    talk_world *w = *state;
    int32_t ids[100];
    tiny_ids(ids, 100, 1);
    engine *e = talk_engine(w->gemma, w->team, (engine_config){.context = 200, .n_sessions = 3, .clock = talk_clock});
    talk k[3];
    for (int j = 0; j < 3; j++) talk_open(&k[j], e);
    generate_params p = sampled(60, 1);
    for (int j = 0; j < 3; j++) talk_start(&k[j], ids, 100, &p);
    while (k[2].n < 3) talk_step(e);
    session_cancel(k[0].s);
    session_cancel(k[2].s);
    talk_step(e);
    assert_int_equal(k[0].n_finished + k[2].n_finished, 2);
    p.deadline_s = 5;
    talk_start(&k[0], ids, 100, &p);
    talk_start(&k[2], ids, 100, &p);
    int said = k[0].n;
    while (k[0].n < said + 3) talk_step(e);
    talk_ns += 4999999999; /* not yet */
    talk_step(e);
    assert_int_equal(k[0].n, said + 4);
    said = k[0].n;
    talk_ns++;
    talk_step(e);
    assert_int_equal(session_finish(k[0].s), FINISH_TIMEOUT);
    assert_int_equal(session_finish(k[2].s), FINISH_TIMEOUT);
    assert_int_equal(k[0].n, said);
    session_cancel(k[1].s);
    talk_step(e);
    assert_int_equal(engine_n_active(e), 0);
    for (int g = 0; g < 2; g++) assert_int_equal(pool_count(kv_cache_pool(engine_cache(e), g)).in_use, 0);
    for (int j = 0; j < 3; j++) session_free(k[j].s);
    engine_free(e);
}

/* Other prompts push out what is not pinned; a pin ends in time, or when a session could not go on otherwise. */
static void pins(void **state)
{
    talk_world *w = *state;
    int32_t ids[80], more[190];
    tiny_ids(ids, 80, 1);
    status st = STATUS_INIT;
    uint64_t memory = talk_memory(w->llama, w->team, 200);
    engine *e = talk_engine(w->llama, w->team,
                            (engine_config){.context = 200, .n_sessions = 2, .kv_memory_bytes = memory});
    talk k;
    talk_open(&k, e);
    generate_params p = talk_params(2);
    int64_t n_pinned = -1;
    talk_answer(&k, e, ids, 80, &p);
    for (int pinned = 0; pinned < 2; pinned++) {
        if (pinned) {
            talk_answer(&k, e, ids, 80, &p);
            assert_int_equal(engine_pin(e, 0, ids, 80, 1000, &n_pinned, &st), ST_OK);
            assert_int_equal(n_pinned, 80);
        }
        for (int i = 0; i < 6; i++) {
            tiny_ids(more, 100, 50 + (uint64_t)(i + 10 * pinned));
            talk_answer(&k, e, more, 100, &p);
        }
        talk_answer(&k, e, ids, 80, &p);
        assert_int_equal(stats_of(&k).reused_tokens, pinned ? 79 : 0);
    }
    tiny_ids(more, 190, 99);
    talk_answer(&k, e, more, 190, &p); /* needs the pinned blocks */
    assert_int_equal(session_finish(k.s), FINISH_LENGTH);
    assert_int_equal(engine_pin(e, 0, ids, 80, 0, &n_pinned, &st), ST_ARG);
    assert_int_equal(engine_pin(e, 0, ids, 80, 1e9, &n_pinned, &st), ST_ARG);
    for (int i = 0; i < 100; i++) assert_int_equal(engine_pin(e, 9, ids, 80, 1000, &n_pinned, &st), ST_OK);
    assert_int_equal(n_pinned, 0); /* nothing of that salt is there, so it took none of the places */
    p.pin_s = 1e-9; /* over at once */
    talk_answer(&k, e, ids, 80, &p);
    p.pin_s = 1000;
    talk_answer(&k, e, ids, 80, &p);
    talk_answer(&k, e, ids, 20, &p);
    assert_int_equal(pool_count(kv_cache_pool(engine_cache(e), 0)).in_use, 5);
    session_free(k.s);
    engine_free(e);
}

static void pins_run_out_without_a_step(void **state)
{
    talk_world *w = *state;
    int32_t ids[80];
    tiny_ids(ids, 80, 1);
    engine *e = talk_engine(w->llama, w->team, (engine_config){.context = 200, .n_sessions = 1, .clock = talk_clock});
    const pool *blocks = kv_cache_pool(engine_cache(e), 0);
    talk k;
    talk_open(&k, e);
    generate_params p = talk_params(2);
    assert_int_equal(engine_expire_pins(e), 0);
    p.pin_s = 3;
    talk_answer(&k, e, ids, 80, &p);
    talk_ns += 2999999999;
    assert_int_equal(engine_expire_pins(e), talk_ns + 1);
    assert_int_equal(pool_count(blocks).in_use, 5);
    talk_ns++;
    assert_int_equal(engine_expire_pins(e), 0);
    assert_int_equal(pool_count(blocks).in_use, 0);
    for (int i = 0; i < 2; i++) { /* the later one ends first */
        p.pin_s = i ? 1000 : 2000;
        talk_answer(&k, e, ids, 80, &p);
    }
    assert_int_equal(engine_expire_pins(e), talk_ns + (int64_t)1000e9);
    assert_int_equal(pool_count(blocks).in_use, 5);
    session_free(k.s);
    engine_free(e);
}

typedef struct told {
    talk talk;
    int32_t tokens[100];
    float logprobs[100];
    int n;
} told;

static void on_prompt_token(void *user, const token_event *t)
{
    told *p = user;
    assert_int_equal(t->position, p->n + 1);
    assert_int_equal(t->n_bytes, 0);
    assert_int_equal(t->n_top, 2);
    assert_true(t->top[0].logprob >= t->top[1].logprob && t->top[0].logprob >= t->logprob);
    p->tokens[p->n] = t->token;
    p->logprobs[p->n++] = t->logprob;
}

typedef struct forced {
    const int32_t *ids;
    double logprobs[100];
} forced;

static void on_forced(void *user, int nth, int64_t position, const float *logits)
{
    (void)nth;
    forced *f = user;
    double sum = 0;
    for (int i = 0; i < TINY_VOCAB; i++) sum += exp(logits[i]);
    if (position < 99) f->logprobs[position] = logits[f->ids[position + 1]] - log(sum);
}

static void prompt_logprobs(void **state)
{
    talk_world *w = *state;
    int32_t ids[100];
    tiny_ids(ids, 100, 1);
    engine *e = talk_engine(w->llama, w->team, (engine_config){.context = 200, .n_sessions = 2, .chunk = 30});
    status st = STATUS_INIT;
    forced f = {.ids = ids};
    kv_seq *seq = NULL;
    assert_int_equal(kv_seq_new(&seq, engine_cache(e), &st), ST_OK);
    for (int i = 0; i < 100; i += 25)
        assert_int_equal(engine_feed(e, &(feed){seq, ids + i, 25, true}, 1, on_forced, &f, &st), ST_OK);
    kv_seq_free(seq);
    told t = {0};
    talk_open(&t.talk, e);
    for (int max_tokens = 0; max_tokens < 4; max_tokens += 3) { /* the second time the tree has the prompt */
        generate_params p = talk_params(max_tokens);
        p.n_logprobs = 2;
        p.prompt_logprobs = true;
        session_callbacks cb = {.on_prompt_token = on_prompt_token, .user = &t};
        t.n = 0;
        assert_int_equal(session_start(t.talk.s, ids, 100, &p, &cb, &st), ST_OK);
        talk_run(e);
        assert_int_equal(session_finish(t.talk.s), FINISH_LENGTH);
        assert_int_equal(stats_of(&t.talk).generated_tokens, max_tokens);
        assert_int_equal(stats_of(&t.talk).reused_tokens, 0);
        assert_int_equal(t.n, 99);
        assert_memory_equal(t.tokens, ids + 1, 99 * sizeof *ids);
        for (int i = 0; i < 99; i++) assert_true(fabs(t.logprobs[i] - f.logprobs[i]) < 1e-5);
    }
    session_free(t.talk.s);
    engine_free(e);
}

/* A target that no step can meet: each step takes the least of a prompt, and every running answer its token. */
static void prompts_leave_answers_their_pace(void **state)
{
    talk_world *w = *state;
    int32_t ids[300];
    tiny_ids(ids, 300, 1);
    engine *e = talk_engine(w->llama, w->team,
                            (engine_config){.context = 400, .n_sessions = 2, .chunk = 128, .itl_target_s = 1e-9});
    talk k[2];
    talk_open(&k[0], e);
    talk_open(&k[1], e);
    generate_params p = sampled(40, 1);
    talk_start(&k[0], ids, 8, &p);
    while (k[0].n < 4) talk_step(e);
    ids[0] ^= 1;
    talk_start(&k[1], ids, 300, &p);
    talk_step(e); /* the first one has no measure yet */
    for (int i = 0; i < 10; i++) {
        uint64_t rows = engine_get_stats(e).computed_rows;
        int said = k[0].n;
        talk_step(e);
        assert_int_equal(k[0].n, said + 1);
        assert_int_equal(engine_get_stats(e).computed_rows - rows, 17);
    }
    talk_run(e);
    session_free(k[0].s);
    session_free(k[1].s);
    engine_free(e);
}

/* What can never fit is refused when it starts, with the numbers. */
static void refuses_what_can_never_fit(void **state)
{
    talk_world *w = *state;
    int32_t ids[101];
    tiny_ids(ids, 101, 1);
    status st = STATUS_INIT;
    engine *e = talk_engine(w->llama, w->team, (engine_config){.context = 100});
    talk k;
    talk_open(&k, e);
    generate_params p = talk_params(5);
    assert_int_equal(talk_try(&k, ids, 101, &p, &st), ST_LIMIT);
    assert_non_null(strstr(st.text, "101"));
    assert_non_null(strstr(st.text, "100"));
    const double wrong[] = {-1, 1e9, INFINITY, NAN};
    for (int i = 0; i < 8; i++) {
        p = talk_params(5);
        *(i < 4 ? &p.deadline_s : &p.pin_s) = wrong[i % 4];
        assert_int_equal(talk_try(&k, ids, 10, &p, &st), ST_ARG);
    }
    assert_int_equal(engine_n_active(e), 0);
    session_free(k.s);
    engine_free(e);
}

/* Reservation of the longest a request may get, as servers without pages do: fewer run at once. */
static void reservation_for_comparison(void **state)
{
    talk_world *w = *state;
    int32_t ids[4][20];
    uint64_t memory = talk_memory(w->llama, w->team, 200);
    int most[2] = {0};
    for (int reserve = 0; reserve < 2; reserve++) {
        engine *e = talk_engine(w->llama, w->team,
                                (engine_config){.context = 200, .n_sessions = 4, .kv_memory_bytes = memory,
                                                .no_sharing = reserve, .reserve = reserve});
        talk k[4];
        for (int j = 0; j < 4; j++) {
            generate_params p = sampled(70, 1);
            const char *stop[] = {"a", "b", "c", "d", "e"};
            p.stop = stop, p.n_stop = 5;
            tiny_ids(ids[j], 20, (uint64_t)j);
            talk_open(&k[j], e);
            talk_start(&k[j], ids[j], 20, &p);
        }
        while (engine_n_active(e)) {
            talk_step(e);
            int running = engine_get_stats(e).running;
            if (running > most[reserve]) most[reserve] = running;
        }
        for (int j = 0; j < 4; j++) session_free(k[j].s);
        engine_free(e);
    }
    assert_int_equal(most[0], 4);
    assert_int_equal(most[1], 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_for_a_prefix_that_is_coming),
        cmocka_unit_test(waits_for_a_prefix_of_this_step),
        cmocka_unit_test(finished_answers_stay_findable),
        cmocka_unit_test(forks_share_one_prefill),
        cmocka_unit_test(forks_of_other_moments),
        cmocka_unit_test(exhaustion_fails_nobody),
        cmocka_unit_test(order),
        cmocka_unit_test(nobody_jumps_the_queue),
        cmocka_unit_test(deadlines_and_cancels_free_within_a_step),
        cmocka_unit_test(pins),
        cmocka_unit_test(pins_run_out_without_a_step),
        cmocka_unit_test(prompt_logprobs),
        cmocka_unit_test(prompts_leave_answers_their_pace),
        cmocka_unit_test(refuses_what_can_never_fit),
        cmocka_unit_test(reservation_for_comparison),
    };
    return cmocka_run_group_tests_name("schedule", tests, open_world, talk_close_world);
}
