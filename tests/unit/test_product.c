/* Products of every weight type: the reference against doubles, and at every level that this machine has, what must not
 * show in the bits. That the levels have the reference's bits is what check-kernel looks at. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdatomic.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "base/mem.h"
#include "kernel/product.h"
#include "weight_rows.h"

static const kernels *scalar, *tables[CPU_LEVELS];
static int n_tables;

static uint64_t seed;

static uint32_t draw(void)
{
    return rows_draw(&seed);
}

static float uniform(void)
{
    return rows_uniform(&seed);
}

static uint8_t *make_rows(dtype t, int64_t rows, int64_t k, content what)
{
    uint8_t *data = mem_alloc(dtype_row_bytes(t, k) * (size_t)rows);
    weight_rows_fill(t, rows, k, what, &seed, data);
    return data;
}

static float *make_floats(int64_t n, bool extreme)
{
    float *x = mem_array((size_t)n, sizeof *x);
    float sign = 1;
    for (int64_t i = 0; i < n; i++) { /* extreme: runs of one sign, so that sums grow as large as they can */
        if (i % 16 == 0) sign = draw() % 2 ? 1.0f : -1.0f;
        x[i] = extreme ? sign : draw() % 64 ? uniform() * expf(3 * uniform()) : 0;
    }
    return x;
}

static void activations(const act_strip *strips, int64_t k, int col, int n_cols, double *out)
{
    for (int64_t i = 0; i < k; i++) {
        const act_strip *a = &strips[i / 32 * n_cols + col];
        out[i] = (double)a->d[i % 32 / 16] * a->q[i % 32];
    }
}

/* For each weight of a row, the size of the terms that make it: |scale * value| + |min|. */
static void term_sizes(dtype t, const uint8_t *row, int64_t k, const float *w, double *out)
{
    for (int64_t i = 0; i < k; i++) out[i] = fabs((double)w[i]);
    if (!dtype_is_quantized(t) || !qtypes[t].has_min) return;
    int elems = qtype_elems(t);
    for (int64_t i = 0; i < k; i += elems) {
        qblock b;
        float base[256];
        qblock_from_file(t, row + i / elems * dtype_get(t)->block_bytes, &b);
        memset(b.code, 0, sizeof b.code);
        qblock_to_float(t, &b, base);
        for (int e = 0; e < elems; e++) out[i + e] = fabs((double)w[i + e] - (double)base[e]) + fabs((double)base[e]);
    }
}

typedef struct setup {
    dtype t;
    int64_t rows, k;
    int n;
    uint8_t *data;
    float *x;
} setup;

static setup make_setup(dtype t, int64_t rows, int64_t k, int n, content what)
{
    setup s = {t, rows, k, n, make_rows(t, rows, k, what), make_floats(n * k, what == ALL_ONES || what == ALL_HIGH)};
    return s;
}

static void free_setup(setup *s)
{
    mem_free(s->data);
    mem_free(s->x);
}

/* y [n][stride]; every place beyond `rows` must stay as it was. */
static void run(const kernels *ks, const setup *s, bool exact, int n_workers, const float *bias, float *y,
                int64_t stride)
{
    status st = STATUS_INIT;
    threads *team = NULL;
    weight w = {0};
    product_scratch scratch = {0};
    assert_int_equal(threads_new(&team, n_workers, &st), ST_OK);
    assert_int_equal(weight_init(&w, ks, team, s->t, s->rows, s->k, s->data, &st), ST_OK);
    assert_int_equal(product_scratch_init(&scratch, s->k, s->n, &st), ST_OK);
    for (int64_t i = 0; i < s->n * stride; i++) y[i] = 12345;
    product p = {&w, bias, y, stride};
    product_call call = {.x = s->x, .x_stride = s->k, .n = s->n, .products = &p, .n_products = 1, .exact = exact};
    product_run(ks, team, &scratch, &call);
    for (int c = 0; c < s->n; c++)
        for (int64_t r = s->rows; r < stride; r++) assert_true(y[c * stride + r] == 12345);
    product_scratch_deinit(&scratch);
    weight_deinit(&w);
    threads_free(team);
}

