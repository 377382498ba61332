/* metrics.h - what the server counts, for Prometheus.
 *
 *      engine's thread --observe, finish, publish--> metrics --metrics_text--> GET /metrics
 *      HTTP thread     --response----------------/
 *
 * Counters only grow, histograms have fixed bounds, gauges are a copy made after each step.
 * Threads: any; one lock, held for a few instructions.
 */
#ifndef KVASIR_SERVE_METRICS_H
#define KVASIR_SERVE_METRICS_H

#include <pthread.h>

#include "engine/engine.h"

typedef enum histogram_id {
    HISTOGRAM_TTFT,
    HISTOGRAM_ITL,
    HISTOGRAM_E2E,
    HISTOGRAM_QUEUE,
    HISTOGRAM_PREFILL,
    HISTOGRAM_DECODE,
    HISTOGRAM_STEP,
    HISTOGRAM_PROMPT_TOKENS,
    HISTOGRAM_GENERATED_TOKENS,
    HISTOGRAM_COUNT
} histogram_id;

#define HISTOGRAM_BUCKETS 24

typedef struct histogram {
    uint64_t buckets[HISTOGRAM_BUCKETS + 1]; /* not cumulative; the last one is what lies above all bounds */
    uint64_t count;
    double sum;
} histogram;

/* Upper bounds, ascending; *n of them. */
const double *histogram_bounds(histogram_id id, int *n);

typedef struct metrics_gauges {
    engine_stats engine;
    int n_groups;
    pool_counts blocks[KV_MAX_GROUPS];
    kv_tree_counts tree;
} metrics_gauges;

#define METRICS_FINISHES (FINISH_ERROR + 1)
#define METRICS_CODES 24

typedef struct metrics_values {
    histogram histograms[HISTOGRAM_COUNT];
    uint64_t finished[METRICS_FINISHES];
    struct {
        int code;
        uint64_t count;
    } responses[METRICS_CODES]; /* in the order in which they first came */
    metrics_gauges gauges;
} metrics_values;

typedef struct metrics {
    pthread_mutex_t lock;
    metrics_values values;
} metrics;

void metrics_init(metrics *m);
void metrics_deinit(metrics *m);
void metrics_observe(metrics *m, histogram_id id, double value);
/* An answer is over, `seconds` after its request came; first: of its prompt's answers, the one that computed it. */
void metrics_finish(metrics *m, finish_reason reason, const session_stats *s, double seconds, bool first);
void metrics_response(metrics *m, int code);
void metrics_publish(metrics *m, const metrics_gauges *g);
/* The share of its blocks that running answers and pins hold, in the fullest group: 0 to 1. */
double metrics_kv_usage(const metrics_gauges *g);
/* Mean of a histogram so far; 0 when it is empty. */
double metrics_mean(metrics *m, histogram_id id);
void metrics_read(metrics *m, metrics_values *out);

#endif
