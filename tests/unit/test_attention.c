/* Attention over paged caches whose unused memory is NaN, against a softmax in double precision; rows that see nothing
 * or infinities; merging; the plan's memory. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attention_store.h"
#include "base/mem.h"

/* Attention of one head of row r by its definition. */
static void reference(const store *t, int r, int head, double *out)
{
    const setup *s = &t->s;
    int kv = head / (s->n_heads / s->n_kv_heads);
    double *w = calloc((size_t)s->n_ctx + 1, sizeof *w), top = -INFINITY, sum = 0;
    const float *q = t->q + ((int64_t)r * s->n_heads + head) * s->d_k;
    for (int i = 0; i < s->n_ctx; i++) {
        const float *k = t->k + ((int64_t)i * s->n_kv_heads + kv) * s->d_k;
        w[i] = -INFINITY;
        if (!attn_row_sees(&t->rows[r], ATTN_EXACT, i)) continue;
        double dot = 0;
        for (int d = 0; d < s->d_k; d++) dot += (double)q[d] * k[d];
        w[i] = dot / sqrt(s->d_k);
        if (s->softcap > 0) w[i] = s->softcap * tanh(w[i] / s->softcap);
        top = fmax(top, w[i]);
    }
    memset(out, 0, (size_t)s->d_v * sizeof *out);
    for (int i = 0; i < s->n_ctx; i++) {
        if (w[i] == -INFINITY) continue;
        double p = exp(w[i] - top);
        sum += p;
        for (int d = 0; d < s->d_v; d++) out[d] += p * t->v[((int64_t)i * s->n_kv_heads + kv) * s->d_v + d];
    }
    for (int d = 0; d < s->d_v && sum > 0; d++) out[d] /= sum;
    free(w);
}

static void check_against_reference(const store *t, const float *out)
{
    const setup *s = &t->s;
    double want[576];
    for (int r = 0; r < s->n_rows; r++) {
        for (int h = 0; h < s->n_heads; h++) {
            const float *got = out + ((int64_t)r * s->n_heads + h) * s->d_v;
            reference(t, r, h, want);
            for (int d = 0; d < s->d_v; d++) {
                if (fabs(got[d] - want[d]) <= 1e-5) continue; /* |V| <= 1, so the absolute products sum to at most 1 */
                fail_msg("row %d head %d d %d: got %g, want %g (d_k %d, %d rows of %d)", r, h, d, got[d], want[d],
                         s->d_k, s->n_rows, s->n_ctx);
            }
        }
    }
}

static void check_setup(const setup *s)
{
    store *t = make_store(s);
    for (int i = 0; i < N_LEVELS; i++) {
        const kernels *ks = kernels_get(levels[i]);
        if (!ks) continue;
        float *out = run_one(ks, t, 1, false);
        check_against_reference(t, out);
        free(out);
    }
    free_store(t);
}

static void test_head_sizes(void **state)
{
    (void)state;
    const int sizes[][2] = {{8, 8},     {32, 32},   {64, 64},   {72, 72},  {80, 80},
                            {128, 128}, {192, 128}, {256, 256}, {576, 512}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        setup s = base_setup;
        s.d_k = sizes[i][0];
        s.d_v = sizes[i][1];
        if (s.d_k > 80) s.n_heads = s.n_kv_heads = 1;
        for (int half = 0; half < 2; half++) {
            s.half = half;
            check_setup(&s);
        }
    }
}

static void test_groups(void **state)
{
    (void)state;
    const int heads[][2] = {{2, 2}, {3, 1}, {8, 2}, {7, 1}, {8, 1}, {16, 1}, {40, 2}, {5, 5}};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        setup s = base_setup;
        s.n_heads = heads[i][0];
        s.n_kv_heads = heads[i][1];
        s.d_k = s.d_v = 40;
        check_setup(&s);
        s.n_rows = 1;
        check_setup(&s);
    }
}

static void test_lengths(void **state)
{
    (void)state;
    const int lengths[] = {0, 1, 7, 255, 256, 257, 513, 1000};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (int rows = 1; rows <= MAX_ROWS; rows += 13) {
            setup s = base_setup;
            s.d_k = s.d_v = 32;
            s.n_ctx = lengths[i];
            s.n_rows = rows < s.n_ctx ? rows : s.n_ctx;
            s.half = rows == 14;
            if (s.n_rows) check_setup(&s);
        }
    }
}

static void test_windows(void **state)
{
    (void)state;
    const int windows[] = {1, 3, 8, 100, 256, 290, 400};
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
        setup s = base_setup;
        s.n_ctx = 560;
        s.n_rows = 16;
        s.d_k = s.d_v = 32;
        s.window = windows[i];
        check_setup(&s);
        s.tree = true;
        if (s.window > s.n_rows) check_setup(&s);
    }
}

