#include "serve/engine_loop.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "serve/kv_json.h"

#define LOG_NS ((int64_t)10 * 1000000000)
#define AUDIT_PAUSE 19 /* times as long as an audit took until the next one: at most a twentieth of the engine's time */

struct engine_loop {
    engine *e;
    const served_model *m;
    metrics *figures;
    const log_sink *log;

    pthread_mutex_t lock; /* the next ones */
    pthread_cond_t work;
    job *incoming, **incoming_end;
    int n_choices; /* submitted, not yet over */
    bool draining, over;
    int64_t deadline_ns;
    job *audits; /* those that wait for one */

    pthread_mutex_t report_lock; /* the next ones: as they were after the last step */
    kv_report report;
    char audit[512];    /* what the last one found */
    int64_t audited_ns; /* 0 = there was none */

    /* The engine's thread. */
    job *running, *dirty;
    int64_t next_audit_ns;
    engine_stats logged;
    int64_t logged_ns; /* 0: idle since */
};

int engine_loop_new(engine_loop **out, engine *e, const served_model *m, metrics *figures, const log_sink *log,
                    status *st)
{
    engine_loop *l = mem_calloc(1, sizeof *l);
    if (!l) return status_nomem(st, sizeof *l);
    *l = (engine_loop){.e = e, .m = m, .figures = figures, .log = log, .audit = "not made yet"};
    if (kv_report_init(&l->report, e, m->max_choices, st)) {
        mem_free(l);
        return st->code;
    }
    kv_report_take(&l->report, NULL);
    pthread_mutex_init(&l->lock, NULL);
    pthread_mutex_init(&l->report_lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&l->work, &monotonic);
    pthread_condattr_destroy(&monotonic);
    l->incoming_end = &l->incoming;
    *out = l;
    return ST_OK;
}

void engine_loop_free(engine_loop *l)
{
    if (!l) return;
    pthread_mutex_destroy(&l->lock);
    pthread_mutex_destroy(&l->report_lock);
    pthread_cond_destroy(&l->work);
    kv_report_deinit(&l->report);
    mem_free(l);
}

int engine_loop_submit(engine_loop *l, job *j, api_error *e)
{
    int rc = 0, n = (int)j->n_choices;
    pthread_mutex_lock(&l->lock);
    if (l->draining) rc = api_error_set(e, 503, "shutting_down", NULL, "the server is shutting down");
    else if (n > l->m->max_choices - l->n_choices)
        rc = api_error_set(e, 429, "queue_full", NULL,
                           "%d answers are being made or wait, and %d are the most; try again later", l->n_choices,
                           l->m->max_choices);
    else {
        l->n_choices += n;
        *l->incoming_end = job_ref(j);
        l->incoming_end = &j->next;
        pthread_cond_signal(&l->work);
    }
    pthread_mutex_unlock(&l->lock);
    return rc;
}

void engine_loop_drain(engine_loop *l, double timeout_s)
{
    int64_t deadline = clock_ns() + (int64_t)(timeout_s * 1e9);
    pthread_mutex_lock(&l->lock);
    if (!l->draining || deadline < l->deadline_ns) l->deadline_ns = deadline;
    l->draining = true;
    pthread_cond_signal(&l->work);
    pthread_mutex_unlock(&l->lock);
}

void engine_loop_audit(engine_loop *l, job *j)
{
    pthread_mutex_lock(&l->lock);
    bool over = l->over;
    if (!over) {
        j->next = l->audits;
        l->audits = job_ref(j);
        pthread_cond_signal(&l->work);
    }
    pthread_mutex_unlock(&l->lock);
    if (over) job_set_state(j, JOB_DONE);
}

void engine_loop_report(engine_loop *l, bool with_audit, strbuf *out)
{
    status st = STATUS_INIT;
    kv_report r;
    char audit[sizeof l->audit];
    if (kv_report_init(&r, l->e, l->m->max_choices, &st)) {
        out->failed = true;
        return;
    }
    pthread_mutex_lock(&l->report_lock);
    kv_report_copy(&r, &l->report);
    memcpy(audit, l->audit, sizeof audit);
    int64_t audited_ns = l->audited_ns;
    pthread_mutex_unlock(&l->report_lock);
    kv_report_json(out, &r, with_audit ? audit : NULL, audited_ns ? (double)(clock_ns() - audited_ns) * 1e-9 : 0);
    kv_report_deinit(&r);
}

