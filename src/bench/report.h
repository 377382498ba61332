/* report.h - what `kvasir bench` prints: one set of results as Markdown, CSV or JSON. */
#ifndef KVASIR_BENCH_REPORT_H
#define KVASIR_BENCH_REPORT_H

#include "bench/bench.h"

#define BENCH_MAX_PAIRS 8

typedef struct bench_report {
    const char *kv;
    int threads;
    bench_options o;
    roofline roof;
    bench_result *results; /* [n]: for each setting of the engine, all tests */
    int n, n_tests;
    bool sizes, splits; /* the settings differ in the size of blocks; in the splitting of attention */
    bench_pair pairs[BENCH_MAX_PAIRS];
    int n_pairs;
} bench_report;

void bench_print_json(const bench_report *p);
void bench_print_csv(const bench_report *p);
void bench_print_markdown(const bench_report *p);

#endif
