/* Several sessions in one engine: each says what it would say alone, whatever the others do. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "engine/session.h"
#include "talk.h"

static int open_world(void **state)
{
    return talk_open_world(state, 2, DTYPE_Q8_0);
}

#define N_TALKS 5

static const struct plan {
    int n_prompt, n_tokens, joins, cancel_at; /* joins: in which step */
} plans[N_TALKS] = {{1, 30, 0, 0}, {90, 20, 0, 0}, {40, 25, 3, 0}, {17, 60, 5, 11}, {70, 20, 9, 0}};

static void start_plan(talk *k, int i)
{
    int32_t ids[100];
    tiny_ids(ids, plans[i].n_prompt, 60 + (uint64_t)i);
    generate_params p = talk_params(plans[i].n_tokens);
    p.ignore_eos = true;
    p.sampling.temperature = i % 2 ? 0.0f : 1.5f;
    p.sampling.top_k = 0;
    p.sampling.top_p = 1;
    p.sampling.min_p = 0;
    p.sampling.seed = (uint64_t)i;
    k->cancel_at = plans[i].cancel_at;
    talk_start(k, ids, (size_t)plans[i].n_prompt, &p);
}

static void check_together(talk_world *w, const model *m, int chunk, int logit_rows)
{
    talk alone[N_TALKS], k[N_TALKS];
    for (int i = 0; i < N_TALKS; i++) {
        engine *e = talk_engine(m, w->team, (engine_config){.context = 200});
        talk_open(&alone[i], e);
        start_plan(&alone[i], i);
        talk_run(e);
        session_free(alone[i].s);
        engine_free(e);
    }
    engine *e = talk_engine(m, w->team,
                            (engine_config){.context = 200,
                                            .chunk = chunk,
                                            .n_sessions = N_TALKS,
                                            .logit_rows = logit_rows,
                                            .block_tokens = 8});
    for (int i = 0; i < N_TALKS; i++) talk_open(&k[i], e);
    for (int step = 0; step < 10 || engine_n_active(e); step++) {
        assert_true(step < 500);
        for (int i = 0; i < N_TALKS; i++)
            if (plans[i].joins == step) start_plan(&k[i], i);
        if (k[3].n == plans[3].cancel_at && k[3].s) { /* it leaves while the others go on */
            session_free(k[3].s);
            k[3].s = NULL;
        }
        talk_step(e);
    }
    for (int i = 0; i < N_TALKS; i++) {
        talk_same(&k[i], &alone[i]);
        assert_int_equal(k[i].n, plans[i].cancel_at ? plans[i].cancel_at : plans[i].n_tokens);
        session_free(k[i].s);
    }
    engine_free(e);
}

static void sessions_say_what_they_say_alone(void **state)
{
    talk_world *w = *state;
    check_together(w, w->llama, 0, 0);
    check_together(w, w->llama, 16, 1);
    check_together(w, w->llama, 1, 2); /* a chunk is never smaller than the sessions */
    check_together(w, w->gemma, 16, 0);
    check_together(w, w->gemma, 33, 3);
}

/* While a long prompt comes in pieces, the running session gets a token in every step, and the oldest prompt goes
 * first. */
static void running_sessions_go_first(void **state)
{
    talk_world *w = *state;
    int32_t ids[100];
    tiny_ids(ids, 100, 1);
    engine *e = talk_engine(w->llama, w->team, (engine_config){.context = 200, .chunk = 10, .n_sessions = 3});
    assert_int_equal(engine_chunk(e), 10);
    talk a, b, c;
    talk_open(&a, e);
    talk_open(&b, e);
    talk_open(&c, e);
    generate_params p = talk_params(40);
    p.ignore_eos = true;
    talk_start(&a, ids, 5, &p);
    talk_step(e);
    assert_int_equal(a.n, 1);
    talk_start(&b, ids + 10, 20, &p);
    talk_start(&c, ids + 40, 20, &p);
    assert_int_equal(engine_n_active(e), 3);
    for (int step = 1; step <= 4; step++) {
        talk_step(e);
        assert_int_equal(a.n, 1 + step);
        assert_int_equal(b.progress_done, step == 1 ? 9 : step == 2 ? 18 : 20);
        assert_int_equal(c.progress_done, step < 3 ? 0 : step == 3 ? 7 : 15);
    }
    talk_run(e);
    session_free(a.s);
    session_free(b.s);
    session_free(c.s);
    engine_free(e);
}

