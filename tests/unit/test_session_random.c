/* Random operations on the sessions of a small engine: starts, forks of sessions in any state, cancels, deadlines, frees,
 * contexts that overflow, stop tokens, priorities, preemption, failing allocations, K and V that don't come. What each session says is compared
 * with what it says alone on an idle engine; how its answer ends, what it drops and which tokens are left, with a plain
 * model. */
#include "engine/session.h"
#include "sanitized.h"
#include "talk.h"

enum { CONTEXT = 48, KINDS = 32, CHOICES = 3, SLOTS = 10, STEPS = SANITIZED ? 2000 : 8000 };

/* A talk that also hears the logprobs of its prompt. */
typedef struct speaker {
    talk k; /* first: the callbacks' user */
    int n_told;
    float told[CONTEXT];
} speaker;

/* What a request is, apart from when it comes, and its answers on an idle engine. */
typedef struct kind {
    int32_t ids[CONTEXT], stop_token;
    size_t n;
    generate_params p;
    speaker alone[CHOICES];
} kind;

typedef struct slot {
    speaker v;
    const kind *of; /* what it was started with last; NULL = nothing that could be forked */
    uint32_t choice;
    bool busy, is_fork, late, may_be_cancelled, was_cancelled, may_lack_memory, lost;
} slot;

typedef struct world {
    engine *e;
    uint64_t random;
    kind *kinds; /* [KINDS] */
    slot slots[SLOTS];
    int n_ended[FINISH_ERROR + 1], n_forks, n_forks_moved_on, n_forks_refused, n_shifted, n_short, n_lost;
} world;

static uint64_t roll(world *w, uint64_t n)
{
    return tiny_random(&w->random) % n;
}

/* Fails for one sequence now and then. */
static int kv_wait(void *user, int layer, const kv_seq *seq, status *st)
{
    world *w = user;
    if (roll(w, 800)) return ST_OK;
    for (int i = 0; i < SLOTS; i++)
        if (w->slots[i].v.k.s->seq == seq) w->slots[i].lost = true;
    w->n_lost++;
    return status_set(st, ST_TIMEOUT, STATUS_NO_POS, "layer %d did not come", layer);
}

static void on_prompt_token(void *user, const token_event *t)
{
    speaker *v = user;
    assert_int_equal(v->k.n, 0);
    assert_int_equal(t->position, v->n_told + 1);
    v->told[v->n_told++] = t->logprob;
}

static session_callbacks callbacks(speaker *v)
{
    session_callbacks cb = talk_callbacks(&v->k);
    v->n_told = 0;
    cb.on_prompt_token = on_prompt_token;
    return cb;
}

/* The plain model: how an answer that says these tokens ends. */
typedef struct ending {
    finish_reason finish;
    int n; /* tokens */
    int64_t dropped[64];
    int n_drops;
    int32_t ids[CONTEXT + 1]; /* that are left */
    int64_t n_ids;
} ending;

static void drop(ending *end, const kind *d)
{
    int64_t keep = d->p.keep;
    if (keep < 0) keep = (int64_t)d->n < CONTEXT / 4 ? (int64_t)d->n : CONTEXT / 4;
    if (keep > CONTEXT / 2) keep = CONTEXT / 2;
    int64_t left = end->n_ids - keep, newest = (CONTEXT - keep + 1) / 2;
    for (int64_t i = 0; i < newest; i++) end->ids[keep + i] = end->ids[end->n_ids - newest + i];
    end->dropped[end->n_drops++] = left - newest;
    end->n_ids = keep + newest;
}

static ending predict(const kind *d, const int32_t *tokens, int n)
{
    ending end = {.n_ids = (int64_t)d->n, .finish = d->p.max_tokens == 0 ? FINISH_LENGTH : FINISH_NONE};
    memcpy(end.ids, d->ids, d->n * sizeof *d->ids);
    while (end.finish == FINISH_NONE) {
        if (end.n == n) break; /* it should have gone on */
        int32_t id = tokens[end.n++];
        end.ids[end.n_ids++] = id;
        if (id == TINY_END && !d->p.ignore_eos) end.finish = FINISH_EOS;
        else if (d->p.n_stop_tokens && id == d->stop_token) end.finish = FINISH_STOP;
        else if (end.n == d->p.max_tokens) end.finish = FINISH_LENGTH;
        else if (d->p.overflow == OVERFLOW_STOP && end.n_ids == CONTEXT) end.finish = FINISH_CONTEXT;
        else if (end.n_ids > CONTEXT) drop(&end, d);
    }
    return end;
}

