/* Kernels over rows of logits: the largest of spans equals the reference, sums of exponentials are within what kernel.h
 * promises. */
#include <math.h>
#include <string.h>

#include "check.h"

#define MAX_N (3 * SPAN + 20)

static const int64_t lengths[] = {1,  2,  7,        8,    9,        15,       16,           17,
                                  31, 33, SPAN - 1, SPAN, SPAN + 1, 2 * SPAN, 2 * SPAN + 9, MAX_N};
#define N_LENGTHS (int)(sizeof lengths / sizeof lengths[0])

static void compare_spans(check *c, const float *x, int64_t n)
{
    int64_t n_spans = (n + SPAN - 1) / SPAN;
    float *got = check_floats(c, n_spans), *want = check_floats(c, n_spans);
    bool finite = c->ks->span_max(x, n, got);
    if (finite != c->ref->span_max(x, n, want)) check_fail(c, "%d, not as the reference", finite);
    for (int64_t i = 0; finite && i < n_spans; i++)
        if (got[i] != want[i])
            check_fail(c, "[%lld] %.9g, reference %.9g", (long long)i, (double)got[i], (double)want[i]);
}

static void check_span_max(check *c)
{
    const float odd[] = {INFINITY, -INFINITY, NAN};
    for (int what = 0; what < N_VALUES; what++) {
        for (int i = 0; i < N_LENGTHS; i++) {
            check_case(c, "n %lld, %s", (long long)lengths[i], values_name[what]);
            float *x = check_floats(c, lengths[i]);
            check_fill(c, x, lengths[i], (values)what);
            compare_spans(c, x, lengths[i]);
        }
    }
    for (int64_t at = 0; at < MAX_N; at += at < 20 || at > MAX_N - 20 ? 1 : 37) {
        check_case(c, "one at %lld that is no number", (long long)at);
        float *x = check_floats(c, MAX_N);
        check_fill(c, x, MAX_N, ORDINARY);
        x[at] = odd[at % 3];
        compare_spans(c, x, MAX_N);
        if (c->ks->span_max(x, MAX_N, check_floats(c, (MAX_N + SPAN - 1) / SPAN))) check_fail(c, "taken for a number");
    }
}

static void check_sum_exp(check *c)
{
    const double scales[] = {1, 1 / 0.7, 0.5, 0.01, 1e4, 1e45};
    for (int what = 0; what < NOT_FINITE; what++) {
        for (int i = 0; i < N_LENGTHS; i++) {
            int64_t n = lengths[i];
            double by = scales[i % (int)(sizeof scales / sizeof scales[0])];
            check_case(c, "n %lld, times %g, %s", (long long)n, by, values_name[what]);
            float *x = check_floats(c, n), top = -INFINITY;
            check_fill(c, x, n, (values)what);
            for (int64_t k = 0; k < n; k++) top = x[k] > top ? x[k] : top;
            for (int64_t k = n - 1; k > 0 && x[k] < top; k -= 5) x[k] = -INFINITY;
            double got = c->ks->sum_exp(x, n, top, by), want = c->ref->sum_exp(x, n, top, by);
            if (!(fabs(got - want) <= 1e-11 * want)) check_fail(c, "%.17g, reference %.17g", got, want);
            if (c->below && got != c->below->sum_exp(x, n, top, by)) check_fail(c, "not as %s", c->below->name);
        }
    }
}

static void check_sum_exp_f32(check *c)
{
    const float scales[] = {1, 1 / 0.7f, 0.5f, 0.01f, 1000};
    for (int what = 0; what < NOT_FINITE; what++) {
        for (int i = 0; i < N_LENGTHS; i++) {
            int64_t n = lengths[i];
            float by = scales[i % (int)(sizeof scales / sizeof scales[0])];
            check_case(c, "n %lld, times %g, %s", (long long)n, (double)by, values_name[what]);
            float *x = check_floats(c, n), top = -INFINITY;
            check_fill(c, x, n, (values)what);
            for (int64_t k = 0; k < n; k++) top = x[k] > top ? x[k] : top;
            for (int64_t k = n - 1; k > 0 && x[k] < top; k -= 5) x[k] = -INFINITY;
            double got = c->ks->sum_exp_f32(x, n, top, by), want = c->ref->sum_exp(x, n, top, by);
            if (!(fabs(got - want) <= 5e-6 * want)) check_fail(c, "%.17g, reference %.17g", got, want);
            if (c->below && got != c->below->sum_exp_f32(x, n, top, by)) check_fail(c, "not as %s", c->below->name);
        }
    }
}

