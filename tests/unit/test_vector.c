/* Elementwise kernels: every level against double references at odd lengths and hard values; bits that don't depend on
 * place. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "kernel/kernel.h"

#define MAX_N 70
#define GUARD 1234.5f

static const cpu_level levels[] = {CPU_SCALAR, CPU_AVX2, CPU_AVX512};
#define N_LEVELS ((int)(sizeof levels / sizeof levels[0]))

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

/* Calls check for every level that this machine has, every length and every kind of values. */
static void for_all(void (*check)(const kernels *k, int n, int kind))
{
    for (int level = 0; level < N_LEVELS; level++) {
        const kernels *k = kernels_get(levels[level]);
        for (int n = 1; k && n <= MAX_N; n++) {
            for (int kind = 0; kind < N_KINDS; kind++) check(k, n, kind);
        }
    }
}

typedef struct arrays {
    float x[MAX_N + 1], y[MAX_N + 1], out[MAX_N + 1];
} arrays;

static arrays make(int n, int kind)
{
    arrays a = {0};
    fill(a.x, n, kind);
    fill(a.y, n, ORDINARY);
    a.out[n] = a.x[n] = GUARD;
    return a;
}

/* out is right up to `relative` and nothing behind it was written; run again in place it gives the same bits. */
static void check_out(const arrays *a, int n, double (*want)(double x, double y), double relative, double absolute)
{
    for (int i = 0; i < n; i++) assert_near(a->out[i], want(a->x[i], a->y[i]), relative, absolute);
    assert_true(a->out[n] == GUARD);
}

static void check_in_place(const arrays *a, const float *in_place, int n)
{
    assert_memory_equal(a->out, in_place, (size_t)n * sizeof(float));
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

static void check_add(const kernels *k, int n, int kind)
{
    arrays a = make(n, kind);
    k->add(a.x, a.y, n, a.out);
    check_out(&a, n, want_add, 1e-6, 1e-44);
    float *in_place = a.x;
    k->add(in_place, a.y, n, in_place);
    check_in_place(&a, in_place, n);
}

static void check_scale(const kernels *k, int n, int kind)
{
    arrays a = make(n, kind);
    k->scale(a.x, 0.3f, n, a.out);
    check_out(&a, n, want_scale, 1e-6, 1e-44);
    k->scale(a.x, 0.3f, n, a.x);
    check_in_place(&a, a.x, n);
}

static void check_silu(const kernels *k, int n, int kind)
{
    arrays a = make(n, kind);
    k->silu_mul(a.x, a.y, n, a.out);
    check_out(&a, n, want_silu, 1e-6, 1e-34);
    k->silu_mul(a.x, a.y, n, a.x);
    check_in_place(&a, a.x, n);
}

static void check_gelu(const kernels *k, int n, int kind)
{
    arrays a = make(n, kind);
    k->gelu_mul(a.x, a.y, n, a.out);
    /* far below zero the exponent's own rounding (2^-24 of up to 87) is a relative error of the result */
    check_out(&a, n, want_gelu, 2e-5, 1e-34);
    k->gelu_mul(a.x, a.y, n, a.x);
    check_in_place(&a, a.x, n);
}

static void check_softcap(const kernels *k, int n, int kind)
{
    arrays a = make(n, kind);
    k->softcap(a.x, 30, n, a.out);
    check_out(&a, n, want_softcap, 1e-6, 1e-43);
    k->softcap(a.x, 30, n, a.x);
    check_in_place(&a, a.x, n);
}

static void check_rms_norm(const kernels *k, int n, int kind)
{
    arrays a = make(n, kind);
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)a.x[i] * a.x[i];
    double inverse = 1 / sqrt(sum / n + 1e-6);
    k->rms_norm(a.x, a.y, 1e-6f, n, a.out);
    for (int i = 0; i < n; i++) assert_near(a.out[i], a.x[i] * inverse * a.y[i], 1e-6, 1e-43);
    assert_true(a.out[n] == GUARD);
    k->rms_norm(a.x, a.y, 1e-6f, n, a.x);
    check_in_place(&a, a.x, n);
}

