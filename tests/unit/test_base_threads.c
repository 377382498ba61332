/* threads: every unit once, a full barrier, resizing, more workers than processors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/threads.h"

enum { MAX_UNITS = 1000 };

typedef struct tally {
    _Atomic int runs[MAX_UNITS];
    _Atomic int wrong; /* a piece larger than the grain, out of range, or a worker that does not exist */
    int n_units, grain, n_workers;
} tally;

static void count(void *arg, int begin, int end, int worker)
{
    tally *t = arg;
    if (begin < 0 || end > t->n_units || begin >= end || end - begin > t->grain || worker < 0 || worker >= t->n_workers)
        atomic_fetch_add(&t->wrong, 1);
    else
        for (int i = begin; i < end; i++) atomic_fetch_add(&t->runs[i], 1);
}

static void every_unit_runs_once(threads *team, int n_units, int grain)
{
    tally t = {.n_units = n_units, .grain = grain, .n_workers = threads_count(team)};
    threads_run(team, count, &t, n_units, grain);
    assert_int_equal(t.wrong, 0);
    for (int i = 0; i < MAX_UNITS; i++) assert_int_equal(t.runs[i], i < n_units);
}

static threads *team_of(int n)
{
    status st = STATUS_INIT;
    threads *team = NULL;
    assert_int_equal(threads_new(&team, n, &st), ST_OK);
    assert_int_equal(threads_count(team), n);
    return team;
}

static void units_run_once_whatever_the_split(void **state)
{
    (void)state;
    static const int sizes[] = {0, 1, 2, 3, 7, 64, 999, 1000}, grains[] = {1, 2, 3, 16, 999, 1000, 5000};
    for (int n = 1; n <= 5; n++) {
        threads *team = team_of(n);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (size_t j = 0; j < sizeof grains / sizeof *grains; j++) every_unit_runs_once(team, sizes[i], grains[j]);
        threads_free(team);
    }
    threads_free(NULL);
}

typedef struct relay {
    uint64_t cells[2][64]; /* plain memory: a missing barrier is a wrong sum, and a report under ThreadSanitizer */
    int from;
} relay;

static void mix(void *arg, int begin, int end, int worker)
{
    (void)worker;
    relay *r = arg;
    for (int i = begin; i < end; i++)
        r->cells[!r->from][i] = r->cells[r->from][(i + 1) % 64] * 3 + r->cells[r->from][(i + 17) % 64] + (uint64_t)i;
}

/* Each round reads what all workers wrote in the one before, and the caller changes plain memory between them. */
static uint64_t relay_result(threads *team, int rounds)
{
    relay r = {{{1}}, 0};
    for (int i = 0; i < rounds; i++) {
        threads_run(team, mix, &r, 64, 3);
        r.from = !r.from;
        r.cells[r.from][5]++;
    }
    uint64_t sum = 0;
    for (int i = 0; i < 64; i++) sum = sum * 31 + r.cells[r.from][i];
    return sum;
}

static void runs_are_barriers(void **state)
{
    (void)state;
    threads *one = team_of(1);
    uint64_t want = relay_result(one, 2000);
    threads_free(one);
    for (int n = 2; n <= 4; n++) {
        threads *team = team_of(n);
        assert_true(relay_result(team, 2000) == want);
        threads_free(team);
    }
}

static void many_more_workers_than_processors(void **state)
{
    (void)state;
    threads *one = team_of(1), *many = team_of(40);
    assert_true(relay_result(many, 100) == relay_result(one, 100));
    every_unit_runs_once(many, MAX_UNITS, 1);
    threads_free(one);
    threads_free(many);
}

static void parked_workers_wake(void **state)
{
    (void)state;
    threads *team = team_of(3);
    for (int i = 0; i < 5; i++) {
        usleep(5000); /* long enough to park; right either way */
        every_unit_runs_once(team, 100, 1);
    }
    threads_free(team);
}