/* One activation row as the products see it. */
static void as_seen(const setup *s, bool exact, int col, double *out)
{
    for (int64_t i = 0; i < s->k; i++) out[i] = (double)s->x[col * s->k + i];
    if (exact || !dtype_is_quantized(s->t)) return;
    act_strip *strips = mem_array((size_t)s->k / 32, sizeof *strips);
    scalar->quantize(s->x + col * s->k, s->k, strips, 0, 1);
    activations(strips, s->k, 0, 1, out);
    mem_free(strips);
}

static void check_against_double(const kernels *ks, const setup *s, bool exact, const float *y, int64_t stride)
{
    double *x = mem_array((size_t)s->k, sizeof *x), *size = mem_array((size_t)s->k, sizeof *size);
    float *w = mem_array((size_t)s->k, sizeof *w);
    for (int64_t r = 0; r < s->rows; r++) {
        const uint8_t *row = s->data + (size_t)r * dtype_row_bytes(s->t, s->k);
        dtype_to_float(s->t, row, w, s->k);
        term_sizes(s->t, row, s->k, w, size);
        for (int c = 0; c < s->n; c++) {
            double sum = 0, bound = 0;
            as_seen(s, exact, c, x);
            for (int64_t i = 0; i < s->k; i++) {
                sum += (double)w[i] * x[i];
                bound += size[i] * fabs(x[i]);
            }
            double error = fabs(sum - (double)y[c * stride + r]);
            if (!(error <= 8 * 0x1p-24 * bound + 0x1p-149 * (double)s->k))
                fail_msg("%s %s k %lld row %lld column %d: %.9g, not %.9g (terms %.3g)", ks->name,
                         dtype_get(s->t)->name, (long long)s->k, (long long)r, c, (double)y[c * stride + r], sum,
                         bound);
        }
    }
    mem_free(x);
    mem_free(size);
    mem_free(w);
}

static void check_setup(const setup *s)
{
    int64_t stride = s->rows + 3;
    float *y = mem_array((size_t)(s->n * stride), sizeof *y);
    for (int exact = 0; exact < 2; exact++) {
        run(scalar, s, exact, 1, NULL, y, stride);
        check_against_double(scalar, s, exact, y, stride);
    }
    mem_free(y);
}

static void test_against_double(void **state)
{
    (void)state;
    seed = 1;
    for (int i = 0; i < N_WEIGHT_TYPES; i++)
        for (int what = 0; what < N_CONTENTS; what++) {
            int64_t unit = dtype_get(weight_types[i])->block_elems, ks[] = {1, 2, 3, 7};
            for (int n = 0; n < 4; n++) {
                int64_t k = unit == 1 ? 1 + 37 * n : unit * ks[n];
                setup s = make_setup(weight_types[i], 8 * n + 1 + n * 2, k, 1 + 2 * n, (content)what);
                check_setup(&s);
                free_setup(&s);
            }
        }
}

/* Columns [first, first + n) alone, and the first n_rows rows: the bits of `all`, which has n_all columns and every
 * row. */
static void check_part(const kernels *ks, const setup *s, bool exact, int first, int n, int64_t n_rows, int n_workers,
                       const float *all, int64_t stride)
{
    setup part = *s;
    part.n = n;
    part.rows = n_rows;
    part.x = s->x + first * s->k;
    float *y = mem_array((size_t)(n * stride), sizeof *y);
    run(ks, &part, exact, n_workers, NULL, y, stride);
    for (int c = 0; c < n; c++)
        if (memcmp(y + c * stride, all + (first + c) * stride, (size_t)n_rows * sizeof *y))
            fail_msg("%s %s: %d columns, %lld rows, %d workers: column %d gives other bits than beside all", ks->name,
                     dtype_get(s->t)->name, n, (long long)n_rows, n_workers, c);
    mem_free(y);
}