/* Buffers of the text have their size after the first tokens; the tree gets a node where a block is full. */
static void check_allocations(talk_world *w, bool no_sharing)
{
    int32_t ids[40];
    tiny_ids(ids, 40, 2);
    engine *e =
        talk_engine(w->gemma, w->team, (engine_config){.context = 300, .n_sessions = 2, .no_sharing = no_sharing});
    talk k[2];
    generate_params p = talk_params(150);
    p.ignore_eos = true;
    p.n_logprobs = 4;
    p.sampling = sampler_defaults();
    p.sampling.repeat_penalty = 1.1f;
    p.sampling.dry_multiplier = 0.5f;
    p.sampling.typical_p = 0.9f;
    p.stop = (const char *[]){"no such text"}, p.n_stop = 1;
    for (int i = 0; i < 2; i++) {
        talk_open(&k[i], e);
        talk_start(&k[i], ids, 40 - (size_t)i, &p);
    }
    status st = STATUS_INIT;
    for (int i = 0; i < 30; i++) talk_step(e);
    uint64_t calls = mem_stats().calls;
    for (int i = 0; i < 100; i++) assert_int_equal(engine_step(e, &st), ST_OK);
    assert_true(mem_stats().calls <= calls + (no_sharing ? 0 : 2 * (100 / 16 + 1)));
    assert_int_equal(engine_n_active(e), 2);
    for (int i = 0; i < 2; i++) session_free(k[i].s);
    engine_free(e);
}

static void decoding_allocates_nothing(void **state)
{
    check_allocations(*state, true);
    check_allocations(*state, false);
}

static void context_must_fit_the_memory(void **state)
{
    talk_world *w = *state;
    status st = STATUS_INIT;
    engine *e = NULL;
    engine_config c = {.context = 512, .kv_memory_bytes = 100000, .chunk = 32};
    assert_int_equal(engine_new(&e, w->llama, w->team, &c, &st), ST_LIMIT);
    assert_non_null(strstr(st.text, "512 tokens"));
    assert_non_null(strstr(st.text, "100000 bytes"));
    c.context = 0; /* the model's own, less where memory is short */
    e = talk_engine(w->llama, w->team, c);
    int fits = engine_context(e);
    assert_in_range(fits, 64, 511);
    assert_true(kv_cache_bytes(engine_cache(e)) <= 100000);
    int32_t ids[512];
    tiny_ids(ids, fits, 4);
    talk k;
    talk_open(&k, e);
    generate_params p = talk_params(-1);
    p.ignore_eos = true;
    talk_answer(&k, e, ids, (size_t)fits - 3, &p); /* all of it can be used */
    assert_int_equal(session_finish(k.s), FINISH_CONTEXT);
    assert_int_equal(k.n, 3);
    session_free(k.s);
    engine_free(e);
    c.kv_memory_bytes = 100;
    assert_int_equal(engine_new(&e, w->llama, w->team, &c, &st), ST_LIMIT);
    c = (engine_config){0};
    e = talk_engine(w->llama, w->team, c);
    assert_int_equal(engine_context(e), 1024);
    assert_ptr_equal(engine_model(e), w->llama);
    assert_int_equal(engine_chunk(e), 512);
    engine_free(e);
}

static void bad_configurations(void **state)
{
    talk_world *w = *state;
    const struct {
        engine_config c;
        const char *text;
    } cases[] = {
        {{.context = -1}, "context is -1"}, {{.n_sessions = -3}, "sessions is -3"}, {{.chunk = -1}, "chunk is -1"},
        {{.chunk = 1 << 30}, "chunk"},      {{.block_tokens = 12}, "12"},           {{.block_tokens = 512}, "512"},
        {{.block_tokens = -16}, "-16"},
    };
    uint64_t bytes = mem_stats().bytes;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        status st = STATUS_INIT;
        engine *e = NULL;
        assert_int_equal(engine_new(&e, w->llama, w->team, &cases[i].c, &st), ST_ARG);
        assert_null(e);
        if (!strstr(st.text, cases[i].text)) fail_msg("%s", st.text);
    }
    assert_int_equal(mem_stats().bytes, bytes);
}

