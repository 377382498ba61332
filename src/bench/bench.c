#include "bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"

typedef struct id_stream {
    uint64_t state;
    int n_vocab;
} id_stream;

static id_stream id_stream_new(uint64_t seed, int n_vocab)
{
    return (id_stream){seed * 0x9E3779B97F4A7C15u + 1, n_vocab};
}

/* xorshift64*: ids that keep clear of the vocabulary's ends, where special tokens live. */
static int32_t next_id(id_stream *s)
{
    s->state ^= s->state >> 12;
    s->state ^= s->state << 25;
    s->state ^= s->state >> 27;
    uint64_t x = s->state * 0x2545F4914F6CDD1Du >> 33;
    return s->n_vocab > 2000 ? (int32_t)(1000 + x % ((uint64_t)s->n_vocab - 2000))
                             : (int32_t)(x % (uint64_t)s->n_vocab);
}

static bool parse_test(bench_test *t, const char *word, size_t length)
{
    char text[sizeof t->name];
    if (length >= sizeof text) return false;
    memcpy(text, word, length);
    text[length] = 0;
    int used = 0;
    *t = (bench_test){.batch = 1};
    memcpy(t->name, text, length + 1);
    if (sscanf(text, "pp%7d%n", &t->n, &used) == 1) t->kind = BENCH_PP;
    else if (sscanf(text, "tg%7d@%7d%n", &t->n, &t->depth, &used) == 2) t->kind = BENCH_TG;
    else if (sscanf(text, "tb%7dx%7d@%7d%n", &t->n, &t->batch, &t->depth, &used) == 3) t->kind = BENCH_TB;
    else if (sscanf(text, "sp%7dx%7d@%7d+%7d%n", &t->n, &t->batch, &t->shared, &t->depth, &used) == 4)
        t->kind = BENCH_SP;
    else return false;
    return (size_t)used == length && t->n >= 1 && t->batch >= 1 && t->batch <= 256 && t->shared >= 0 && t->depth >= 0;
}

int bench_parse(bench_test *tests, int *n, const char *text, status *st)
{
    *n = 0;
    for (const char *word = text; *word;) {
        size_t length = strcspn(word, ",");
        if (*n == BENCH_MAX_TESTS) return status_set(st, ST_ARG, STATUS_NO_POS, "more than %d tests", BENCH_MAX_TESTS);
        if (!parse_test(&tests[(*n)++], word, length))
            return status_set(st, ST_ARG, STATUS_NO_POS,
                              "'%.*s' is not a test; write ppN, tgN@D, tbNxB@D or spNxB@P+D, as in "
                              "pp512,tg32@2048,tb16x4@256,sp16x16@2048+16",
                              (int)length, word);
        word += length + (word[length] == ',');
    }
    return *n ? ST_OK : status_set(st, ST_ARG, STATUS_NO_POS, "no tests are named");
}

int bench_context(const bench_test *tests, int n)
{
    int most = 64;
    for (int i = 0; i < n; i++)
        if (tests[i].n + tests[i].shared + tests[i].depth > most) most = tests[i].n + tests[i].shared + tests[i].depth;
    return most;
}

int bench_sessions(const bench_test *tests, int n)
{
    int most = 1;
    for (int i = 0; i < n; i++)
        if (tests[i].batch > most) most = tests[i].batch;
    return most;
}

typedef struct bench_state {
    engine *e;
    kv_seq **seqs;
    feed *feeds;
    int32_t *ids; /* [batch] of a step, or a chunk of one prompt */
    hash_stream *hash;
    feed_logits_fn *take; /* hash_logits, or drop_logits in a run that is timed */
    int chunk; /* tokens of one step of a prefill */
    bool noise; /* fills contexts without computing them */
    bool time_phases;
} bench_state;

#define FILL_CHUNK 512
#define OWN_SEED 1234
#define SHARED_SEED 4321

static void hash_logits(void *user, int number, int64_t position, const float *logits)
{
    (void)number;
    (void)position;
    bench_state *b = user;
    hash_update(b->hash, logits, (size_t)engine_model(b->e)->params.n_vocab * sizeof *logits);
}

static void drop_logits(void *user, int number, int64_t position, const float *logits)
{
    (void)user;
    (void)number;
    (void)position;
    (void)logits;
}

/* The head runs after every chunk, as it does in the engines that are compared; the hash takes the prompt's last logits
 * alone, so that it doesn't depend on the chunk. */
static int fill(bench_state *b, int number, uint64_t seed, int n, status *st)
{
    id_stream ids = id_stream_new(seed, engine_model(b->e)->params.n_vocab);
    for (int at = 0; at < n; at += b->chunk) {
        int m = n - at < b->chunk ? n - at : b->chunk;
        for (int i = 0; i < m; i++) b->ids[i] = next_id(&ids);
        feed f = {b->seqs[number], b->ids, m, false};
        if (engine_feed(b->e, &f, 1, at + m == n ? b->take : drop_logits, b, st)) return st->code;
    }
    return ST_OK;
}