/* A column's bits are the same alone and beside any number of others, for every level, team and number of panels. */
static void test_same_bits(void **state)
{
    (void)state;
    seed = 2;
    for (int i = 0; i < N_WEIGHT_TYPES; i++) {
        const int n_all = 130;
        int64_t k = dtype_get(weight_types[i])->block_elems == 1 ? 70 : 256, rows = 83, stride = 90;
        setup s = make_setup(weight_types[i], rows, k, n_all, RANDOM);
        float *all = mem_array((size_t)(n_all * stride), sizeof *all);
        for (int exact = 0; exact < 2; exact++) {
            run(scalar, &s, exact, 1, NULL, all, stride);
            for (int level = 0; level < n_tables; level++) {
                for (int n = 1; n <= 65; n += level ? 1 : 16)
                    check_part(tables[level], &s, exact, (int)(draw() % (unsigned)(n_all - n + 1)), n, rows, 1 + n % 3,
                               all, stride);
                for (int n_rows = 1; n_rows < 80; n_rows += 7)
                    check_part(tables[level], &s, exact, 0, 1 + n_rows % 9, n_rows, 1 + n_rows % 4, all, stride);
            }
        }
        mem_free(all);
        free_setup(&s);
    }
}

static void test_unpack_row(void **state)
{
    (void)state;
    seed = 3;
    for (int i = 0; i < N_WEIGHT_TYPES; i++) {
        int64_t k = 3 * dtype_get(weight_types[i])->block_elems, rows = 13;
        uint8_t *data = make_rows(weight_types[i], rows, k, RANDOM);
        float want[768], got[768];
        status st = STATUS_INIT;
        threads *team = NULL;
        weight w = {0};
        threads_new(&team, 1, &st);
        weight_init(&w, scalar, team, weight_types[i], rows, k, data, &st);
        for (int64_t r = 0; r < rows; r++) {
            dtype_to_float(weight_types[i], data + (size_t)r * dtype_row_bytes(weight_types[i], k), want, k);
            weight_row(&w, scalar, r, got);
            assert_memory_equal(want, got, (size_t)k * sizeof *want);
        }
        weight_deinit(&w);
        threads_free(team);
        mem_free(data);
    }
}

static void test_quantize(void **state)
{
    (void)state;
    seed = 4;
    float x[96];
    act_strip strips[3];
    for (int round = 0; round < 2000; round++) {
        for (int i = 0; i < 96; i++) x[i] = uniform() * exp2f((float)(draw() % 20) - 10);
        if (round % 3 == 1) memset(x + 16, 0, 64);
        if (round % 3 == 2)
            for (int i = 0; i < 16; i++) x[32 + i] *= 0x1p-130f;
        scalar->quantize(x, 96, strips, 0, 1);
        for (int i = 0; i < 96; i++) {
            const act_strip *a = &strips[i / 32];
            float d = a->d[i % 32 / 16];
            assert_true(a->q[i % 32] >= -127);
            assert_true(fabsf(x[i] - d * a->q[i % 32]) <= d * 0.501f + 0x1p-120f);
        }
    }
}

static void test_quantize_by_hand(void **state)
{
    (void)state;
    float x[32] = {127, -127, 0.5f, 1.5f, 2.5f, -0.5f};
    x[16] = NAN;
    for (int i = 0; i < n_tables; i++) {
        act_strip a;
        tables[i]->quantize(x, 32, &a, 0, 1);
        const int8_t want[6] = {127, -127, 0, 2, 2, 0}; /* halves go to the even neighbour */
        assert_memory_equal(a.q, want, 6);
        assert_true(a.d[0] == 1 && a.sum[0] == 4 && isnan(a.d[1]) && isnan(a.s) && a.sum[1] == 0);
        x[16] = 0;
        tables[i]->quantize(x, 32, &a, 0, 1);
        assert_true(a.d[1] == 0 && a.s == 4);
        x[16] = NAN;
    }
}

/* Two rows of Q4_1 by hand: 0.5 * code - 1 over activations 127, -127, 1, 0, 0, ... */
static void test_by_hand(void **state)
{
    (void)state;
    uint8_t data[40] = {0};
    for (int r = 0; r < 2; r++) {
        put_half(data + 20 * r, 0.5f);
        put_half(data + 20 * r + 2, -1);
    }
    data[4] = 0x0F;  /* row 0: code 0 is 15 */
    data[25] = 0x03; /* row 1: code 1 is 3 */
    data[26] = 0x02; /* row 1: code 2 is 2 */
    float x[32] = {127, -127, 1}, bias[2] = {0.25f, 1000}, y[2];
    setup s = {DTYPE_Q4_1, 2, 32, 1, data, x};
    for (int i = 0; i < n_tables; i++)
        for (int exact = 0; exact < 2; exact++) {
            run(tables[i], &s, exact, 1, bias, y, 2);
            assert_true(y[0] == 6.5f * 127 + 127 - 1 + 0.25f);
            assert_true(y[1] == -127 - 0.5f * 127 + 0 + 1000);
        }
}