/* A session that nothing has cut short. */
static void check_answer(const speaker *v, const kind *d)
{
    ending end = predict(d, v->k.tokens, v->k.n);
    size_t n_ids;
    const int32_t *ids = session_ids(v->k.s, &n_ids);
    session_stats s = session_get_stats(v->k.s);
    assert_string_equal(finish_name(session_finish(v->k.s)), finish_name(end.finish));
    assert_int_equal(v->k.n, end.n);
    assert_int_equal(v->k.n_drops, end.n_drops);
    assert_memory_equal(v->k.dropped, end.dropped, (size_t)end.n_drops * sizeof *end.dropped);
    assert_int_equal(n_ids, end.n_ids);
    assert_memory_equal(ids, end.ids, n_ids * sizeof *ids);
    assert_int_equal(v->k.n_finished, 1);
    assert_int_equal(s.prompt_tokens, d->n);
    assert_int_equal(s.generated_tokens, end.n);
    assert_true(s.reused_tokens >= 0 && s.reused_tokens <= s.prompt_tokens && s.context_used <= CONTEXT);
    for (int i = 0; i < v->k.n; i++) assert_int_equal(v->k.positions[i], d->n + (size_t)i);
}

static int start(speaker *v, const kind *d, const generate_params *p, status *st)
{
    session_callbacks cb = callbacks(v);
    return session_start(v->k.s, d->ids, d->n, p, &cb, st);
}

static void answer_alone(engine *e, kind *d, uint32_t choice)
{
    status st = STATUS_INIT;
    generate_params p = d->p;
    speaker *v = &d->alone[choice];
    p.sampling.choice = choice;
    talk_open(&v->k, e);
    if (start(v, d, &p, &st)) fail_msg("%s", st.text);
    talk_step(e); /* also where nothing is to be said */
    talk_run(e);
    check_answer(v, d);
    session_free(v->k.s);
}

/* Prompts that begin alike and part, many of them as long as the context; stop tokens that come early. */
static void make_kinds(world *w, const model *m, threads *team)
{
    int32_t families[2][CONTEXT];
    engine *e = talk_engine(m, team, (engine_config){.context = CONTEXT, .no_sharing = true});
    for (int i = 0; i < 2; i++) tiny_ids(families[i], CONTEXT, 40 + (uint64_t)i);
    for (int i = 0; i < KINDS; i++) {
        kind *d = &w->kinds[i];
        d->n = roll(w, 3) ? 1 + roll(w, CONTEXT) : CONTEXT - roll(w, 2);
        tiny_ids(d->ids, CONTEXT, 100 + (uint64_t)i);
        memcpy(d->ids, families[roll(w, 2)], roll(w, d->n + 1) * sizeof *d->ids);
        d->p = talk_params((int64_t)roll(w, 120));
        d->p.sampling.temperature = (float)roll(w, 3);
        d->p.sampling.seed = roll(w, 5);
        d->p.overflow = roll(w, 3) ? OVERFLOW_WINDOW : OVERFLOW_STOP;
        d->p.keep = (int64_t)roll(w, 40) - 1;
        d->p.ignore_eos = roll(w, 2);
        d->p.prompt_logprobs = roll(w, 4) == 0;
        if (d->p.overflow == OVERFLOW_STOP) {
            if (roll(w, 2)) d->p.max_tokens = -1;
            if (d->p.max_tokens && d->n == CONTEXT) d->n--; /* such a prompt leaves no room */
        }
        answer_alone(e, d, 0);
        if (d->alone[0].k.n && roll(w, 2)) { /* it ends with the first token, or soon */
            d->stop_token = d->alone[0].k.tokens[roll(w, 2) ? 0 : roll(w, (uint64_t)d->alone[0].k.n)];
            d->p.stop_tokens = &d->stop_token;
            d->p.n_stop_tokens = 1;
        }
        for (uint32_t c = 0; c < CHOICES; c++) answer_alone(e, d, c);
    }
    engine_free(e);
}

static bool maybe_fail_memory(world *w)
{
    if (roll(w, 15)) return false;
    mem_fail_after(1 + (int64_t)roll(w, 6));
    return true;
}

