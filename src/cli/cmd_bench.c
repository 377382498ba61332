#include <stdio.h>
#include <string.h>

#include "cli/bench.h"

#define DEFAULT_TESTS "pp512,pp2048,tg64@0,tg32@2048,tb16x4@256"

typedef struct report {
    const char *kv;
    int threads, reps;
    roofline roof;
    bench_result results[BENCH_MAX_TESTS];
    int n;
    bench_pair pairs[8];
    int n_pairs;
} report;

static double percent(const bench_result *r)
{
    return r->limit > 0 ? r->median / r->limit * 100 : 0;
}

static void print_json(const report *p)
{
    printf("{\"read_gb_s\": %.2f, \"int8_gmac_s\": %.1f, \"float_gmac_s\": %.1f, \"tests\": [",
           p->roof.read_bytes_s * 1e-9, p->roof.int8_macs_s * 1e-9, p->roof.float_macs_s * 1e-9);
    for (int i = 0; i < p->n; i++) {
        const bench_result *r = &p->results[i];
        printf("%s\n {\"test\": \"%s\", \"kv\": \"%s\", \"threads\": %d, \"median\": %.2f, "
               "\"min\": %.2f, \"max\": %.2f, \"reps\": %d, "
               "\"limit\": %.2f, \"percent\": %.1f, \"bytes_per_token\": %.0f, \"hash\": \"%016llx\"}",
               i ? "," : "", r->test.name, p->kv, p->threads, r->median, r->min, r->max, p->reps, r->limit, percent(r),
               r->bytes_per_token, (unsigned long long)r->hash);
    }
    printf("]");
    for (int i = 0; i < p->n_pairs; i++)
        printf("%s\n {\"tokens\": %d, \"cached_s\": %.4f, \"uncached_s\": %.4f}", i ? "," : ", \"no_cache\": [",
               p->pairs[i].n, p->pairs[i].cached_s, p->pairs[i].uncached_s);
    printf("%s}\n", p->n_pairs ? "]" : "");
}

static void print_csv(const report *p)
{
    printf("test,kv,threads,median,min,max,reps,limit,percent,bytes_per_token,hash\n");
    for (int i = 0; i < p->n; i++) {
        const bench_result *r = &p->results[i];
        printf("%s,%s,%d,%.2f,%.2f,%.2f,%d,%.2f,%.1f,%.0f,%016llx\n", r->test.name, p->kv, p->threads, r->median,
               r->min, r->max, p->reps, r->limit, percent(r), r->bytes_per_token, (unsigned long long)r->hash);
    }
    for (int i = 0; i < p->n_pairs; i++)
        printf("%sno-cache %d,%.4f,%.4f\n", i ? "" : "test,cached_s,uncached_s\n", p->pairs[i].n, p->pairs[i].cached_s,
               p->pairs[i].uncached_s);
}

#define BAR 40

static void print_pairs(const report *p)
{
    double longest = 0;
    for (int i = 0; i < p->n_pairs; i++)
        if (p->pairs[i].uncached_s > longest) longest = p->pairs[i].uncached_s;
    printf("\n| tokens | cached, s | without a cache, s | ratio | |\n| ---: | ---: | ---: | ---: | :--- |\n");
    for (int i = 0; i < p->n_pairs; i++) {
        const bench_pair *q = &p->pairs[i];
        int with = (int)(q->cached_s / longest * BAR + 0.5), without = (int)(q->uncached_s / longest * BAR + 0.5);
        printf("| %d | %.3f | %.3f | %.1f | `%.*s%.*s` |\n", q->n, q->cached_s, q->uncached_s,
               q->uncached_s / q->cached_s, with, "########################################",
               without > with ? without - with : 0, "----------------------------------------");
    }
    printf("\n`#` with the cache, `-` what its absence adds: each token computes the whole text before it again.\n");
}

static void print_markdown(const report *p)
{
    if (p->n) printf("| test | kv | threads | tokens/s | min | max | limit | percent | MB/token | hash |\n"
                     "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n");
    for (int i = 0; i < p->n; i++) {
        const bench_result *r = &p->results[i];
        printf("| %s | %s | %d | %.1f | %.1f | %.1f | %.0f | %.0f | %.2f | %016llx |\n", r->test.name, p->kv,
               p->threads, r->median, r->min, r->max, r->limit, percent(r), r->bytes_per_token * 1e-6,
               (unsigned long long)r->hash);
    }
    printf("\nroofline: this machine reads %.1f GB/s, does %.0f G int8 and %.0f G float multiply-adds/s with %d "
           "threads; the limit is bandwidth over bytes, or operations over those peaks, whichever is lower\n",
           p->roof.read_bytes_s * 1e-9, p->roof.int8_macs_s * 1e-9, p->roof.float_macs_s * 1e-9, p->threads);
    if (p->n_pairs) print_pairs(p);
}

