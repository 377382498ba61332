#include "engine/sampler.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "engine/candidates.h"
#include "engine/random.h"

/* A row of logits, and the largest of each span; NULL where one is NaN or +infinity. */
typedef struct view {
    const float *logits, *span_max;
} view;

struct sampler_scratch {
    const kernels *ks;
    int n_vocab, n_spans, max_history;
    view row;            /* what was read */
    float *row_span_max; /* [n_spans] of it */
    float *logits;       /* [n_vocab] with biases and penalties */
    float *span_max;     /* [n_spans] of those; NaN = to be looked up */
    int32_t *mark;       /* [n_vocab] zero between uses */
    int32_t *run;        /* [max_history] DRY: lengths of repeated runs */
    candidates cand;
};

struct sampler {
    sampler_params p; /* its arrays are copies */
    int n_vocab;
    int32_t *history; /* [2 * max_history]: the newest n_history, moved to the front when the end is reached */
    int n_history, first, max_history;
};

sampler_params sampler_defaults(void)
{
    return (sampler_params){.temperature = 0.8f,
                            .top_k = 40,
                            .top_p = 0.95f,
                            .min_p = 0.05f,
                            .typical_p = 1,
                            .repeat_penalty = 1,
                            .penalty_last_n = 64,
                            .dry_base = 1.75f,
                            .dry_allowed_length = 2,
                            .dry_last_n = -1,
                            .xtc_threshold = 0.1f};
}

typedef struct range {
    const char *name;
    double value, least, most;
} range;

