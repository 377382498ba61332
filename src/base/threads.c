#include "base/threads.h"

#include <assert.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

#define SPINS 4000 /* some tens of microseconds: longer than the gaps between the products of one layer */

typedef struct worker {
    threads *team;
    int index;
    uint32_t start; /* the round in which it was born: it waits for the next one */
    pthread_t thread;
} worker;

struct threads {
    /* The round at hand, in one cache line: a worker that sees the new number has all of it. */
    _Alignas(64) _Atomic uint32_t round; /* futex: grows by one per run */
    int n, n_units, grain; /* workers, the caller included; units of the round, and of a run of them */
    bool quit;
    threads_fn *fn;
    void *arg;
    _Alignas(64) _Atomic int next;   /* first unclaimed unit */
    _Alignas(64) _Atomic int n_busy; /* workers that have not finished this round */
    _Alignas(64) _Atomic uint32_t n_parked;
    int64_t *waited_ns; /* of the caller; NULL = not measured */
    bool pinned;
    cpu_set_t allowed; /* if pinned: where the workers might run before */
    worker *workers[THREADS_MAX];
};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void work(threads *t, int index)
{
    int n_units = t->n_units, grain = t->grain, n_first = t->n * grain;
    for (int begin = index * grain; begin < n_units;) {
        t->fn(t->arg, begin, n_units - begin > grain ? begin + grain : n_units, index);
        if (n_units <= n_first) return;
        begin = atomic_fetch_add_explicit(&t->next, grain, memory_order_relaxed);
    }
}

static uint32_t wait_for_round(threads *t, uint32_t seen)
{
    uint32_t now;
    for (int i = 0; i < SPINS; i++) {
        now = atomic_load_explicit(&t->round, memory_order_acquire);
        if (now != seen) return now;
        relax();
    }
    /* seq_cst on both sides: either the caller sees n_parked, or this load sees the new round. */
    atomic_fetch_add(&t->n_parked, 1);
    while ((now = atomic_load(&t->round)) == seen) futex_wait(&t->round, seen);
    atomic_fetch_sub(&t->n_parked, 1);
    return now;
}

static void *worker_main(void *p)
{
    worker *w = p;
    threads *t = w->team;
    uint32_t seen = w->start;
    for (;;) {
        seen = wait_for_round(t, seen);
        if (t->quit) return NULL;
        work(t, w->index);
        atomic_fetch_sub_explicit(&t->n_busy, 1, memory_order_release);
    }
}

static void open_round(threads *t)
{
    atomic_fetch_add(&t->round, 1);
    if (atomic_load(&t->n_parked)) futex_wake_all(&t->round);
}

static void stop_workers(threads *t)
{
    t->quit = true;
    open_round(t);
    for (int i = 1; i < t->n; i++) {
        pthread_join(t->workers[i]->thread, NULL);
        mem_free(t->workers[i]);
    }
    t->quit = false;
    t->n = 1;
}

static void set_processor(pthread_t thread, int cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(thread, sizeof one, &one);
}

void threads_pin(threads *t)
{
    if (t->pinned || sched_getaffinity(0, sizeof t->allowed, &t->allowed) || CPU_COUNT(&t->allowed) != t->n) return;
    t->pinned = true;
    for (int i = 0, cpu = 0; i < t->n; i++, cpu++) {
        while (!CPU_ISSET(cpu, &t->allowed)) cpu++;
        set_processor(i ? t->workers[i]->thread : pthread_self(), cpu);
    }
}

static void unpin(threads *t)
{
    for (int i = 0; i < t->n && t->pinned; i++)
        pthread_setaffinity_np(i ? t->workers[i]->thread : pthread_self(), sizeof t->allowed, &t->allowed);
    t->pinned = false;
}

static int start_workers(threads *t, int n, status *st)
{
    for (int i = t->n; i < n; i++) {
        worker *w = mem_alloc(sizeof *w);
        if (!w) return status_nomem(st, sizeof *w);
        *w = (worker){t, i, atomic_load(&t->round), 0};
        int error = pthread_create(&w->thread, NULL, worker_main, w);
        if (error) {
            mem_free(w);
            return status_set(st, ST_LIMIT, STATUS_NO_POS, "thread %d of %d can't be started: %s; ask for fewer", i + 1,
                              n, strerror(error));
        }
        t->workers[i] = w;
        t->n = i + 1;
    }
    return ST_OK;
}

static int check_count(int n, status *st)
{
    if (n >= 1 && n <= THREADS_MAX) return ST_OK;
    return status_set(st, ST_ARG, STATUS_NO_POS, "%d threads asked for; choose 1 to %d", n, THREADS_MAX);
}

int threads_new(threads **out, int n, status *st)
{
    if (check_count(n, st)) return st->code;
    threads *t = mem_pages_alloc(sizeof *t);
    if (!t) return status_nomem(st, sizeof *t);
    t->n = 1;
    if (start_workers(t, n, st)) {
        threads_free(t);
        return st->code;
    }
    *out = t;
    return ST_OK;
}

void threads_free(threads *t)
{
    if (!t) return;
    unpin(t);
    stop_workers(t);
    mem_pages_free(t, sizeof *t);
}

int threads_resize(threads *t, int n, status *st)
{
    if (check_count(n, st)) return st->code;
    unpin(t);
    if (n < t->n) stop_workers(t);
    return start_workers(t, n, st);
}

int threads_count(const threads *t)
{
    return t->n;
}

void threads_time_waits(threads *t, int64_t *ns)
{
    t->waited_ns = ns;
}

void threads_run(threads *t, threads_fn *fn, void *arg, int n_units, int grain)
{
    assert(grain >= 1 && grain <= INT_MAX / (2 * THREADS_MAX) && n_units >= 0 && n_units <= INT_MAX / 2);
    if (n_units <= grain) {
        if (n_units > 0) fn(arg, 0, n_units, 0);
        return;
    }
    t->fn = fn;
    t->arg = arg;
    t->n_units = n_units;
    t->grain = grain;
    atomic_store_explicit(&t->next, t->n * grain, memory_order_relaxed);
    atomic_store_explicit(&t->n_busy, t->n - 1, memory_order_relaxed);
    if (t->n > 1) open_round(t);
    work(t, 0);
    if (t->n == 1) return;
    int64_t start = t->waited_ns ? clock_ns() : 0;
    for (int spins = 0; atomic_load_explicit(&t->n_busy, memory_order_acquire); spins++) {
        if (spins < SPINS) relax();
        else sched_yield(); /* more workers than processors: let the late one run */
    }
    if (t->waited_ns) *t->waited_ns += clock_ns() - start;
}

int threads_available(void)
{
    cpu_set_t set;
    long n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > THREADS_MAX ? THREADS_MAX : (int)n;
}