static void check_to_half(const kernels *k, int n, int kind)
{
    arrays a = make(n, kind);
    uint16_t out[MAX_N + 1];
    out[n] = 0x1234;
    k->to_half(a.x, n, out);
    for (int i = 0; i < n; i++) assert_int_equal(out[i], float_to_half(a.x[i]));
    assert_int_equal(out[n], 0x1234);
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

static void check_rope(const kernels *k, int n, int kind)
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
        k->rope(x, HEADS, STRIDE, n, cs, (rope_style)style);
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

static void test_to_half(void **state)
{
    (void)state;
    for_all(check_to_half);
}

static void test_rope(void **state)
{
    (void)state;
    for_all(check_rope);
}

/* The last elements of an array go through the same arithmetic as those in full vectors. */
static void test_tails_have_the_bits_of_the_body(void **state)
{
    (void)state;
    for (int level = 0; level < N_LEVELS; level++) {
        const kernels *k = kernels_get(levels[level]);
        for (int kind = 0; k && kind < N_KINDS; kind++) {
            arrays whole = make(MAX_N - MAX_N % 8, kind), part = whole;
            for (int f = 0; f < 5; f++) {
                for (int n = 1; n <= MAX_N - MAX_N % 8; n += n < 9 ? 1 : 47) {
                    for (int pass = 0; pass < 2; pass++) {
                        arrays *a = pass ? &part : &whole;
                        int len = pass ? n : MAX_N - MAX_N % 8;
                        if (f == 0) k->silu_mul(a->x, a->y, len, a->out);
                        if (f == 1) k->gelu_mul(a->x, a->y, len, a->out);
                        if (f == 2) k->softcap(a->x, 30, len, a->out);
                        if (f == 3) k->add(a->x, a->y, len, a->out);
                        if (f == 4) k->scale(a->x, 0.3f, len, a->out);
                    }
                    assert_memory_equal(whole.out, part.out, (size_t)n * sizeof(float));
                }
            }
        }
    }
}

static void test_far_values(void **state)
{
    (void)state;
    const float x[] = {1e20f, -1e20f, 3e38f, -3e38f, 89.5f, -89.5f, 0.0f, -0.0f};
    const float one[] = {1, 1, 1, 1, 1, 1, 1, 1};
    float out[8];
    for (int level = 0; level < N_LEVELS; level++) {
        const kernels *k = kernels_get(levels[level]);
        if (!k) continue;
        k->silu_mul(x, one, 8, out);
        for (int i = 0; i < 8; i++) assert_near(out[i], x[i] > 0 ? x[i] : 0, 1e-6, 1e-34);
        k->gelu_mul(x, one, 8, out);
        for (int i = 0; i < 8; i++) assert_near(out[i], x[i] > 0 ? x[i] : 0, 1e-6, 1e-34);
        k->softcap(x, 50, 8, out);
        for (int i = 0; i < 8; i++) assert_near(out[i], 50 * tanh((double)x[i] / 50), 1e-6, 0);
    }
}

static void test_not_a_number_stays(void **state)
{
    (void)state;
    const float x[3] = {1, NAN, 2}, one[3] = {1, 1, 1};
    float out[3];
    for (int level = 0; level < N_LEVELS; level++) {
        const kernels *k = kernels_get(levels[level]);
        if (!k) continue;
        k->silu_mul(x, one, 3, out);
        assert_true(isnan(out[1]) && !isnan(out[0]) && !isnan(out[2]));
        k->gelu_mul(x, one, 3, out);
        assert_true(isnan(out[1]) && !isnan(out[0]) && !isnan(out[2]));
        k->softcap(x, 30, 3, out);
        assert_true(isnan(out[1]) && !isnan(out[0]) && !isnan(out[2]));
    }
}

/* Every half, and the floats halfway between neighbours and beside them, rounds as float_to_half says. */
static void test_to_half_rounding(void **state)
{
    (void)state;
    for (int level = 0; level < N_LEVELS; level++) {
        const kernels *k = kernels_get(levels[level]);
        for (uint32_t h = 0; k && h < 0xFFFF; h++) {
            float f = half_to_float((uint16_t)h), x[9];
            uint16_t out[9];
            for (uint32_t i = 0; i < 9; i++) x[i] = bits_float(float_bits(f) + (i < 3 ? i : (i - 3) * 0x800 - 1));
            k->to_half(x, 9, out);
            for (int i = 0; i < 9; i++) assert_int_equal(out[i], float_to_half(x[i]));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_add),
        cmocka_unit_test(test_scale),
        cmocka_unit_test(test_silu),
        cmocka_unit_test(test_gelu),
        cmocka_unit_test(test_softcap),
        cmocka_unit_test(test_rms_norm),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_to_half),
        cmocka_unit_test(test_to_half_rounding),
        cmocka_unit_test(test_tails_have_the_bits_of_the_body),
        cmocka_unit_test(test_far_values),
        cmocka_unit_test(test_not_a_number_stays),
    };
    return cmocka_run_group_tests_name("vector", tests, NULL, NULL);
}
