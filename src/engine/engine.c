#include "engine/engine.h"

#include <assert.h>

#include "base/clock.h"
#include "base/machine.h"
#include "base/mem.h"
#include "engine/engine_state.h"
#include "engine/seed.h"
#include "engine/session.h"

#define MAX_CONTEXT (1 << 24)
#define MAX_SESSIONS 8192
#define MAX_RUNNING 256
#define MAX_CHUNK (1 << 16)

/* Half of what is free: the rest is for weights still to be read, other programs, and the page cache. */
static uint64_t default_kv_memory(void)
{
    uint64_t n = machine_free_bytes();
    return n ? n / 2 : (uint64_t)1 << 30;
}

static int make_cache(engine *e, const engine_config *c, status *st)
{
    int wanted = c->context ? c->context : e->model->params.context_length;
    int block_tokens = c->block_tokens ? c->block_tokens : KV_BLOCK_TOKENS;
    const kv_format *format = c->format ? c->format : kv_format_get("f16");
    uint8_t seed[32];
    if (engine_seed(seed, e->model, format, block_tokens, c->exact, st)) return st->code;
    kv_cache_config k = {.groups = e->groups.group,
                         .n_groups = e->groups.n,
                         .format = format,
                         .block_tokens = block_tokens,
                         .max_tokens = (uint64_t)wanted,
                         .step_tokens = (uint64_t)e->chunk,
                         .n_seqs = e->max_running,
                         .evict = c->evict,
                         .no_sharing = c->no_sharing,
                         .seed = seed,
                         .memory_bytes = c->kv_memory_bytes ? c->kv_memory_bytes : default_kv_memory()};
    if (kv_cache_new(&e->cache, &k, st)) return st->code;
    uint64_t capacity = kv_cache_longest_tokens(e->cache);
    if (capacity < (uint64_t)wanted && c->context)
        return status_set(st, ST_LIMIT, STATUS_NO_POS,
                          "a context of %d tokens doesn't fit in %llu bytes of cache, which hold %llu tokens; lower "
                          "the context or give the cache more memory",
                          wanted, (unsigned long long)k.memory_bytes, (unsigned long long)capacity);
    e->context = capacity < (uint64_t)wanted ? (int)capacity : wanted;
    return ST_OK;
}

/* The team may be resized up to the machine's processors while the engine lives. */
static int max_workers(const threads *team)
{
    int now = threads_count(team), available = threads_available();
    return now > available ? now : available;
}

static int make_forward(engine *e, const engine_config *c, status *st)
{
    int logit_rows = c->logit_rows ? c->logit_rows : e->max_running;
    forward_config f = {.max_rows = e->chunk,
                        .max_seqs = e->max_running,
                        .max_drafts = FORWARD_MAX_DRAFTS,
                        .max_logit_rows = logit_rows < FORWARD_MAX_LOGIT_ROWS ? logit_rows : FORWARD_MAX_LOGIT_ROWS,
                        .max_workers = e->max_workers,
                        .exact = c->exact,
                        .no_split = c->no_split,
                        .no_cascade = c->no_cascade};
    return forward_new(&e->forward, e->model, e->cache, &e->groups, e->team, &f, st);
}

static int make_scratch(engine *e, status *st)
{
    const model *m = e->model;
    e->scratch = mem_calloc((size_t)e->max_workers, sizeof *e->scratch);
    if (!e->scratch) return status_nomem(st, (uint64_t)e->max_workers * sizeof *e->scratch);
    for (int i = 0; i < e->max_workers; i++)
        if (sampler_scratch_new(&e->scratch[i], m->ks, m->params.n_vocab, e->context, st)) return st->code;
    return ST_OK;
}

static int check_config(const engine_config *c, status *st)
{
    const struct {
        const char *name;
        int value, most;
    } limits[] = {{"context", c->context, MAX_CONTEXT},
                  {"sessions", c->n_sessions, MAX_SESSIONS},
                  {"running", c->n_running, MAX_RUNNING},
                  {"chunk", c->chunk, MAX_CHUNK}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (limits[i].value < 0 || limits[i].value > limits[i].most)
            return status_set(st, ST_ARG, STATUS_NO_POS, "%s is %d; 0 (the default) to %d is possible", limits[i].name,
                              limits[i].value, limits[i].most);
    return ST_OK;
}

int engine_new(engine **out, const model *m, threads *team, const engine_config *c, status *st)
{
    if (check_config(c, st)) return st->code;
    engine *e = mem_calloc(1, sizeof *e);
    if (!e) return status_nomem(st, sizeof *e);
    e->model = m;
    e->team = team;
    e->max_workers = max_workers(team);
    e->chunk = c->chunk ? c->chunk : 512;
    e->max_sessions = c->n_sessions ? c->n_sessions : 1;
    e->max_running = c->n_running ? c->n_running : e->max_sessions;
    if (e->max_running > e->max_sessions) e->max_running = e->max_sessions;
    if (e->max_running > MAX_RUNNING) e->max_running = MAX_RUNNING;
    e->reserve = c->reserve;
    e->clock = c->clock ? c->clock : clock_ns;
    e->kv_wait = c->kv_wait;
    e->kv_user = c->kv_user;
    e->pace.target_s = c->itl_target_s;
    if (e->chunk < e->max_running) e->chunk = e->max_running; /* every running session gets its row in every step */
    kv_groups_init(&e->groups, &m->params);
    e->rows = mem_array((size_t)e->chunk, sizeof *e->rows);
    e->finite = mem_array((size_t)e->chunk, sizeof *e->finite);
    e->seqs = mem_array((size_t)e->max_running, sizeof *e->seqs);
    e->owners = mem_array((size_t)e->max_running, sizeof *e->owners);
    e->old_len = mem_array((size_t)e->max_running, sizeof *e->old_len);
    if (!e->rows || !e->finite || !e->seqs || !e->owners || !e->old_len) status_nomem(st, (uint64_t)e->chunk * sizeof *e->rows);
    else if (!make_cache(e, c, st) && !make_forward(e, c, st) && !make_scratch(e, st)) {
        *out = e;
        return ST_OK;
    }
    engine_free(e);
    return st->code;
}

void engine_free(engine *e)
{
    if (!e) return;
    assert(!e->sessions);
    engine_unpin(e, UNPIN_ALL);
    forward_free(e->forward);
    for (int i = 0; e->scratch && i < e->max_workers; i++) sampler_scratch_free(e->scratch[i]);
    mem_free(e->scratch);
    kv_cache_free(e->cache);
    mem_free(e->rows);
    mem_free(e->finite);
    mem_free(e->seqs);
    mem_free(e->owners);
    mem_free(e->old_len);
    mem_free(e);
}

const model *engine_model(const engine *e)
{
    return e->model;
}

threads *engine_team(const engine *e)
{
    return e->team;
}

kv_cache *engine_cache(const engine *e)
{
    return e->cache;
}

int engine_context(const engine *e)
{
    return e->context;
}

phase_clock *engine_phases(engine *e)
{
    return forward_phases(e->forward);
}

int engine_chunk(const engine *e)
{
    return e->chunk;
}

int engine_n_active(const engine *e)
{
    int n = 0;
    for (const session *s = e->sessions; s; s = s->next) n += session_active(s);
    return n;
}

engine_stats engine_get_stats(const engine *e)
{
    engine_stats stats = e->stats;
    stats.running = e->n_running;
    stats.pins = e->n_pins;
    stats.waiting = engine_n_active(e) - e->n_running;
    return stats;
}
