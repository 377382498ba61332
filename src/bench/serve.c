#include "bench/serve.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "engine/usage.h"

#define MAX_SESSIONS 4096

const char *serve_baseline_name(serve_baseline b)
{
    static const char *const names[] = {"shared", "paged", "contiguous"};
    return names[b];
}

double serve_waste_percent(const serve_result *r, double part)
{
    double held = r->used + r->internal + r->reserved + r->external;
    return held > 0 ? part / held * 100 : 0;
}

/* As many as can be under way at once. */
static int n_sessions(const workload *w, const serve_config *c)
{
    int n = c->rate > 0 ? w->n_answers : c->clients * w->max_branches;
    if (n > w->n_answers) n = w->n_answers;
    return n < MAX_SESSIONS ? n : MAX_SESSIONS;
}

engine_config serve_engine_config(const workload *w, const serve_config *c, int context)
{
    return (engine_config){.context = context,
                           .n_sessions = n_sessions(w, c),
                           .no_sharing = c->baseline != SERVE_SHARED,
                           .reserve = c->baseline == SERVE_CONTIGUOUS};
}

typedef struct driver driver;

/* One answer to an item. */
typedef struct branch {
    driver *d;
    const work_item *item;
    int32_t *tokens; /* [item->n_answer] */
    int n;
    double logprob; /* of all tokens together */
    int64_t first_ns, last_ns;
    session *s;
} branch;

typedef enum item_state { ITEM_WAITS, ITEM_RUNS, ITEM_DONE, ITEM_FAILED } item_state;

typedef struct item_progress {
    item_state state;
    int n_left;     /* branches that go on */
    int64_t due_ns; /* 0 = not known yet: what it follows goes on */
} item_progress;

struct driver {
    engine *e;
    const workload *w;
    const serve_config *c;
    serve_result *out;
    item_progress *items; /* [w->n_items] */
    branch *branches;     /* [w->n_answers] */
    int32_t *tokens;      /* [w->answer_tokens] */
    double *gaps;         /* [w->answer_tokens] between tokens */
    size_t n_gaps;
    int32_t *prompt;    /* [w->longest] */
    session **sessions; /* [n_sessions]; the first n_idle are free */
    int n_sessions, n_idle;
    int first_open, n_items_running; /* items before first_open have started */
    int n_over;                      /* answers */
    int64_t start_ns;
    serve_tick_fn *tick;
    void *user;
};

static item_progress *progress_of(const driver *d, const work_item *item)
{
    return &d->items[item - d->w->items];
}

static bool is_whole(const branch *b)
{
    return b->n == b->item->n_answer;
}

static void take_token(void *user, const token_event *t)
{
    branch *b = user;
    driver *d = b->d;
    int64_t now = clock_ns();
    if (b->n == 0) b->first_ns = now;
    else d->gaps[d->n_gaps++] = (double)(now - b->last_ns) * 1e-9;
    b->last_ns = now;
    b->tokens[b->n++] = t->token;
    b->logprob += t->logprob;
    if (is_whole(b)) session_cancel(b->s);
}

static void finish(void *user, finish_reason reason)
{
    branch *b = user;
    driver *d = b->d;
    item_progress *p = progress_of(d, b->item);
    (void)reason; /* a whole answer was cancelled here, or ended where the context does */
    d->sessions[d->n_idle++] = b->s;
    b->s = NULL;
    d->n_over++;
    if (is_whole(b)) d->out->n_finished++;
    else d->out->n_failed++, p->state = ITEM_FAILED;
    if (--p->n_left > 0) return;
    if (p->state == ITEM_RUNS) p->state = ITEM_DONE;
    d->n_items_running--;
    d->tick(d->user, d->n_over);
}

/* The answer of that rank, the most likely one first, of equal ones the earlier. */
static const branch *ranked(const driver *d, const work_item *item, int rank)
{
    const branch *all = d->branches + item->first_answer;
    for (int i = 0; i < item->n_branches; i++) {
        int better = 0;
        for (int k = 0; k < item->n_branches; k++)
            better += all[k].logprob > all[i].logprob || (k < i && all[k].logprob == all[i].logprob);
        if (better == rank) return &all[i];
    }
    return NULL;
}

/* From the end: own tokens, the answer that they follow, and what that one's prompt was. */
static void write_prompt(const driver *d, const work_item *item)
{
    int32_t *end = d->prompt + item->n_prompt;
    for (;;) {
        end -= item->n_ids;
        memcpy(end, d->w->ids + item->first, (size_t)item->n_ids * sizeof *end);
        if (item->follows == WORK_NOTHING) return;
        const work_item *before = &d->w->items[item->follows];
        end -= before->n_answer;
        memcpy(end, ranked(d, before, item->rank)->tokens, (size_t)before->n_answer * sizeof *end);
        item = before;
    }
}

