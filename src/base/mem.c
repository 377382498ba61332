#include "base/mem.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static _Atomic uint64_t n_bytes_now, n_bytes_peak, n_live, n_calls;
static _Atomic int64_t fail_countdown;

static bool must_fail(void)
{
    if (atomic_load_explicit(&fail_countdown, memory_order_relaxed) <= 0) return false;
    return atomic_fetch_sub(&fail_countdown, 1) == 1;
}

static void grew(size_t n)
{
    uint64_t now = atomic_fetch_add(&n_bytes_now, n) + n, peak = atomic_load(&n_bytes_peak);
    while (now > peak && !atomic_compare_exchange_weak(&n_bytes_peak, &peak, now)) {}
}

static void *born(void *p)
{
    if (!p) return NULL;
    atomic_fetch_add(&n_live, 1);
    atomic_fetch_add(&n_calls, 1);
    grew(malloc_usable_size(p));
    return p;
}

void *mem_alloc(size_t n)
{
    return must_fail() ? NULL : born(malloc(n ? n : 1));
}

void *mem_calloc(size_t count, size_t size)
{
    return must_fail() ? NULL : born(calloc(count ? count : 1, size ? size : 1));
}

void *mem_array(size_t count, size_t size)
{
    size_t n;
    return __builtin_mul_overflow(count, size, &n) ? NULL : mem_alloc(n);
}

void *mem_resize(void *p, size_t count, size_t size)
{
    size_t n;
    if (__builtin_mul_overflow(count, size, &n) || must_fail()) return NULL;
    size_t old = p ? malloc_usable_size(p) : 0;
    void *q = realloc(p, n ? n : 1);
    if (!q) return NULL;
    if (!p) return born(q);
    atomic_fetch_add(&n_calls, 1);
    atomic_fetch_sub(&n_bytes_now, old);
    grew(malloc_usable_size(q));
    return q;
}

char *mem_strndup(const char *s, size_t n)
{
    char *p = mem_alloc(n + 1);
    if (!p) return NULL;
    memcpy(p, s, n);
    p[n] = 0;
    return p;
}

char *mem_strdup(const char *s)
{
    return mem_strndup(s, strlen(s));
}

void mem_free(void *p)
{
    if (!p) return;
    atomic_fetch_sub(&n_bytes_now, malloc_usable_size(p));
    atomic_fetch_sub(&n_live, 1);
    free(p);
}

#define HUGE_PAGE ((size_t)2 << 20)
#define HUGE_BYTES (8 * HUGE_PAGE) /* smaller ones are rarely touched whole, and each huge page counts whole */

static size_t page_round(size_t n)
{
    size_t unit = n >= HUGE_BYTES ? HUGE_PAGE : 4096;
    return (n + unit - 1) / unit * unit;
}

void *mem_pages_alloc(size_t n)
{
    if (must_fail() || n > SIZE_MAX / 2) return NULL;
    size_t size = page_round(n ? n : 1), slack = size >= HUGE_BYTES ? HUGE_PAGE : 0;
    char *p = mmap(NULL, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return NULL;
    if (slack) { /* cut to a huge-page boundary, so that the kernel can back all of it with huge pages */
        size_t head = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
        if (head) munmap(p, head);
        if (slack - head) munmap(p + head + size, slack - head);
        p += head;
        madvise(p, size, MADV_HUGEPAGE);
    }
    atomic_fetch_add(&n_live, 1);
    atomic_fetch_add(&n_calls, 1);
    grew(size);
    return p;
}

void mem_pages_free(void *p, size_t n)
{
    if (!p) return;
    size_t size = page_round(n ? n : 1);
    munmap(p, size);
    atomic_fetch_sub(&n_bytes_now, size);
    atomic_fetch_sub(&n_live, 1);
}

mem_counters mem_stats(void)
{
    return (mem_counters){atomic_load(&n_bytes_now), atomic_load(&n_bytes_peak), atomic_load(&n_live),
                          atomic_load(&n_calls)};
}

void mem_fail_after(int64_t n)
{
    atomic_store(&fail_countdown, n);
}

void mem_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}
