/* serve_report.h - what `kvasir bench serve` prints: one line, or one JSON object, a workload and baseline. */
#ifndef KVASIR_BENCH_SERVE_REPORT_H
#define KVASIR_BENCH_SERVE_REPORT_H

#include "bench/serve.h"

typedef struct serve_report {
    const char *kv;
    int threads, block_tokens;
    double scale, itl_target_s;
    serve_config c; /* but for the baseline */
    serve_result *results;
    int n;
} serve_report;

void serve_print_json(const serve_report *p);
void serve_print_markdown(const serve_report *p);

#endif
