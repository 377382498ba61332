#include "kernel/roofline.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kernel/kernel.h"

#define BUFFER_BYTES ((size_t)256 << 20)
#define UNITS 1024
#define REPEATS 5

typedef struct read_job {
    const uint64_t *data;
    _Atomic uint64_t sum;
} read_job;

static void read_units(void *arg, int begin, int end, int worker)
{
    (void)worker;
    read_job *j = arg;
    size_t n = BUFFER_BYTES / UNITS / sizeof(uint64_t);
    const uint64_t *p = j->data + (size_t)begin * n, *stop = j->data + (size_t)end * n;
    uint64_t s[16] = {0}; /* several sums: reading must not wait for adding */
    for (; p < stop; p += 16)
        for (int i = 0; i < 16; i++) s[i] += p[i];
    for (int i = 1; i < 16; i++) s[0] += s[i];
    atomic_fetch_add_explicit(&j->sum, s[0], memory_order_relaxed);
}

static void touch_units(void *arg, int begin, int end, int worker)
{
    (void)worker;
    uint64_t *data = arg;
    size_t n = BUFFER_BYTES / UNITS / sizeof(uint64_t);
    for (size_t i = (size_t)begin * n; i < (size_t)end * n; i++) data[i] = i;
}

static double measure_read(threads *team, uint64_t *data)
{
    double best = 0;
    read_job j = {data, 0};
    threads_run(team, touch_units, data, UNITS, 16);
    for (int i = 0; i < REPEATS; i++) {
        int64_t start = clock_ns();
        threads_run(team, read_units, &j, UNITS, 16);
        double rate = (double)BUFFER_BYTES / ((double)(clock_ns() - start) * 1e-9);
        if (rate > best) best = rate;
    }
    return best;
}

typedef int64_t rounds_fn(int64_t n, int64_t *macs);

typedef struct round_job {
    rounds_fn *fn;
    _Atomic int64_t sink, macs;
} round_job;

#define ROUNDS 20000

static void run_rounds(void *arg, int begin, int end, int worker)
{
    (void)worker;
    round_job *j = arg;
    int64_t macs = 0;
    atomic_fetch_add(&j->sink, j->fn((int64_t)(end - begin) * ROUNDS, &macs));
    atomic_store(&j->macs, macs);
}

static double measure_rounds(threads *team, rounds_fn *fn)
{
    round_job j = {.fn = fn};
    double best = 0;
    int units = threads_count(team) * 16;
    for (int i = 0; i < REPEATS; i++) {
        int64_t start = clock_ns();
        threads_run(team, run_rounds, &j, units, 1);
        double rate = (double)units * ROUNDS * (double)j.macs / ((double)(clock_ns() - start) * 1e-9);
        if (rate > best) best = rate;
    }
    return best;
}

int64_t roofline_int8_rounds(int64_t n, int64_t *macs)
{
    volatile int8_t start = 3;
    int32_t a[64], w[64];
    for (int i = 0; i < 64; i++) {
        w[i] = start + i;
        a[i] = 0;
    }
    for (int64_t r = 0; r < n; r++)
        for (int i = 0; i < 64; i++) a[i] += w[i] * (int32_t)(r & 127);
    int64_t sum = 0;
    for (int i = 0; i < 64; i++) sum += a[i];
    *macs = 64;
    return sum;
}

int64_t roofline_float_rounds(int64_t n, int64_t *macs)
{
    volatile float start = 1e-6f;
    float a[64], w = start;
    for (int i = 0; i < 64; i++) a[i] = (float)i;
    for (int64_t r = 0; r < n; r++)
        for (int i = 0; i < 64; i++) a[i] = a[i] * w + w;
    float sum = 0;
    for (int i = 0; i < 64; i++) sum += a[i];
    *macs = 64;
    return (int64_t)sum;
}

int roofline_measure(roofline *r, threads *team, status *st)
{
    uint64_t *data = mem_pages_alloc(BUFFER_BYTES);
    if (!data) return status_nomem(st, BUFFER_BYTES);
    bool avx2 = kernels_get(CPU_AVX2) != NULL;
    r->read_bytes_s = measure_read(team, data);
    r->int8_macs_s = measure_rounds(team, avx2 ? roofline_int8_rounds_avx2 : roofline_int8_rounds);
    r->float_macs_s = measure_rounds(team, avx2 ? roofline_float_rounds_avx2 : roofline_float_rounds);
    mem_pages_free(data, BUFFER_BYTES);
    return ST_OK;
}