static void cancel_all(job *list)
{
    for (job *j = list; j; j = j->next) atomic_store(&j->cancelled, true);
}

/* Returns whether a pin has run out meanwhile. */
static bool sleep_idle(engine_loop *l)
{
    int64_t end_ns = engine_expire_pins(l->e);
    l->logged_ns = 0;
    if (!end_ns) return pthread_cond_wait(&l->work, &l->lock), false;
    struct timespec end = {.tv_sec = end_ns / 1000000000, .tv_nsec = end_ns % 1000000000};
    return pthread_cond_timedwait(&l->work, &l->lock, &end) == ETIMEDOUT;
}

/* Sleeps until there is something to do; false when there never will be. The jobs that came are taken out. */
static bool wait_for_work(engine_loop *l, job **incoming)
{
    bool unpinned = false;
    pthread_mutex_lock(&l->lock);
    while (!l->incoming && !l->running && !l->draining && !l->audits && !unpinned) unpinned = sleep_idle(l);
    *incoming = l->incoming;
    l->incoming = NULL;
    l->incoming_end = &l->incoming;
    bool late = l->draining && clock_ns() >= l->deadline_ns, audits = l->audits != NULL;
    l->over = l->draining && !*incoming && !l->running && !audits;
    bool over = l->over;
    pthread_mutex_unlock(&l->lock);
    if (late) {
        cancel_all(l->running);
        cancel_all(*incoming);
    }
    return !over;
}

/* Its connection is to be woken after the step. */
static void mark_dirty(engine_loop *l, job *j)
{
    if (j->dirty) return;
    j->dirty = true;
    j->next_dirty = l->dirty;
    l->dirty = job_ref(j);
}

/* It has something new: of interest to a stream at once, to others at the end. */
static void mark_grown(engine_loop *l, job *j)
{
    if (j->request.stream) mark_dirty(l, j);
}

/* After the step, since the team has the processors while it runs. */
static void wake_dirty(engine_loop *l)
{
    while (l->dirty) {
        job *j = l->dirty;
        l->dirty = j->next_dirty;
        j->dirty = false;
        job_wake(j);
        job_unref(j);
    }
}

static bool ends_text(const job *j, const tokenizer *tok, int32_t id)
{
    const generate_params *p = &j->request.params;
    if (!p->ignore_eos && tokenizer_is_end(tok, id)) return true;
    for (int i = 0; i < p->n_stop_tokens; i++)
        if (p->stop_tokens[i] == id) return true;
    return false;
}

static void on_token(void *user, const token_event *t)
{
    choice *c = user;
    job *j = c->job;
    engine_loop *l = c->loop;
    int64_t now = clock_ns();
    if (c->last_ns) metrics_observe(l->figures, HISTOGRAM_ITL, (double)(now - c->last_ns) * 1e-9);
    else metrics_observe(l->figures, HISTOGRAM_TTFT, (double)(now - j->submitted_ns) * 1e-9);
    c->last_ns = now;
    bool record = j->request.logprobs && !ends_text(j, l->m->m->tok, t->token);
    pthread_mutex_lock(&j->lock);
    bool kept = choice_add(c, t, record);
    pthread_mutex_unlock(&j->lock);
    if (!kept) c->out_of_memory = true;
    if (!kept) session_cancel(c->session);
    mark_grown(l, j);
}

static void on_prompt_token(void *user, const token_event *t)
{
    choice *c = user;
    job *j = c->job;
    pthread_mutex_lock(&j->lock);
    bool kept = token_record_add(&j->prompts[c->prompt].tokens, t);
    pthread_mutex_unlock(&j->lock);
    if (!kept) c->out_of_memory = true;
    if (!kept) session_cancel(c->session);
}

/* The first choice of a prompt computes it, the others branch off. */
static int start_choice(engine_loop *l, choice *c, session *leader, status *st)
{
    job *j = c->job;
    job_prompt *p = &j->prompts[c->prompt];
    session_callbacks cb = {.on_token = on_token, .user = c};
    c->loop = l;
    if (session_new(&c->session, l->e, st)) return st->code;
    if (leader) return session_fork(c->session, leader, c->number, &cb, st);
    cb.on_prompt_token = on_prompt_token;
    return session_start(c->session, p->ids.ids, p->ids.n, &j->request.params, &cb, st);
}

