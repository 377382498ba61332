/* serve.h - a workload through the engine, as a server would drive it, with a watch on memory and time.
 *
 *      closed loop   `clients` items at once; who gets an answer asks the next question
 *      open loop     items arrive when the workload says (work_config.rate), however busy the engine is
 *
 *      item due --wait--> started --queue, prefill--> first token --time between tokens--> last token
 *          |<------------------ TTFT ------------------>|<----------- n - 1 times TPOT ---------->|
 *
 * BS1 The answers are the same tokens whatever the baseline, the loop, the load (hash).
 * BS2 Every request asks for the whole context and ends, as if by an end token, after the tokens that the workload
 *    says. So nobody can plan with the answer's length.
 * BS3 In a closed loop without itl_target all counts and shares of memory are the same in every run.
 * Threads: the main thread.
 */
#ifndef KVASIR_BENCH_SERVE_H
#define KVASIR_BENCH_SERVE_H

#include <stdbool.h>

#include "bench/work.h"
#include "engine/engine.h"

typedef enum serve_baseline {
    SERVE_SHARED,     /* the engine as it is */
    SERVE_PAGED,      /* blocks, but no prefix is shared or kept; branches of a tree compute their own prompt */
    SERVE_CONTIGUOUS, /* the same, and a request enters when its whole context can be set aside */
    SERVE_BASELINES
} serve_baseline;
const char *serve_baseline_name(serve_baseline b);

typedef struct serve_config {
    serve_baseline baseline;
    int clients;
    double rate; /* 0 = closed loop */
    double slo_ttft_s, slo_tpot_s;
    float temperature; /* 0 = greedy, but for the branches of trees */
    uint64_t seed;     /* of what is drawn */
} serve_config;

/* Half, 9 and 99 of 10 and 100 of the values lie at or below. */
typedef struct serve_quantiles {
    double p50, p90, p99;
} serve_quantiles;

typedef struct serve_result {
    work_kind work;
    serve_baseline baseline;
    int context;
    uint64_t cache_bytes;
    int n_answers, n_finished, n_failed, n_dropped; /* dropped: what they follow failed */
    double seconds;
    uint64_t prompt_tokens, reused_tokens, output_tokens, computed_rows, preemptions, steps;
    double running; /* sessions in the batch after a step, those that ended in it left out: mean, and most */
    int max_running;
    /* Memory after each step, summed (usage.h). */
    double used, internal, reserved, external;
    serve_quantiles ttft, tpot, itl; /* seconds */
    int n_within_slo;
    uint64_t hash; /* of the answers' tokens */
} serve_result;

/* Shares of the memory that nobody else could have, in percent. */
double serve_waste_percent(const serve_result *r, double part);

/* What the engine has to be for that. */
engine_config serve_engine_config(const workload *w, const serve_config *c, int context);
typedef void serve_tick_fn(void *user, int n_over); /* so many answers are over */
/* Runs it to its end. */
int serve_run(serve_result *out, engine *e, const workload *w, const serve_config *c, serve_tick_fn *tick, void *user,
              status *st);

#endif
