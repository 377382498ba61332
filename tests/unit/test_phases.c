/* phases: times add up, waiting is told apart, a clock that is off does nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "engine/phases.h"

static threads *team_of(int n)
{
    status st = STATUS_INIT;
    threads *team = NULL;
    assert_int_equal(threads_new(&team, n, &st), ST_OK);
    return team;
}

static void spin(int64_t ns)
{
    for (int64_t end = clock_ns() + ns; clock_ns() < end;) {}
}

static int64_t total(const phase_clock *c)
{
    int64_t sum = 0;
    for (int p = 0; p < PHASE_COUNT; p++) sum += c->ns[p];
    return sum;
}

static void times_add_up(void **state)
{
    (void)state;
    threads *team = team_of(1);
    phase_clock c = {0};
    int64_t before = clock_ns();
    phases_start(&c, team);
    int64_t begin = clock_ns();
    phase_enter(&c, PHASE_PRODUCTS);
    spin(200000);
    phase_enter(&c, PHASE_ATTENTION);
    spin(100000);
    phase_enter(&c, PHASE_PRODUCTS);
    spin(300000);
    int64_t end = clock_ns();
    phases_stop(&c);
    int64_t after = clock_ns();
    assert_true(total(&c) >= end - begin && total(&c) <= after - before);
    assert_true(c.ns[PHASE_PRODUCTS] >= 500000 && c.ns[PHASE_ATTENTION] >= 100000);
    assert_int_equal(c.ns[PHASE_WAITING], 0);
    assert_int_equal(c.ns[PHASE_HEAD], 0);
    threads_free(team);
}

/* Each worker has one of two units, and the caller's is done first. */
typedef struct meeting {
    _Atomic int caller, other;
    _Atomic int64_t caller_done_ns, other_done_ns;
} meeting;

static void late(void *arg, int begin, int end, int worker)
{
    meeting *m = arg;
    (void)begin;
    (void)end;
    *(worker == 0 ? &m->caller : &m->other) = 1;
    while (!m->caller || !m->other) {}
    if (worker) spin(2000000);
    *(worker == 0 ? &m->caller_done_ns : &m->other_done_ns) = clock_ns();
}

static void waiting_is_no_part_of_a_phase(void **state)
{
    (void)state;
    threads *team = team_of(2);
    phase_clock c = {0};
    meeting m = {0};
    phases_start(&c, team);
    phase_enter(&c, PHASE_ATTENTION);
    threads_run(team, late, &m, 2, 1);
    phases_stop(&c);
    int64_t least = m.other_done_ns - m.caller_done_ns;
    assert_true(c.ns[PHASE_WAITING] >= (least < 1000000 ? least : 1000000)); /* it reads the clock a little later */
    int64_t waited = c.ns[PHASE_WAITING];
    m.caller = m.other = 0;
    threads_run(team, late, &m, 2, 1);
    assert_int_equal(c.ns[PHASE_WAITING], waited);
    assert_int_equal(c.waited_ns, 0);
    threads_free(team);
}

static void a_clock_that_is_off_does_nothing(void **state)
{
    (void)state;
    phase_clock c = {0}, untouched = {0};
    phase_enter(&c, PHASE_HEAD);
    assert_memory_equal(&c, &untouched, sizeof c);
}

static void starting_again_starts_from_zero(void **state)
{
    (void)state;
    threads *team = team_of(1);
    phase_clock c = {0};
    phases_start(&c, team);
    phase_enter(&c, PHASE_HEAD);
    spin(100000);
    phases_stop(&c);
    phases_start(&c, team);
    phases_stop(&c);
    assert_int_equal(c.ns[PHASE_HEAD], 0);
    threads_free(team);
}

static void every_phase_has_a_name(void **state)
{
    (void)state;
    for (int p = 0; p < PHASE_COUNT; p++) {
        assert_non_null(phase_name((phase)p));
        for (int q = 0; q < p; q++) assert_string_not_equal(phase_name((phase)p), phase_name((phase)q));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_add_up),
        cmocka_unit_test(waiting_is_no_part_of_a_phase),
        cmocka_unit_test(a_clock_that_is_off_does_nothing),
        cmocka_unit_test(starting_again_starts_from_zero),
        cmocka_unit_test(every_phase_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