static generate_params params_of(const driver *d, const work_item *item)
{
    generate_params p = {.sampling = sampler_defaults(), .max_tokens = -1, .ignore_eos = true, .n_logprobs = -1};
    p.sampling.temperature = d->c->temperature;
    p.sampling.seed = d->c->seed;
    if (d->c->temperature > 0) { /* nothing is filtered, as by OpenAI's defaults */
        p.sampling.top_k = 0;
        p.sampling.top_p = 1;
        p.sampling.min_p = 0;
    }
    if (item->n_branches > 1) {
        if (d->c->temperature == 0) p.sampling.temperature = 1; /* greedy branches would all be the same */
        p.n_logprobs = 0;                                       /* they are ranked */
    }
    return p;
}

static void start_item(driver *d, const work_item *item)
{
    generate_params p = params_of(d, item);
    write_prompt(d, item);
    session *leader = NULL;
    item_progress *now = progress_of(d, item);
    now->state = ITEM_RUNS;
    now->n_left = item->n_branches;
    d->n_items_running++;
    for (int i = 0; i < item->n_branches; i++) {
        branch *b = &d->branches[item->first_answer + (size_t)i];
        session_callbacks cb = {.on_token = take_token, .on_finish = finish, .user = b};
        status st = STATUS_INIT;
        b->s = d->sessions[--d->n_idle];
        p.sampling.choice = (uint32_t)i;
        if (leader && d->c->baseline == SERVE_SHARED) session_fork(b->s, leader, (uint32_t)i, &cb, &st);
        else session_start(b->s, d->prompt, (size_t)item->n_prompt, &p, &cb, &st);
        if (st.code) finish(b, FINISH_ERROR);
        else if (!leader) leader = b->s;
    }
}

/* Whether the item's time has come. Until it has, *next_ns may become that time. */
static bool is_due(driver *d, const work_item *item, int64_t now, int64_t *next_ns)
{
    item_progress *p = progress_of(d, item);
    if (item->follows == WORK_NOTHING) p->due_ns = d->start_ns + (int64_t)(item->arrival_s * 1e9);
    else if (d->items[item->follows].state != ITEM_DONE) return false;
    else if (!p->due_ns) p->due_ns = now;
    if (p->due_ns <= now) return true;
    if (p->due_ns < *next_ns) *next_ns = p->due_ns;
    return false;
}

/* Starts what is due and has a client; *next_ns: when the next one will be, INT64_MAX where only answers can tell. */
static void start_items(driver *d, int64_t *next_ns)
{
    int64_t now = clock_ns();
    *next_ns = INT64_MAX;
    while (d->first_open < d->w->n_items && d->items[d->first_open].state != ITEM_WAITS) d->first_open++;
    for (int i = d->first_open; i < d->w->n_items; i++) {
        const work_item *item = &d->w->items[i];
        if (d->items[i].state != ITEM_WAITS) continue;
        if (item->follows != WORK_NOTHING && d->items[item->follows].state == ITEM_FAILED) {
            d->items[i].state = ITEM_FAILED;
            d->n_over += item->n_branches;
            d->out->n_dropped += item->n_branches;
            continue;
        }
        if (!is_due(d, item, now, next_ns)) continue;
        bool client = d->c->rate > 0 || d->n_items_running < d->c->clients;
        if (!client || d->n_idle < item->n_branches) return;
        if (d->c->rate == 0) d->items[i].due_ns = now; /* the client asks only now */
        start_item(d, item);
    }
}

static void sample(driver *d)
{
    serve_result *r = d->out;
    engine_usage u = engine_get_usage(d->e);
    int running = engine_get_stats(d->e).running;
    r->running += running;
    if (running > r->max_running) r->max_running = running;
    r->used += (double)u.used_bytes;
    r->internal += (double)u.internal_bytes;
    r->reserved += (double)u.reserved_bytes;
    r->external += (double)u.external_bytes;
}