static int start_choices(engine_loop *l, job *j, status *st)
{
    session *leader = NULL;
    for (size_t i = 0; i < j->n_choices; i++) {
        choice *c = &j->choices[i];
        if (c->number == 0) leader = NULL;
        if (start_choice(l, c, leader, st)) return st->code;
        if (c->number == 0) leader = c->session;
    }
    return ST_OK;
}

/* No session of it is left: tells its connection, and releases it. */
static void end_job(engine_loop *l, job *j)
{
    pthread_mutex_lock(&j->lock);
    if (j->state != JOB_FAILED) j->state = JOB_DONE;
    j->last_output_ns = clock_ns();
    pthread_mutex_unlock(&j->lock);
    pthread_mutex_lock(&l->lock);
    l->n_choices -= (int)j->n_choices;
    pthread_mutex_unlock(&l->lock);
    mark_dirty(l, j);
    job_unref(j); /* submit's reference */
}

static void start_job(engine_loop *l, job *j)
{
    status st = STATUS_INIT;
    api_error e;
    if (!atomic_load(&j->cancelled) && start_choices(l, j, &st) == ST_OK) {
        pthread_mutex_lock(&j->lock);
        j->state = JOB_STARTED;
        pthread_mutex_unlock(&j->lock);
        j->next = l->running;
        l->running = j;
        mark_grown(l, j);
        return;
    }
    for (size_t i = 0; i < j->n_choices; i++) {
        session_free(j->choices[i].session);
        j->choices[i].session = NULL;
    }
    if (st.code) api_error_from_status(&e, &st);
    else api_error_set(&e, 503, "shutting_down", NULL, "the server is shutting down");
    job_fail(j, &e);
    end_job(l, j);
}

static void start_jobs(engine_loop *l, job *incoming)
{
    while (incoming) {
        job *j = incoming;
        incoming = j->next;
        j->next = NULL;
        start_job(l, j);
    }
}

/* Somebody has left, or the server does. */
static void cancel_jobs(engine_loop *l)
{
    for (const job *j = l->running; j; j = j->next)
        if (atomic_load(&j->cancelled))
            for (size_t i = 0; i < j->n_choices; i++)
                if (j->choices[i].session) session_cancel(j->choices[i].session);
}

/* An answer that didn't end by itself is an error to whoever still listens. */
static api_error end_error(const choice *c)
{
    api_error e = {0};
    finish_reason finish = session_finish(c->session);
    if (c->out_of_memory) api_error_nomem(&e);
    else if (finish == FINISH_ERROR) api_error_from_status(&e, session_error(c->session));
    else if (finish == FINISH_CANCELLED)
        api_error_set(&e, 503, "shutting_down", NULL, "the server is shutting down; the answer was cut off");
    if (e.http_status == 400) e.http_status = 500; /* it was accepted: no longer the client's */
    return e;
}

/* How it ended and that it failed are said at once: nobody sees the end of an answer that failed without its error. */
static void end_choice(engine_loop *l, choice *c)
{
    job *j = c->job;
    api_error e = end_error(c);
    pthread_mutex_lock(&j->lock);
    c->finish = session_finish(c->session);
    c->stats = session_get_stats(c->session);
    j->n_open--;
    if (e.http_status) job_fail_locked(j, &e);
    pthread_mutex_unlock(&j->lock);
    if (e.http_status) atomic_store(&j->cancelled, true); /* the other choices end with it */
    metrics_finish(l->figures, c->finish, &c->stats, (double)(clock_ns() - j->submitted_ns) * 1e-9, c->number == 0);
    session_free(c->session);
    c->session = NULL;
    mark_grown(l, j);
}

static void collect(engine_loop *l)
{
    job **at = &l->running;
    while (*at) {
        job *j = *at;
        for (size_t i = 0; i < j->n_choices; i++) {
            choice *c = &j->choices[i];
            if (c->session && !session_active(c->session)) end_choice(l, c);
        }
        if (j->n_open == 0) {
            *at = j->next;
            end_job(l, j);
        } else at = &j->next;
    }
}

