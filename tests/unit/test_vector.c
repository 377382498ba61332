/* The reference's rows of floats against doubles, at hard values. What the other levels make of them is check-kernel's
 * part. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernel/kernel.h"

#define MAX_N 70

static uint64_t seed = 1;

static double uniform(void) /* [-1, 1) */
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(seed >> 11) * 0x1p-52 - 1.0;
}

enum { ORDINARY, NEAR_ZERO, LARGE, DENORMAL, EQUAL, N_KINDS };

static void fill(float *x, int n, int kind)
{
    for (int i = 0; i < n; i++) {
        double u = uniform();
        switch (kind) {
        case NEAR_ZERO: x[i] = (float)(u * 1e-6); break;
        case LARGE: x[i] = (float)(u * 120); break;
        case DENORMAL: x[i] = (float)(u * 0x1p-130); break;
        case EQUAL: x[i] = 0.75f; break;
        default: x[i] = (float)(u * 4); break;
        }
    }
}

static void assert_near(double got, double want, double relative, double absolute)
{
    if (fabs(got - want) <= relative * fabs(want) + absolute) return;
    fail_msg("got %.9g, want %.9g", got, want);
}

static const kernels *reference(void)
{
    return kernels_get(CPU_SCALAR);
}

/* Calls check for every length and every kind of values. */
static void for_all(void (*check)(int n, int kind))
{
    for (int n = 1; n <= MAX_N; n++) {
        for (int kind = 0; kind < N_KINDS; kind++) check(n, kind);
    }
}

typedef struct arrays {
    float x[MAX_N], y[MAX_N], out[MAX_N];
} arrays;

static arrays make(int n, int kind)
{
    arrays a = {0};
    fill(a.x, n, kind);
    fill(a.y, n, ORDINARY);
    return a;
}

static void check_out(const arrays *a, int n, double (*want)(double x, double y), double relative, double absolute)
{
    for (int i = 0; i < n; i++) assert_near(a->out[i], want(a->x[i], a->y[i]), relative, absolute);
}

static double want_add(double x, double y)
{
    return x + y;
}

static double want_scale(double x, double y)
{
    (void)y;
    return x * 0.3f;
}

static double want_silu(double x, double y)
{
    return x / (1 + exp(-x)) * y;
}

static double want_gelu(double x, double y)
{
    return x / (1 + exp(-2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x))) * y;
}

static double want_softcap(double x, double y)
{
    (void)y;
    return 30 * tanh(x / 30);
}

static void check_add(int n, int kind)
{
    arrays a = make(n, kind);
    reference()->add(a.x, a.y, n, a.out);
    check_out(&a, n, want_add, 1e-6, 1e-44);
}

static void check_scale(int n, int kind)
{
    arrays a = make(n, kind);
    reference()->scale(a.x, 0.3f, n, a.out);
    check_out(&a, n, want_scale, 1e-6, 1e-44);
}

static void check_silu(int n, int kind)
{
    arrays a = make(n, kind);
    reference()->silu_mul(a.x, a.y, n, a.out);
    check_out(&a, n, want_silu, 1e-6, 1e-34);
}

static void check_gelu(int n, int kind)
{
    arrays a = make(n, kind);
    reference()->gelu_mul(a.x, a.y, n, a.out);
    /* far below zero the exponent's own rounding (2^-24 of up to 87) is a relative error of the result */
    check_out(&a, n, want_gelu, 2e-5, 1e-34);
}

static void check_softcap(int n, int kind)
{
    arrays a = make(n, kind);
    reference()->softcap(a.x, 30, n, a.out);
    check_out(&a, n, want_softcap, 1e-6, 1e-43);
}

static void check_rms_norm(int n, int kind)
{
    arrays a = make(n, kind);
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)a.x[i] * a.x[i];
    double inverse = 1 / sqrt(sum / n + 1e-6);
    reference()->rms_norm(a.x, a.y, 1e-6f, n, a.out);
    for (int i = 0; i < n; i++) assert_near(a.out[i], a.x[i] * inverse * a.y[i], 1e-6, 1e-43);
}

static void check_rope_head(const float *was, const float *now, int n_rot, const float *cs, rope_style style)
{
    int half = n_rot / 2;
    for (int i = 0; i < half; i++) {
        int a = style == ROPE_PAIRS ? 2 * i : i, b = style == ROPE_PAIRS ? 2 * i + 1 : i + half;
        double c = cs[2 * i], s = cs[2 * i + 1];
        double size = fabs((double)was[a]) + fabs((double)was[b]);
        assert_near(now[a], was[a] * c - was[b] * s, 0, 1e-6 * size + 1e-44);
        assert_near(now[b], was[b] * c + was[a] * s, 0, 1e-6 * size + 1e-44);
    }
}

