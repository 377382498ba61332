#include "engine/engine.h"

#include <assert.h>
#include <float.h>
#include <math.h>

#include "base/machine.h"
#include "base/mem.h"
#include "engine/engine_state.h"
#include "engine/session.h"

#define MAX_CONTEXT (1 << 24)
#define MAX_SESSIONS 1024
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
    kv_cache_config k = {.groups = e->groups.group,
                         .n_groups = e->groups.n,
                         .format = c->format ? c->format : kv_format_get("f16"),
                         .block_tokens = c->block_tokens,
                         .max_tokens = (uint64_t)wanted,
                         .step_tokens = (uint64_t)e->chunk,
                         .n_seqs = e->max_sessions,
                         .memory_bytes = c->kv_memory_bytes ? c->kv_memory_bytes : default_kv_memory()};
    if (kv_cache_new(&e->cache, &k, st)) return st->code;
    uint64_t capacity = kv_cache_capacity_tokens(e->cache);
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
    int logit_rows = c->logit_rows ? c->logit_rows : e->max_sessions;
    forward_config f = {.max_rows = e->chunk,
                        .max_seqs = e->max_sessions,
                        .max_drafts = FORWARD_MAX_DRAFTS,
                        .max_logit_rows = logit_rows < FORWARD_MAX_LOGIT_ROWS ? logit_rows : FORWARD_MAX_LOGIT_ROWS,
                        .max_workers = max_workers(e->team),
                        .exact = c->exact,
                        .no_split = c->no_split,
                        .no_cascade = c->no_cascade};
    return forward_new(&e->forward, e->model, e->cache, &e->groups, e->team, &f, st);
}