static void check_find_between(check *c)
{
    const float limits[] = {-INFINITY, -1, -0.25f, 0, 0.5f, 1, INFINITY};
    for (int what = 0; what < N_VALUES; what++) {
        for (int i = 0; i < N_LENGTHS; i++) {
            int n = (int)lengths[i];
            float *x = check_floats(c, n), least = limits[i % 6], below = limits[i % 6 + 1 + i % (6 - i % 6)];
            int32_t *got = (int32_t *)check_floats(c, n), *want = (int32_t *)check_floats(c, n);
            check_fill(c, x, n, (values)what);
            x[n / 2] = least;
            x[n / 3] = below;
            check_case(c, "n %d, %g to %g, %s", n, (double)least, (double)below, values_name[what]);
            int found = c->ks->find_between(x, n, least, below, got),
                all = c->ref->find_between(x, n, least, below, want);
            if (found != all) check_fail(c, "%d, reference %d", found, all);
            for (int k = 0; k < all && k < found; k++)
                if (got[k] != want[k]) check_fail(c, "[%d] is %d, reference %d", k, got[k], want[k]);
        }
    }
}

typedef struct timed {
    float *x, *out;
} timed;

#define TIMED_N 49152

static timed make_timed(check *c)
{
    check_case(c, "timing");
    timed t = {check_floats(c, TIMED_N), check_floats(c, TIMED_N / SPAN + SPAN)};
    check_fill(c, t.x, TIMED_N, ORDINARY);
    return t;
}

static void call_span_max(const kernels *ks, void *arg)
{
    const timed *t = arg;
    ks->span_max(t->x, TIMED_N, t->out);
}

static void call_sum_exp(const kernels *ks, void *arg)
{
    const timed *t = arg;
    t->out[0] = (float)ks->sum_exp(t->x, TIMED_N, 5, 1);
}

static void call_sum_exp_f32(const kernels *ks, void *arg)
{
    const timed *t = arg;
    t->out[0] = (float)ks->sum_exp_f32(t->x, TIMED_N, 5, 1);
}

static void call_find_between(const kernels *ks, void *arg)
{
    const timed *t = arg;
    for (int64_t i = 0; i < TIMED_N; i += SPAN) ks->find_between(t->x + i, SPAN, 2, 5, (int32_t *)t->out);
}

static void time_span_max(check *c)
{
    timed t = make_timed(c);
    check_time(c, "49152", call_span_max, &t);
}

static void time_sum_exp(check *c)
{
    timed t = make_timed(c);
    check_time(c, "49152", call_sum_exp, &t);
}

static void time_sum_exp_f32(check *c)
{
    timed t = make_timed(c);
    check_time(c, "49152", call_sum_exp_f32, &t);
}

static void time_find_between(check *c)
{
    timed t = make_timed(c);
    check_time(c, "49152", call_find_between, &t);
}

int check_logits_entries(check_entry *e)
{
    e[0] = (check_entry){.name = "span_max",
                         .slot = offsetof(kernels, span_max),
                         .run = check_span_max,
                         .time = time_span_max};
    e[1] = (check_entry){.name = "sum_exp",
                         .slot = offsetof(kernels, sum_exp),
                         .run = check_sum_exp,
                         .time = time_sum_exp};
    e[2] = (check_entry){.name = "sum_exp_f32",
                         .slot = offsetof(kernels, sum_exp_f32),
                         .run = check_sum_exp_f32,
                         .time = time_sum_exp_f32};
    e[3] = (check_entry){.name = "find_between",
                         .slot = offsetof(kernels, find_between),
                         .run = check_find_between,
                         .time = time_find_between};
    return 4;
}
