/* talk.h - a session and all that it said, and the models for it, for tests. */
#ifndef KVASIR_TESTS_TALK_H
#define KVASIR_TESTS_TALK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "tiny_model.h"

#define TALK_TOKENS 512

/* A clock that tests set: engine_config.clock. */
static int64_t talk_ns = 1000000000;

static inline int64_t talk_clock(void)
{
    return talk_ns;
}

typedef struct talk {
    session *s;
    int32_t tokens[TALK_TOKENS];
    int64_t positions[TALK_TOKENS];
    float logprobs[TALK_TOKENS];
    token_logprob top[TALK_TOKENS][4];
    int n_top[TALK_TOKENS];
    int n, cancel_at;   /* cancel_at: in the callback of that token, from 1; 0 = never */
    struct talk *other; /* cancelled there as well */
    char text[4096];
    size_t n_bytes;
    int64_t dropped[64];
    int n_drops;
    int64_t progress_done, progress_total;
    int n_progress, n_finished;
} talk;

static inline void talk_token(void *user, const token_event *t)
{
    talk *k = user;
    assert_true(k->n < TALK_TOKENS && k->n_bytes + t->n_bytes < sizeof k->text);
    k->tokens[k->n] = t->token;
    k->positions[k->n] = t->position;
    k->logprobs[k->n] = t->logprob;
    k->n_top[k->n] = t->n_top;
    for (int i = 0; i < t->n_top && i < 4; i++) k->top[k->n][i] = t->top[i];
    k->n++;
    memcpy(k->text + k->n_bytes, t->text, t->n_bytes);
    k->n_bytes += t->n_bytes;
    if (k->n != k->cancel_at) return;
    session_cancel(k->s);
    if (k->other) session_cancel(k->other->s);
}

static inline void talk_progress(void *user, int64_t done, int64_t total)
{
    talk *k = user;
    assert_true(done > k->progress_done && done <= total);
    k->progress_done = done;
    k->progress_total = total;
    k->n_progress++;
}

static inline void talk_drop(void *user, int64_t n_dropped)
{
    talk *k = user;
    assert_true(k->n_drops < 64 && n_dropped > 0);
    k->dropped[k->n_drops++] = n_dropped;
}

/* Greedy, without an end. */
static inline generate_params talk_params(int64_t max_tokens)
{
    generate_params p = {.sampling = sampler_defaults(), .max_tokens = max_tokens, .n_logprobs = -1, .keep = -1};
    p.sampling.temperature = 0;
    return p;
}

static inline engine *talk_engine(const model *m, threads *team, engine_config c)
{
    status st = STATUS_INIT;
    engine *e = NULL;
    if (engine_new(&e, m, team, &c, &st)) fail_msg("%s", st.text);
    return e;
}

/* The cache's bytes for one session of n_tokens. */
static inline uint64_t talk_memory(const model *m, threads *team, int n_tokens)
{
    engine *e = talk_engine(m, team, (engine_config){.context = n_tokens});
    uint64_t bytes = kv_cache_bytes(engine_cache(e));
    engine_free(e);
    return bytes;
}

static inline void talk_open(talk *k, engine *e)
{
    status st = STATUS_INIT;
    memset(k, 0, sizeof *k);
    if (session_new(&k->s, e, &st)) fail_msg("%s", st.text);
}

static inline void talk_finish(void *user, finish_reason reason)
{
    talk *k = user;
    assert_int_equal(session_finish(k->s), reason);
    k->n_finished++;
}

static inline session_callbacks talk_callbacks(talk *k)
{
    k->n = k->n_drops = k->n_progress = k->n_finished = 0;
    k->n_bytes = 0;
    k->progress_done = 0;
    return (session_callbacks){.on_token = talk_token,
                               .on_finish = talk_finish,
                               .on_progress = talk_progress,
                               .on_drop = talk_drop,
                               .user = k};
}

static inline int talk_try(talk *k, const int32_t *ids, size_t n, const generate_params *p, status *st)
{
    session_callbacks cb = talk_callbacks(k);
    return session_start(k->s, ids, n, p, &cb, st);
}

static inline void talk_start(talk *k, const int32_t *ids, size_t n, const generate_params *p)
{
    status st = STATUS_INIT;
    if (talk_try(k, ids, n, p, &st)) fail_msg("%s", st.text);
}

/* A step, after which the cache must add up. */
static inline void talk_step(engine *e)
{
    status st = STATUS_INIT;
    if (engine_step(e, &st) || kv_cache_audit(engine_cache(e), &st)) fail_msg("%s", st.text);
}

static inline void talk_run(engine *e)
{
    for (int i = 0; engine_n_active(e); i++) {
        if (i == 5000) fail_msg("no end after %d steps", i);
        talk_step(e);
    }
}

static inline void talk_answer(talk *k, engine *e, const int32_t *ids, size_t n, const generate_params *p)
{
    talk_start(k, ids, n, p);
    talk_run(e);
}

/* Bytes of a script as token ids. */
static inline size_t talk_bytes(int32_t *ids, const char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++) ids[i] = (unsigned char)text[i];
    return n;
}

static inline void talk_same(const talk *a, const talk *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->tokens, b->tokens, (size_t)a->n * sizeof *a->tokens);
    assert_int_equal(a->n_bytes, b->n_bytes);
    assert_memory_equal(a->text, b->text, a->n_bytes);
}

/* What a group of tests shares: a team, and a model of each family. */
typedef struct talk_world {
    threads *team;
    model *llama, *gemma;
} talk_world;

static inline int talk_open_world(void **state, int n_threads, dtype llama_type)
{
    status st = STATUS_INIT;
    talk_world *w = calloc(1, sizeof *w);
    if (threads_new(&w->team, n_threads, &st)) return -1;
    tiny_config l = tiny_llama(), g = tiny_gemma();
    l.type = llama_type;
    w->llama = tiny_load(&l, kernels_get(CPU_AUTO), w->team);
    w->gemma = tiny_load(&g, kernels_get(CPU_AUTO), w->team);
    *state = w;
    return 0;
}

static inline int talk_close_world(void **state)
{
    talk_world *w = *state;
    model_free(w->llama);
    model_free(w->gemma);
    threads_free(w->team);
    free(w);
    return mem_stats().live != 0;
}

#endif