/* A NaN or infinity among the activations shows in that column, and in no other. */
static void test_not_finite(void **state)
{
    (void)state;
    seed = 5;
    for (int i = 0; i < N_WEIGHT_TYPES; i++) {
        setup s = make_setup(weight_types[i], 16, 256, 5, RANDOM);
        float y[5 * 16];
        s.x[2 * 256 + 100] = NAN;
        s.x[3 * 256 + 9] = -INFINITY;
        for (int t = 0; t < n_tables; t++)
            for (int exact = 0; exact < 2; exact++) {
                run(tables[t], &s, exact, 1, NULL, y, 16);
                for (int c = 0; c < 5; c++)
                    for (int r = 0; r < 16; r++) assert_true((c == 2 || c == 3) == !isfinite(y[16 * c + r]));
            }
        free_setup(&s);
    }
}

/* Several weights of different types that share their input give what each gives alone. */
static void test_shared_input(void **state)
{
    (void)state;
    seed = 6;
    const dtype mix[4] = {DTYPE_Q4_K, DTYPE_F16, DTYPE_Q6_K, DTYPE_Q8_0};
    const int64_t k = 512, rows[4] = {40, 7, 129, 64};
    const kernels *ks = tables[n_tables - 1];
    const int n = 70;
    setup s[4];
    weight w[4] = {{0}};
    float *y[4], *alone = mem_array((size_t)n * 129, sizeof *alone);
    product p[4];
    product_scratch scratch = {0};
    status st = STATUS_INIT;
    threads *team = NULL;
    threads_new(&team, 3, &st);
    product_scratch_init(&scratch, k, n, &st);
    for (int i = 0; i < 4; i++) {
        s[i] = make_setup(mix[i], rows[i], k, n, RANDOM);
        memcpy(s[i].x, s[0].x, (size_t)(n * k) * sizeof(float));
        weight_init(&w[i], ks, team, mix[i], rows[i], k, s[i].data, &st);
        y[i] = mem_array((size_t)(n * rows[i]), sizeof(float));
        p[i] = (product){&w[i], NULL, y[i], rows[i]};
    }
    product_call call = {.x = s[0].x, .x_stride = k, .n = n, .products = p, .n_products = 4};
    product_run(ks, team, &scratch, &call);
    for (int i = 0; i < 4; i++) {
        run(ks, &s[i], false, 1, NULL, alone, rows[i]);
        assert_memory_equal(alone, y[i], (size_t)(n * rows[i]) * sizeof(float));
        weight_deinit(&w[i]);
        mem_free(y[i]);
        free_setup(&s[i]);
    }
    mem_free(alone);
    product_scratch_deinit(&scratch);
    threads_free(team);
}

typedef struct row_maker {
    const float *from;
    float *x;
    int64_t k;
    _Atomic int made;
} row_maker;

static void copy_row(void *arg, int row)
{
    row_maker *m = arg;
    memcpy(m->x + row * m->k, m->from + row * m->k, (size_t)m->k * sizeof *m->x);
    atomic_fetch_add(&m->made, 1);
}

/* Rows made on the way and a gate give the bits of rows that stood there, and of the gate after the products; also
 * where the last panel isn't full, for one column, few, and more than a tile. */
