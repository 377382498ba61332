#include <assert.h>

#include "engine/engine_state.h"
#include "engine/schedule.h"
#include "engine/session.h"

/* Puts the next n tokens of a sequence into the batch, with room for them in the cache. */
int engine_add_rows(engine *e, kv_seq *seq, const int32_t *ids, int n, bool all_logits, status *st)
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

/* A damaged weight makes every number that depends on it infinite or none; what is drawn from such logits means
 * nothing. */
static int check_logits(const engine *e, int row, status *st)
{
    if (e->finite[row]) return ST_OK;
    return status_set(st, ST_FORMAT, STATUS_NO_POS,
                      "the logits at position %lld are not all finite numbers: the model's weights are damaged; "
                      "get the file again",
                      (long long)e->rows[row].position);
}

static bool is_fork_of(const session *f, const session *leader)
{
    return f->leader == leader && session_active(f);
}

/* Over the team: what a row says, and which token its session draws from it. The first logits of a session are those of
 * its forks as well. */
static void draw(void *user, int row, const float *logits, int worker)
{
    engine *e = user;
    session *s = e->owners[e->rows[row].seq];
    sampler_scratch *scratch = e->scratch[worker];
    if (!session_active(s)) return;
    e->finite[row] = sampler_read(scratch, logits);
    if (!e->finite[row] || e->rows[row].slot + 1 < s->n_ids) return;
    session_draw(s, scratch);
    if (s->stats.generated_tokens > 0) return;
    for (session *f = e->sessions; f; f = f->next)
        if (is_fork_of(f, s)) session_draw(f, scratch);
}

static void take_first_token(session *leader)
{
    for (session *f = leader->e->sessions; f; f = f->next) {
        if (!is_fork_of(f, leader)) continue;
        f->leader = NULL;
        f->forked_from = leader;
        session_admitted(f, f->n_prompt);
        session_take_token(f);
    }
}

/* In the order of rows, by the caller's thread: what has been drawn is told. */
static void take_token(void *user, int row, const float *logits)
{
    engine *e = user;
    session *s = e->owners[e->rows[row].seq];
    int64_t slot = e->rows[row].slot;
    status st = STATUS_INIT;
    if (!session_active(s)) return; /* another session's callback may have cancelled it */
    if (check_logits(e, row, &st)) {
        session_fail(s, &st);
    } else if (slot + 1 < s->n_ids) {
        session_report_prompt(s, slot, logits);
    } else {
        if (s->stats.generated_tokens == 0) take_first_token(s);
        if (session_active(s)) session_take_token(s);
    }
}

static int wait_for_kv(void *user, int layer, int seq, status *st)
{
    const engine *e = user;
    return e->kv_wait(e->kv_user, layer, e->seqs[seq], st);
}

static void lose_session(void *user, int seq, const status *st)
{
    const engine *e = user;
    session_fail(e->owners[seq], st);
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

static void end_finished(engine *e)
{
    for (session *s = e->sessions; s; s = s->next)
        if (s->begun && !session_active(s)) session_end(s);
}

static void tell_progress(session *s)
{
    int64_t left = s->stats.generated_tokens ? 0 : s->n_prompt - kv_seq_len(s->seq);
    int64_t done = s->pending_at_start - (left > 0 ? left : 0);
    if (!session_active(s) || done <= s->progress) return;
    s->progress = done;
    if (s->cb.on_progress) s->cb.on_progress(s->cb.user, done, s->pending_at_start);
}

int engine_step(engine *e, status *st)
{
    int64_t start = e->clock();
    for (session *s = e->sessions; s; s = s->next)
        if (session_active(s) && s->deadline_ns && start >= s->deadline_ns) session_expire(s);
    end_finished(e); /* those that were cancelled too: their room is free from here on */
    schedule_step(e, start);
    int n = e->n_seqs, rc = ST_OK;
    if (e->n_rows) {
        forward_io io = {.layer_end = e->model->params.n_layers,
                         .each_logits = draw,
                         .on_logits = take_token,
                         .kv_wait = e->kv_wait ? wait_for_kv : NULL,
                         .on_lost = lose_session,
                         .user = e};
        rc = run_batch(e, &io, st);
        if (!rc) pace_learn(&e->pace, e->n_decoding, e->n_rows - e->n_decoding, (double)(e->clock() - start) * 1e-9);
        e->stats.steps++;
        if (!rc) e->stats.computed_rows += (uint64_t)e->n_rows;
    }
    for (int i = 0; i < n; i++) {
        if (rc) session_fail(e->owners[i], st);
        else if (session_finish(e->owners[i]) != FINISH_ERROR) kv_seq_share(e->owners[i]->seq, e->owners[i]->ids);
        tell_progress(e->owners[i]);
    }
    for (session *s = e->sessions; s; s = s->next)
        if (s->forked_from) session_join_leader(s);
    end_finished(e);
    return rc;
}

typedef struct feed_job {
    engine *e;
    feed_logits_fn *on_logits;
    void *user;
    status st; /* of the first row whose logits are none, or of the first sequence that is lost */
} feed_job;

static int feed_wait(void *user, int layer, int seq, status *st)
{
    const feed_job *j = user;
    return wait_for_kv(j->e, layer, seq, st);
}

static void feed_lost(void *user, int seq, const status *st)
{
    feed_job *j = user;
    (void)seq;
    if (j->st.code == ST_OK) j->st = *st;
}

static void read_feed(void *user, int row, const float *logits, int worker)
{
    engine *e = ((feed_job *)user)->e;
    e->finite[row] = sampler_read(e->scratch[worker], logits);
}

static void tell_feed(void *user, int row, const float *logits)
{
    feed_job *j = user;
    const batch_row *r = &j->e->rows[row];
    if (j->st.code == ST_OK && check_logits(j->e, row, &j->st) == ST_OK)
        j->on_logits(j->user, r->seq, r->position, logits);
}

int engine_feed(engine *e, const feed *feeds, int n_feeds, feed_logits_fn *on_logits, void *user, status *st)
{
    assert(n_feeds >= 1 && n_feeds <= e->max_running);
    e->n_rows = e->n_seqs = 0;
    for (int i = 0; i < n_feeds; i++) {
        assert(feeds[i].n >= 1 && e->n_rows + feeds[i].n <= e->chunk);
        if (engine_add_rows(e, feeds[i].seq, feeds[i].ids, feeds[i].n, feeds[i].all_logits, st)) {
            take_back(e);
            return st->code;
        }
        e->rows[e->n_rows - 1].wants_logits = true;
    }
    feed_job j = {e, on_logits, user, STATUS_INIT};
    forward_io io = {.layer_end = e->model->params.n_layers,
                     .each_logits = read_feed,
                     .on_logits = on_logits ? tell_feed : NULL,
                     .kv_wait = e->kv_wait ? feed_wait : NULL,
                     .on_lost = feed_lost,
                     .user = &j};
    if (run_batch(e, &io, st)) return st->code;
    if (j.st.code == ST_OK) return ST_OK;
    take_back(e);
    *st = j.st;
    return st->code;
}
