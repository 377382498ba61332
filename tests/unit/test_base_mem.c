/* mem and arena */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base/arena.h"
#include "base/mem.h"

static bool all_zero(const void *p, size_t n)
{
    const char *c = p;
    for (size_t i = 0; i < n; i++)
        if (c[i]) return false;
    return true;
}

/* Every test must leave the counters of live memory as it found them. */
static mem_counters before;

static int remember(void **state)
{
    (void)state;
    before = mem_stats();
    return 0;
}

static int nothing_left(void **state)
{
    (void)state;
    mem_fail_after(0);
    mem_counters now = mem_stats();
    return now.bytes != before.bytes || now.live != before.live;
}

static void counts_bytes_and_calls(void **state)
{
    (void)state;
    void *a = mem_alloc(1000), *b = mem_calloc(10, 50), *c = mem_array(7, 11);
    char *d = mem_strdup("block"), *e = mem_strndup("table", 3);
    assert_true(all_zero(b, 500));
    assert_string_equal(d, "block");
    assert_string_equal(e, "tab");
    mem_counters now = mem_stats();
    assert_true(now.bytes >= before.bytes + 1000 + 500 + 77 + 6 + 4);
    assert_int_equal(now.live, before.live + 5);
    assert_int_equal(now.calls, before.calls + 5);
    assert_true(now.peak_bytes >= now.bytes);
    mem_free(a), mem_free(b), mem_free(c), mem_free(d), mem_free(e);
    mem_free(NULL);
    assert_int_equal(mem_stats().bytes, before.bytes);
    assert_true(mem_stats().peak_bytes >= now.bytes);
    assert_int_equal(mem_stats().calls, before.calls + 5);
}

static void nothing_is_something(void **state)
{
    (void)state;
    void *a = mem_alloc(0), *b = mem_alloc(0), *c = mem_calloc(0, 8), *d = mem_array(8, 0);
    assert_true(a && b && c && d && a != b);
    mem_free(a), mem_free(b), mem_free(c), mem_free(d);
}

static void products_that_overflow_fail(void **state)
{
    (void)state;
    char *p = mem_alloc(10);
    volatile size_t huge = SIZE_MAX / 2 + 2; /* volatile: the compiler may not warn of what is tested here */
    assert_null(mem_array(huge, 2));
    assert_null(mem_calloc(huge, 2));
    assert_null(mem_resize(p, huge, 2));
    assert_null(mem_alloc(huge));
    assert_null(mem_pages_alloc(huge));
    p[9] = 1; /* still ours */
    mem_free(p);
}

static void resize_keeps_the_content(void **state)
{
    (void)state;
    unsigned char *p = mem_resize(NULL, 16, 1);
    for (int i = 0; i < 16; i++) p[i] = (unsigned char)i;
    for (size_t n = 32; n <= 1 << 20; n *= 2) {
        p = mem_resize(p, n, 1);
        assert_true(mem_stats().bytes >= before.bytes + n);
        for (int i = 0; i < 16; i++) assert_int_equal(p[i], i);
    }
    p = mem_resize(p, 2, 8);
    for (int i = 0; i < 16; i++) assert_int_equal(p[i], i);
    assert_true(mem_stats().bytes < before.bytes + (1 << 20));
    assert_int_equal(mem_stats().live, before.live + 1);
    mem_free(p);
}

static void the_nth_allocation_fails_once(void **state)
{
    (void)state;
    char *kept = mem_strdup("kept");
    for (int n = 1; n <= 5; n++) {
        mem_fail_after(n);
        void *p[] = {mem_alloc(1), mem_calloc(1, 1), mem_resize(NULL, 1, 1), mem_pages_alloc(1), mem_strdup("x"), mem_alloc(1)};
        for (int i = 0; i < 6; i++) {
            if (i == n - 1) assert_null(p[i]);
            else assert_non_null(p[i]);
            if (i == 3) mem_pages_free(p[i], 1);
            else mem_free(p[i]);
        }
    }
    mem_fail_after(1);
    assert_null(mem_resize(kept, 100, 1));
    assert_string_equal(kept, "kept");
    mem_fail_after(1);
    mem_fail_after(0);
    void *p = mem_alloc(1);
    assert_non_null(p);
    mem_free(p);
    mem_free(kept);
}