static void check_rope(int n, int kind)
{
    if (n % 2) return;
    enum { HEADS = 3, STRIDE = MAX_N + 5 };
    float x[HEADS * STRIDE], was[HEADS * STRIDE], cs[MAX_N];
    for (int i = 0; i < n; i += 2) {
        double angle = 3 * uniform();
        cs[i] = (float)cos(angle);
        cs[i + 1] = (float)sin(angle);
    }
    for (int style = ROPE_PAIRS; style <= ROPE_HALVES; style++) {
        fill(x, HEADS * STRIDE, kind);
        memcpy(was, x, sizeof x);
        reference()->rope(x, HEADS, STRIDE, n, cs, (rope_style)style);
        for (int h = 0; h < HEADS; h++) {
            check_rope_head(was + h * STRIDE, x + h * STRIDE, n, cs, (rope_style)style);
            assert_memory_equal(was + h * STRIDE + n, x + h * STRIDE + n, (size_t)(STRIDE - n) * sizeof(float));
        }
    }
}

static void test_add(void **state)
{
    (void)state;
    for_all(check_add);
}

static void test_scale(void **state)
{
    (void)state;
    for_all(check_scale);
}

static void test_silu(void **state)
{
    (void)state;
    for_all(check_silu);
}

static void test_gelu(void **state)
{
    (void)state;
    for_all(check_gelu);
}

static void test_softcap(void **state)
{
    (void)state;
    for_all(check_softcap);
}

static void test_rms_norm(void **state)
{
    (void)state;
    for_all(check_rms_norm);
}

static void test_rope(void **state)
{
    (void)state;
    for_all(check_rope);
}

static void test_far_values(void **state)
{
    (void)state;
    const float x[] = {1e20f, -1e20f, 3e38f, -3e38f, 89.5f, -89.5f, 0.0f, -0.0f};
    const float one[] = {1, 1, 1, 1, 1, 1, 1, 1};
    float out[8];
    const kernels *k = reference();
    k->silu_mul(x, one, 8, out);
    for (int i = 0; i < 8; i++) assert_near(out[i], x[i] > 0 ? x[i] : 0, 1e-6, 1e-34);
    k->gelu_mul(x, one, 8, out);
    for (int i = 0; i < 8; i++) assert_near(out[i], x[i] > 0 ? x[i] : 0, 1e-6, 1e-34);
    k->softcap(x, 50, 8, out);
    for (int i = 0; i < 8; i++) assert_near(out[i], 50 * tanh((double)x[i] / 50), 1e-6, 0);
}

static void test_not_a_number_stays(void **state)
{
    (void)state;
    const float x[3] = {1, NAN, 2}, one[3] = {1, 1, 1};
    float out[3];
    const kernels *k = reference();
    k->silu_mul(x, one, 3, out);
    assert_true(isnan(out[1]) && !isnan(out[0]) && !isnan(out[2]));
    k->gelu_mul(x, one, 3, out);
    assert_true(isnan(out[1]) && !isnan(out[0]) && !isnan(out[2]));
    k->softcap(x, 30, 3, out);
    assert_true(isnan(out[1]) && !isnan(out[0]) && !isnan(out[2]));
}

static void test_span_max(void **state)
{
    (void)state;
    float x[2 * SPAN + 1], largest[3];
    for (int i = 0; i < 2 * SPAN + 1; i++) x[i] = (float)(-1 - i % 7);
    x[SPAN - 1] = 5;
    x[SPAN] = -0.5f;
    assert_true(reference()->span_max(x, 2 * SPAN + 1, largest));
    assert_true(largest[0] == 5 && largest[1] == -0.5f && largest[2] == x[2 * SPAN]);
    const float odd[] = {INFINITY, -INFINITY, NAN};
    for (int i = 0; i < 3; i++) {
        x[SPAN * i] = odd[i];
        assert_false(reference()->span_max(x, 2 * SPAN + 1, largest));
        x[SPAN * i] = 0;
    }
    assert_true(reference()->span_max(x, 1, largest));
}

static void test_sum_exp(void **state)
{
    (void)state;
    const float x[] = {0, -1, -2, -INFINITY, -3000};
    assert_near(reference()->sum_exp(x, 5, 0, 1), 1 + exp(-1) + exp(-2), 1e-15, 0);
    assert_near(reference()->sum_exp(x, 3, 1, 2), exp(-2) + exp(-4) + exp(-6), 1e-15, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_add),  cmocka_unit_test(test_scale),      cmocka_unit_test(test_silu),
        cmocka_unit_test(test_gelu), cmocka_unit_test(test_softcap),    cmocka_unit_test(test_rms_norm),
        cmocka_unit_test(test_rope), cmocka_unit_test(test_far_values), cmocka_unit_test(test_not_a_number_stays),
        cmocka_unit_test(test_span_max),
        cmocka_unit_test(test_sum_exp),
    };
    return cmocka_run_group_tests_name("vector", tests, NULL, NULL);
}
