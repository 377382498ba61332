#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "cache/pool.h"

static pool *make(uint64_t block_bytes, uint32_t n)
{
    pool *p = NULL;
    status st = STATUS_INIT;
    assert_int_equal(pool_new(&p, block_bytes, n, &st), ST_OK);
    return p;
}

static void audit(const pool *p, const uint32_t *refs)
{
    status st = STATUS_INIT;
    if (pool_audit(p, refs, &st)) fail_msg("%s", st.text);
}

static void assert_counts(const pool *p, uint32_t free, uint32_t cached, uint32_t in_use, uint32_t in_flight)
{
    pool_counts c = pool_count(p);
    assert_int_equal(c.free, free);
    assert_int_equal(c.cached, cached);
    assert_int_equal(c.in_use, in_use);
    assert_int_equal(c.in_flight, in_flight);
    assert_int_equal(c.total, free + cached + in_use + in_flight);
    audit(p, NULL);
}

static void test_blocks_are_apart(void **state)
{
    (void)state;
    pool *p = make(192, 5);
    uint8_t *seen[5];
    for (int i = 0; i < 5; i++) {
        block_id id = pool_take(p);
        assert_int_not_equal(id, BLOCK_NONE);
        seen[i] = pool_block(p, id);
        assert_int_equal((uintptr_t)seen[i] % 64, 0);
        memset(seen[i], 'a' + i, 192);
    }
    assert_int_equal(pool_take(p), BLOCK_NONE);
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 192; j++) assert_int_equal(seen[i][j], 'a' + i);
    assert_int_equal(pool_block_bytes(p), 192);
    pool_free(p);
}

static void test_references(void **state)
{
    (void)state;
    pool *p = make(64, 3);
    assert_counts(p, 3, 0, 0, 0);
    block_id a = pool_take(p), b = pool_take(p);
    assert_int_not_equal(a, b);
    assert_counts(p, 1, 0, 2, 0);
    pool_ref(p, a);
    assert_int_equal(pool_refs(p, a), 2);
    uint32_t held[3] = {0};
    held[a] = 2, held[b] = 1;
    audit(p, held);
    pool_unref(p, a);
    assert_int_equal(pool_state(p, a), BLOCK_IN_USE);
    pool_unref(p, a);
    assert_int_equal(pool_state(p, a), BLOCK_FREE);
    assert_counts(p, 2, 0, 1, 0);
    assert_int_equal(pool_take(p), a); /* last freed, first taken */
    pool_free(p);
}

static void test_cached(void **state)
{
    (void)state;
    pool *p = make(64, 2);
    block_id a = pool_take(p), b = pool_take(p);
    memset(pool_block(p, a), 7, 64);
    assert_false(pool_kept(p, a));
    pool_keep(p, a);
    assert_true(pool_kept(p, a));
    assert_counts(p, 0, 0, 2, 0);
    pool_unref(p, a);
    assert_int_equal(pool_state(p, a), BLOCK_CACHED);
    assert_counts(p, 0, 1, 1, 0);
    assert_int_equal(pool_take(p), BLOCK_NONE); /* cached blocks are not for the taking */
    pool_ref(p, a);
    assert_int_equal(pool_refs(p, a), 1);
    assert_int_equal(pool_block(p, a)[63], 7);
    assert_counts(p, 0, 0, 2, 0);
    pool_unref(p, a);
    pool_drop(p, a);
    assert_false(pool_kept(p, a));
    assert_counts(p, 1, 0, 1, 0);
    assert_int_equal(pool_take(p), a);
    pool_keep(p, a);
    pool_drop(p, a); /* dropped while in use, it lives on until its last unref */
    assert_counts(p, 0, 0, 2, 0);
    pool_unref(p, a);
    assert_counts(p, 1, 0, 1, 0);
    pool_unref(p, b);
    pool_free(p);
}

static void test_moves(void **state)
{
    (void)state;
    pool *p = make(64, 2);
    block_id a = pool_take(p), b = pool_take(p);
    block_location here = pool_location(p, a);
    assert_int_equal(here.device, BLOCK_ON_RAM);
    assert_int_equal(here.ready, BLOCK_READY);
    pool_begin_move(p, a, (block_location){BLOCK_ON_DISK, BLOCK_LOADING});
    assert_int_equal(pool_location(p, a).device, BLOCK_ON_DISK);
    assert_int_equal(pool_location(p, a).ready, BLOCK_LOADING);
    assert_counts(p, 0, 0, 1, 1);
    pool_ref(p, a); /* holders come and go while it moves */
    pool_unref(p, a);
    assert_int_equal(pool_state(p, a), BLOCK_IN_FLIGHT);
    pool_end_move(p, a);
    assert_int_equal(pool_state(p, a), BLOCK_IN_USE);
    assert_int_equal(pool_location(p, a).ready, BLOCK_READY);

    pool_keep(p, a);
    pool_begin_move(p, a, (block_location){BLOCK_ON_REMOTE, BLOCK_SAVING});
    pool_unref(p, a); /* the last holder leaves: the mover still has the bytes */
    assert_int_equal(pool_state(p, a), BLOCK_IN_FLIGHT);
    assert_int_equal(pool_take(p), BLOCK_NONE);
    pool_end_move(p, a);
    assert_int_equal(pool_state(p, a), BLOCK_CACHED);
    assert_counts(p, 0, 1, 1, 0);

    pool_begin_move(p, a, (block_location){BLOCK_ON_DISK, BLOCK_SAVING}); /* from CACHED */
    pool_ref(p, a);
    pool_end_move(p, a);
    assert_int_equal(pool_state(p, a), BLOCK_IN_USE);
    assert_int_equal(pool_state(p, b), BLOCK_IN_USE);
    assert_counts(p, 0, 0, 2, 0);

    pool_unref(p, a);
    pool_begin_move(p, a, (block_location){BLOCK_ON_DISK, BLOCK_SAVING});
    pool_drop(p, a); /* nobody's any more, but for the mover */
    assert_counts(p, 0, 0, 1, 1);
    pool_end_move(p, a);
    assert_counts(p, 1, 0, 1, 0);
    pool_free(p);
}

