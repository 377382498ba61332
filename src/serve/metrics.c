#include "serve/metrics.h"

static const double long_seconds[] = {.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600};
static const double short_seconds[] = {.001, .0025, .005, .01, .02, .03, .05, .075, .1,
                                       .15,  .2,    .3,   .5,  .75, 1,   2.5, 5};
static const double tokens[] = {1,    2,    5,   10,  20,  50,  100, 200, 500, 1000,
                                2000, 5000, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6};

const double *histogram_bounds(histogram_id id, int *n)
{
    switch (id) {
    case HISTOGRAM_ITL:
    case HISTOGRAM_STEP: *n = sizeof short_seconds / sizeof *short_seconds; return short_seconds;
    case HISTOGRAM_PROMPT_TOKENS:
    case HISTOGRAM_GENERATED_TOKENS: *n = sizeof tokens / sizeof *tokens; return tokens;
    default: *n = sizeof long_seconds / sizeof *long_seconds; return long_seconds;
    }
}

void metrics_init(metrics *m)
{
    *m = (metrics){0};
    pthread_mutex_init(&m->lock, NULL);
}

void metrics_deinit(metrics *m)
{
    pthread_mutex_destroy(&m->lock);
}

static void observe(metrics_values *v, histogram_id id, double value)
{
    int n, i = 0;
    const double *bounds = histogram_bounds(id, &n);
    histogram *h = &v->histograms[id];
    while (i < n && value > bounds[i]) i++;
    h->buckets[i]++;
    h->count++;
    h->sum += value;
}

void metrics_observe(metrics *m, histogram_id id, double value)
{
    pthread_mutex_lock(&m->lock);
    observe(&m->values, id, value);
    pthread_mutex_unlock(&m->lock);
}

void metrics_finish(metrics *m, finish_reason reason, const session_stats *s, double seconds, bool first)
{
    pthread_mutex_lock(&m->lock);
    metrics_values *v = &m->values;
    v->finished[reason]++;
    observe(v, HISTOGRAM_E2E, seconds);
    if (s->admitted) observe(v, HISTOGRAM_QUEUE, s->queue_s);
    observe(v, HISTOGRAM_GENERATED_TOKENS, (double)s->generated_tokens);
    if (s->generated_tokens) {
        observe(v, HISTOGRAM_PREFILL, s->prefill_s);
        observe(v, HISTOGRAM_DECODE, s->decode_s);
    }
    if (first) observe(v, HISTOGRAM_PROMPT_TOKENS, (double)s->prompt_tokens);
    pthread_mutex_unlock(&m->lock);
}

void metrics_response(metrics *m, int code)
{
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < METRICS_CODES; i++) {
        if (m->values.responses[i].code && m->values.responses[i].code != code) continue;
        m->values.responses[i].code = code;
        m->values.responses[i].count++;
        break;
    }
    pthread_mutex_unlock(&m->lock);
}

void metrics_publish(metrics *m, const metrics_gauges *g)
{
    pthread_mutex_lock(&m->lock);
    m->values.gauges = *g;
    pthread_mutex_unlock(&m->lock);
}

double metrics_kv_usage(const metrics_gauges *g)
{
    double most = 0;
    for (int i = 0; i < g->n_groups; i++) {
        const pool_counts *c = &g->blocks[i];
        double used = c->total ? (double)(c->in_use + c->in_flight) / (double)c->total : 0;
        if (used > most) most = used;
    }
    return most;
}

double metrics_mean(metrics *m, histogram_id id)
{
    pthread_mutex_lock(&m->lock);
    const histogram *h = &m->values.histograms[id];
    double mean = h->count ? h->sum / (double)h->count : 0;
    pthread_mutex_unlock(&m->lock);
    return mean;
}

void metrics_read(metrics *m, metrics_values *out)
{
    pthread_mutex_lock(&m->lock);
    *out = m->values;
    pthread_mutex_unlock(&m->lock);
}
