/* bench_product - how close the matrix products come to what this machine can do (roofline.h).
 *
 *      bench_product [--threads N] [--rows R] [--k K] [--cpu LEVEL] [--exact] [--hot] [TYPE...]
 *
 * For every type and number of columns: median and best time of one product, GB/s of weights read (against
 * the read bandwidth measured here), and 10^9 multiply-adds/s (against the int8 peak measured here).
 * Several copies of the matrix take turns, so that one column reads from memory, not a cache; --hot keeps to one copy.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/half.h"
#include "base/mem.h"
#include "kernel/product.h"
#include "kernel/roofline.h"

#define COLD_BYTES ((size_t)192 << 20)
#define REPS 7

static const int column_counts[] = {1, 2, 4, 8, 16, 64, 512};
#define N_COUNTS (int)(sizeof column_counts / sizeof column_counts[0])

typedef struct options {
    int threads;
    int64_t rows, k;
    bool exact, hot;
    cpu_level level;
} options;

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, compare);
    return v[n / 2];
}

/* Any bytes are codes; scales must not be infinities. */
static void fill_rows(dtype t, uint8_t *data, size_t n_bytes)
{
    uint32_t seed = 1;
    for (size_t i = 0; i < n_bytes; i++) {
        seed = seed * 1664525u + 1013904223u;
        data[i] = (uint8_t)(seed >> 24 & 0x3B);
    }
    if (t != DTYPE_F32) return;
    for (size_t i = 0; i < n_bytes; i += 4) data[i + 3] = 0x3D;
}

typedef struct run_set {
    const kernels *ks;
    threads *team;
    weight *copies;
    int n_copies, next;
    product_scratch scratch;
    float *x, *y;
} run_set;

static double seconds_of(run_set *r, const options *o, int n, double *best)
{
    double seconds[REPS];
    for (int rep = 0; rep < REPS; rep++) {
        int calls = 0;
        double start = clock_seconds(), now;
        do {
            product p = {&r->copies[r->next], NULL, r->y, o->rows};
            product_call c = {
                .x = r->x, .x_stride = o->k, .n = n, .products = &p, .n_products = 1, .exact = o->exact};
            product_run(r->ks, r->team, &r->scratch, &c);
            r->next = (r->next + 1) % r->n_copies;
            calls++;
            now = clock_seconds();
        } while (now - start < 0.03);
        seconds[rep] = (now - start) / calls;
    }
    double middle = median(seconds, REPS); /* which sorts */
    *best = seconds[0];
    return middle;
}

static int bench_type(run_set *r, const options *o, dtype t, double bandwidth, double peak, status *st)
{
    size_t n_bytes = dtype_row_bytes(t, o->k) * (size_t)o->rows;
    uint8_t *data = mem_alloc(n_bytes);
    if (!data) return status_nomem(st, n_bytes);
    fill_rows(t, data, n_bytes);
    r->n_copies = o->hot ? 1 : (int)(COLD_BYTES / n_bytes) + 1;
    r->next = 0;
    r->copies = mem_calloc((size_t)r->n_copies, sizeof *r->copies);
    double start = clock_seconds();
    for (int i = 0; r->copies && i < r->n_copies; i++)
        if (weight_init(&r->copies[i], r->ks, r->team, t, o->rows, o->k, data, st)) r->n_copies = i;
    double pack = clock_seconds() - start, bytes = (double)n_bytes * r->n_copies;
    for (int i = 0; r->copies && r->n_copies && i < N_COUNTS; i++) {
        int n = column_counts[i];
        double best, s = seconds_of(r, o, n, &best), gb = (double)r->copies[0].n_bytes / s * 1e-9,
                     ops = (double)o->rows * (double)o->k * n / s * 1e-9;
        printf("%-7s %5d %10.1f %10.1f %8.1f %5.0f%% %8.1f %5.0f%%", dtype_get(t)->name, n, s * 1e6, best * 1e6, gb,
               gb / bandwidth * 100, ops, ops / peak * 100);
        printf(i ? "\n" : "   packed at %.2f GB/s\n", bytes / pack * 1e-9);
    }
    for (int i = 0; r->copies && i < r->n_copies; i++) weight_deinit(&r->copies[i]);
    mem_free(r->copies);
    mem_free(data);
    return st->code;
}