/* Nobody's callback cancels it any more. */
static void forget_canceller(world *w, const slot *s)
{
    for (int i = 0; i < SLOTS; i++)
        if (w->slots[i].v.k.other == &s->v.k) w->slots[i].v.k.other = NULL;
}

static void begun(world *w, slot *s, const kind *d, uint32_t choice, int rc, const status *st, bool short_of_memory)
{
    mem_fail_after(0);
    if (rc) {
        assert_true(short_of_memory);
        assert_int_equal(rc, ST_NOMEM);
        assert_false(session_active(s->v.k.s));
        w->n_short++;
        s->of = NULL;
        return;
    }
    assert_int_equal(st->code, ST_OK);
    s->of = d;
    s->choice = choice;
    s->busy = true;
    s->v.k.cancel_at = 0;
    s->v.k.other = NULL;
    forget_canceller(w, s);
    s->may_be_cancelled = s->was_cancelled = s->may_lack_memory = s->is_fork = s->lost = false;
}

static void random_start(world *w, slot *s)
{
    status st = STATUS_INIT;
    const kind *d = &w->kinds[roll(w, KINDS)];
    generate_params p = d->p;
    uint32_t choice = (uint32_t)roll(w, CHOICES);
    p.sampling.choice = choice;
    p.priority = (int)roll(w, 3);
    p.pin_s = roll(w, 20) == 0 ? 1e-6 : 0;
    p.deadline_s = roll(w, 25) == 0 ? 1e-9 : 0;
    bool fails = maybe_fail_memory(w);
    begun(w, s, d, choice, start(&s->v, d, &p, &st), &st, fails);
    s->late = p.deadline_s > 0;
}

static void random_fork(world *w, slot *s, const slot *leader)
{
    status st = STATUS_INIT;
    uint32_t choice = (uint32_t)roll(w, CHOICES);
    session_callbacks cb = callbacks(&s->v);
    if (!leader->of || leader == s) {
        assert_int_equal(session_fork(s->v.k.s, leader->v.k.s, choice, &cb, &st), ST_ARG);
        w->n_forks_refused++;
        return;
    }
    w->n_forks++;
    w->n_forks_moved_on += leader->v.k.n_drops > 0;
    bool fails = maybe_fail_memory(w);
    begun(w, s, leader->of, choice, session_fork(s->v.k.s, leader->v.k.s, choice, &cb, &st), &st, fails);
    s->is_fork = true;
    s->late = leader->late;
}

/* As far as it is, it says what it says alone; when it is over, for a reason that there is. */
static void look_at(world *w, slot *s)
{
    if (!s->busy) return;
    const speaker *v = &s->v, *alone = &s->of->alone[s->choice];
    finish_reason finish = session_finish(v->k.s);
    assert_true(v->k.n <= alone->k.n);
    assert_memory_equal(v->k.tokens, alone->k.tokens, (size_t)v->k.n * sizeof *v->k.tokens);
    if (v->k.n || finish == FINISH_LENGTH)
        assert_int_equal(v->n_told, s->of->p.prompt_logprobs && !s->is_fork ? s->of->n - 1 : 0);
    assert_memory_equal(v->told, alone->told, (size_t)v->n_told * sizeof *v->told);
    if (v->k.n && v->k.n_progress && session_active(v->k.s))
        assert_int_equal(v->k.progress_done, v->k.progress_total);
    if (s->lost) assert_int_equal(finish, FINISH_ERROR);
    if (s->was_cancelled) assert_int_equal(finish, FINISH_CANCELLED);
    if (v->k.n_finished == 0) return;
    assert_false(session_running(v->k.s));
    if (finish == FINISH_CANCELLED) assert_true(s->may_be_cancelled || s->was_cancelled);
    else if (finish == FINISH_TIMEOUT) assert_true(s->late && v->k.n == 0);
    else if (finish == FINISH_ERROR) {
        assert_true(s->lost || s->may_lack_memory);
        assert_int_equal(session_error(v->k.s)->code, s->lost ? ST_TIMEOUT : ST_NOMEM);
    } else {
        assert_true(!s->late || s->of->p.max_tokens == 0);
        check_answer(v, s->of);
        talk_same(&v->k, &alone->k);
    }
    w->n_ended[finish]++;
    w->n_shifted += v->k.n_drops > 0;
    s->busy = false;
}

