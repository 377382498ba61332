/* Attention alone, one layer at a time over a cache too large for the processor's own: decode by depth, split and
 * threads, against the least time that this machine allows (roofline.h); prefill in multiply-adds.
 *
 *      bench_attention [--quick]
 *      bench_attention --sweep     one KV head, decode over 512 to 65,536 tokens, as a table
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/half.h"
#include "base/mem.h"
#include "kernel/attention.h"
#include "kernel/roofline.h"

#define BLOCK_TOKENS 16
#define CACHE_BYTES ((size_t)192 << 20) /* what the layers of a pass take together */
#define REPS 7

typedef struct model_shape {
    const char *name;
    int n_heads, n_kv_heads, d;
} model_shape;

static const model_shape shapes[] = {
    {"smollm2 9/3/64", 9, 3, 64},
    {"gemma 4/1/256", 4, 1, 256},
    {"llama-1b 32/8/64", 32, 8, 64},
};

static const model_shape one_kv_head = {"8/1/128", 8, 1, 128};

/* n_tok stored rows in n_layers layers of f16 blocks, shuffled in memory. */
typedef struct context {
    model_shape s;
    int n_tok, n_layers, n_blocks;
    size_t layer_bytes, n_bytes;
    uint8_t *memory;
    attn_span *spans;
} context;

static void die(const char *what)
{
    fprintf(stderr, "bench_attention: %s\n", what);
    exit(1);
}

static context make_context(model_shape s, int n_tok, size_t n_bytes)
{
    context c = {.s = s, .n_tok = n_tok, .n_blocks = (n_tok + BLOCK_TOKENS - 1) / BLOCK_TOKENS};
    c.layer_bytes = (size_t)s.n_kv_heads * (size_t)s.d * 2 * 2 * BLOCK_TOKENS;
    c.n_layers = (int)(n_bytes / (c.layer_bytes * (size_t)c.n_blocks)) + 1;
    c.n_bytes = c.layer_bytes * (size_t)c.n_blocks * (size_t)c.n_layers;
    c.memory = mem_pages_alloc(c.n_bytes);
    c.spans = mem_array((size_t)c.n_blocks, sizeof *c.spans);
    if (!c.memory || !c.spans) die("out of memory");
    uint16_t *h = (uint16_t *)c.memory;
    for (size_t i = 0; i < c.n_bytes / 2; i++)
        h[i] = (uint16_t)(0x3000 + (i * 40503u >> 4) % 0x400); /* 0.125 .. 0.25 */
    for (int i = 0; i < c.n_blocks; i++) {
        int place = (int)((int64_t)i * 7919 % c.n_blocks); /* a permutation: 7919 is prime */
        int n = n_tok - i * BLOCK_TOKENS < BLOCK_TOKENS ? n_tok - i * BLOCK_TOKENS : BLOCK_TOKENS;
        c.spans[i] =
            (attn_span){(uint32_t)place, ATTN_EXACT, 0, n, (int64_t)i * BLOCK_TOKENS};
    }
    return c;
}