static void sessions_are_limited(void **state)
{
    talk_world *w = *state;
    engine *e = talk_engine(w->llama, w->team, (engine_config){.context = 64, .n_sessions = 2});
    talk a, b;
    session *c = NULL;
    status st = STATUS_INIT;
    talk_open(&a, e);
    talk_open(&b, e);
    assert_int_equal(session_new(&c, e, &st), ST_LIMIT);
    assert_non_null(strstr(st.text, "all 2 sessions"));
    session_free(a.s);
    assert_int_equal(session_new(&c, e, &st), ST_OK);
    session_free(c);
    session_free(b.s);
    assert_int_equal(engine_step(e, &st), ST_OK); /* nobody is there */
    engine_free(e);
    engine_free(NULL);
    session_free(NULL);
}

static void short_memory_leaks_nothing(void **state)
{
    talk_world *w = *state;
    uint64_t bytes = mem_stats().bytes;
    engine_config c = {.context = 64, .n_sessions = 2, .chunk = 16};
    int n = 0;
    for (int rc = ST_NOMEM; rc; n++) {
        status st = STATUS_INIT;
        engine *e = NULL;
        mem_fail_after(n + 1);
        rc = engine_new(&e, w->gemma, w->team, &c, &st);
        mem_fail_after(0);
        assert_int_equal(rc, e ? ST_OK : ST_NOMEM);
        engine_free(e);
        assert_int_equal(mem_stats().bytes, bytes);
    }
    assert_true(n > 20);
}

typedef struct heard {
    float logits[2][64][TINY_VOCAB];
    int n[2];
    int64_t last[2];
} heard;

static void hear(void *user, int i, int64_t position, const float *logits)
{
    heard *h = user;
    memcpy(h->logits[i][position], logits, sizeof h->logits[i][position]);
    h->n[i]++;
    h->last[i] = position;
}

static void feeds(void **state)
{
    talk_world *w = *state;
    int32_t ids[64], bad[] = {1, TINY_VOCAB};
    tiny_ids(ids, 64, 5);
    engine *e = talk_engine(w->gemma, w->team, (engine_config){.context = 100, .chunk = 64, .n_sessions = 2});
    status st = STATUS_INIT;
    kv_seq *a = NULL, *b = NULL;
    heard *one = calloc(1, sizeof *one), *two = calloc(1, sizeof *two);
    assert_int_equal(kv_seq_new(&a, engine_cache(e), &st), ST_OK);
    assert_int_equal(kv_seq_new(&b, engine_cache(e), &st), ST_OK);
    feed whole = {a, ids, 50, true};
    assert_int_equal(engine_feed(e, &whole, 1, hear, one, &st), ST_OK);
    assert_int_equal(one->n[0], 50);
    assert_int_equal(kv_seq_truncate(a, 0, &st), ST_OK);
    /* Two sequences of the same tokens, in other pieces; only the last logits where no more are asked for; none at all.
     * */
    feed first[] = {{a, ids, 20, false}, {b, ids, 30, true}},
         then[] = {{a, ids + 20, 30, true}, {b, ids + 30, 20, true}};
    assert_int_equal(engine_feed(e, first, 2, hear, two, &st), ST_OK);
    assert_int_equal(two->n[0], 1);
    assert_int_equal(two->last[0], 19);
    assert_int_equal(two->n[1], 30);
    assert_int_equal(engine_feed(e, then, 2, hear, two, &st), ST_OK);
    for (int i = 0; i < 50; i++) {
        if (i >= 19) assert_memory_equal(one->logits[0][i], two->logits[0][i], sizeof one->logits[0][i]);
        assert_memory_equal(one->logits[0][i], two->logits[1][i], sizeof one->logits[0][i]);
    }
    feed silent = {a, ids, 5, true};
    assert_int_equal(engine_feed(e, &silent, 1, NULL, NULL, &st), ST_OK);
    assert_int_equal(kv_seq_len(a), 55);
    /* Whatever is wrong, no sequence has grown. */
    feed wrong[] = {{a, ids, 5, true}, {b, bad, 2, true}};
    assert_int_equal(engine_feed(e, wrong, 2, hear, two, &st), ST_ARG);
    assert_int_equal(kv_seq_len(a), 55);
    assert_int_equal(kv_seq_len(b), 50);
    feed over[] = {{b, ids, 5, true}, {a, ids, 46, true}};
    assert_int_equal(engine_feed(e, over, 2, hear, two, &st), ST_LIMIT);
    assert_int_equal(kv_seq_len(a), 55);
    assert_int_equal(kv_seq_len(b), 50);
    assert_int_equal(kv_cache_audit(engine_cache(e), &st), ST_OK);
    kv_seq_free(a);
    kv_seq_free(b);
    free(one);
    free(two);
    engine_free(e);
}