static int check_config(const engine_config *c, status *st)
{
    const struct {
        const char *name;
        int value, most;
    } limits[] = {{"context", c->context, MAX_CONTEXT},
                  {"sessions", c->n_sessions, MAX_SESSIONS},
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
    e->chunk = c->chunk ? c->chunk : 512;
    e->max_sessions = c->n_sessions ? c->n_sessions : 1;
    if (e->chunk < e->max_sessions) e->chunk = e->max_sessions; /* every running session gets its row in every step */
    kv_groups_init(&e->groups, &m->params);
    e->rows = mem_array((size_t)e->chunk, sizeof *e->rows);
    e->seqs = mem_array((size_t)e->max_sessions, sizeof *e->seqs);
    e->owners = mem_array((size_t)e->max_sessions, sizeof *e->owners);
    e->old_len = mem_array((size_t)e->max_sessions, sizeof *e->old_len);
    if (!e->rows || !e->seqs || !e->owners || !e->old_len) status_nomem(st, (uint64_t)e->chunk * sizeof *e->rows);
    else if (!make_cache(e, c, st) && !make_forward(e, c, st)) {
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
    forward_free(e->forward);
    kv_cache_free(e->cache);
    mem_free(e->rows);
    mem_free(e->seqs);
    mem_free(e->owners);
    mem_free(e->old_len);
    mem_free(e);
}

const model *engine_model(const engine *e)
{
    return e->model;
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

/* Puts the next n tokens of a sequence into the batch, with room for them in the cache. */
static int add_rows(engine *e, kv_seq *seq, const int32_t *ids, int n, bool all_logits, status *st)
{
    int64_t at = kv_seq_len(seq);
    if (kv_seq_append(seq, n, st)) return st->code;
    for (int i = 0; i < n; i++)
        e->rows[e->n_rows++] = (batch_row){.token = ids[i], .seq = e->n_seqs, .position = at + i, .slot = at + i,
                                           .wants_logits = all_logits};
    e->old_len[e->n_seqs] = at;
    e->seqs[e->n_seqs++] = seq;
    return ST_OK;
}

static void add_session(engine *e, session *s, int64_t most)
{
    int64_t pending = session_pending(s), n = pending < most ? pending : most;
    status st = STATUS_INIT;
    e->owners[e->n_seqs] = s;
    if (add_rows(e, s->seq, s->ids + kv_seq_len(s->seq), (int)n, false, &st)) session_fail(s, &st);
    else e->rows[e->n_rows - 1].wants_logits = n == pending;
}

/* Running sessions first, one row each; then prompts, oldest first, while rows are left. */
static void fill_batch(engine *e)
{
    e->n_rows = e->n_seqs = 0;
    for (session *s = e->sessions; s; s = s->next)
        if (session_active(s) && session_pending(s) == 1) add_session(e, s, 1);
    for (session *s = e->sessions; s && e->n_rows < e->chunk; s = s->next)
        if (session_active(s) && session_pending(s) > 1) add_session(e, s, e->chunk - e->n_rows);
}

/* A damaged weight makes every number that depends on it infinite or none; what is drawn from such logits means
 * nothing. */
static int check_logits(const engine *e, int row, const float *logits, status *st)
{
    bool finite = true;
    for (int i = 0; i < e->model->params.n_vocab; i++) finite &= fabsf(logits[i]) <= FLT_MAX;
    if (finite) return ST_OK;
    return status_set(st, ST_FORMAT, STATUS_NO_POS,
                      "the logits at position %lld are not all finite numbers: the model's weights are damaged; "
                      "get the file again",
                      (long long)e->rows[row].position);
}

static void take_logits(void *user, int row, const float *logits)
{
    engine *e = user;
    session *s = e->owners[e->rows[row].seq];
    status st = STATUS_INIT;
    if (!session_active(s)) return; /* another session's callback may have cancelled it */
    if (check_logits(e, row, logits, &st)) session_fail(s, &st);
    else session_take_logits(s, logits);
}

static void take_back(engine *e)
{
    status ignored = STATUS_INIT; /* rows that were just appended can always be taken back */
    for (int i = 0; i < e->n_seqs; i++) kv_seq_truncate(e->seqs[i], e->old_len[i], &ignored);
}

static int run_batch(engine *e, const forward_io *io, status *st)
{
    batch b = {e->rows, e->n_rows, e->seqs, e->n_seqs};
    if (forward_run(e->forward, &b, io, st) == ST_OK) return ST_OK;
    take_back(e);
    return st->code;
}

int engine_step(engine *e, status *st)
{
    fill_batch(e);
    if (e->n_rows == 0) return ST_OK;
    int n = e->n_seqs;
    forward_io io = {.layer_end = e->model->params.n_layers, .on_logits = take_logits, .user = e};
    if (run_batch(e, &io, st)) {
        for (int i = 0; i < n; i++) session_fail(e->owners[i], st);
        return st->code;
    }
    for (int i = 0; i < n; i++) {
        session *s = e->owners[i];
        int64_t left = session_pending(s);
        if (s->cb.on_progress && session_active(s) && s->stats.generated_tokens <= 1)
            s->cb.on_progress(s->cb.user, s->pending_at_start - (s->stats.generated_tokens ? 0 : left),
                              s->pending_at_start);
    }
    return ST_OK;
}

typedef struct feed_job {
    engine *e;
    feed_logits_fn *on_logits;
    void *user;
    status st; /* of the first row whose logits are none */
} feed_job;

static void feed_row(void *user, int row, const float *logits)
{
    feed_job *j = user;
    const batch_row *r = &j->e->rows[row];
    if (j->st.code == ST_OK && check_logits(j->e, row, logits, &j->st) == ST_OK)
        j->on_logits(j->user, r->seq, r->position, logits);
}

int engine_feed(engine *e, const feed *feeds, int n_feeds, feed_logits_fn *on_logits, void *user, status *st)
{
    assert(n_feeds >= 1 && n_feeds <= e->max_sessions);
    e->n_rows = e->n_seqs = 0;
    for (int i = 0; i < n_feeds; i++) {
        assert(feeds[i].n >= 1 && e->n_rows + feeds[i].n <= e->chunk);
        if (add_rows(e, feeds[i].seq, feeds[i].ids, feeds[i].n, feeds[i].all_logits, st)) {
            take_back(e);
            return st->code;
        }
        e->rows[e->n_rows - 1].wants_logits = true;
    }
    feed_job j = {e, on_logits, user, STATUS_INIT};
    forward_io io = {.layer_end = e->model->params.n_layers, .on_logits = on_logits ? feed_row : NULL, .user = &j};
    if (run_batch(e, &io, st)) return st->code;
    if (j.st.code == ST_OK) return ST_OK;
    take_back(e);
    *st = j.st;
    return st->code;
}
