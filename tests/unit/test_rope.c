/* Angles of every kind of rotary embedding, against their definitions written out. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "model/rope.h"

static void expect_angle(const float *pair, double angle, double scale)
{
    assert_true(fabs(pair[0] - cos(angle) * scale) < 1e-6);
    assert_true(fabs(pair[1] - sin(angle) * scale) < 1e-6);
}

/* Angles of a rope at some positions against theta(i) * position, times scale. */
static void expect(const rope_params *p, int n_rot, const float *factors, const double *theta, double scale)
{
    const int64_t positions[] = {0, 1, 7, 1000, 131071};
    status st = STATUS_INIT;
    rope r;
    float out[256];
    assert_int_equal(rope_init(&r, p, n_rot, factors, &st), ST_OK);
    for (size_t j = 0; j < sizeof positions / sizeof *positions; j++) {
        rope_angles(&r, positions[j], out);
        for (int i = 0; i < n_rot / 2; i++) expect_angle(out + 2 * i, (double)positions[j] * theta[i], scale);
    }
    rope_deinit(&r);
}

static void plain(void **state)
{
    (void)state;
    double theta[8];
    for (int i = 0; i < 8; i++) theta[i] = pow(10000, -i / 8.0);
    rope_params p = {.base = 10000, .factor = 1};
    expect(&p, 16, NULL, theta, 1);
    assert_true(theta[0] == 1 && fabs(theta[4] - 0.01) < 1e-12);
}

static void linear(void **state)
{
    (void)state;
    double theta[8];
    for (int i = 0; i < 8; i++) theta[i] = pow(10000, -i / 8.0) / 4;
    rope_params p = {.base = 10000, .factor = 4, .scaling = ROPE_SCALING_LINEAR};
    expect(&p, 16, NULL, theta, 1);
}

static void divisors(void **state)
{
    (void)state;
    double theta[4];
    const float factors[] = {1, 1.5f, 4, 32};
    for (int i = 0; i < 4; i++) theta[i] = pow(500000, -i / 4.0) / factors[i];
    rope_params p = {.base = 500000, .factor = 1};
    expect(&p, 8, factors, theta, 1);
}

/* Dimension by dimension as in the paper: by how often its wave turns within the original context. */
static void yarn(void **state)
{
    (void)state;
    enum { N = 64 };
    double theta[N / 2], base = 1000000, factor = 4, context = 32768;
    int fast = 0, slow = 0;
    double low = floor(N * log(context / (32 * 2 * M_PI)) / (2 * log(base))),
           high = ceil(N * log(context / (2 * M_PI)) / (2 * log(base)));
    for (int i = 0; i < N / 2; i++) {
        double own = pow(base, -2.0 * i / N), ramp = fmin(fmax((i - low) / (high - low), 0), 1);
        theta[i] = own / factor * ramp + own * (1 - ramp);
        fast += theta[i] == own;
        slow += fabs(theta[i] - own / factor) < 1e-15;
    }
    assert_true(fast > 3 && slow > 3 && fast + slow < N / 2);
    rope_params p = {.base = 1000000,
                     .factor = 4,
                     .scaling = ROPE_SCALING_YARN,
                     .original_context = 32768,
                     .yarn_beta_fast = 32,
                     .yarn_beta_slow = 1};
    expect(&p, N, NULL, theta, 0.1 * log(factor) + 1);
    p.attn_factor = 1.25f; /* beside the method's own rule */
    expect(&p, N, NULL, theta, 1.25 * (0.1 * log(factor) + 1));
    p.yarn_attn_factor = 1.5f; /* instead of it */
    expect(&p, N, NULL, theta, 1.25 * 1.5);
    p.factor = 1;
    p.attn_factor = p.yarn_attn_factor = 0;
    for (int i = 0; i < N / 2; i++) theta[i] = pow(base, -2.0 * i / N);
    expect(&p, N, NULL, theta, 1);
}

static void longrope(void **state)
{
    (void)state;
    double theta[4];
    const float factors[] = {1, 2, 3, 4};
    for (int i = 0; i < 4; i++) theta[i] = pow(10000, -i / 4.0) / factors[i];
    rope_params p = {.base = 10000, .factor = 32, .scaling = ROPE_SCALING_LONGROPE, .original_context = 4096};
    expect(&p, 8, factors, theta, sqrt(1 + log(32) / log(4096)));
    p.attn_factor = 1.19f;
    expect(&p, 8, factors, theta, 1.19f);
    p.attn_factor = 0;
    p.factor = 1;
    expect(&p, 8, factors, theta, 1);
}

/* In float an angle of ten million would be off by half a turn. */
static void far_positions_stay_exact(void **state)
{
    (void)state;
    status st = STATUS_INIT;
    rope_params p = {.base = 10000, .factor = 1};
    rope r;
    float out[64];
    assert_int_equal(rope_init(&r, &p, 64, NULL, &st), ST_OK);
    rope_angles(&r, 10000019, out);
    for (int i = 0; i < 32; i++) {
        long double angle = 10000019.0L * powl(10000, -i / 32.0L);
        assert_true(fabsl(out[2 * i] - cosl(angle)) < 1e-6L && fabsl(out[2 * i + 1] - sinl(angle)) < 1e-6L);
    }
    rope_deinit(&r);
}

static void odd_numbers_stay_numbers(void **state)
{
    (void)state;
    const rope_params cases[] = {
        {.base = 1,
         .factor = 4,
         .scaling = ROPE_SCALING_YARN,
         .original_context = 1,
         .yarn_beta_fast = 32,
         .yarn_beta_slow = 1},
        {.base = 10000,
         .factor = 1e6f,
         .scaling = ROPE_SCALING_YARN,
         .original_context = 1,
         .yarn_beta_fast = 1,
         .yarn_beta_slow = 1},
        {.base = 10000, .factor = 4, .scaling = ROPE_SCALING_LONGROPE, .original_context = 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        status st = STATUS_INIT;
        rope r;
        float out[8];
        assert_int_equal(rope_init(&r, &cases[i], 8, NULL, &st), ST_OK);
        rope_angles(&r, 3, out);
        for (int j = 0; j < 8; j++) assert_true(isfinite(out[j]));
        rope_deinit(&r);
    }
}

static void short_memory(void **state)
{
    (void)state;
    status st = STATUS_INIT;
    rope_params p = {.base = 10000, .factor = 1};
    rope r = {0};
    uint64_t live = mem_stats().live;
    mem_fail_after(1);
    assert_int_equal(rope_init(&r, &p, 8, NULL, &st), ST_NOMEM);
    rope_deinit(&r);
    assert_int_equal(mem_stats().live, live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain),
        cmocka_unit_test(linear),
        cmocka_unit_test(divisors),
        cmocka_unit_test(yarn),
        cmocka_unit_test(longrope),
        cmocka_unit_test(far_positions_stay_exact),
        cmocka_unit_test(odd_numbers_stay_numbers),
        cmocka_unit_test(short_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