/* A damaged weight: no text and no logits, but an error; what was in the cache before stays. */
static void logits_that_are_no_numbers(void **state)
{
    talk_world *w = *state;
    int32_t ids[20];
    tiny_ids(ids, 20, 4);
    engine *e = talk_engine(w->llama, w->team, (engine_config){.context = 100});
    float *norm = (float *)(uintptr_t)w->llama->output_norm, before = norm[3];
    talk k;
    talk_open(&k, e);
    generate_params p = talk_params(10);
    norm[3] = NAN;
    talk_start(&k, ids, 20, &p);
    status st = STATUS_INIT;
    while (session_active(k.s)) engine_step(e, &st);
    norm[3] = before;
    assert_int_equal(k.n, 0);
    assert_int_equal(session_finish(k.s), FINISH_ERROR);
    assert_int_equal(session_error(k.s)->code, ST_FORMAT);
    assert_non_null(strstr(session_error(k.s)->text, "damaged"));
    session_free(k.s);
    kv_seq *seq;
    assert_int_equal(kv_seq_new(&seq, engine_cache(e), &st), ST_OK);
    feed one = {seq, ids, 5, true};
    assert_int_equal(engine_feed(e, &one, 1, NULL, NULL, &st), ST_OK);
    heard *h = calloc(1, sizeof *h);
    norm[3] = INFINITY;
    assert_int_equal(engine_feed(e, &one, 1, hear, h, &st), ST_FORMAT);
    norm[3] = before;
    assert_int_equal(kv_seq_len(seq), 5);
    free(h);
    kv_seq_free(seq);
    engine_free(e);
}

/* Sessions of a batch, and what befalls the K and V of one of them. */
typedef struct trouble {
    engine *e;
    talk k[4];
    int victim, step, layer; /* whose, when */
    bool damaged;            /* they come, but as no numbers; else they don't */
    int now, n_times;
} trouble;

static int wait_with_trouble(void *user, int layer, const kv_seq *seq, status *st)
{
    trouble *t = user;
    if (seq != t->k[t->victim].s->seq || t->now != t->step || layer != t->layer) return ST_OK;
    t->n_times++;
    if (!t->damaged) return status_set(st, ST_TIMEOUT, STATUS_NO_POS, "layer %d did not come", layer);
    const kv_cache *c = engine_cache(t->e);
    float k[64];
    for (int i = 0; i < 64; i++) k[i] = NAN;
    for (int g = 0; g < kv_cache_n_groups(c); g++) { /* the newest row, of the first layer */
        kv_place at = kv_seq_place(seq, g, kv_seq_len(seq) - 1);
        kv_cache_format(c)->write_k(kernels_get(CPU_AUTO), at.block + kv_k_offset(c, g, 0, 0), kv_cache_block_tokens(c),
                                    at.row, k, kv_cache_group(c, g)->layout.d_k);
    }
    return ST_OK;
}

/* Its session ends with the error of its own; the others of the step go on, the fork of the lost one too, and all say
 * what they say alone. */
