/* Attention over paged caches whose unused memory is NaN: against a softmax in double precision, and bit for bit over
 * everything that must not show: block size, how spans are cut, workers, splitting, what else is in the plan. */
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
    const cpu_level levels[] = {CPU_SCALAR, CPU_AVX2};
    store *t = make_store(s);
    for (int i = 0; i < 2; i++) {
        const kernels *ks = kernels_get(levels[i]);
        if (!ks) continue;
        float *out = run_one(ks, t, 1, false);
        check_against_reference(t, out);
        free(out);
    }
    free_store(t);
}

static const setup base = {
    .n_heads = 6,
    .n_kv_heads = 2,
    .d_k = 64,
    .d_v = 64,
    .n_ctx = 300,
    .n_rows = 9,
    .block_tokens = 16,
    .draft_row = -1,
    .identity = 1,
};

static void test_head_sizes(void **state)
{
    (void)state;
    const int sizes[][2] = {{8, 8},     {32, 32},   {64, 64},   {72, 72},  {80, 80},
                            {128, 128}, {192, 128}, {256, 256}, {576, 512}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        setup s = base;
        s.d_k = sizes[i][0];
        s.d_v = sizes[i][1];
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
        setup s = base;
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
            setup s = base;
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
        setup s = base;
        s.n_ctx = 600;
        s.n_rows = 30;
        s.window = windows[i];
        check_setup(&s);
        s.tree = true;
        if (s.window > s.n_rows) check_setup(&s);
    }
}

static void test_softcap(void **state)
{
    (void)state;
    setup s = base;
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
            setup s = base;
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

/* ---- bits ---- */

static void assert_same_bits(const float *a, const float *b, size_t n)
{
    assert_memory_equal(a, b, n * sizeof *a);
}

/* Setups that between them reach every path; the levels' own bits are the standard. */
static int bit_setups(setup *s)
{
    int n = 0;
    for (int i = 0; i < 6; i++) {
        s[n] = base;
        s[n].n_ctx = 560;
        s[n].n_rows = 18;
        s[n].d_k = 24;
        s[n].d_v = i == 1 ? 72 : 40;
        s[n].half = i & 1;
        s[n].identity = 5 + (uint64_t)i;
        if (i == 2) s[n].window = 270;
        if (i == 3) s[n].tree = true;
        if (i == 4) s[n].n_rows = 1;
        if (i == 5) {
            s[n].n_heads = 20; /* a group of 20: two head blocks */
            s[n].n_kv_heads = 1;
            s[n].softcap = 20;
        }
        n++;
    }
    return n;
}

static void for_bit_setups(void (*check)(const kernels *ks, const setup *s, const float *want))
{
    const cpu_level levels[] = {CPU_SCALAR, CPU_AVX2};
    setup s[8];
    int n = bit_setups(s);
    for (int level = 0; level < 2; level++) {
        const kernels *ks = kernels_get(levels[level]);
        for (int i = 0; ks && i < n; i++) {
            float *want = run_setup(ks, &s[i], 1, false);
            check(ks, &s[i], want);
            free(want);
        }
    }
}

static void check_same(const kernels *ks, const setup *s, int workers, bool split, const float *want)
{
    float *got = run_setup(ks, s, workers, split);
    assert_same_bits(got, want, out_floats(s));
    free(got);
}

static void check_blocks_and_cuts(const kernels *ks, const setup *s, const float *want)
{
    const int sizes[] = {8, 16, 32, 64, 256};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        setup other = *s;
        other.block_tokens = sizes[i];
        check_same(ks, &other, 1, false, want);
        other.cuts = 9 + i;
        other.draft_row = 5;
        check_same(ks, &other, 1, false, want);
    }
}

static void check_workers(const kernels *ks, const setup *s, const float *want)
{
    for (int workers = 1; workers <= 4; workers++) {
        check_same(ks, s, workers, false, want);
        check_same(ks, s, workers, true, want);
    }
}

static void check_rows_alone(const kernels *ks, const setup *s, const float *want)
{
    store *t = make_store(s);
    size_t row = (size_t)s->n_heads * (size_t)s->d_v;
    float *got = calloc(row, sizeof *got);
    for (int r = 0; r < s->n_rows; r++) {
        run_stores(ks, &t, 1, r, 2, r % 2, &got);
        assert_same_bits(got, want + (size_t)r * row, row);
    }
    free(got);
    free_store(t);
}