static void test_audit_sees_a_lost_reference(void **state)
{
    (void)state;
    pool *p = make(64, 2);
    block_id a = pool_take(p);
    uint32_t held[2] = {0};
    status st = STATUS_INIT;
    assert_int_equal(pool_audit(p, held, &st), ST_FORMAT);
    assert_int_equal(st.pos, a);
    assert_non_null(strstr(st.text, "1 references are counted, 0 are held"));
    held[a] = 1;
    audit(p, held);
    held[1 - a] = 1;
    assert_int_equal(pool_audit(p, held, &st), ST_FORMAT);
    pool_free(p);
}

/* Random legal transitions against a plain copy of the states. */
static void test_random_transitions(void **state)
{
    (void)state;
    enum { N = 13, OPS = 200000 };
    pool *p = make(64, N);
    uint32_t refs[N] = {0}, seed = 12345;
    block_state states[N];
    bool kept[N] = {false};
    for (int i = 0; i < N; i++) states[i] = BLOCK_FREE;
    for (int op = 0; op < OPS; op++) {
        seed = seed * 1664525 + 1013904223;
        block_id id = (seed >> 8) % N;
        bool coin = seed >> 30 & 1, held = states[id] == BLOCK_IN_USE || states[id] == BLOCK_CACHED;
        switch (seed >> 24 & 7) {
        case 0:
        case 1: {
            uint32_t n_free = 0;
            for (int i = 0; i < N; i++) n_free += states[i] == BLOCK_FREE;
            block_id got = pool_take(p);
            assert_int_equal(got == BLOCK_NONE, n_free == 0);
            if (got == BLOCK_NONE) break;
            assert_int_equal(states[got], BLOCK_FREE);
            states[got] = BLOCK_IN_USE;
            refs[got] = 1;
            break;
        }
        case 2:
            if (states[id] == BLOCK_FREE) break;
            pool_ref(p, id);
            refs[id]++;
            if (states[id] == BLOCK_CACHED) states[id] = BLOCK_IN_USE;
            break;
        case 3:
        case 4:
            if (refs[id] == 0) break;
            pool_unref(p, id);
            if (--refs[id] == 0 && states[id] == BLOCK_IN_USE) states[id] = kept[id] ? BLOCK_CACHED : BLOCK_FREE;
            break;
        case 5:
            if (states[id] == BLOCK_FREE) break;
            if (kept[id]) pool_drop(p, id);
            else pool_keep(p, id);
            kept[id] = !kept[id];
            if (states[id] == BLOCK_CACHED) states[id] = BLOCK_FREE;
            break;
        case 6:
            if (!held) break;
            pool_begin_move(p, id, (block_location){BLOCK_ON_DISK, coin ? BLOCK_LOADING : BLOCK_SAVING});
            states[id] = BLOCK_IN_FLIGHT;
            break;
        case 7:
            if (states[id] != BLOCK_IN_FLIGHT) break;
            pool_end_move(p, id);
            states[id] = refs[id] ? BLOCK_IN_USE : kept[id] ? BLOCK_CACHED : BLOCK_FREE;
            break;
        }
        assert_int_equal(pool_state(p, id), states[id]);
        assert_int_equal(pool_kept(p, id), kept[id]);
        audit(p, refs);
    }
    pool_free(p);
}

static void test_memory(void **state)
{
    (void)state;
    mem_counters before = mem_stats();
    for (int n = 1; n <= 4; n++) {
        pool *p = NULL;
        status st = STATUS_INIT;
        mem_fail_after(n);
        assert_int_equal(pool_new(&p, 4096, 100, &st), ST_NOMEM);
        assert_null(p);
        assert_int_equal(mem_stats().bytes, before.bytes);
    }
    mem_fail_after(0);
    pool *p = NULL;
    status st = STATUS_INIT;
    assert_int_equal(pool_new(&p, UINT64_MAX / 64 * 64, 3, &st), ST_NOMEM);
    p = make(64, 3);
    uint64_t calls = mem_stats().calls;
    for (int i = 0; i < 3; i++) pool_unref(p, pool_take(p));
    audit(p, NULL);
    assert_int_equal(mem_stats().calls, calls);
    pool_free(p);
    assert_int_equal(mem_stats().bytes, before.bytes);
    assert_int_equal(mem_stats().live, before.live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_are_apart),
        cmocka_unit_test(test_references),
        cmocka_unit_test(test_cached),
        cmocka_unit_test(test_moves),
        cmocka_unit_test(test_audit_sees_a_lost_reference),
        cmocka_unit_test(test_random_transitions),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
