/* The sampler ranks only what a draw asks for and knows sums within bounds: here every pick is compared with the plain
 * way, which sorts the vocabulary and adds up every weight in that order, for all filters, kinds of logits, sizes of
 * vocabulary and levels of kernels. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/mem.h"
#include "engine/random.h"
#include "engine/sampler.h"
#include "logits.h"

#define MOST 262144
#define N_HISTORY 300

/* The plain way: everything that is in play, most likely first. */
static struct {
    int32_t token[MOST], other[MOST];
    double weight[MOST];
    float logit[MOST]; /* by token */
    int first, n;
} plain;

static uint32_t place_of(const float *by, int32_t token)
{
    float x = by[token];
    uint32_t u = float_bits(x == 0 ? 0.0f : x);
    return isnan(x) ? UINT32_MAX : u >> 31 ? u : ~u & 0x7FFFFFFF;
}

/* Merge sort: descending by a number, equal ones in the order of tokens. */
static void order_tokens(const float *by, int32_t *t, int32_t *other, int n)
{
    if (n < 2) return;
    int half = n / 2, a = 0, b = half;
    order_tokens(by, t, other, half);
    order_tokens(by, t + half, other, n - half);
    for (int i = 0; i < n; i++) {
        bool second = b < n;
        if (second && a < half) {
            uint32_t pa = place_of(by, t[a]), pb = place_of(by, t[b]);
            second = pb < pa || (pb == pa && t[b] < t[a]);
        }
        other[i] = second ? t[b++] : t[a++];
    }
    memcpy(t, other, (size_t)n * sizeof *t);
}

static double weigh(double temperature)
{
    double sum = 0, most = plain.logit[plain.token[plain.first]];
    for (int i = 0; i < plain.n; i++) {
        double d = plain.logit[plain.token[plain.first + i]] - most;
        sum += plain.weight[i] = d == d ? exp(d / temperature) : i == 0;
    }
    return sum;
}

static void keep_typical(float p)
{
    static float closeness[MOST];
    static double chance[MOST];
    double sum = weigh(1), entropy = 0, mass = 0;
    for (int i = 0; i < plain.n; i++) {
        double w = plain.weight[i];
        if (w > 0) entropy -= w / sum * log(w / sum);
    }
    for (int i = 0; i < plain.n; i++) {
        double w = plain.weight[i];
        closeness[plain.token[i]] = (float)-fabs((w > 0 ? -log(w / sum) : INFINITY) - entropy);
        chance[plain.token[i]] = w / sum;
    }
    order_tokens(closeness, plain.token, plain.other, plain.n);
    /* equally close ones in the order of likelihood: as merge sort found them, by token, they are sorted anew */
    for (int i = 0, end; i < plain.n; i = end) {
        for (end = i + 1; end < plain.n && closeness[plain.token[end]] == closeness[plain.token[i]];) end++;
        order_tokens(plain.logit, plain.token + i, plain.other, end - i);
    }
    int n = 0;
    while (n < plain.n && (n == 0 || mass < p)) mass += chance[plain.token[n++]];
    plain.n = n;
    order_tokens(plain.logit, plain.token, plain.other, n);
}

static void keep_top_p(float p)
{
    double sum = weigh(1), mass = 0;
    int n = 0;
    while (n < plain.n && (n == 0 || mass < p * sum)) mass += plain.weight[n++];
    plain.n = n;
}

static void keep_min_p(float p)
{
    int n = 1;
    weigh(1);
    while (n < plain.n && plain.weight[n] >= p * plain.weight[0]) n++;
    plain.n = n;
}

static void drop_xtc(float threshold)
{
    double sum = weigh(1);
    int above = 0;
    while (above < plain.n && plain.weight[above] > 0 && plain.weight[above] >= threshold * sum) above++;
    if (above < 2) return;
    plain.first += above - 1;
    plain.n -= above - 1;
}

static int32_t draw(float temperature, double u)
{
    double target = u * weigh(temperature), mass = 0;
    for (int i = 0; i < plain.n; i++) {
        mass += plain.weight[i];
        if (target < mass) return plain.token[plain.first + i];
    }
    return plain.token[plain.first];
}

/* `sorted`: the tokens in the order of logit. */
static int32_t plain_pick(const sampler_params *p, const int32_t *sorted, int n_vocab, int64_t at)
{
    memcpy(plain.token, sorted, (size_t)n_vocab * sizeof *sorted);
    plain.first = 0;
    plain.n = p->top_k > 0 && p->top_k < n_vocab ? p->top_k : n_vocab;
    if (p->typical_p < 1) keep_typical(p->typical_p);
    if (p->top_p < 1) keep_top_p(p->top_p);
    if (p->min_p > 0) keep_min_p(p->min_p);
    if (p->xtc_probability > 0 && random_uniform(p->seed, p->choice, at, RANDOM_XTC) < p->xtc_probability)
        drop_xtc(p->xtc_threshold);
    return draw(p->temperature, random_uniform(p->seed, p->choice, at, RANDOM_TOKEN));
}

