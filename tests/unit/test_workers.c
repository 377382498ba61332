/* The workers' queues: who waits for whom, what is refused, what becomes of those that are left. No clock: the work waits
 * for the test. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "serve/workers.h"

#define LARGE ((size_t)1 << 20)

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n_begun, n_done, n_resumed;
    bool open; /* who has begun may end */
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void resume(void *connection)
{
    (void)connection;
    pthread_mutex_lock(&gate.lock);
    gate.n_resumed++;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

static int answer(job *j, api_error *e)
{
    strbuf b;
    strbuf_init(&b, 0);
    strbuf_puts(&b, "{}");
    return job_take_answer(j, &b, "", e);
}

static int wait_at_gate(job *j, const served_model *m, api_error *e)
{
    (void)m;
    pthread_mutex_lock(&gate.lock);
    gate.n_begun++;
    pthread_cond_broadcast(&gate.changed);
    while (!gate.open) pthread_cond_wait(&gate.changed, &gate.lock);
    gate.n_done++;
    pthread_mutex_unlock(&gate.lock);
    return answer(j, e);
}

static int at_once(job *j, const served_model *m, api_error *e)
{
    (void)m;
    return answer(j, e);
}

static void wait_for(const int *count, int n)
{
    pthread_mutex_lock(&gate.lock);
    while (*count < n) pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

static void open_gate(bool open)
{
    pthread_mutex_lock(&gate.lock);
    gate.open = open;
    if (!open) gate.n_begun = gate.n_done = gate.n_resumed = 0;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

/* A job whose connection waits. */
static job *job_for(job_work work)
{
    job *j = job_new(resume);
    assert_non_null(j);
    j->work = work;
    j->waiting = j;
    return j;
}

static job *submit(workers *w, job_work work, size_t bytes)
{
    api_error e;
    job *j = job_for(work);
    assert_int_equal(workers_submit(w, j, bytes, &e), 0);
    return j;
}

static void expect_refused(workers *w, size_t bytes, int http_status, const char *code)
{
    api_error e;
    job *j = job_for(at_once);
    assert_int_equal(workers_submit(w, j, bytes, &e), http_status);
    assert_string_equal(e.code, code);
    job_unref(j);
}

static workers *start(int queue, size_t queue_bytes)
{
    workers *w;
    status st = STATUS_INIT;
    open_gate(false);
    assert_int_equal(workers_new(&w, NULL, queue, queue_bytes, &st), ST_OK);
    return w;
}

/* Y2: large ones wait for each other, a small one for none of them. */
static void test_a_small_job_overtakes_large_ones(void **state)
{
    (void)state;
    workers *w = start(8, 8 * LARGE);
    job *large[3];
    for (int i = 0; i < 3; i++) large[i] = submit(w, wait_at_gate, LARGE);
    wait_for(&gate.n_begun, 1);
    job *small = submit(w, at_once, 100);
    wait_for(&gate.n_resumed, 1);
    assert_int_equal(small->state, JOB_ANSWERED);
    assert_int_equal(gate.n_begun, 1);
    open_gate(true);
    wait_for(&gate.n_resumed, 4);
    for (int i = 0; i < 3; i++) assert_int_equal(large[i]->state, JOB_ANSWERED);
    workers_free(w);
    for (int i = 0; i < 3; i++) job_unref(large[i]);
    job_unref(small);
}

static void test_full_queues_refuse(void **state)
{
    (void)state;
    workers *w = start(2, 2 * LARGE);
    job *j[6];
    for (int i = 0; i < 2; i++) j[i] = submit(w, wait_at_gate, 1);
    wait_for(&gate.n_begun, 2);
    for (int i = 2; i < 4; i++) j[i] = submit(w, wait_at_gate, 1);
    expect_refused(w, 1, 429, "queue_full");
    j[4] = submit(w, wait_at_gate, 2 * LARGE - 1);
    expect_refused(w, LARGE, 429, "queue_full"); /* for its bytes */
    atomic_store(&j[2]->cancelled, true);         /* Y3: its place is free */
    j[5] = submit(w, wait_at_gate, 1);
    wait_for(&gate.n_resumed, 1);
    assert_int_equal(j[2]->state, JOB_FAILED);
    assert_string_equal(j[2]->error.code, "shutting_down");
    open_gate(true);
    wait_for(&gate.n_resumed, 6);
    assert_int_equal(gate.n_done, 5);
    workers_free(w);
    for (int i = 0; i < 6; i++) job_unref(j[i]);
}

static void test_what_waits_at_the_end_fails(void **state)
{
    (void)state;
    workers *w = start(8, 8 * LARGE);
    job *j[4];
    for (int i = 0; i < 2; i++) j[i] = submit(w, wait_at_gate, 1);
    wait_for(&gate.n_begun, 2);
    j[2] = submit(w, at_once, 1);
    j[3] = submit(w, at_once, LARGE);
    atomic_store(&j[3]->cancelled, true);
    open_gate(true);
    workers_stop(w);
    expect_refused(w, 1, 503, "shutting_down");
    for (int i = 0; i < 2; i++) assert_int_equal(j[i]->state, JOB_ANSWERED);
    for (int i = 2; i < 4; i++) {
        bool answered = j[i]->state == JOB_ANSWERED;
        assert_true(answered ? i == 2 : j[i]->state == JOB_FAILED);
    }
    assert_int_equal(gate.n_resumed, 4);
    workers_free(w);
    for (int i = 0; i < 4; i++) job_unref(j[i]);
}

/* A stream's events are written while the engine still runs it: its place among the running is not the queue's. */
static void test_the_engines_list_is_left_alone(void **state)
{
    (void)state;
    workers *w = start(8, 8 * LARGE);
    job *held = submit(w, wait_at_gate, LARGE), *j[2] = {job_for(at_once), job_for(at_once)};
    wait_for(&gate.n_begun, 1);
    j[0]->next = held;
    j[1]->next = j[0];
    api_error e;
    for (int i = 0; i < 2; i++) assert_int_equal(workers_submit_next(w, j[i], LARGE, &e), 0);
    assert_ptr_equal(j[0]->next, held);
    assert_ptr_equal(j[1]->next, j[0]);
    open_gate(true);
    wait_for(&gate.n_resumed, 3);
    assert_ptr_equal(j[0]->next, held);
    assert_ptr_equal(j[1]->next, j[0]);
    workers_free(w);
    job_unref(held);
    for (int i = 0; i < 2; i++) job_unref(j[i]);
}

static int check_memory(void **state)
{
    (void)state;
    return mem_stats().live != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_a_small_job_overtakes_large_ones, check_memory),
        cmocka_unit_test_teardown(test_full_queues_refuse, check_memory),
        cmocka_unit_test_teardown(test_what_waits_at_the_end_fails, check_memory),
        cmocka_unit_test_teardown(test_the_engines_list_is_left_alone, check_memory),
    };
    return cmocka_run_group_tests_name("workers", tests, NULL, NULL);
}
