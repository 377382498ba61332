#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "bench/sim.h"

static int add(trace *t, const char *line, status *st)
{
    return trace_add(t, line, strlen(line), st);
}

static trace read_lines(const char *const *lines)
{
    trace t = TRACE_INIT;
    status st = STATUS_INIT;
    for (; *lines; lines++)
        if (add(&t, *lines, &st)) fail_msg("%s", st.text);
    trace_sort(&t);
    return t;
}

static void assert_request(const trace *t, size_t i, uint32_t salt, uint32_t n, const int32_t *blocks)
{
    assert_in_range(i, 0, t->n_requests - 1);
    assert_int_equal(t->requests[i].salt, salt);
    assert_int_equal(t->requests[i].n, n);
    assert_memory_equal(t->blocks + t->requests[i].first, blocks, n * sizeof *blocks);
}

static void test_requests_in_order_of_time(void **state)
{
    (void)state;
    const char *lines[] = {
        "{\"timestamp\": 5, \"hash_ids\": [7, 9223372036854775807, -3]}", "  ", "",
        "{\"hash_ids\": [7, 4294967303]}", /* with the one before it */
        "{\"timestamp\": 1.5, \"hash_ids\": [], \"other\": null}",
        "{\"timestamp\": 5, \"hash_ids\": [-3]}\r", NULL};
    trace t = read_lines(lines);
    assert_int_equal(t.n_requests, 4);
    assert_int_equal(t.n_distinct, 4); /* 7 and 7 + 2^32 are two */
    assert_request(&t, 0, 0, 0, NULL);
    assert_request(&t, 1, 0, 3, (int32_t[]){0, 1, 2});
    assert_request(&t, 2, 0, 2, (int32_t[]){0, 3});
    assert_request(&t, 3, 0, 1, (int32_t[]){2});
    trace_deinit(&t);
}

static void test_conversations(void **state)
{
    (void)state;
    const char *lines[] = {
        "{\"hash_id_scope\": \"local\", \"requests\": [{\"t\": 1, \"hash_ids\": [1, 2]}, "
        "{\"t\": 9, \"hash_ids\": [2]}, "
        "{\"t\": 2, \"type\": \"subagent\", \"requests\": [{\"t\": 0, \"hash_ids\": [8]}]}]}",
        "{\"hash_id_scope\": \"local\", \"requests\": [{\"t\": 3, \"hash_ids\": [1]}]}",
        "{\"requests\": [{\"t\": 2, \"hash_ids\": [1]}]}",
        "{\"hash_id_scope\": \"global\", \"requests\": [{\"t\": 4, \"hash_ids\": [1]}]}", NULL};
    trace t = read_lines(lines);
    assert_int_equal(t.n_requests, 5);
    assert_int_equal(t.n_distinct, 4);
    assert_request(&t, 0, 1, 2, (int32_t[]){0, 1});
    assert_request(&t, 1, 0, 1, (int32_t[]){3});
    assert_request(&t, 2, 2, 1, (int32_t[]){2});
    assert_request(&t, 3, 0, 1, (int32_t[]){3});
    assert_request(&t, 4, 1, 1, (int32_t[]){1});
    trace_deinit(&t);
}

static void test_bad_lines(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"[1]", "not a JSON object"},
        {"{\"hash_ids\": [1]", "column 16"},
        {"{}", "hash_ids, an array"},
        {"{\"hash_ids\": 3}", "hash_ids, an array"},
        {"{\"hash_ids\": [1, 2.5]}", "element 1 of hash_ids"},
        {"{\"hash_ids\": [\"1\"]}", "element 0 of hash_ids"},
        {"{\"hash_ids\": [9223372036854775808]}", "too big integer"},
        {"{\"hash_ids\": [1], \"timestamp\": \"1\"}", "timestamp is no number"},
        {"{\"requests\": 1}", "requests is no array"},
        {"{\"requests\": [1]}", "a request is no object"},
        {"{\"requests\": [{\"hash_ids\": [1]}, {}]}", "request 1: a request needs"},
        {"{\"requests\": [{\"hash_ids\": [1], \"t\": null}]}", "request 0: t is no number"},
        {"{\"requests\": [], \"hash_id_scope\": 1}", "hash_id_scope is no string"},
        {"{\"requests\": [], \"hash_id_scope\": \"tenant\"}", "neither local nor global"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        trace t = TRACE_INIT;
        status st = STATUS_INIT;
        assert_int_not_equal(add(&t, cases[i][0], &st), ST_OK);
        if (!strstr(st.text, cases[i][1])) fail_msg("%s: %s", cases[i][0], st.text);
        trace_deinit(&t);
    }
    trace t = TRACE_INIT;
    status st = STATUS_INIT;
    assert_int_equal(trace_add(&t, "{\"hash_ids\": []}\0", 17, &st), ST_FORMAT);
    assert_int_equal(trace_add(&t, "{\"timestamp\": 1\0, \"hash_ids\": [1]}", 34, &st), ST_FORMAT);
    assert_string_equal(st.text, "a zero byte");
    trace_deinit(&t);
}