static void test_made_rows_and_gate(void **state)
{
    (void)state;
    seed = 7;
    const int64_t k = 256, rows = 203;
    static const int columns[] = {1, 3, 70};
    const kernels *ks = tables[n_tables - 1];
    status st = STATUS_INIT;
    threads *team = NULL;
    threads_new(&team, 3, &st);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        const int n = columns[i];
        size_t n_y = (size_t)(n * rows);
        setup s[2] = {make_setup(DTYPE_Q4_K, rows, k, n, RANDOM), make_setup(DTYPE_Q6_K, rows, k, n, RANDOM)};
        memcpy(s[1].x, s[0].x, (size_t)(n * k) * sizeof(float));
        float *alone[2], *y[2], *x = mem_array((size_t)(n * k), sizeof *x);
        weight w[2] = {{0}};
        product p[2];
        product_scratch scratch = {0};
        product_scratch_init(&scratch, k, n, &st);
        for (int j = 0; j < 2; j++) {
            alone[j] = mem_array(n_y, sizeof(float));
            y[j] = mem_array(n_y, sizeof(float));
            run(ks, &s[j], false, 1, NULL, alone[j], rows);
            weight_init(&w[j], ks, team, s[j].t, rows, k, s[j].data, &st);
            p[j] = (product){&w[j], NULL, y[j], rows};
        }
        ks->silu_mul(alone[0], alone[1], (int64_t)n_y, alone[0]);
        row_maker maker = {s[0].x, x, k, 0};
        product_call call = {x, k, n, copy_row, &maker, p, 2, ks->silu_mul, false};
        product_run(ks, team, &scratch, &call);
        assert_int_equal(maker.made, n);
        assert_memory_equal(y[0], alone[0], n_y * sizeof(float));
        for (int j = 0; j < 2; j++) {
            mem_free(alone[j]);
            mem_free(y[j]);
            weight_deinit(&w[j]);
            free_setup(&s[j]);
        }
        mem_free(x);
        product_scratch_deinit(&scratch);
    }
    threads_free(team);
}

/* Panels may lie in the caller's memory, which weight_deinit leaves alone. */
static void test_borrowed_panels(void **state)
{
    (void)state;
    seed = 8;
    const kernels *ks = tables[n_tables - 1];
    status st = STATUS_INIT;
    threads *team = NULL;
    threads_new(&team, 1, &st);
    setup s = make_setup(DTYPE_Q4_0, 21, 64, 1, RANDOM);
    size_t n_bytes;
    assert_int_equal(weight_size(&n_bytes, ks, s.t, s.rows, s.k, &st), ST_OK);
    char *memory = mem_pages_alloc(n_bytes + 64);
    weight own, borrowed;
    weight_init(&own, ks, team, s.t, s.rows, s.k, s.data, &st);
    assert_int_equal(weight_alloc(&borrowed, ks, s.t, s.rows, s.k, memory, &st), ST_OK);
    weight_pack(&borrowed, ks, team, 0, s.rows, s.data);
    assert_int_equal(borrowed.n_bytes, n_bytes);
    assert_memory_equal(memory, own.panels, own.n_bytes);
    for (size_t i = n_bytes; i < n_bytes + 64; i++) assert_int_equal(memory[i], 0);
    weight_deinit(&own);
    weight_deinit(&borrowed);
    assert_null(borrowed.panels);
    mem_pages_free(memory, n_bytes + 64);
    free_setup(&s);
    threads_free(team);
}

static void test_no_memory(void **state)
{
    (void)state;
    status st = STATUS_INIT;
    weight w = {0};
    product_scratch scratch = {0};
    threads *team = NULL;
    float row[4] = {0};
    threads_new(&team, 1, &st);
    mem_counters before = mem_stats();
    mem_fail_after(1);
    assert_int_equal(weight_init(&w, scalar, team, DTYPE_F32, 1, 4, row, &st), ST_NOMEM);
    assert_null(w.panels);
    mem_fail_after(1);
    assert_int_equal(product_scratch_init(&scratch, 64, 8, &st), ST_NOMEM);
    assert_int_equal(weight_init(&w, scalar, team, DTYPE_F32, 1, 4, row, &st), ST_OK);
    weight_deinit(&w);
    weight_deinit(&w);
    product_scratch_deinit(&scratch);
    assert_int_equal(mem_stats().bytes, before.bytes);
    threads_free(team);
}

static int get_tables(void **state)
{
    (void)state;
    for (int l = CPU_SCALAR; l < CPU_LEVELS; l++) {
        if (kernels_get((cpu_level)l)) tables[n_tables++] = kernels_get((cpu_level)l);
    }
    scalar = tables[0];
    return scalar ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_double),   cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_unpack_row),       cmocka_unit_test(test_quantize),
        cmocka_unit_test(test_quantize_by_hand), cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_not_finite),       cmocka_unit_test(test_shared_input),
        cmocka_unit_test(test_made_rows_and_gate),
        cmocka_unit_test(test_borrowed_panels),  cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, get_tables, NULL);
}
