/* bench.h - timing the engine: what a test is, running it, and what the machine would allow.
 *
 *      ppN        prefill of N tokens in one sequence, tokens/s
 *      tgN@D      N single-token steps after D tokens of context, tokens/s
 *      tbNxB@D    N steps of B sequences that hold D tokens of their own each, all B tokens in one step, total tokens/s
 *      spNxB@P+D  the same of B sequences that share one prefix of P tokens and hold D of their own each
 *
 * Tokens are pseudo-random ids (xorshift64*), the same for every engine that is compared. Each test runs once to warm
 * up, then `reps` times. A number may be a range A..B: the test is run with A, 2 A, 4 A, ... and B.
 */
#ifndef KVASIR_BENCH_BENCH_H
#define KVASIR_BENCH_BENCH_H

#include "base/strbuf.h"
#include "engine/engine.h"
#include "kernel/roofline.h"

#define BENCH_MAX_TESTS 64
#define BENCH_MAX_REPS 100

typedef struct bench_options {
    int reps;
    bool noise;  /* contexts are noise written into the cache, not computed */
    bool phases; /* one more run, with the phase clock on */
} bench_options;

typedef enum bench_kind { BENCH_PP, BENCH_TG, BENCH_TB, BENCH_SP } bench_kind;

typedef struct bench_test {
    char name[40];
    bench_kind kind;
    int n, batch, depth;
    int shared; /* tokens of the prefix; depth comes after them */
} bench_test;

typedef struct bench_result {
    bench_test test;
    double median, min, max; /* tokens/s */
    double limit;            /* tokens/s that bandwidth, or arithmetic, would allow */
    double bytes_per_token;  /* of weights and cache; for pp: of the whole prompt, over its tokens */
    uint64_t hash;           /* of all logits of the last run */
    double phase_s[PHASE_COUNT]; /* seconds a token */
    /* The engine's settings. */
    int block_tokens;
    bool split;
    double block_overhead; /* bytes of bookkeeping that a token's share of its blocks costs, all groups together */
} bench_result;

/* Writes the ranges out: "tg8@512..2048" is "tg8@512,tg8@1024,tg8@2048". ST_ARG for one that is empty or begins at
 * 0. */
int bench_expand(strbuf *out, const char *text, status *st);
/* "pp512,tg32@2048,tb16x4@256"; ST_ARG names the word that is not a test. */
int bench_parse(bench_test *tests, int *n, const char *text, status *st);
/* What the tests need of an engine. */
int bench_context(const bench_test *tests, int n);
int bench_sessions(const bench_test *tests, int n);
int bench_run(bench_result *out, engine *e, const bench_test *test, const bench_options *o, const roofline *roof,
              status *st);
/* Appends n tokens of noise to a sequence, all layers. */
int bench_fill_noise(engine *e, kv_seq *seq, int n, status *st);

typedef struct bench_pair {
    int n; /* tokens generated */
    double cached_s, uncached_s;
} bench_pair;
/* Generating n tokens after an empty context with the cache, and by computing the whole text anew for every token. */
int bench_no_cache(bench_pair *out, engine *e, int n, status *st);

/* Bytes of K and V that one token reads after n_tokens of context, in all layers. */
double bench_cache_read(const engine *e, double n_tokens);

#endif