static int steps(bench_state *b, const bench_test *t, status *st)
{
    id_stream ids = id_stream_new(99, engine_model(b->e)->params.n_vocab);
    for (int i = 0; i < t->n; i++) {
        for (int s = 0; s < t->batch; s++) {
            b->ids[s] = next_id(&ids);
            b->feeds[s] = (feed){b->seqs[s], &b->ids[s], 1, false};
        }
        if (engine_feed(b->e, b->feeds, t->batch, b->take, b, st)) return st->code;
    }
    return ST_OK;
}

static int fill_context(bench_state *b, int number, uint64_t seed, int n, status *st)
{
    return b->noise ? bench_fill_noise(b->e, b->seqs[number], n, st) : fill(b, number, seed, n, st);
}

/* What the sequences hold before the steps: a prefix that all share, then tokens of their own. */
static int fill_all(bench_state *b, const bench_test *t, status *st)
{
    if (t->kind == BENCH_SP && fill_context(b, 0, SHARED_SEED, t->shared, st)) return st->code;
    for (int s = 1; s < t->batch && t->kind == BENCH_SP; s++) {
        kv_seq_free(b->seqs[s]);
        b->seqs[s] = NULL;
        if (kv_seq_fork(&b->seqs[s], b->seqs[0], t->shared, st)) return st->code;
    }
    for (int s = 0; s < t->batch; s++)
        if (fill_context(b, s, OWN_SEED + (uint64_t)s, t->depth, st)) return st->code;
    return ST_OK;
}

/* One run from empty sequences; *rate in tokens/s. */
static int run_once(bench_state *b, const bench_test *t, double *rate, status *st)
{
    for (int s = 0; s < t->batch; s++)
        if (kv_seq_truncate(b->seqs[s], 0, st)) return st->code;
    if (t->kind != BENCH_PP && fill_all(b, t, st)) return st->code;
    phase_clock *phases = engine_phases(b->e);
    int64_t start = clock_ns();
    if (b->time_phases) phases_start(phases, engine_team(b->e));
    int rc = t->kind == BENCH_PP ? fill(b, 0, OWN_SEED, t->n, st) : steps(b, t, st);
    if (b->time_phases) phases_stop(phases);
    if (rc) return rc;
    *rate = (double)t->n * t->batch / ((double)(clock_ns() - start) * 1e-9);
    return ST_OK;
}

/* Multiply-adds of one token's products, the head left out. */
static double layer_macs(const model *m)
{
    double total = 0;
    for (int l = 0; l < m->params.n_layers; l++) {
        const model_layer *y = &m->layers[l];
        const weight *all[] = {&y->q, &y->k, &y->v, &y->o, &y->gate, &y->up, &y->down};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) total += (double)all[i]->rows * (double)all[i]->k;
    }
    return total;
}

/* Multiply-adds of attention over n tokens, each seeing those before it: q.k and p.v of every head. */
static double attention_macs(const model *m, double n)
{
    const arch_params *p = &m->params;
    double total = 0;
    for (int l = 0; l < p->n_layers; l++) {
        double w = arch_layer_windowed(p, l) && p->window < n ? p->window : n;
        double seen = w * (w + 1) / 2 + (n - w) * w;
        total += seen * p->n_heads * (p->d_k + p->d_v);
    }
    return total;
}

/* The slower of two: reading every byte once, or doing every operation at its peak. */
static double least_seconds(const roofline *roof, double bytes, double int8_macs, double float_macs)
{
    double reading = bytes / roof->read_bytes_s,
           computing = int8_macs / roof->int8_macs_s + float_macs / roof->float_macs_s;
    return reading > computing ? reading : computing;
}

double bench_cache_read(const engine *e, double n_tokens)
{
    const kv_cache *c = engine_cache(e);
    double total = 0;
    for (int g = 0; g < kv_cache_n_groups(c); g++) {
        const kv_group *group = kv_cache_group(c, g);
        double seen = group->layout.window && n_tokens > group->layout.window ? group->layout.window : n_tokens;
        total += seen * group->n_layers * kv_bytes_per_token_layer(&group->layout, kv_cache_format(c));
    }
    return total;
}