static int drive(driver *d, status *st)
{
    d->start_ns = clock_ns();
    while (d->n_over < d->w->n_answers) {
        int64_t next_ns, now;
        start_items(d, &next_ns);
        if (engine_n_active(d->e)) {
            if (engine_step(d->e, st)) return st->code;
            sample(d);
        } else if (next_ns != INT64_MAX && next_ns > (now = clock_ns())) {
            nanosleep(&(struct timespec){(next_ns - now) / 1000000000, (next_ns - now) % 1000000000}, NULL);
        }
    }
    d->out->seconds = (double)(clock_ns() - d->start_ns) * 1e-9;
    return ST_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts v. */
static serve_quantiles quantiles(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return n ? (serve_quantiles){v[n / 2], v[n * 9 / 10], v[n * 99 / 100]} : (serve_quantiles){0};
}

static int sum_up_times(driver *d, status *st)
{
    serve_result *r = d->out;
    size_t n = 0, n_tpot = 0;
    double *ttft = mem_array((size_t)d->w->n_answers * 2, sizeof *ttft);
    if (!ttft) return status_nomem(st, (uint64_t)d->w->n_answers * 2 * sizeof *ttft);
    double *tpot = ttft + d->w->n_answers;
    for (int i = 0; i < d->w->n_answers; i++) {
        const branch *b = &d->branches[i];
        if (!is_whole(b)) continue;
        double first = (double)(b->first_ns - progress_of(d, b->item)->due_ns) * 1e-9;
        double each = b->n > 1 ? (double)(b->last_ns - b->first_ns) * 1e-9 / (b->n - 1) : 0;
        ttft[n++] = first;
        if (b->n > 1) tpot[n_tpot++] = each;
        r->n_within_slo += first <= d->c->slo_ttft_s && each <= d->c->slo_tpot_s;
    }
    r->ttft = quantiles(ttft, n);
    r->tpot = quantiles(tpot, n_tpot);
    r->itl = quantiles(d->gaps, d->n_gaps);
    mem_free(ttft);
    return ST_OK;
}

static int sum_up(driver *d, status *st)
{
    serve_result *r = d->out;
    engine_stats s = engine_get_stats(d->e);
    hash_stream *h;
    r->prompt_tokens = s.prompt_tokens;
    r->reused_tokens = s.reused_tokens;
    r->output_tokens = s.generated_tokens;
    r->computed_rows = s.computed_rows;
    r->preemptions = s.preemptions;
    r->steps = s.steps;
    r->running /= s.steps ? (double)s.steps : 1;
    if (hash_new(&h, st)) return st->code;
    for (int i = 0; i < d->w->n_answers; i++)
        hash_update(h, d->branches[i].tokens, (size_t)d->branches[i].n * sizeof *d->branches[i].tokens);
    r->hash = hash_value(h);
    hash_free(h);
    return sum_up_times(d, st);
}

static int open_driver(driver *d, status *st)
{
    const workload *w = d->w;
    size_t n_answers = (size_t)w->n_answers, n_tokens = (size_t)w->answer_tokens;
    d->items = mem_calloc((size_t)w->n_items, sizeof *d->items);
    d->branches = mem_calloc(n_answers, sizeof *d->branches);
    d->tokens = mem_array(n_tokens, sizeof *d->tokens);
    d->gaps = mem_array(n_tokens, sizeof *d->gaps);
    d->prompt = mem_array((size_t)w->longest, sizeof *d->prompt);
    d->n_sessions = n_sessions(w, d->c);
    d->sessions = mem_calloc((size_t)d->n_sessions, sizeof *d->sessions);
    if (!d->items || !d->branches || !d->tokens || !d->gaps || !d->prompt || !d->sessions)
        return status_nomem(st, n_tokens * sizeof *d->gaps);
    int32_t *tokens = d->tokens;
    for (int i = 0; i < w->n_items; i++)
        for (int k = 0; k < w->items[i].n_branches; k++, tokens += w->items[i].n_answer)
            d->branches[w->items[i].first_answer + (size_t)k] =
                (branch){.d = d, .item = &w->items[i], .tokens = tokens};
    for (; d->n_idle < d->n_sessions; d->n_idle++)
        if (session_new(&d->sessions[d->n_idle], d->e, st)) return st->code;
    return ST_OK;
}

/* Sessions that are not idle go first: their callbacks know their branches. */
static void close_driver(driver *d)
{
    for (int i = 0; d->branches && i < d->w->n_answers; i++) session_free(d->branches[i].s);
    for (int i = 0; i < d->n_idle; i++) session_free(d->sessions[i]);
    mem_free(d->items);
    mem_free(d->branches);
    mem_free(d->tokens);
    mem_free(d->gaps);
    mem_free(d->prompt);
    mem_free(d->sessions);
}

/* Pages of weights and buffers come in before the clock runs. */
static int warm_up(engine *e, const workload *w, status *st)
{
    kv_seq *seq;
    int n = w->items[0].n_ids < engine_chunk(e) ? w->items[0].n_ids : engine_chunk(e);
    if (kv_seq_new(&seq, engine_cache(e), st)) return st->code;
    feed f = {seq, w->ids + w->items[0].first, n, false};
    engine_feed(e, &f, 1, NULL, NULL, st);
    kv_seq_free(seq);
    return st->code;
}

int serve_run(serve_result *out, engine *e, const workload *w, const serve_config *c, serve_tick_fn *tick, void *user,
              status *st)
{
    driver d = {.e = e, .w = w, .c = c, .out = out, .tick = tick, .user = user};
    *out = (serve_result){.baseline = c->baseline,
                          .context = engine_context(e),
                          .cache_bytes = kv_cache_bytes(engine_cache(e)),
                          .n_answers = w->n_answers};
    int rc = open_driver(&d, st);
    if (!rc) rc = warm_up(e, w, st);
    if (!rc) rc = drive(&d, st);
    if (!rc) rc = sum_up(&d, st);
    close_driver(&d);
    return rc;
}
