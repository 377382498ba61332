/* Traces of requests, line by line, and their replay with a small cache by every policy. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "bench/sim.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool holds)
{
    if (!holds) abort();
}

static void check_trace(const trace *t)
{
    for (size_t i = 0; i < t->n_requests; i++) {
        const trace_request *r = &t->requests[i];
        check(r->salt < t->n_salts && r->first + r->n <= t->n_blocks);
        check(i == 0 || t->requests[i - 1].time <= r->time);
    }
    for (size_t i = 0; i < t->n_blocks; i++) check(t->blocks[i] >= 0 && (uint32_t)t->blocks[i] < t->n_distinct);
}

static void replay(const trace *t)
{
    const evict_policy *p;
    status st = STATUS_INIT;
    sim_result all, some;
    check(sim_tree(&all, t, evict_policy_at(0), 0, &st) == ST_OK && all.evicted == 0);
    for (int i = 0; (p = evict_policy_at(i)) != NULL; i++) {
        check(sim_tree(&some, t, p, 3, &st) == ST_OK);
        check(some.hits <= all.hits && all.hits <= all.blocks);
    }
    check(sim_flat_lru(&some, t, 3, &st) == ST_OK);
    check(some.hits <= some.blocks);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    uint64_t live = mem_stats().live;
    trace t = TRACE_INIT;
    status st = STATUS_INIT;
    int rc = ST_OK;
    while (n > 0 && rc == ST_OK) {
        const uint8_t *end = memchr(data, '\n', n);
        size_t length = end ? (size_t)(end - data) : n;
        rc = trace_add(&t, (const char *)data, length, &st);
        check(rc == st.code && (rc != ST_OK) == (st.text[0] != 0));
        n -= end ? length + 1 : length;
        data += end ? length + 1 : length;
    }
    if (rc == ST_OK) {
        trace_sort(&t);
        check_trace(&t);
        replay(&t);
    }
    trace_deinit(&t);
    check(mem_stats().live == live);
    return 0;
}