static void check_company(const kernels *ks, const setup *s, const float *want)
{
    setup others[2] = {*s, *s};
    others[0].identity += 100;
    others[0].n_ctx = 333;
    others[1].identity += 200;
    others[1].n_rows = others[1].n_ctx = 3;
    others[1].window = 0;
    store *t = make_store(s), *u = make_store(&others[0]), *v = make_store(&others[1]);
    float *out[3];
    for (int i = 0; i < 3; i++) out[i] = calloc((size_t)MAX_ROWS * (size_t)s->n_heads * (size_t)s->d_v, sizeof(float));
    for (int order = 0; order < 3; order++) {
        store *list[3] = {u, v, v};
        if (order == 1) list[1] = u;
        list[order] = t;
        list[2] = order == 2 ? t : list[2];
        run_stores(ks, list, 3, -1, 1 + order, order != 1, out);
        assert_same_bits(out[order], want, out_floats(s));
    }
    for (int i = 0; i < 3; i++) free(out[i]);
    free_store(t);
    free_store(u);
    free_store(v);
}

static void test_bits_over_blocks_and_cuts(void **state)
{
    (void)state;
    for_bit_setups(check_blocks_and_cuts);
}

static void test_bits_over_workers_and_splits(void **state)
{
    (void)state;
    for_bit_setups(check_workers);
}

static void test_bits_of_rows_alone(void **state)
{
    (void)state;
    for_bit_setups(check_rows_alone);
}

static void test_bits_in_company(void **state)
{
    (void)state;
    for_bit_setups(check_company);
}

/* What a row doesn't see may be anything: infinities and NaN in its future, behind its window, in other branches. */
static void check_unseen(const kernels *ks, const setup *s, const float *want)
{
    store *t = make_store(s);
    size_t row = (size_t)s->n_heads * (size_t)s->d_v;
    for (int r = 0; r < s->n_rows; r += 5) {
        for (int i = 0; i < s->n_ctx; i++) {
            if (attn_row_sees(&t->rows[r], i)) continue;
            float poison = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY;
            for (int d = 0; d < s->n_kv_heads * s->d_k; d++) t->k[(int64_t)i * s->n_kv_heads * s->d_k + d] = poison;
            for (int d = 0; d < s->n_kv_heads * s->d_v; d++) t->v[(int64_t)i * s->n_kv_heads * s->d_v + d] = poison;
        }
        t->n_spans = 0;
        place_tokens(t);
        float *got = run_one(ks, t, 2, true);
        assert_same_bits(got + (size_t)r * row, want + (size_t)r * row, row);
        free(got);
        free_store(t);
        t = make_store(s);
    }
    free_store(t);
}

static void test_unseen_rows_never_matter(void **state)
{
    (void)state;
    for_bit_setups(check_unseen);
}

/* ---- edges ---- */

static void for_levels(void (*check)(const kernels *ks))
{
    check(kernels_get(CPU_SCALAR));
    if (kernels_get(CPU_AVX2)) check(kernels_get(CPU_AVX2));
}

static void assert_zeros(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) assert_int_equal(float_bits(x[i]), 0);
}

static void check_blind_rows(const kernels *ks)
{
    setup s = base;
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
    setup s = base;
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
    setup s = base;
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
    setup s = base;
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

/* A plan with more rows to split than it has slots for runs them whole. */
static void test_many_rows_over_few_slots(void **state)
{
    (void)state;
    setup s = base;
    s.n_heads = 1;
    s.n_kv_heads = 1;
    s.d_k = s.d_v = 576;
    s.n_ctx = 12000; /* 47 chunks x 40 rows: more than 4 MiB of partials */
    s.n_rows = MAX_ROWS;
    s.block_tokens = 256;
    const kernels *ks = kernels_get(CPU_AUTO);
    float *want = run_setup(ks, &s, 1, false);
    check_same(ks, &s, 4, true, want);
    free(want);
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
        cmocka_unit_test(test_bits_over_blocks_and_cuts),
        cmocka_unit_test(test_bits_over_workers_and_splits),
        cmocka_unit_test(test_bits_of_rows_alone),
        cmocka_unit_test(test_bits_in_company),
        cmocka_unit_test(test_unseen_rows_never_matter),
        cmocka_unit_test(test_rows_that_see_nothing),
        cmocka_unit_test(test_scores_of_minus_infinity),
        cmocka_unit_test(test_holes),
        cmocka_unit_test(test_huge_scores),
        cmocka_unit_test(test_merge),
        cmocka_unit_test(test_many_rows_over_few_slots),
        cmocka_unit_test(test_plan_memory),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
