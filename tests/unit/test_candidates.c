/* Candidates: order and filters against the straightforward way. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine/candidates.h"
#include "logits.h"

/* Few values, so that ties abound; now and then what no logit should be. */
static void roll_logits(float *logits, int n, bool odd)
{
    const float strange[] = {INFINITY, -INFINITY, NAN, 0.0f, -0.0f};
    uint32_t kind = roll(3);
    for (int i = 0; i < n; i++) {
        logits[i] = kind == 0 ? (float)roll(5) - 2 : roll_float(kind == 1 ? 1 : 12);
        if (odd && roll(10) == 0) logits[i] = strange[roll(5)];
    }
}

/* As the sampler does, with the largest of the spans where they can be told. */
static void take(candidates *c, const float *logits, int k)
{
    static float largest[VOCAB];
    candidates_take(c, logits, c->ks->span_max(logits, c->n_vocab, largest) ? largest : NULL, k);
}

static void take_equals_full_sort(void **state)
{
    (void)state;
    candidates c;
    assert_true(candidates_init(&c, kernels_get(CPU_AUTO), VOCAB));
    for (int round = 0; round < 300; round++) {
        float logits[VOCAB];
        int32_t want[VOCAB];
        roll_logits(logits, VOCAB, round % 2);
        sorted(logits, VOCAB, want);
        int k = round % 7 == 0 ? 0 : (int)roll(VOCAB + 1), n = k == 0 ? VOCAB : k;
        take(&c, logits, k);
        assert_int_equal(c.n, n);
        assert_true(k == 0 || c.n_ranked == n);
        for (int i = 0; i < c.n_ranked; i++) {
            assert_int_equal(c.c[i].token, want[i]);
            assert_memory_equal(&c.c[i].logit, &logits[want[i]], sizeof(float));
        }
    }
    candidates_deinit(&c);
}

/* Probabilities of the sorted candidates, the slow way. */
static void probabilities(const float *logits, const int32_t *ids, int n, double *p)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += p[i] = exp((double)logits[ids[i]] - logits[ids[0]]);
    for (int i = 0; i < n; i++) p[i] /= sum;
}

static void expect_tokens(const candidates *c, const int32_t *want, int n)
{
    assert_int_equal(c->n, n);
    for (int i = 0; i < c->n_ranked; i++) assert_int_equal(c->c[i].token, want[i]);
}

static int reference_top_p(const double *p, int n, double top_p)
{
    double mass = 0;
    for (int i = 0; i < n; i++) {
        mass += p[i];
        if (mass >= top_p) return i + 1;
    }
    return n;
}

static void filters_equal_reference(void **state)
{
    (void)state;
    candidates c;
    assert_true(candidates_init(&c, kernels_get(CPU_AUTO), VOCAB));
    for (int round = 0; round < 400; round++) {
        float logits[VOCAB];
        int32_t ids[VOCAB];
        double p[VOCAB];
        for (int i = 0; i < VOCAB; i++) logits[i] = roll_float(6);
        sorted(logits, VOCAB, ids);
        probabilities(logits, ids, VOCAB, p);
        float x = (float)roll(999) / 1000 + 0.0005f;

        take(&c, logits, 0);
        candidates_top_p(&c, x);
        expect_tokens(&c, ids, reference_top_p(p, VOCAB, x));

        take(&c, logits, 0);
        candidates_min_p(&c, x);
        int n = 0;
        while (n < VOCAB && p[n] >= x * p[0]) n++;
        expect_tokens(&c, ids, n);

        take(&c, logits, 0);
        candidates_xtc(&c, x / 40);
        n = 0;
        while (n < VOCAB && p[n] >= x / 40) n++;
        int dropped = n >= 2 ? n - 1 : 0;
        expect_tokens(&c, ids + dropped, VOCAB - dropped);
    }
    candidates_deinit(&c);
}

static double surprise_gap[VOCAB];

static int by_gap(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    if (surprise_gap[x] != surprise_gap[y]) return surprise_gap[x] < surprise_gap[y] ? -1 : 1;
    return x - y;
}

static void typical_equals_reference(void **state)
{
    (void)state;
    candidates c;
    assert_true(candidates_init(&c, kernels_get(CPU_AUTO), VOCAB));
    for (int round = 0; round < 200; round++) {
        float logits[VOCAB], x = (float)roll(998) / 1000 + 0.0015f;
        int32_t ids[VOCAB], want[VOCAB];
        int place[VOCAB], n = 0, kept = 0;
        double p[VOCAB], entropy = 0, mass = 0;
        bool keep[VOCAB] = {false};
        for (int i = 0; i < VOCAB; i++) logits[i] = roll_float(5);
        sorted(logits, VOCAB, ids);
        probabilities(logits, ids, VOCAB, p);
        for (int i = 0; i < VOCAB; i++) entropy -= p[i] * log(p[i]);
        for (int i = 0; i < VOCAB; i++) {
            surprise_gap[i] = (float)fabs(-log(p[i]) - entropy);
            place[i] = i;
        }
        qsort(place, VOCAB, sizeof *place, by_gap);
        while (n < VOCAB && (n == 0 || mass < x)) {
            mass += p[place[n]];
            keep[place[n++]] = true;
        }
        for (int i = 0; i < VOCAB; i++)
            if (keep[i]) want[kept++] = ids[i];
        take(&c, logits, 0);
        candidates_typical(&c, x);
        expect_tokens(&c, want, kept);
        for (int i = 0; i < kept; i++) assert_true(c.c[i].logit == logits[want[i]]);
    }
    candidates_deinit(&c);
}

static void draw_walks_the_cumulative_sum(void **state)
{
    (void)state;
    candidates c;
    assert_true(candidates_init(&c, kernels_get(CPU_AUTO), 4));
    float logits[] = {0, logf(2), logf(4), logf(1)}; /* 1/8 2/8 4/8 1/8, in order: token 2, 1, 0, 3 */
    const struct {
        double u;
        int32_t token;
    } cases[] = {{0, 2}, {0.49, 2}, {0.51, 1}, {0.74, 1}, {0.76, 0}, {0.87, 0}, {0.88, 3}, {0.999999, 3}};
    take(&c, logits, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(candidates_draw(&c, 1, cases[i].u), cases[i].token);
    /* Temperature 0.5 squares the weights: 16, 4, 1, 1 of 22. */
    assert_int_equal(candidates_draw(&c, 0.5f, 15.9 / 22), 2);
    assert_int_equal(candidates_draw(&c, 0.5f, 16.1 / 22), 1);
    assert_int_equal(candidates_draw(&c, 0.5f, 20.1 / 22), 0);
    assert_int_equal(candidates_draw(&c, 1e-30f, 0.9999), 2);
    candidates_deinit(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(take_equals_full_sort),
        cmocka_unit_test(filters_equal_reference),
        cmocka_unit_test(typical_equals_reference),
        cmocka_unit_test(draw_walks_the_cumulative_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