static int measure(report *p, runtime *r, const bench_test *tests, int n, bool no_cache, status *st)
{
    if (roofline_measure(&p->roof, r->team, st)) return st->code;
    progress bar;
    progress_begin(&bar, "measuring", (uint64_t)n, "tests");
    int rc = ST_OK;
    for (; p->n < n && rc == ST_OK; p->n++) {
        rc = bench_run(&p->results[p->n], r, &tests[p->n], p->reps, &p->roof, st);
        progress_update(&bar, (uint64_t)p->n + 1);
    }
    for (int tokens = 16; no_cache && tokens <= 128 && rc == ST_OK; tokens *= 2)
        rc = bench_no_cache(&p->pairs[p->n_pairs++], r, tokens, st);
    progress_end(&bar);
    return rc;
}

static int run(const args *a, status *st)
{
    bench_test tests[BENCH_MAX_TESTS];
    int n;
    bool no_cache = args_flag(a, "no-cache");
    const char *model_name = args_string(a, "model") ? args_string(a, "model") : args_positional(a, 0);
    if (!model_name) return status_set(st, ST_ARG, STATUS_NO_POS, "name a model"), 2;
    if (bench_parse(tests, &n, args_string(a, "tests"), st)) return 2;
    if (no_cache && !args_given(a, "tests")) n = 0;
    engine_config c = {.n_sessions = bench_sessions(tests, n),
                       .no_split = args_flag(a, "no-split"),
                       .no_cascade = args_flag(a, "no-cascade")};
    c.context = bench_context(tests, n) > 256 ? bench_context(tests, n) : 256;
    runtime r = {0};
    report p = {.reps = (int)args_int(a, "reps")};
    if (runtime_open(&r, a, model_name, c, st)) return 1;
    p.threads = threads_count(r.team);
    p.kv = kv_cache_format(engine_cache(r.e))->name;
    int rc = measure(&p, &r, tests, n, no_cache, st);
    runtime_close(&r);
    if (rc) return 1;
    const char *output = args_flag(a, "json") ? "json" : args_string(a, "output");
    if (strcmp(output, "json") == 0) print_json(&p);
    else if (strcmp(output, "csv") == 0) print_csv(&p);
    else print_markdown(&p);
    return 0;
}

static const option_spec options[] = {
    {.name = "model", .letter = 'm', .kind = OPTION_STRING, .arg = "MODEL", .help = "the model, by path or name"},
    {.name = "tests", .kind = OPTION_STRING, .arg = "LIST", .fallback = DEFAULT_TESTS,
     .help = "what to time, separated by commas"},
    {.name = "reps", .letter = 'r', .kind = OPTION_INT, .arg = "N", .fallback = "3", .min = 1, .max = BENCH_MAX_REPS,
     .help = "timed runs of each test, after one to warm up"},
    {.name = "no-cache", .kind = OPTION_FLAG, .help = "generation without a cache beside the cached one"},
    {.name = "no-split", .kind = OPTION_FLAG, .help = "attention of a row is not split over workers (same bits)"},
    {.name = "no-cascade", .kind = OPTION_FLAG,
     .help = "blocks that sequences share are read by each of them (same bits)"},
    {.name = "output", .letter = 'o', .kind = OPTION_CHOICE, .arg = "FORM", .fallback = "md", .choices = "md|csv|json",
     .help = "form of the table"},
    {.name = "json", .kind = OPTION_FLAG, .help = "short for --output json"},
    RUNTIME_OPTIONS,
    CACHE_OPTIONS,
    {0},
};

const command cmd_bench = {
    .name = "bench",
    .positional = "[MODEL]",
    .min_positional = 0,
    .max_positional = 1,
    .summary = "Measure tokens per second against what the machine allows",
    .details = "Tests: ppN, prefill of N tokens; tgN@D, N single-token steps after D tokens of context; tbNxB@D, N "
               "steps of B sequences of D tokens each; spNxB@P+D, the same with a prefix of P tokens that all share. "
               "Prints median, minimum and maximum of the timed runs, the "
               "limit (measured bandwidth over the bytes that a token needs, or operations over measured peak, "
               "whichever is lower), the percentage reached, and a hash of all logits.\n\n"
               "  kvasir bench smollm2-135m-instruct --tests pp512,tg32@0,tg32@2048 --threads 2\n"
               "  kvasir bench smollm2-135m-instruct --no-cache",
    .options = options,
    .run = run,
};
