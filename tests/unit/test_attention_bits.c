/* Attention's bits over everything that must not show: block size, how spans are cut, threads, splitting, what else is
 * in the plan, what a row doesn't see. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attention_store.h"

static float *run_setup(const kernels *ks, const setup *s, int workers, bool split)
{
    store *t = make_store(s);
    float *out = run_one(ks, t, workers, split);
    free_store(t);
    return out;
}

/* Setups that between them reach every path; the levels' own bits are the standard. */
static int bit_setups(setup *s)
{
    int n = 0;
    for (int i = 0; i < 6; i++) {
        s[n] = base_setup;
        s[n].n_ctx = 530;
        s[n].n_rows = 11;
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

/* For the scalar level, which is slow and takes each row alone. */
static void shorten(setup *s)
{
    s->d_k = s->d_v = 8;
    s->n_ctx = 290;
    s->n_rows = s->n_rows < 3 ? s->n_rows : 3;
    s->window = s->window ? 260 : 0;
}

static void for_bit_setups(void (*check)(const kernels *ks, const setup *s, const float *want))
{
    setup s[8];
    for (int level = 0; level < N_LEVELS; level++) {
        const kernels *ks = kernels_get(levels[level]);
        int n = bit_setups(s);
        for (int i = 0; ks && i < n; i++) {
            if (levels[level] == CPU_SCALAR) shorten(&s[i]);
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
    for (int r = 0; r < s->n_rows; r += 3) {
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
            if (attn_row_sees(&t->rows[r], ATTN_EXACT, i)) continue;
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

/* A plan with more rows to split than it has slots for runs them whole. */
static void test_many_rows_over_few_slots(void **state)
{
    (void)state;
    setup s = base_setup;
    s.n_heads = 16;
    s.n_kv_heads = 1;
    s.d_k = 8;
    s.d_v = 576;
    s.n_ctx = 1100; /* 5 chunks x 24 rows x 16 heads: more than 4 MiB of partials */
    s.n_rows = 24;
    s.block_tokens = 256;
    const kernels *ks = kernels_get(CPU_AUTO);
    float *want = run_setup(ks, &s, 1, false);
    check_same(ks, &s, 4, true, want);
    free(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_over_blocks_and_cuts),
        cmocka_unit_test(test_bits_over_workers_and_splits),
        cmocka_unit_test(test_bits_of_rows_alone),
        cmocka_unit_test(test_bits_in_company),
        cmocka_unit_test(test_unseen_rows_never_matter),
        cmocka_unit_test(test_many_rows_over_few_slots),
    };
    return cmocka_run_group_tests_name("attention_bits", tests, NULL, NULL);
}