static void a_team_can_grow_and_shrink(void **state)
{
    (void)state;
    uint64_t before = mem_stats().bytes;
    status st = STATUS_INIT;
    threads *team = team_of(1);
    static const int sizes[] = {4, 4, 2, 1, 8, 3, 16, 1, 2};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(threads_resize(team, sizes[i], &st), ST_OK);
        assert_int_equal(threads_count(team), sizes[i]);
        every_unit_runs_once(team, MAX_UNITS, 3);
    }
    threads_free(team);
    assert_int_equal(mem_stats().bytes, before);
}

static void counts_out_of_range_are_refused(void **state)
{
    (void)state;
    static const int bad[] = {0, -1, THREADS_MAX + 1};
    threads *team = team_of(2);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        status st = STATUS_INIT;
        threads *none = NULL;
        assert_int_equal(threads_new(&none, bad[i], &st), ST_ARG);
        assert_null(none);
        assert_non_null(strstr(st.text, "1 to 256"));
        assert_int_equal(threads_resize(team, bad[i], &st), ST_ARG);
        assert_int_equal(threads_count(team), 2);
    }
    every_unit_runs_once(team, 100, 1);
    threads_free(team);
}

static void failed_allocations_leave_nothing(void **state)
{
    (void)state;
    uint64_t before = mem_stats().bytes;
    int failures = 0;
    for (int n = 1; n <= 5; n++) {
        status st = STATUS_INIT;
        threads *team = NULL;
        mem_fail_after(n);
        int rc = threads_new(&team, 4, &st);
        mem_fail_after(0);
        failures += rc == ST_NOMEM;
        if (rc) assert_null(team);
        threads_free(team);
        assert_int_equal(mem_stats().bytes, before);
    }
    assert_int_equal(failures, 4); /* the team and three workers */
}

static void a_failed_resize_leaves_a_team_that_works(void **state)
{
    (void)state;
    status st = STATUS_INIT;
    threads *team = team_of(2);
    mem_fail_after(2);
    assert_int_equal(threads_resize(team, 6, &st), ST_NOMEM);
    mem_fail_after(0);
    assert_in_range(threads_count(team), 2, 5);
    every_unit_runs_once(team, MAX_UNITS, 1);
    assert_int_equal(threads_resize(team, 6, &st), ST_OK);
    every_unit_runs_once(team, MAX_UNITS, 1);
    threads_free(team);
}

static void note_processor(void *arg, int begin, int end, int worker)
{
    (void)begin, (void)end;
    cpu_set_t where;
    sched_getaffinity(0, sizeof where, &where);
    ((int *)arg)[worker] = CPU_COUNT(&where);
}

/* A team as large as the machine has each worker on one processor, until it is freed; a smaller or larger one none. */
static void a_full_team_is_pinned(void **state)
{
    (void)state;
    int n = threads_available();
    for (int size = n; size <= n + 1; size++) {
        int processors[THREADS_MAX] = {0};
        threads *team = team_of(size);
        threads_pin(team);
        threads_pin(team);
        threads_run(team, note_processor, processors, size, 1);
        for (int i = 0; i < size; i++) assert_int_equal(processors[i], size == n ? 1 : n);
        every_unit_runs_once(team, MAX_UNITS, 3);
        status st = STATUS_INIT;
        assert_int_equal(threads_resize(team, n + 2, &st), ST_OK);
        assert_int_equal(threads_available(), n);
        memset(processors, 0, sizeof processors);
        threads_run(team, note_processor, processors, n + 2, 1);
        for (int i = 0; i < n + 2; i++) assert_int_equal(processors[i], n);
        threads_free(team);
        assert_int_equal(threads_available(), n);
    }
}

static void there_is_a_processor(void **state)
{
    (void)state;
    assert_in_range(threads_available(), 1, sysconf(_SC_NPROCESSORS_CONF));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_run_once_whatever_the_split),
        cmocka_unit_test(runs_are_barriers),
        cmocka_unit_test(many_more_workers_than_processors),
        cmocka_unit_test(parked_workers_wake),
        cmocka_unit_test(a_team_can_grow_and_shrink),
        cmocka_unit_test(counts_out_of_range_are_refused),
        cmocka_unit_test(failed_allocations_leave_nothing),
        cmocka_unit_test(a_failed_resize_leaves_a_team_that_works),
        cmocka_unit_test(a_full_team_is_pinned),
        cmocka_unit_test(there_is_a_processor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