/* Worked out by hand, for four blocks. */
static void test_replays(void **state)
{
    (void)state;
    /* request   the tree, leaf first                  one list, the longest unused first
     * 1 2 3     1-2-3                                 1 2 3
     * 1 4       1 hits; 1-2-3, 1-4                    1 hits; 2 3 1 4
     * 5 6       3 and 2 go; 1-4, 5-6                  2 and 3 go; 1 4 5 6
     * 1 2       1 hits; 4 goes; 5-6, 1-2              1 hits; 4 goes; 5 6 1 2
     * 7         6 goes; 5, 1-2, 7                     5 goes; 6 1 2 7
     * 5 6       5 hits; 2 goes; 1, 7, 5-6             5 pushes 6 out, 6 pushes 1 out; 2 7 5 6 */
    const char *lines[] = {"{\"hash_ids\": [1, 2, 3]}", "{\"hash_ids\": [1, 4]}", "{\"hash_ids\": [5, 6]}",
                           "{\"hash_ids\": [1, 2]}",    "{\"hash_ids\": [7]}",    "{\"hash_ids\": [5, 6]}", NULL};
    trace t = read_lines(lines);
    status st = STATUS_INIT;
    sim_result r;
    assert_int_equal(sim_tree(&r, &t, evict_policy_get("lru"), 4, &st), ST_OK);
    assert_int_equal(r.hits, 3);
    assert_int_equal(r.evicted, 5);
    assert_int_equal(r.requests, 6);
    assert_int_equal(r.blocks, 12);
    assert_int_equal(sim_flat_lru(&r, &t, 4, &st), ST_OK);
    assert_int_equal(r.hits, 2);
    assert_int_equal(r.evicted, 6);
    assert_int_equal(sim_tree(&r, &t, evict_policy_get("lru"), 0, &st), ST_OK);
    assert_int_equal(r.hits, 5);
    assert_int_equal(sim_flat_lru(&r, &t, 0, &st), ST_OK);
    assert_int_equal(r.hits, 5);
    /* Longer than the cache: what fits of it is kept. */
    assert_int_equal(sim_tree(&r, &t, evict_policy_get("fifo"), 1, &st), ST_OK);
    assert_int_equal(r.hits, 1);
    trace_deinit(&t);
}

/* Every allocation fails in turn. */
static void test_memory(void **state)
{
    (void)state;
    uint64_t live = mem_stats().live;
    status st = STATUS_INIT;
    for (int n = 1, done = 0; !done; n++) {
        trace t = TRACE_INIT;
        sim_result r;
        mem_fail_after(n);
        int rc = add(&t, "{\"requests\": [{\"hash_ids\": [1, 2]}, {\"hash_ids\": [1, 3]}]}", &st);
        if (rc == ST_OK) rc = sim_flat_lru(&r, &t, 2, &st);
        if (rc == ST_OK) rc = sim_tree(&r, &t, evict_policy_get("cost"), 2, &st);
        mem_fail_after(0);
        assert_true(rc == ST_OK || rc == ST_NOMEM);
        done = rc == ST_OK;
        trace_deinit(&t);
        assert_int_equal(mem_stats().live, live);
        assert_true(!done || n > 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_in_order_of_time), cmocka_unit_test(test_conversations),
        cmocka_unit_test(test_bad_lines),                 cmocka_unit_test(test_replays),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests_name("sim", tests, NULL, NULL);
}
