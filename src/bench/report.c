#include "bench/report.h"

#include <stdio.h>

static double percent(const bench_result *r)
{
    return r->limit > 0 ? r->median / r->limit * 100 : 0;
}

static double total_s(const bench_result *r)
{
    double total = 0;
    for (int i = 0; i < PHASE_COUNT; i++) total += r->phase_s[i];
    return total;
}

static void json_result(const bench_report *p, const bench_result *r)
{
    printf("{\"test\": \"%s\", \"kv\": \"%s\", \"threads\": %d, \"block_tokens\": %d, \"split\": %s, \"median\": %.2f, "
           "\"min\": %.2f, \"max\": %.2f, \"reps\": %d, \"limit\": %.2f, \"percent\": %.1f, \"bytes_per_token\": %.0f, "
           "\"hash\": \"%016llx\"",
           r->test.name, p->kv, p->threads, r->block_tokens, r->split ? "true" : "false", r->median, r->min, r->max,
           p->o.reps, r->limit, percent(r), r->bytes_per_token, (unsigned long long)r->hash);
    if (p->sizes)
        printf(", \"unused_tokens\": %.1f, \"bookkeeping_bytes_per_token\": %.4f", (r->block_tokens - 1) / 2.0,
               r->block_overhead);
    for (int i = 0; p->o.phases && i < PHASE_COUNT; i++)
        printf("%s\"%s\": %.3f", i ? ", " : ", \"phases_us\": {", phase_name((phase)i), r->phase_s[i] * 1e6);
    if (p->o.phases) printf("}, \"phases_total_us\": %.3f", total_s(r) * 1e6);
    printf("}");
}

void bench_print_json(const bench_report *p)
{
    printf("{\"read_gb_s\": %.2f, \"int8_gmac_s\": %.1f, \"float_gmac_s\": %.1f, \"tests\": [",
           p->roof.read_bytes_s * 1e-9, p->roof.int8_macs_s * 1e-9, p->roof.float_macs_s * 1e-9);
    for (int i = 0; i < p->n; i++) {
        printf(i ? ",\n " : "\n ");
        json_result(p, &p->results[i]);
    }
    printf("]");
    for (int i = 0; i < p->n_pairs; i++)
        printf("%s\n {\"tokens\": %d, \"cached_s\": %.4f, \"uncached_s\": %.4f}", i ? "," : ", \"no_cache\": [",
               p->pairs[i].n, p->pairs[i].cached_s, p->pairs[i].uncached_s);
    printf("%s}\n", p->n_pairs ? "]" : "");
}

void bench_print_csv(const bench_report *p)
{
    if (p->n) printf("test,kv,threads,block_tokens,split,median,min,max,reps,limit,percent,bytes_per_token,hash");
    for (int i = 0; p->n && p->o.phases && i < PHASE_COUNT; i++) printf(",%s_us", phase_name((phase)i));
    if (p->n) printf("\n");
    for (int i = 0; i < p->n; i++) {
        const bench_result *r = &p->results[i];
        printf("%s,%s,%d,%d,%d,%.2f,%.2f,%.2f,%d,%.2f,%.1f,%.0f,%016llx", r->test.name, p->kv, p->threads,
               r->block_tokens, r->split, r->median, r->min, r->max, p->o.reps, r->limit, percent(r),
               r->bytes_per_token, (unsigned long long)r->hash);
        for (int j = 0; p->o.phases && j < PHASE_COUNT; j++) printf(",%.3f", r->phase_s[j] * 1e6);
        printf("\n");
    }
    for (int i = 0; i < p->n_pairs; i++)
        printf("%sno-cache %d,%.4f,%.4f\n", i ? "" : "test,cached_s,uncached_s\n", p->pairs[i].n, p->pairs[i].cached_s,
               p->pairs[i].uncached_s);
}

#define BAR 40

static void print_pairs(const bench_report *p)
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

/* The columns of what the settings differ in: their names, the line below, a result's. */
static void setting_names(const bench_report *p)
{
    printf("%s%s", p->sizes ? " block |" : "", p->splits ? " split |" : "");
}

static void setting_line(const bench_report *p)
{
    printf("%s%s", p->sizes ? " ---: |" : "", p->splits ? " --- |" : "");
}