static void pages_are_aligned_and_zero(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 4096, 4097, 15 << 20, 16 << 20, (19 << 20) + 5};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *p = mem_pages_alloc(sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % (sizes[i] >= 16 << 20 ? 2 << 20 : 4096), 0);
        assert_true(all_zero(p, sizes[i]));
        if (sizes[i]) p[sizes[i] - 1] = 1;
        assert_true(mem_stats().bytes >= before.bytes + sizes[i]);
        mem_pages_free(p, sizes[i]);
        assert_int_equal(mem_stats().bytes, before.bytes);
    }
    mem_pages_free(NULL, 0);
}

static void *churn(void *arg)
{
    (void)arg;
    for (int i = 0; i < 5000; i++) {
        char *p = mem_alloc((size_t)(i % 100));
        p = mem_resize(p, (size_t)(i % 300), 1);
        mem_free(p);
    }
    return NULL;
}

static void counters_hold_with_many_threads(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, churn, NULL), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    assert_int_equal(mem_stats().calls, before.calls + 4 * 5000 * 2);
}

static void arena_objects_are_zero_aligned_and_apart(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, 0);
    unsigned char *objects[500];
    for (size_t i = 0; i < 500; i++) {
        size_t n = i * 37 % 701, align = (size_t)1 << i % 7;
        objects[i] = arena_alloc(&a, n, align);
        assert_non_null(objects[i]);
        assert_int_equal((uintptr_t)objects[i] % align, 0);
        assert_true(all_zero(objects[i], n));
        memset(objects[i], (int)(i % 255) + 1, n);
    }
    for (size_t i = 0; i < 500; i++)
        for (size_t j = 0; j < i * 37 % 701; j++) assert_int_equal(objects[i][j], i % 255 + 1);
    arena_deinit(&a);
}

static void arena_takes_large_objects_and_strings(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, 0);
    char *s = arena_strndup(&a, "radix tree", 5);
    char *large = arena_alloc(&a, 5 << 20, 64);
    assert_true(all_zero(large, 5 << 20));
    large[(5 << 20) - 1] = 1;
    assert_string_equal(s, "radix");
    uint32_t *numbers = arena_array(&a, 100, sizeof *numbers);
    numbers[99] = 1;
    assert_null(arena_array(&a, SIZE_MAX / 4, 8));
    assert_null(arena_alloc(&a, SIZE_MAX - 8, 1));
    arena_deinit(&a);
}

static void arena_loop_stops_allocating(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, 0);
    uint64_t calls = 0;
    for (int round = 0; round < 20; round++) {
        if (round == 10) calls = mem_stats().calls;
        for (int i = 0; i < 1000; i++) {
            char *p = arena_alloc(&a, 100, 8);
            assert_true(all_zero(p, 100)); /* also where the last round wrote */
            memset(p, 255, 100);
        }
        arena_reset(&a);
        assert_int_equal(a.used_bytes, 0);
    }
    assert_int_equal(mem_stats().calls, calls);
    arena_deinit(&a);
}

static void arena_keeps_to_its_limit(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, 1000);
    assert_non_null(arena_alloc(&a, 600, 1));
    assert_null(arena_alloc(&a, 401, 1));
    assert_non_null(arena_alloc(&a, 400, 1));
    assert_null(arena_alloc(&a, 1, 1));
    arena_reset(&a);
    assert_non_null(arena_alloc(&a, 1000, 1));
    arena_deinit(&a);
}

static void arena_survives_a_failed_allocation(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, 0);
    mem_fail_after(1);
    assert_null(arena_alloc(&a, 10, 1));
    char *s = arena_strndup(&a, "first", 5);
    mem_fail_after(1);
    assert_null(arena_alloc(&a, 100000, 1));
    assert_string_equal(s, "first");
    assert_non_null(arena_alloc(&a, 100000, 1));
    arena_deinit(&a);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, remember, nothing_left)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(counts_bytes_and_calls),
        TEST(nothing_is_something),
        TEST(products_that_overflow_fail),
        TEST(resize_keeps_the_content),
        TEST(the_nth_allocation_fails_once),
        TEST(pages_are_aligned_and_zero),
        TEST(counters_hold_with_many_threads),
        TEST(arena_objects_are_zero_aligned_and_apart),
        TEST(arena_takes_large_objects_and_strings),
        TEST(arena_loop_stops_allocating),
        TEST(arena_keeps_to_its_limit),
        TEST(arena_survives_a_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