static void test_softcap(void **state)
{
    (void)state;
    setup s = base_setup;
    s.softcap = 0.5f;
    check_setup(&s);
    s.window = 20;
    s.tree = true;
    check_setup(&s);
}

static void test_drafts_and_trees(void **state)
{
    (void)state;
    const int contexts[] = {17, 30, 256 + 20, 256 + 3, 500};
    for (size_t i = 0; i < sizeof contexts / sizeof contexts[0]; i++) {
        for (int draft_row = -1; draft_row < 8; draft_row += 4) {
            setup s = base_setup;
            s.n_ctx = contexts[i];
            s.n_rows = 12;
            s.draft_row = draft_row;
            s.cuts = 3 * i;
            check_setup(&s);
            s.tree = true;
            check_setup(&s);
        }
    }
}

static void for_levels(void (*check)(const kernels *ks))
{
    for (int i = 0; i < N_LEVELS; i++) {
        if (kernels_get(levels[i])) check(kernels_get(levels[i]));
    }
}

static void assert_zeros(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) assert_int_equal(float_bits(x[i]), 0);
}

static void check_blind_rows(const kernels *ks)
{
    setup s = base_setup;
    s.n_rows = 4;
    store *t = make_store(&s);
    size_t row = (size_t)s.n_heads * (size_t)s.d_v;
    float *want = run_one(ks, t, 1, false);
    uint64_t nothing = 0;
    t->rows[0].hi = t->rows[0].lo = 100;
    t->rows[1].hi = t->rows[1].lo + 40;
    t->rows[1].mask = &nothing;
    t->rows[1].mask_n = 64; /* longer than what it would see */
    t->rows[3].lo = t->rows[3].hi = 0;
    for (int split = 0; split < 2; split++) {
        float *got = run_one(ks, t, 2, split);
        assert_zeros(got, 2 * row);
        assert_same_bits(got + 2 * row, want + 2 * row, row);
        assert_zeros(got + 3 * row, row);
        free(got);
    }
    t->n_spans = 0; /* a sequence without a stored row */
    float *got = run_one(ks, t, 1, true);
    assert_zeros(got, 4 * row);
    free(got);
    free(want);
    free_store(t);
}

static void test_rows_that_see_nothing(void **state)
{
    (void)state;
    for_levels(check_blind_rows);
}

static void check_minus_infinity(const kernels *ks)
{
    setup s = base_setup;
    s.n_ctx = 600;
    s.n_rows = 2;
    store *t = make_store(&s);
    for (int i = 0; i < s.n_rows * s.n_heads * s.d_k; i++) t->q[i] = 1;
    for (int i = 0; i < 256 * s.n_kv_heads * s.d_k; i++) t->k[i] = -INFINITY; /* all of chunk 0 */
    t->n_spans = 0;
    place_tokens(t);
    float *got = run_one(ks, t, 2, true);
    for (size_t i = 0; i < out_floats(&s); i++) assert_true(isfinite(got[i]));
    for (int i = 0; i < s.n_rows; i++) t->rows[i].lo = 256;
    float *want = run_one(ks, t, 1, false);
    assert_same_bits(got, want, out_floats(&s));
    for (int i = 0; i < s.n_rows; i++) t->rows[i].lo = 0, t->rows[i].hi = 200;
    run_stores(ks, &t, 1, -1, 1, false, &got);
    assert_zeros(got, out_floats(&s));
    free(got);
    free(want);
    free_store(t);
}

static void test_scores_of_minus_infinity(void **state)
{
    (void)state;
    for_levels(check_minus_infinity);
}

/* Indices that no span holds count as little as masked ones. */
static void check_holes(const kernels *ks)
{
    setup s = base_setup;
    s.n_ctx = 600;
    s.n_rows = 3;
    uint64_t mask[10];
    store *t = make_store(&s);
    for (int i = 0; i < s.n_rows; i++) t->rows[i] = (attn_row){.hi = s.n_ctx, .mask = mask, .mask_n = s.n_ctx};
    memset(mask, 0xFF, sizeof mask);
    int kept = 0;
    for (int i = 0; i < t->n_spans; i++) { /* blocks 1, 4, 7, ..., and all of chunk 1 */
        bool hole = i % 3 == 1 || (i >= 16 && i < 32);
        for (int64_t j = t->spans[i].index; hole && j < t->spans[i].index + t->spans[i].n; j++)
            mask[j / 64] &= ~((uint64_t)1 << (j % 64));
    }
    float *want = run_one(ks, t, 1, false);
    for (int i = 0; i < t->n_spans; i++) {
        if (i % 3 != 1 && (i < 16 || i >= 32)) t->spans[kept++] = t->spans[i];
    }
    t->n_spans = kept;
    for (int i = 0; i < s.n_rows; i++) t->rows[i].mask = NULL;
    float *got = run_one(ks, t, 2, true);
    assert_same_bits(got, want, out_floats(&s));
    free(got);
    free(want);
    free_store(t);
}