static void setting_of(const bench_report *p, const bench_result *r)
{
    if (p->sizes) printf(" %d |", r->block_tokens);
    if (p->splits) printf(" %s |", r->split ? "on" : "off");
}

static void print_phases(const bench_report *p)
{
    printf("\n| test |");
    setting_names(p);
    printf(" us/token |");
    for (int i = 0; i < PHASE_COUNT; i++) printf(" %s, %% |", phase_name((phase)i));
    printf("\n| --- |");
    setting_line(p);
    printf(" ---: |");
    for (int i = 0; i < PHASE_COUNT; i++) printf(" ---: |");
    printf("\n");
    for (int i = 0; i < p->n; i++) {
        const bench_result *r = &p->results[i];
        printf("| %s |", r->test.name);
        setting_of(p, r);
        printf(" %.1f |", total_s(r) * 1e6);
        for (int j = 0; j < PHASE_COUNT; j++) printf(" %.1f |", r->phase_s[j] / total_s(r) * 100);
        printf("\n");
    }
}

/* One line a size of blocks: the speed of each test, and what the size wastes. */
static void print_sizes(const bench_report *p)
{
    printf("\n| tokens a block | unused tokens a sequence, on average | bookkeeping, bytes/token |");
    for (int t = 0; t < p->n_tests; t++) printf(" %s |", p->results[t].test.name);
    printf("\n| ---: | ---: | ---: |");
    for (int t = 0; t < p->n_tests; t++) printf(" ---: |");
    printf("\n");
    for (int i = 0; i + p->n_tests <= p->n; i += p->n_tests) {
        const bench_result *r = &p->results[i];
        if (p->splits && !r->split) continue;
        printf("| %d | %.1f | %.3f |", r->block_tokens, (r->block_tokens - 1) / 2.0, r->block_overhead);
        for (int t = 0; t < p->n_tests; t++) printf(" %.1f |", r[t].median);
        printf("\n");
    }
}

/* Each setting with split attention is followed by the same without. */
static void print_splits(const bench_report *p)
{
    printf("\n| test |%s split | not split | ratio |\n", p->sizes ? " block |" : "");
    printf("| --- |%s ---: | ---: | ---: |\n", p->sizes ? " ---: |" : "");
    for (int i = 0; i + 2 * p->n_tests <= p->n; i += 2 * p->n_tests)
        for (int t = 0; t < p->n_tests; t++) {
            const bench_result *with = &p->results[i + t], *without = with + p->n_tests;
            printf("| %s |", with->test.name);
            if (p->sizes) printf(" %d |", with->block_tokens);
            printf(" %.1f | %.1f | %.2f |\n", with->median, without->median, with->median / without->median);
        }
}

static void print_results(const bench_report *p)
{
    printf("| test | kv | threads |");
    setting_names(p);
    printf(" tokens/s | min | max | limit | percent | MB/token | hash |\n| --- | --- | ---: |");
    setting_line(p);
    printf(" ---: | ---: | ---: | ---: | ---: | ---: | --- |\n");
    for (int i = 0; i < p->n; i++) {
        const bench_result *r = &p->results[i];
        printf("| %s | %s | %d |", r->test.name, p->kv, p->threads);
        setting_of(p, r);
        printf(" %.1f | %.1f | %.1f | %.0f | %.0f | %.2f | %016llx |\n", r->median, r->min, r->max, r->limit,
               percent(r), r->bytes_per_token * 1e-6, (unsigned long long)r->hash);
    }
}

void bench_print_markdown(const bench_report *p)
{
    if (p->n) print_results(p);
    printf("\nroofline: this machine reads %.1f GB/s, does %.0f G int8 and %.0f G float multiply-adds/s with %d "
           "threads; the limit is bandwidth over bytes, or operations over those peaks, whichever is lower\n",
           p->roof.read_bytes_s * 1e-9, p->roof.int8_macs_s * 1e-9, p->roof.float_macs_s * 1e-9, p->threads);
    if (p->o.phases && p->n) print_phases(p);
    if (p->sizes) print_sizes(p);
    if (p->splits) print_splits(p);
    if (p->n_pairs) print_pairs(p);
}