static void free_context(context *c)
{
    mem_pages_free(c->memory, c->n_bytes);
    mem_free(c->spans);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Least seconds of decode over one layer: reading it, or the multiply-adds. */
static double least_seconds(const context *c, const roofline *roof)
{
    double bytes = (double)c->layer_bytes * c->n_blocks, macs = (double)c->n_tok * c->s.n_heads * c->s.d * 2;
    double reading = bytes / roof->read_bytes_s, computing = macs / roof->float_macs_s;
    return reading > computing ? reading : computing;
}

/* Median seconds of one layer, for the last n_rows tokens as queries. */
static double time_layer(const context *c, const kernels *ks, threads *team, int n_rows, bool split, int passes)
{
    status st = STATUS_INIT;
    attn_plan *p;
    size_t n = (size_t)n_rows * (size_t)c->s.n_heads * (size_t)c->s.d, head = (size_t)c->s.d * 2 * BLOCK_TOKENS;
    float *q = mem_calloc(n, sizeof *q), *out = mem_calloc(n, sizeof *out);
    attn_shape shape = {c->s.n_heads, c->s.n_kv_heads, c->s.d, c->s.d, BLOCK_TOKENS};
    if (!q || !out || attn_plan_new(&p, ks, shape, threads_count(team), n_rows, 1, c->n_blocks, &st))
        die("out of memory");
    for (size_t i = 0; i < n; i++) q[i] = (float)(i % 17) / 17 - 0.5f;
    double t[REPS];
    for (int rep = -1; rep < REPS; rep++) { /* the first only warms up */
        double begin = clock_seconds();
        for (int pass = 0; pass < passes; pass++) {
            attn_plan_reset(p);
            int seq = attn_plan_seq(p, c->spans, c->n_blocks);
            for (int i = 0; i < n_rows; i++) {
                attn_plan_row(p, &(attn_row){.seq = seq, .lo = 0, .hi = c->n_tok - n_rows + i + 1});
            }
            attn_plan_build(p, threads_count(team), split ? ATTN_SPLIT : 0);
            for (int layer = 0; layer < c->n_layers; layer++) {
                size_t at = (size_t)layer * c->layer_bytes;
                attn_layer l = {.source[ATTN_EXACT] = {ks->attend_f16, c->memory, c->layer_bytes * (size_t)c->n_layers,
                                                       BLOCK_TOKENS, at, at + head, 2 * head, 2 * head},
                                .scale = 1 / sqrtf((float)c->s.d)};
                attn_run(p, team, &l, q, out);
            }
        }
        if (rep >= 0) t[rep] = (clock_seconds() - begin) / passes / c->n_layers;
    }
    qsort(t, REPS, sizeof *t, by_value);
    attn_plan_free(p);
    mem_free(q);
    mem_free(out);
    return t[REPS / 2];
}

static void bench_decode(const kernels *ks, threads *team, const roofline *roof, bool quick)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (int depth = 512; depth <= 32768; depth *= quick ? 8 : 4) {
            context c = make_context(shapes[i], depth, CACHE_BYTES);
            double bytes = (double)c.layer_bytes * c.n_blocks;
            for (int split = threads_count(team) > 1 ? 0 : 1; split < 2; split++) {
                double t = time_layer(&c, ks, team, 1, split, 1);
                printf("decode  %-17s depth %5d  threads %d  split %-3s  %9.0f ns  %6.2f GB/s  %3.0f%% of the limit\n",
                       shapes[i].name, depth, threads_count(team), split ? "on" : "off", t * 1e9, bytes / t * 1e-9,
                       100 * least_seconds(&c, roof) / t);
            }
            free_context(&c);
        }
    }
}

static void bench_prefill(const kernels *ks, threads *team, bool quick)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (int n = 512; n <= (quick ? 512 : 2048); n *= 4) {
            context c = make_context(shapes[i], n, 0);
            double t = time_layer(&c, ks, team, n, true, 1);
            double macs = (double)n * (n + 1) / 2 * shapes[i].n_heads * shapes[i].d * 2;
            printf("prefill %-17s rows  %5d  threads %d             %9.0f ns  %6.1f G multiply-adds/s\n",
                   shapes[i].name, n, threads_count(team), t * 1e9, macs / t * 1e-9);
            free_context(&c);
        }
    }
}

static void sweep(const kernels *ks, threads *team, const roofline *roof)
{
    for (int depth = 512; depth <= 65536; depth *= 2) {
        context c = make_context(one_kv_head, depth, CACHE_BYTES);
        for (int split = threads_count(team) > 1 ? 0 : 1; split < 2; split++) {
            double t = time_layer(&c, ks, team, 1, split, 1), least = least_seconds(&c, roof);
            printf("| %d | %d | %s | %.1f | %.1f | %.1f | %.0f |\n", depth, threads_count(team), split ? "on" : "off",
                   t * 1e6, (double)c.layer_bytes * c.n_blocks / t * 1e-9, least * 1e6, 100 * least / t);
        }
        free_context(&c);
    }
}

int main(int argc, char **argv)
{
    bool quick = false, sweeps = false;
    for (int i = 1; i < argc; i++) {
        quick |= !strcmp(argv[i], "--quick");
        sweeps |= !strcmp(argv[i], "--sweep");
    }
    status st = STATUS_INIT;
    threads *team;
    const kernels *ks = kernels_get(CPU_AUTO);
    if (threads_new(&team, 1, &st)) die(st.text);
    if (sweeps)
        printf("| depth, %s heads | threads | split | us/layer | GB/s | limit, us | percent |\n"
               "| ---: | ---: | --- | ---: | ---: | ---: | ---: |\n",
               one_kv_head.name);
    for (int n = 1; n <= 2; n++) {
        roofline roof;
        if (threads_resize(team, n, &st) || roofline_measure(&roof, team, &st)) die(st.text);
        if (sweeps) {
            sweep(ks, team, &roof);
            continue;
        }
        printf("kernels %s, threads %d: read bandwidth %.1f GB/s, %.1f G float multiply-adds/s\n", ks->name, n,
               roof.read_bytes_s * 1e-9, roof.float_macs_s * 1e-9);
        bench_decode(ks, team, &roof, quick);
        bench_prefill(ks, team, quick);
    }
    threads_free(team);
    return 0;
}