static void failures_belong_to_their_session(void **state)
{
    talk_world *w = *state;
    const model *models[] = {w->llama, w->gemma};
    int32_t ids[4][40];
    trouble alone = {.step = -1};
    for (int i = 0; i < 4; i++) tiny_ids(ids[i], 40, i < 3 ? 70 + (uint64_t)i : 70); /* the last one forks the first */
    for (int round = 0; round < 16; round++) {
        const model *m = models[round % 2];
        trouble t = {.victim = round / 2 % 2, .step = round / 4 % 2 ? 0 : 5, .damaged = round / 8};
        t.layer = !t.damaged;
        engine *e = talk_engine(m, w->team, (engine_config){.context = 100, .n_sessions = 4, .kv_wait = wait_with_trouble,
                                                            .kv_user = &t});
        t.e = e;
        engine *idle = talk_engine(m, w->team, (engine_config){.context = 100, .no_sharing = true});
        generate_params p = talk_params(12);
        p.ignore_eos = true;
        p.sampling.temperature = 1;
        status st = STATUS_INIT;
        for (int i = 0; i < 4; i++) {
            p.sampling.choice = i == 3;
            talk_open(&alone.k[i], idle);
            talk_answer(&alone.k[i], idle, ids[i], 40, &p);
            session_free(alone.k[i].s);
            talk_open(&t.k[i], e);
            if (i < 3) talk_start(&t.k[i], ids[i], 40, &p);
        }
        session_callbacks cb = talk_callbacks(&t.k[3]);
        assert_int_equal(session_fork(t.k[3].s, t.k[0].s, 1, &cb, &st), ST_OK);
        for (; engine_n_active(e); t.now++) talk_step(e);
        assert_int_equal(t.n_times, 1);
        for (int i = 0; i < 4; i++) {
            if (i != t.victim) talk_same(&t.k[i], &alone.k[i]);
            else {
                assert_int_equal(session_finish(t.k[i].s), FINISH_ERROR);
                assert_int_equal(session_error(t.k[i].s)->code, t.damaged ? ST_FORMAT : ST_TIMEOUT);
                assert_non_null(strstr(session_error(t.k[i].s)->text, t.damaged ? "not all finite" : "layer 1"));
                assert_int_equal(t.k[i].n, t.step);
                assert_memory_equal(t.k[i].tokens, alone.k[i].tokens, (size_t)t.step * sizeof(int32_t));
            }
            session_free(t.k[i].s);
        }
        engine_free(e);
        engine_free(idle);
    }
}

/* Teacher forcing is one call: what befalls one sequence leaves all as they were. */
static void a_failed_wait_takes_a_feed_back(void **state)
{
    talk_world *w = *state;
    int32_t ids[20];
    tiny_ids(ids, 20, 6);
    trouble t = {.victim = 0, .layer = 1};
    engine *e = talk_engine(w->llama, w->team, (engine_config){.context = 100, .n_sessions = 2,
                                                               .kv_wait = wait_with_trouble, .kv_user = &t});
    status st = STATUS_INIT;
    kv_seq *other;
    talk_open(&t.k[0], e);
    assert_int_equal(kv_seq_new(&other, engine_cache(e), &st), ST_OK);
    feed both[] = {{t.k[0].s->seq, ids, 20, false}, {other, ids, 20, false}};
    heard *h = calloc(1, sizeof *h);
    assert_int_equal(engine_feed(e, both, 2, hear, h, &st), ST_TIMEOUT);
    assert_int_equal(kv_seq_len(other), 0);
    assert_int_equal(kv_seq_len(t.k[0].s->seq), 0);
    t.now = 1;
    assert_int_equal(engine_feed(e, both, 2, hear, h, &st), ST_OK);
    assert_int_equal(kv_seq_len(other), 20);
    free(h);
    kv_seq_free(other);
    session_free(t.k[0].s);
    engine_free(e);
}

static void finish_names(void **state)
{
    (void)state;
    const char *names[] = {"none", "eos", "stop", "length", "context", "cancelled", "timeout", "error"};
    for (int i = 0; i < 8; i++) assert_string_equal(finish_name((finish_reason)i), names[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sessions_say_what_they_say_alone),
        cmocka_unit_test(running_sessions_go_first),
        cmocka_unit_test(decoding_allocates_nothing),
        cmocka_unit_test(context_must_fit_the_memory),
        cmocka_unit_test(bad_configurations),
        cmocka_unit_test(sessions_are_limited),
        cmocka_unit_test(short_memory_leaks_nothing),
        cmocka_unit_test(feeds),
        cmocka_unit_test(logits_that_are_no_numbers),
        cmocka_unit_test(failures_belong_to_their_session),
        cmocka_unit_test(a_failed_wait_takes_a_feed_back),
        cmocka_unit_test(finish_names),
    };
    return cmocka_run_group_tests(tests, open_world, talk_close_world);
}