static bool wanted(dtype t, char **names, int n)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(names[i], dtype_get(t)->name)) return true;
    return n == 0;
}

static int bench(const options *o, char **names, int n_names, status *st)
{
    const int most = column_counts[N_COUNTS - 1];
    run_set r = {.ks = kernels_get(o->level)};
    size_t n_x = (size_t)most * (size_t)o->k, n_y = (size_t)most * (size_t)o->rows;
    if (threads_new(&r.team, o->threads, st)) return st->code;
    if (product_scratch_init(&r.scratch, o->k, most, st)) return st->code;
    r.x = mem_array(n_x, sizeof *r.x);
    r.y = mem_array(n_y, sizeof *r.y);
    if (!r.x || !r.y) return status_nomem(st, (n_x + n_y) * sizeof *r.x);
    for (size_t i = 0; i < n_x; i++) r.x[i] = (float)(i * 2654435761u % 2001) / 1000 - 1;
    roofline limit;
    if (roofline_measure(&limit, r.team, st)) return st->code;
    double bandwidth = limit.read_bytes_s * 1e-9, peak = limit.int8_macs_s * 1e-9;
    printf("%lld x %lld, %d threads, %s; read %.1f GB/s, int8 peak %.1f G multiply-adds/s\n", (long long)o->rows,
           (long long)o->k, o->threads, r.ks->name, bandwidth, peak);
    printf("type     cols         us    best us     GB/s  of rd    Gmul/s of pk\n");
    for (uint32_t t = 0; t < DTYPE_COUNT && !st->code; t++)
        if (dtype_get(t) && o->k % dtype_get(t)->block_elems == 0 && wanted((dtype)t, names, n_names))
            bench_type(&r, o, (dtype)t, bandwidth, peak, st);
    mem_free(r.x);
    mem_free(r.y);
    product_scratch_deinit(&r.scratch);
    threads_free(r.team);
    return st->code;
}

/* Only levels that this machine has. */
static bool level_named(const char *name, cpu_level *level)
{
    for (cpu_level l = CPU_SCALAR; name && l < CPU_LEVELS; l++)
        if (kernels_get(l) && !strcmp(kernels_get(l)->name, name)) {
            *level = l;
            return true;
        }
    return false;
}

int main(int argc, char **argv)
{
    options o = {threads_available(), 1536, 576, false, false, CPU_AUTO};
    status st = STATUS_INIT;
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        long long value = i + 1 < argc ? atoll(argv[i + 1]) : 0;
        if (!strcmp(argv[i], "--exact")) o.exact = true;
        else if (!strcmp(argv[i], "--hot")) o.hot = true;
        else if (!strcmp(argv[i], "--cpu") && level_named(argv[i + 1], &o.level)) i++;
        else if (value > 0 && !strcmp(argv[i], "--threads")) o.threads = (int)value, i++;
        else if (value > 0 && !strcmp(argv[i], "--rows")) o.rows = value, i++;
        else if (value > 0 && !strcmp(argv[i], "--k")) o.k = value, i++;
        else {
            fprintf(stderr,
                    "usage: bench_product [--threads N] [--rows R] [--k K] [--cpu scalar|avx2|avx512|neon|dotprod]\n"
                    "       [--exact] [--hot] [TYPE...]\n");
            return 2;
        }
    }
    if (!bench(&o, argv + i, argc - i, &st)) return 0;
    fprintf(stderr, "bench_product: %s\n", st.text);
    return 1;
}