static float normal(void)
{
    float sum = 0;
    for (int i = 0; i < 12; i++) sum += roll_float(1);
    return sum / 2;
}

enum { NORMAL, TIES, NEARLY_EQUAL, EQUAL, PEAKED, BANNED, LARGE, GROUPS, STRANGE, N_KINDS };

static void fill(float *x, int n, int kind)
{
    const float strange[] = {INFINITY, -INFINITY, NAN, 0.0f, -0.0f};
    for (int i = 0; i < n; i++) {
        switch (kind) {
        case TIES: x[i] = (float)(int)(3 * normal()); break;
        case NEARLY_EQUAL: x[i] = 5 + 1e-4f * normal(); break;
        case EQUAL: x[i] = -2.5f; break;
        case PEAKED: x[i] = normal() + (roll(1000) == 0 ? 20 : 0); break;
        case BANNED: x[i] = roll(3) ? -INFINITY : 4 * normal(); break;
        case LARGE: x[i] = 1e37f * normal(); break;
        case GROUPS: x[i] = normal() - (float)(i / 5000 % 9) * 3; break; /* as where frequent tokens have low ids */
        case STRANGE: x[i] = roll(4) ? normal() : strange[roll(5)]; break;
        default: x[i] = 4 * normal(); break;
        }
    }
}

static sampler_params off(void)
{
    sampler_params p = sampler_defaults();
    p.temperature = p.top_p = p.typical_p = 1;
    p.top_k = 0;
    p.min_p = 0;
    return p;
}

/* Every subset of the five filters, at a temperature and with values that go by the number. */
static sampler_params combination(int number)
{
    const float temperatures[] = {1, 0.8f, 2, 0.05f, 1, 1e-30f, 1e-45f, 100};
    sampler_params p = off();
    p.temperature = temperatures[number * 5 / 4 % 8];
    if (number & 1) p.top_p = 0.3f + 0.69f * (float)roll(100) / 100;
    if (number & 2) p.min_p = number % 3 ? 0.02f : 1e-7f;
    if (number & 4) p.top_k = 1 + (int)roll(number % 3 ? 60 : 5000);
    if (number & 8) p.xtc_probability = 0.7f, p.xtc_threshold = number % 3 ? 0.02f : 1e-5f;
    if (number & 16) p.typical_p = 0.2f + (float)roll(70) / 100;
    p.seed = (uint64_t)number;
    return p;
}

static void compare(const kernels *ks, int n_vocab, int n_draws, int n_combinations)
{
    static float x[MOST];
    static int32_t sorted_tokens[MOST];
    sampler_scratch *w;
    status st = STATUS_INIT;
    assert_int_equal(sampler_scratch_new(&w, ks, n_vocab, 10, &st), ST_OK);
    for (int kind = 0; kind < N_KINDS; kind++) {
        fill(x, n_vocab, kind);
        memcpy(plain.logit, x, (size_t)n_vocab * sizeof *x);
        for (int i = 0; i < n_vocab; i++) sorted_tokens[i] = i;
        order_tokens(x, sorted_tokens, plain.other, n_vocab);
        bool finite = true;
        for (int i = 0; i < n_vocab; i++) finite &= isfinite(x[i]) != 0;
        assert_int_equal(sampler_read(w, x), finite);
        for (int c = 0; c < n_combinations; c++) {
            sampler_params p = combination(c * 32 / n_combinations);
            sampler *s;
            assert_int_equal(sampler_new(&s, &p, n_vocab, 10, &st), ST_OK);
            for (int64_t at = 0; at < n_draws; at++) {
                int32_t got = sampler_pick(s, w, at), want = plain_pick(&p, sorted_tokens, n_vocab, at);
                if (got != want)
                    fail_msg("%s, %d tokens of kind %d, filters %d, draw %d: token %d, not %d", ks->name, n_vocab, kind,
                             c * 32 / n_combinations, (int)at, got, want);
            }
            sampler_free(s);
        }
    }
    sampler_scratch_free(w);
}

static void small_vocabularies(void **state)
{
    (void)state;
    const int sizes[] = {1, 2, 7, 255, 256, 257, 1000};
    for (int level = CPU_AUTO; level < CPU_LEVELS; level++) {
        const kernels *ks = kernels_get((cpu_level)level);
        for (size_t i = 0; ks && i < sizeof sizes / sizeof *sizes; i++) compare(ks, sizes[i], 20, 32);
    }
}