static void test_holes(void **state)
{
    (void)state;
    for_levels(check_holes);
}

/* Scores near 1000 and more: e^s alone would overflow. */
static void check_huge_scores(const kernels *ks)
{
    setup s = base_setup;
    s.n_rows = 3;
    store *t = make_store(&s);
    for (int i = 0; i < s.n_rows * s.n_heads * s.d_k; i++) t->q[i] *= 1024;
    float *out = run_one(ks, t, 1, false);
    for (int r = 0; r < s.n_rows; r++) {
        for (int h = 0; h < s.n_heads; h++) {
            double want[64];
            reference(t, r, h, want);
            for (int d = 0; d < s.d_v; d++) {
                assert_true(fabs(out[((int64_t)r * s.n_heads + h) * s.d_v + d] - want[d]) < 2e-3);
            }
        }
    }
    free(out);
    free_store(t);
}

static void test_huge_scores(void **state)
{
    (void)state;
    for_levels(check_huge_scores);
}

static void check_merge(const kernels *ks)
{
    float a[16], b[16], zero[16] = {0}, x[16], m, l;
    for (int i = 0; i < 16; i++) {
        a[i] = draw(3, 1, i);
        b[i] = draw(3, 2, i);
    }
    memcpy(x, a, sizeof x);
    m = 2, l = 3;
    ks->merge(x, &m, &l, zero, -INFINITY, 0, 16); /* the identity on the right */
    assert_same_bits(x, a, 16);
    assert_true(m == 2 && l == 3);
    memcpy(x, zero, sizeof x);
    m = -INFINITY, l = 0;
    ks->merge(x, &m, &l, a, 2, 3, 16); /* and on the left */
    assert_same_bits(x, a, 16);
    assert_true(m == 2 && l == 3);
    memcpy(x, zero, sizeof x);
    m = -INFINITY, l = 0;
    ks->merge(x, &m, &l, zero, -INFINITY, 0, 16); /* and with itself */
    assert_zeros(x, 16);
    assert_true(m == -INFINITY && l == 0);
    for (int swap = 0; swap < 2; swap++) {
        memcpy(x, swap ? b : a, sizeof x);
        m = swap ? 5.5f : 4, l = swap ? 7 : 3;
        ks->merge(x, &m, &l, swap ? a : b, swap ? 4 : 5.5f, swap ? 3 : 7, 16);
        assert_true(m == 5.5f && fabs(l - (3 * exp(-1.5) + 7)) < 1e-5);
        for (int i = 0; i < 16; i++) assert_true(fabs(x[i] - (a[i] * exp(-1.5) + b[i])) < 1e-6);
    }
    m = 500, l = 1;
    ks->merge(x, &m, &l, b, -500, 7, 16); /* too small to count, and no NaN */
    assert_true(m == 500 && l == 1);
}

static void test_merge(void **state)
{
    (void)state;
    for_levels(check_merge);
}

static void test_plan_memory(void **state)
{
    (void)state;
    uint64_t before = mem_stats().bytes;
    attn_shape shape = {4, 2, 64, 64, 16};
    status st = STATUS_INIT;
    attn_plan *p = NULL;
    int n = 0;
    for (n = 1; n < 100; n++) {
        mem_fail_after(n);
        int code = attn_plan_new(&p, kernels_get(CPU_AUTO), shape, 2, 8, 2, 32, &st);
        mem_fail_after(0);
        if (code == ST_OK) break;
        assert_int_equal(code, ST_NOMEM);
        assert_null(p);
        assert_int_equal(mem_stats().bytes, before);
    }
    assert_in_range(n, 2, 99);
    attn_plan_free(p);
    attn_plan_free(NULL);
    assert_int_equal(mem_stats().bytes, before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_head_sizes),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_softcap),
        cmocka_unit_test(test_drafts_and_trees),
        cmocka_unit_test(test_rows_that_see_nothing),
        cmocka_unit_test(test_scores_of_minus_infinity),
        cmocka_unit_test(test_holes),
        cmocka_unit_test(test_huge_scores),
        cmocka_unit_test(test_merge),
        cmocka_unit_test(test_plan_memory),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