static void set_limit(bench_result *out, const engine *e, int chunk, const roofline *roof)
{
    const bench_test *t = &out->test;
    const model *m = engine_model(e);
    double n = t->n, head = (double)m->head->rows * (double)m->head->k, seconds;
    if (t->kind == BENCH_PP) {
        const int n_chunks = (t->n + chunk - 1) / chunk;
        out->bytes_per_token = (double)m->step_bytes * n_chunks / n;
        seconds =
            least_seconds(roof, out->bytes_per_token, layer_macs(m) + head * n_chunks / n, attention_macs(m, n) / n);
    } else {
        double depth = t->shared + t->depth + n / 2, all = bench_cache_read(e, depth),
               own = t->shared ? bench_cache_read(e, t->depth + n / 2) : all;
        out->bytes_per_token = ((double)m->step_bytes + all - own) / t->batch + own;
        seconds = least_seconds(roof, out->bytes_per_token, layer_macs(m) + head,
                                attention_macs(m, depth + 1) - attention_macs(m, depth));
    }
    out->limit = 1 / seconds;
}

static int compare_rates(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int run_hashed(bench_state *b, const bench_test *t, double *rate, status *st)
{
    hash_free(b->hash);
    b->hash = NULL;
    b->take = hash_logits;
    return hash_new(&b->hash, st) || run_once(b, t, rate, st) ? st->code : ST_OK;
}

static int run_phases(bench_state *b, bench_result *out, status *st)
{
    double rate, n_tokens = (double)out->test.n * out->test.batch;
    b->time_phases = true;
    int rc = run_hashed(b, &out->test, &rate, st);
    b->time_phases = false;
    for (int p = 0; p < PHASE_COUNT; p++) out->phase_s[p] = (double)engine_phases(b->e)->ns[p] * 1e-9 / n_tokens;
    return rc;
}

static int run_reps(bench_state *b, bench_result *out, int reps, status *st)
{
    double rates[BENCH_MAX_REPS] = {0};
    if (run_hashed(b, &out->test, &rates[0], st)) return st->code; /* warms up */
    out->hash = hash_value(b->hash);
    b->take = drop_logits;
    for (int i = 0; i < reps; i++)
        if (run_once(b, &out->test, &rates[i], st)) return st->code;
    qsort(rates, (size_t)reps, sizeof *rates, compare_rates);
    out->median = reps % 2 ? rates[reps / 2] : (rates[reps / 2 - 1] + rates[reps / 2]) / 2;
    out->min = rates[0];
    out->max = rates[reps - 1];
    return ST_OK;
}

static int open_state(bench_state *b, engine *e, int n_seqs, status *st)
{
    *b = (bench_state){.e = e, .chunk = engine_chunk(e) < FILL_CHUNK ? engine_chunk(e) : FILL_CHUNK};
    int n_ids = n_seqs > b->chunk ? n_seqs : b->chunk;
    b->seqs = mem_calloc((size_t)n_seqs, sizeof *b->seqs);
    b->feeds = mem_array((size_t)n_seqs, sizeof *b->feeds);
    b->ids = mem_array((size_t)n_ids, sizeof *b->ids);
    if (!b->seqs || !b->feeds || !b->ids) return status_nomem(st, (uint64_t)n_ids * sizeof *b->ids);
    for (int s = 0; s < n_seqs; s++)
        if (kv_seq_new(&b->seqs[s], engine_cache(e), st)) return st->code;
    return ST_OK;
}

static void close_state(bench_state *b, int n_seqs)
{
    for (int s = 0; b->seqs && s < n_seqs; s++) kv_seq_free(b->seqs[s]);
    mem_free(b->seqs);
    mem_free(b->feeds);
    mem_free(b->ids);
    hash_free(b->hash);
}

int bench_run(bench_result *out, engine *e, const bench_test *test, const bench_options *o, const roofline *roof,
              status *st)
{
    bench_state b;
    *out = (bench_result){.test = *test};
    int rc = open_state(&b, e, test->batch, st);
    b.noise = o->noise;
    if (rc == ST_OK) rc = run_reps(&b, out, o->reps, st);
    if (rc == ST_OK && o->phases) rc = run_phases(&b, out, st);
    if (rc == ST_OK) set_limit(out, e, b.chunk, roof);
    close_state(&b, test->batch);
    return rc;
}

int bench_no_cache(bench_pair *out, engine *e, int n, status *st)
{
    bench_state b;
    *out = (bench_pair){.n = n};
    bench_test cached = {.kind = BENCH_TG, .n = n, .batch = 1};
    double rate = 0;
    int rc = open_state(&b, e, 1, st);
    if (rc == ST_OK) rc = run_hashed(&b, &cached, &rate, st);
    out->cached_s = rate > 0 ? n / rate : 0;
    int64_t start = clock_ns();
    for (int i = 1; i <= n && rc == ST_OK; i++) {
        rc = kv_seq_truncate(b.seqs[0], 0, st);
        if (rc == ST_OK) rc = fill(&b, 0, OWN_SEED, i, st);
    }
    out->uncached_s = (double)(clock_ns() - start) * 1e-9;
    close_state(&b, 1);
    return rc;
}