static void large_vocabularies(void **state)
{
    (void)state;
    compare(kernels_get(CPU_AUTO), 49152, 2, 32);
    compare(kernels_get(CPU_AUTO), MOST, 2, 8);
}

/* Draws alone, many of them: every rank is met. */
static void many_draws(void **state)
{
    (void)state;
    static float x[5000];
    static int32_t tokens[5000];
    enum { N = 5000 };
    sampler_scratch *w;
    sampler *s;
    status st = STATUS_INIT;
    sampler_params p = off();
    assert_int_equal(sampler_scratch_new(&w, kernels_get(CPU_AUTO), N, 10, &st), ST_OK);
    assert_int_equal(sampler_new(&s, &p, N, 10, &st), ST_OK);
    for (int kind = 0; kind < N_KINDS; kind++) {
        fill(x, N, kind);
        memcpy(plain.logit, x, sizeof x);
        for (int i = 0; i < N; i++) tokens[i] = i;
        order_tokens(x, tokens, plain.other, N);
        sampler_read(w, x);
        for (int64_t at = 0; at < 1500; at++) assert_int_equal(sampler_pick(s, w, at), plain_pick(&p, tokens, N, at));
    }
    sampler_free(s);
    sampler_scratch_free(w);
}

/* Biases and penalties, token by token over a copy of the row. */
static void alter(float *x, const sampler_params *p, const int32_t *h, int n)
{
    int32_t seen[N_HISTORY];
    int n_seen = 0;
    for (int i = 0; i < p->n_bias; i++) x[p->bias[i].token] += p->bias[i].bias;
    for (int i = 0; i < n; i++) {
        int count = 0, at = 0;
        while (at < n_seen && seen[at] != h[i]) at++;
        if (at < n_seen) continue;
        seen[n_seen++] = h[i];
        for (int k = 0; k < n; k++) count += h[k] == h[i];
        float *v = &x[h[i]];
        *v = *v > 0 ? *v / p->repeat_penalty : *v * p->repeat_penalty;
        *v -= p->presence_penalty + p->frequency_penalty * (float)count;
    }
}

static void altered_rows(void **state)
{
    (void)state;
    enum { N = 49152 };
    static float x[N], y[N];
    static int32_t tokens[N];
    logit_bias bias[] = {{5, 3}, {N - 1, 12}, {700, -INFINITY}, {701, -100}, {5, 1.5f}, {9000, 0}};
    sampler_scratch *w;
    status st = STATUS_INIT;
    assert_int_equal(sampler_scratch_new(&w, kernels_get(CPU_AUTO), N, N_HISTORY, &st), ST_OK);
    for (int round = 0; round < 24; round++) {
        sampler_params p = combination(round % 8);
        sampler *s;
        int32_t history[N_HISTORY];
        fill(x, N, round % N_KINDS);
        memcpy(y, x, sizeof x);
        bias[5].bias = round % 5 ? 2 : INFINITY;
        p.bias = bias;
        p.n_bias = round % 7;
        if (p.n_bias == 6) p.bias = bias + 5, p.n_bias = 1;
        p.repeat_penalty = 1.2f;
        p.presence_penalty = 0.3f;
        p.frequency_penalty = round % 2 ? 0.1f : -0.4f;
        p.penalty_last_n = -1;
        assert_int_equal(sampler_new(&s, &p, N, N_HISTORY, &st), ST_OK);
        for (int i = 0; i < N_HISTORY; i++) {
            history[i] = (int32_t)roll(round % 3 ? 40 : N);
            sampler_accept(s, history[i]);
        }
        alter(y, &p, history, N_HISTORY);
        memcpy(plain.logit, y, sizeof y);
        for (int i = 0; i < N; i++) tokens[i] = i;
        order_tokens(y, tokens, plain.other, N);
        sampler_read(w, x);
        for (int64_t at = 0; at < 6; at++) assert_int_equal(sampler_pick(s, w, at), plain_pick(&p, tokens, N, at));
        sampler_free(s);
        /* greedy: the first of that order */
        p.temperature = 0;
        assert_int_equal(sampler_new(&s, &p, N, N_HISTORY, &st), ST_OK);
        for (int i = 0; i < N_HISTORY; i++) sampler_accept(s, history[i]);
        assert_int_equal(sampler_pick(s, w, 0), tokens[0]);
        sampler_free(s);
    }
    sampler_scratch_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_vocabularies),
        cmocka_unit_test(large_vocabularies),
        cmocka_unit_test(many_draws),
        cmocka_unit_test(altered_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