static metrics_gauges read_gauges(const engine *e, const engine_stats *s)
{
    metrics_gauges g = {.engine = *s};
    const kv_cache *c = engine_cache(e);
    g.n_groups = kv_cache_n_groups(c);
    for (int i = 0; i < g.n_groups; i++) g.blocks[i] = pool_count(kv_cache_pool(c, i));
    if (kv_cache_tree(c)) g.tree = kv_tree_count(kv_cache_tree(c));
    return g;
}

static void publish(engine_loop *l, const engine_stats *s)
{
    metrics_gauges g = read_gauges(l->e, s);
    metrics_publish(l->figures, &g);
    pthread_mutex_lock(&l->report_lock);
    kv_report_take(&l->report, l->running);
    pthread_mutex_unlock(&l->report_lock);
}

/* Blocks and references are recounted, unless that was just done; who waits for it is told of the last one. */
static void audit(engine_loop *l)
{
    pthread_mutex_lock(&l->lock);
    job *asked = l->audits;
    l->audits = NULL;
    pthread_mutex_unlock(&l->lock);
    int64_t began = clock_ns();
    if (asked && began >= l->next_audit_ns) {
        status st = STATUS_INIT;
        const char *found = kv_cache_audit(engine_cache(l->e), &st) ? st.text : "clean";
        int64_t ended = clock_ns();
        l->next_audit_ns = ended + AUDIT_PAUSE * (ended - began);
        pthread_mutex_lock(&l->report_lock);
        snprintf(l->audit, sizeof l->audit, "%s", found);
        l->audited_ns = ended;
        pthread_mutex_unlock(&l->report_lock);
    }
    for (job *j; (j = asked);) {
        asked = j->next;
        j->next = NULL;
        job_set_state(j, JOB_DONE);
        mark_dirty(l, j);
        job_unref(j);
    }
}

/* A line every ten seconds of work: what the loop waited while idle is left out (engine_loop_run). */
static void write_log(engine_loop *l, const engine_stats *now)
{
    int64_t t = clock_ns();
    if (!l->logged_ns) {
        l->logged_ns = t;
        l->logged = *now;
    }
    if (t - l->logged_ns < LOG_NS) return;
    double s = (double)(t - l->logged_ns) * 1e-9;
    const engine_stats *before = &l->logged;
    uint64_t prompt = now->prompt_tokens - before->prompt_tokens, reused = now->reused_tokens - before->reused_tokens;
    metrics_gauges g = read_gauges(l->e, now);
    log_line(l->log, LOG_LEVEL_INFO,
             "%d running, %d waiting; %.0f prompt tokens/s (%.0f%% from the cache), %.1f answered; %.0f%% of the "
             "cache in use",
             now->running, now->waiting, (double)prompt / s, prompt ? 100.0 * (double)reused / (double)prompt : 0.0,
             (double)(now->generated_tokens - before->generated_tokens) / s,
             100.0 * metrics_kv_usage(&g));
    l->logged_ns = t;
    l->logged = *now;
}

void engine_loop_run(engine_loop *l)
{
    job *incoming;
    engine_stats now = engine_get_stats(l->e);
    publish(l, &now);
    for (;;) {
        int64_t waits_ns = clock_ns();
        if (!wait_for_work(l, &incoming)) break;
        if (l->logged_ns) l->logged_ns += clock_ns() - waits_ns;
        engine_expire_pins(l->e);
        start_jobs(l, incoming);
        cancel_jobs(l);
        status st = STATUS_INIT;
        int64_t began = clock_ns();
        uint64_t steps = now.steps;
        bool stepped = engine_n_active(l->e) > 0;
        if (stepped && engine_step(l->e, &st)) log_line(l->log, LOG_LEVEL_ERROR, "a step failed: %s", st.text);
        int64_t ended = clock_ns();
        collect(l);
        now = engine_get_stats(l->e);
        if (now.steps > steps) metrics_observe(l->figures, HISTOGRAM_STEP, (double)(ended - began) * 1e-9);
        publish(l, &now);
        audit(l);
        wake_dirty(l);
        if (l->running) write_log(l, &now);
    }
}