int sampler_check(const sampler_params *p, int n_vocab, status *st)
{
    const range ranges[] = {
        {"temperature", p->temperature, 0, 100},
        {"top_k", p->top_k, 0, INT32_MAX},
        {"top_p", p->top_p, 0, 1},
        {"min_p", p->min_p, 0, 1},
        {"typical_p", p->typical_p, 0, 1},
        {"repeat_penalty", p->repeat_penalty, 0.01f, 100},
        {"presence_penalty", p->presence_penalty, -100, 100},
        {"frequency_penalty", p->frequency_penalty, -100, 100},
        {"penalty_last_n", p->penalty_last_n, -1, INT32_MAX},
        {"dry_multiplier", p->dry_multiplier, 0, 100},
        {"dry_base", p->dry_base, 1, 100},
        {"dry_allowed_length", p->dry_allowed_length, 0, INT32_MAX},
        {"dry_last_n", p->dry_last_n, -1, INT32_MAX},
        {"xtc_probability", p->xtc_probability, 0, 1},
        {"xtc_threshold", p->xtc_threshold, 0, 1},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (!(ranges[i].value >= ranges[i].least && ranges[i].value <= ranges[i].most))
            return status_set(st, ST_ARG, STATUS_NO_POS, "%s is %g; %g to %g is possible", ranges[i].name,
                              ranges[i].value, ranges[i].least, ranges[i].most);
    for (int i = 0; i < p->n_bias; i++) {
        if (p->bias[i].token < 0 || p->bias[i].token >= n_vocab)
            return status_set(st, ST_ARG, (uint64_t)i, "logit bias for token %d, which is not in the vocabulary of %d",
                              p->bias[i].token, n_vocab);
        if (isnan(p->bias[i].bias))
            return status_set(st, ST_ARG, (uint64_t)i, "logit bias for token %d is not a number", p->bias[i].token);
    }
    for (int i = 0; i < p->n_barred; i++)
        if (p->barred[i] < 0 || p->barred[i] >= n_vocab)
            return status_set(st, ST_ARG, (uint64_t)i, "the barred token %d is not in the vocabulary of %d",
                              p->barred[i], n_vocab);
    return ST_OK;
}

static void *copy(const void *p, size_t count, size_t size)
{
    void *q = mem_array(count, size);
    if (q && count) memcpy(q, p, count * size);
    return q;
}

int sampler_scratch_new(sampler_scratch **out, const kernels *ks, int n_vocab, int max_history, status *st)
{
    sampler_scratch *s = mem_calloc(1, sizeof *s);
    if (!s) return status_nomem(st, sizeof *s);
    s->ks = ks;
    s->n_vocab = n_vocab;
    s->n_spans = (n_vocab + SPAN - 1) / SPAN;
    s->max_history = max_history;
    s->row_span_max = mem_array((size_t)s->n_spans, sizeof *s->row_span_max);
    s->logits = mem_array((size_t)n_vocab, sizeof *s->logits);
    s->span_max = mem_array((size_t)s->n_spans, sizeof *s->span_max);
    s->mark = mem_calloc((size_t)n_vocab, sizeof *s->mark);
    s->run = mem_array((size_t)max_history, sizeof *s->run);
    if (candidates_init(&s->cand, ks, n_vocab) && s->row_span_max && s->logits && s->span_max && s->mark && s->run) {
        *out = s;
        return ST_OK;
    }
    sampler_scratch_free(s);
    return status_nomem(st, (uint64_t)n_vocab * 36);
}

void sampler_scratch_free(sampler_scratch *s)
{
    if (!s) return;
    candidates_deinit(&s->cand);
    mem_free(s->row_span_max);
    mem_free(s->logits);
    mem_free(s->span_max);
    mem_free(s->mark);
    mem_free(s->run);
    mem_free(s);
}

static bool has_penalties(const sampler_params *p)
{
    return p->repeat_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0;
}

int sampler_new(sampler **out, const sampler_params *p, int n_vocab, int max_history, status *st)
{
    if (sampler_check(p, n_vocab, st)) return st->code;
    sampler *s = mem_calloc(1, sizeof *s);
    if (!s) return status_nomem(st, sizeof *s);
    s->p = *p;
    s->n_vocab = n_vocab;
    s->max_history = has_penalties(p) || p->dry_multiplier != 0 ? max_history : 0;
    s->history = mem_array((size_t)s->max_history, 2 * sizeof *s->history);
    s->p.bias = copy(p->bias, (size_t)p->n_bias, sizeof *p->bias);
    s->p.dry_breakers = copy(p->dry_breakers, (size_t)p->n_dry_breakers, sizeof *p->dry_breakers);
    s->p.barred = copy(p->barred, (size_t)p->n_barred, sizeof *p->barred);
    if (s->history && s->p.bias && s->p.dry_breakers && s->p.barred) {
        *out = s;
        return ST_OK;
    }
    sampler_free(s);
    return status_nomem(st, (uint64_t)max_history * 8);
}

int sampler_clone(sampler **out, const sampler *s, status *st)
{
    if (sampler_new(out, &s->p, s->n_vocab, s->max_history, st)) return st->code;
    memcpy((*out)->history, s->history + s->first, (size_t)s->n_history * sizeof *s->history);
    (*out)->n_history = s->n_history;
    return ST_OK;
}

sampler_params sampler_get_params(const sampler *s)
{
    return s->p;
}

void sampler_free(sampler *s)
{
    if (!s) return;
    mem_free(s->history);
    mem_free((void *)(uintptr_t)s->p.bias);
    mem_free((void *)(uintptr_t)s->p.dry_breakers);
    mem_free((void *)(uintptr_t)s->p.barred);
    mem_free(s);
}

void sampler_reset(sampler *s)
{
    s->n_history = s->first = 0;
}

void sampler_accept(sampler *s, int32_t token)
{
    if (s->max_history == 0) return;
    if (s->first + s->n_history == 2 * s->max_history) {
        memmove(s->history, s->history + s->first, (size_t)s->n_history * sizeof *s->history);
        s->first = 0;
    }
    s->history[s->first + s->n_history] = token;
    if (s->n_history < s->max_history) s->n_history++;
    else s->first++;
}

/* The newest n tokens of the history (all for -1); *length says how many there are. */
static const int32_t *newest(const sampler *s, int n, int *length)
{
    *length = n < 0 || n > s->n_history ? s->n_history : n;
    return s->history + s->first + s->n_history - *length;
}

/* A logit that is about to change: the largest of its span is unknown until then. */
static float *changing(sampler_scratch *w, int32_t token)
{
    w->span_max[token / SPAN] = NAN;
    return &w->logits[token];
}

static void penalize(const sampler *s, sampler_scratch *w)
{
    const sampler_params *p = &s->p;
    if (!has_penalties(p)) return;
    int n;
    const int32_t *h = newest(s, p->penalty_last_n, &n);
    for (int i = 0; i < n; i++) w->mark[h[i]]++;
    for (int i = 0; i < n; i++) {
        int count = w->mark[h[i]];
        if (!count) continue;
        float *x = changing(w, h[i]);
        *x = *x > 0 ? *x / p->repeat_penalty : *x * p->repeat_penalty;
        *x -= p->presence_penalty + p->frequency_penalty * (float)count;
        w->mark[h[i]] = 0;
    }
}

/* How many of the newest tokens no breaker interrupts. */
static int unbroken(const sampler *s, const int32_t *h, int n)
{
    for (int i = 0; i < n; i++)
        for (int b = 0; b < s->p.n_dry_breakers; b++)
            if (h[n - 1 - i] == s->p.dry_breakers[b]) return i;
    return n;
}

/* run[i] = how many tokens before and including h[n - 1 - i] equal the newest ones: the Z function of the reversed
 * history. */
static void repeated_runs(int32_t *run, const int32_t *h, int n)
{
    const int32_t *last = h + n - 1;
    for (int i = 1, left = 0, right = 0; i < n; i++) {
        run[i] = i < right ? (run[i - left] < right - i ? run[i - left] : right - i) : 0;
        while (i + run[i] < n && last[-run[i]] == last[-(i + run[i])]) run[i]++;
        if (i + run[i] > right) {
            left = i;
            right = i + run[i];
        }
    }
}

/* Don't repeat yourself: a token that would continue a run which already occurred loses multiplier * base^(length -
 * allowed). */
static void penalize_runs(const sampler *s, sampler_scratch *w)
{
    const sampler_params *p = &s->p;
    int n;
    const int32_t *h = newest(s, p->dry_last_n, &n);
    if (p->dry_multiplier == 0 || n < 2) return;
    repeated_runs(w->run, h, n);
    int most = unbroken(s, h, n);
    for (int i = 1; i < n; i++) {
        int32_t next = h[n - i]; /* what followed that run */
        int length = w->run[i] < most ? w->run[i] : most;
        if (length >= p->dry_allowed_length && length > 0 && length > w->mark[next]) w->mark[next] = length;
    }
    for (int i = 1; i < n; i++) {
        int32_t next = h[n - i];
        if (!w->mark[next]) continue;
        int over = w->mark[next] - p->dry_allowed_length;
        *changing(w, next) -= (float)fmin(p->dry_multiplier * pow(p->dry_base, over), 1e30);
        w->mark[next] = 0;
    }
}

/* The largest of the spans that changed; false where one of their logits is NaN or +infinity. */
static bool look_up_spans(sampler_scratch *w)
{
    for (int g = 0; g < w->n_spans; g++) {
        if (!isnan(w->span_max[g])) continue;
        const float *x = w->logits + g * SPAN;
        int n = w->n_vocab - g * SPAN < SPAN ? w->n_vocab - g * SPAN : SPAN;
        if (w->ks->span_max(x, n, &w->span_max[g])) continue;
        float most = -INFINITY;
        for (int i = 0; i < n; i++) {
            if (!(x[i] <= FLT_MAX)) return false;
            most = x[i] > most ? x[i] : most;
        }
        w->span_max[g] = most;
    }
    return true;
}

/* The row with biases and penalties. */
static view altered(const sampler *s, sampler_scratch *w, int64_t position)
{
    const sampler_params *p = &s->p;
    int n_barred = position < p->barred_before ? p->n_barred : 0;
    if (p->n_bias == 0 && s->max_history == 0 && n_barred == 0) return w->row;
    memcpy(w->logits, w->row.logits, (size_t)w->n_vocab * sizeof *w->logits);
    if (w->row.span_max) memcpy(w->span_max, w->row.span_max, (size_t)w->n_spans * sizeof *w->span_max);
    for (int i = 0; i < p->n_bias; i++) *changing(w, p->bias[i].token) += p->bias[i].bias;
    penalize(s, w);
    penalize_runs(s, w);
    for (int i = 0; i < n_barred; i++) *changing(w, p->barred[i]) = -INFINITY;
    return (view){w->logits, w->row.span_max && look_up_spans(w) ? w->span_max : NULL};
}

static int32_t largest(const sampler_scratch *w, view v)
{
    int best = 0, begin = 0, end = w->n_vocab;
    if (v.span_max) {
        int span = 0;
        for (int g = 1; g < w->n_spans; g++)
            if (v.span_max[g] > v.span_max[span]) span = g;
        best = begin = span * SPAN;
        end = end - begin < SPAN ? end : begin + SPAN;
    }
    for (int i = begin + 1; i < end; i++)
        if (v.logits[i] > v.logits[best] || (isnan(v.logits[best]) && !isnan(v.logits[i]))) best = i;
    return best;
}

bool sampler_read(sampler_scratch *w, const float *logits)
{
    bool finite = w->ks->span_max(logits, w->n_vocab, w->row_span_max);
    w->row = (view){logits, finite ? w->row_span_max : NULL};
    return finite;
}

int32_t sampler_pick(const sampler *s, sampler_scratch *w, int64_t position)
{
    const sampler_params *p = &s->p;
    assert(s->n_vocab == w->n_vocab && s->max_history <= w->max_history);
    view v = altered(s, w, position);
    if (p->temperature == 0) return largest(w, v);
    candidates *c = &w->cand;
    candidates_take(c, v.logits, v.span_max, p->top_k < w->n_vocab ? p->top_k : 0);
    if (p->typical_p < 1) candidates_typical(c, p->typical_p);
    if (p->top_p < 1) candidates_top_p(c, p->top_p);
    if (p->min_p > 0) candidates_min_p(c, p->min_p);
    if (p->xtc_probability > 0 && p->xtc_threshold <= 0.5f &&
        random_uniform(p->seed, p->choice, position, RANDOM_XTC) < p->xtc_probability)
        candidates_xtc(c, p->xtc_threshold);
    return candidates_draw(c, p->temperature, random_uniform(p->seed, p->choice, position, RANDOM_TOKEN));
}

int sampler_logprobs(sampler_scratch *w, int32_t token, float *chosen, token_logprob *top, int n)
{
    const float *logits = w->row.logits;
    assert(w->row.span_max);
    float most = logits[largest(w, w->row)];
    double lse = most + log(w->ks->sum_exp(logits, w->n_vocab, most, 1));
    *chosen = (float)(logits[token] - lse);
    if (n > w->n_vocab) n = w->n_vocab;
    if (n <= 0) return 0;
    candidates_take(&w->cand, logits, w->row.span_max, n);
    for (int i = 0; i < n; i++) top[i] = (token_logprob){w->cand.c[i].token, (float)(w->cand.c[i].logit - lse)};
    return n;
}
