/* Forks of a conversation: how long 16 branches of one sequence take, and how many rows they copy. The caches have the
 * shapes of real models; the conversation is in the radix tree, as the engine keeps it.
 *
 *      bench_fork
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cache/cache.h"

#define BRANCHES 16
#define CONTEXT 4224
#define STEP 512
#define REPS 101

typedef struct shape {
    const char *name;
    kv_group groups[2];
    int n_groups;
} shape;

static const int layers[32] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                               16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

static const shape shapes[] = {
    {"smollm2 30 x 3/64", {{{.kind = KV_GQA, .n_kv_heads = 3, .d_k = 64, .d_v = 64}, layers, 30}}, 1},
    {"gemma 15 (w 512) + 3 x 1/256",
     {{{.kind = KV_GQA, .n_kv_heads = 1, .d_k = 256, .d_v = 256, .window = 512}, layers, 15},
      {{.kind = KV_GQA, .n_kv_heads = 1, .d_k = 256, .d_v = 256}, layers + 15, 3}},
     2},
};

static void must(int rc, const status *st)
{
    if (!rc) return;
    fprintf(stderr, "bench_fork: %s\n", st->text);
    exit(1);
}

static kv_seq *conversation(kv_cache *c, int n)
{
    static int32_t ids[CONTEXT];
    status st = STATUS_INIT;
    kv_seq *s;
    must(kv_seq_new(&s, c, &st), &st);
    for (int i = 0; i < n; i++) ids[i] = i * 7919 % 50000;
    kv_seq_match(s, 0, ids, n, 0);
    while (kv_seq_len(s) < n) {
        int64_t left = n - kv_seq_len(s);
        must(kv_seq_append(s, (int)(left < STEP ? left : STEP), &st), &st);
        kv_seq_share(s, ids);
    }
    return s;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Branches into new sequences, or into those that sessions have already. */
static double time_branches(kv_cache *c, const kv_seq *s, int n, bool anew)
{
    double times[REPS];
    status st = STATUS_INIT;
    for (int rep = 0; rep < REPS; rep++) {
        kv_seq *branch[BRANCHES];
        for (int i = 0; i < BRANCHES && !anew; i++) must(kv_seq_new(&branch[i], c, &st), &st);
        double start = clock_seconds();
        for (int i = 0; i < BRANCHES; i++)
            must(anew ? kv_seq_fork(&branch[i], s, n, &st) : kv_seq_copy(branch[i], s, n, &st), &st);
        times[rep] = clock_seconds() - start;
        for (int i = 0; i < BRANCHES; i++) kv_seq_free(branch[i]);
    }
    qsort(times, REPS, sizeof *times, by_value);
    return times[REPS / 2];
}

static void measure(const shape *p, int n)
{
    kv_cache_config config = {.groups = p->groups,
                              .n_groups = p->n_groups,
                              .format = kv_format_get("f16"),
                              .max_tokens = CONTEXT,
                              .step_tokens = STEP,
                              .n_seqs = 2};
    kv_cache *c;
    status st = STATUS_INIT;
    must(kv_cache_new(&c, &config, &st), &st);
    kv_seq *s = conversation(c, n);
    uint64_t before = kv_cache_copied_rows(c, 0);
    double copy = time_branches(c, s, n, false), fork = time_branches(c, s, n, true);
    printf("| %s | %d | %.0f | %.0f | %.1f |\n", p->name, n, copy * 1e6, fork * 1e6,
           (double)(kv_cache_copied_rows(c, 0) - before) / (2. * REPS * BRANCHES));
    kv_seq_free(s);
    kv_cache_free(c);
}

int main(void)
{
    printf("| cache | tokens | %d branches, us | with new sequences, us | rows copied a group and branch |\n"
           "| --- | ---: | ---: | ---: | ---: |\n",
           BRANCHES);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int n = 4095; n <= 4096; n++) measure(&shapes[i], n);
    return 0;
}