static void random_op(world *w)
{
    slot *s = &w->slots[roll(w, SLOTS)], *other = &w->slots[roll(w, SLOTS)];
    uint64_t op = roll(w, 100);
    if (!s->busy && op < 45) random_start(w, s);
    else if (!s->busy && op < 90) random_fork(w, s, other);
    else if (s->busy && op < 3 && session_active(s->v.k.s)) {
        session_cancel(s->v.k.s);
        s->was_cancelled = true;
    } else if (s->busy && op < 6 && s->v.k.cancel_at == 0) { /* in its own callback, another one along with it */
        s->v.k.cancel_at = s->v.k.n + 1;
        s->v.k.other = &other->v.k;
        s->may_be_cancelled = other->may_be_cancelled = true;
    } else if (op < 8) {
        session_free(s->v.k.s);
        forget_canceller(w, s);
        *s = (slot){0};
        talk_open(&s->v.k, w->e);
    }
}

static void step(world *w)
{
    status st = STATUS_INIT;
    if (maybe_fail_memory(w))
        for (int i = 0; i < SLOTS; i++) w->slots[i].may_lack_memory = true;
    int rc = engine_step(w->e, &st);
    mem_fail_after(0);
    if (rc || kv_cache_audit(engine_cache(w->e), &st)) fail_msg("%s", st.text);
    int n_running = 0;
    for (int i = 0; i < SLOTS; i++) {
        look_at(w, &w->slots[i]);
        n_running += session_running(w->slots[i].v.k.s);
    }
    assert_int_equal(engine_get_stats(w->e).running, n_running);
}

static void run(talk_world *t, const model *m, engine_config c, uint64_t seed)
{
    world *w = calloc(1, sizeof *w);
    w->random = seed;
    w->kinds = calloc(KINDS, sizeof *w->kinds);
    make_kinds(w, m, t->team);
    c.context = CONTEXT;
    c.n_sessions = SLOTS;
    c.n_running = 5;
    c.kv_memory_bytes = talk_memory(m, t->team, CONTEXT) * 2;
    c.kv_wait = kv_wait;
    c.kv_user = w;
    w->e = talk_engine(m, t->team, c);
    for (int i = 0; i < SLOTS; i++) talk_open(&w->slots[i].v.k, w->e);
    for (int i = 0; i < STEPS; i++) {
        for (uint64_t n = roll(w, 4); n > 0; n--) random_op(w);
        step(w);
    }
    for (int i = 0; engine_n_active(w->e); i++) {
        if (i == 5000) fail_msg("no end after %d steps", i);
        step(w);
    }
    step(w); /* pins go */
    engine_stats s = engine_get_stats(w->e);
    kv_cache *cache = engine_cache(w->e);
    for (int g = 0; g < kv_cache_n_groups(cache); g++)
        assert_int_equal(pool_count(kv_cache_pool(cache, g)).in_use, 0);
    if (!SANITIZED) { /* a short run may meet fewer */
        for (int r = FINISH_EOS; r <= FINISH_ERROR; r++) assert_true(w->n_ended[r] > 0);
        assert_true(s.preemptions > STEPS / 100 && w->n_shifted > STEPS / 200 && w->n_short > 0);
        assert_true(w->n_lost > STEPS / 1000);
        assert_true(w->n_forks > STEPS / 50 && w->n_forks_moved_on > STEPS / 500 && w->n_forks_refused > 0);
    }
    for (int i = 0; i < SLOTS; i++) session_free(w->slots[i].v.k.s);
    engine_free(w->e);
    free(w->kinds);
    free(w);
}

static void llama(void **state)
{
    run(*state, ((talk_world *)*state)->llama, (engine_config){.chunk = 20, .block_tokens = 8}, 1);
}

static void gemma(void **state)
{
    run(*state, ((talk_world *)*state)->gemma, (engine_config){.chunk = 64}, 2);
}

static void without_sharing(void **state)
{
    run(*state, ((talk_world *)*state)->llama, (engine_config){.chunk = 11, .no_sharing = true}, 3);
}

static int open_world(void **state)
{
    return talk_open_world(state, 1, DTYPE_Q8_0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama),
        cmocka_unit_test(gemma),
        cmocka_unit_test(without_sharing),
    };
    return cmocka_run_group_tests_name("session_random", tests, open_world, talk_close_world);
}
