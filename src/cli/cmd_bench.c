#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "bench/report.h"
#include "cli/runtime.h"
#include "fetch/progress.h"

#define DEFAULT_TESTS "pp512,pp2048,tg64@0,tg32@2048,tb16x4@256"
#define LEAST_BLOCK 8
#define MOST_BLOCK 256
#define MOST_SETTINGS 12 /* six sizes of blocks, attention split or not */

/* What the command line asks for. */
typedef struct plan {
    bench_test tests[BENCH_MAX_TESTS];
    int n;
    engine_config settings[MOST_SETTINGS];
    int n_settings;
    bool no_cache;
} plan;

static int read_tests(plan *p, const args *a, status *st)
{
    strbuf text = {0};
    strbuf_init(&text, 0);
    bool shared = args_given(a, "shared-prefix");
    int prefix = (int)args_int(a, "shared-prefix"), rc = ST_OK;
    p->no_cache = args_flag(a, "no-cache");
    if (args_given(a, "tests") || !(shared || p->no_cache)) rc = bench_expand(&text, args_string(a, "tests"), st);
    if (rc == ST_OK && shared) {
        char words[48];
        snprintf(words, sizeof words, "sp16x1..16@%d+16", prefix);
        rc = bench_expand(&text, words, st);
    }
    if (rc == ST_OK && (text.n_bytes || !p->no_cache)) rc = bench_parse(p->tests, &p->n, strbuf_cstr(&text), st);
    strbuf_deinit(&text);
    return rc;
}

static void choose_settings(plan *p, const args *a)
{
    bool sizes = args_flag(a, "block-sizes"), splits = args_flag(a, "splits");
    int context = bench_context(p->tests, p->n);
    engine_config c = {.n_sessions = bench_sessions(p->tests, p->n),
                       .context = context > 256 ? context : 256,
                       .no_split = args_flag(a, "no-split") && !splits,
                       .no_cascade = args_flag(a, "no-cascade"),
                       .block_tokens = sizes ? LEAST_BLOCK : 0};
    do {
        p->settings[p->n_settings++] = c;
        if (splits) {
            p->settings[p->n_settings] = c;
            p->settings[p->n_settings++].no_split = true;
        }
        c.block_tokens *= 2;
    } while (sizes && c.block_tokens <= MOST_BLOCK);
}

static void note_settings(bench_result *out, const engine *e, const engine_config *c)
{
    const kv_cache *cache = engine_cache(e);
    out->split = !c->no_split;
    out->block_tokens = kv_cache_block_tokens(cache);
    out->block_overhead =
        (double)(pool_block_overhead() + sizeof(block_id)) * kv_cache_n_groups(cache) / out->block_tokens;
}

static int measure_setting(bench_report *report, const plan *p, runtime *r, const engine_config *c, progress *bar,
                           status *st)
{
    int rc = ST_OK;
    for (int i = 0; i < p->n && rc == ST_OK; i++) {
        bench_result *out = &report->results[report->n];
        rc = bench_run(out, r->e, &p->tests[i], &report->o, &report->roof, st);
        note_settings(out, r->e, c);
        report->n += rc == ST_OK;
        progress_update(bar, (uint64_t)report->n);
    }
    bool pairs = p->no_cache && report->n_pairs == 0; /* with the first setting alone */
    for (int tokens = 16; pairs && tokens <= 128 && rc == ST_OK; tokens *= 2)
        rc = bench_no_cache(&report->pairs[report->n_pairs++], r->e, tokens, st);
    return rc;
}

static int measure(bench_report *report, const plan *p, runtime *r, const args *a, status *st)
{
    if (roofline_measure(&report->roof, r->team, st)) return st->code;
    report->n_tests = p->n;
    report->threads = threads_count(r->team);
    report->results = mem_calloc((size_t)(p->n * p->n_settings), sizeof *report->results);
    if (!report->results) return status_nomem(st, (uint64_t)(p->n * p->n_settings) * sizeof *report->results);
    progress bar;
    progress_begin(&bar, "measuring", (uint64_t)(p->n * p->n_settings), "tests");
    int rc = ST_OK;
    for (int i = 0; i < p->n_settings && rc == ST_OK; i++) {
        rc = runtime_open_engine(r, a, p->settings[i], st);
        if (rc) break;
        report->kv = kv_cache_format(engine_cache(r->e))->name;
        rc = measure_setting(report, p, r, &p->settings[i], &bar, st);
        runtime_close_engine(r);
    }
    progress_end(&bar);
    return rc;
}

static int run(const args *a, status *st)
{
    plan p = {0};
    const char *model_name = args_string(a, "model") ? args_string(a, "model") : args_positional(a, 0);
    if (!model_name) return status_set(st, ST_ARG, STATUS_NO_POS, "name a model"), 2;
    if (read_tests(&p, a, st)) return 2;
    choose_settings(&p, a);
    runtime r = {0};
    bench_report report = {
        .o = {.reps = (int)args_int(a, "reps"), .phases = args_flag(a, "phases")},
        .sizes = args_flag(a, "block-sizes"),
        .splits = args_flag(a, "splits"),
    };
    report.o.noise = strcmp(args_string(a, "fill"), "noise") == 0;
    if (runtime_open_model(&r, a, model_name, p.settings[0].context, st)) return 1;
    int rc = measure(&report, &p, &r, a, st);
    runtime_close(&r);
    if (rc == ST_OK) {
        const char *output = args_flag(a, "json") ? "json" : args_string(a, "output");
        if (strcmp(output, "json") == 0) bench_print_json(&report);
        else if (strcmp(output, "csv") == 0) bench_print_csv(&report);
        else bench_print_markdown(&report);
    }
    mem_free(report.results);
    return rc ? 1 : 0;
}

static const option_spec options[] = {
    {.name = "model", .letter = 'm', .kind = OPTION_STRING, .arg = "MODEL", .help = "the model, by path or name"},
    {.name = "tests", .kind = OPTION_STRING, .arg = "LIST", .fallback = DEFAULT_TESTS,
     .help = "what to time, separated by commas"},
    {.name = "shared-prefix", .kind = OPTION_INT, .arg = "N", .min = 1, .max = 1 << 20,
     .help = "1 to 16 sequences on one prefix of N tokens: --tests sp16x1..16@N+16"},
    {.name = "reps", .letter = 'r', .kind = OPTION_INT, .arg = "N", .fallback = "3", .min = 1, .max = BENCH_MAX_REPS,
     .help = "timed runs of each test, after one to warm up"},
    {.name = "phases", .kind = OPTION_FLAG, .help = "also what a token's time goes to, from one more run"},
    {.name = "fill", .kind = OPTION_CHOICE, .arg = "HOW", .fallback = "tokens", .choices = "tokens|noise",
     .help = "contexts: computed from tokens, or noise written into the cache"},
    {.name = "block-sizes", .excludes = "block-size", .kind = OPTION_FLAG,
     .help = "each test with blocks of 8 to 256 tokens"},
    {.name = "splits", .kind = OPTION_FLAG, .help = "each test with attention split over workers, and not"},
    {.name = "no-split", .excludes = "splits", .kind = OPTION_FLAG,
     .help = "attention of a row is not split over workers (same bits)"},
    {.name = "no-cascade", .kind = OPTION_FLAG,
     .help = "blocks that sequences share are read by each of them (same bits)"},
    {.name = "no-cache", .kind = OPTION_FLAG, .help = "generation without a cache beside the cached one"},
    {.name = "output", .letter = 'o', .kind = OPTION_CHOICE, .arg = "FORM", .fallback = "md", .choices = "md|csv|json",
     .help = "form of the table"},
    {.name = "json", .excludes = "output", .kind = OPTION_FLAG, .help = "short for --output json"},
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
               "steps of B sequences of D tokens each; spNxB@P+D, the same with a prefix of P tokens that all share. A "
               "number may be a range: tg8@512..4096 is tg8@512, tg8@1024, tg8@2048 and tg8@4096. "
               "Prints median, minimum and maximum of the timed runs, the "
               "limit (measured bandwidth over the bytes that a token needs, or operations over measured peak, "
               "whichever is lower), the percentage reached, and a hash of all logits.\n\n"
               "--phases: products of the layers (with the norms, additions, quantization and activations done on "
               "their way), attention, elementwise work (RoPE, norms of heads, storing K and V), head, sampling (here: "
               "checking and hashing the logits), other (plans, embedding), and waiting for other threads at the end "
               "of parallel regions.\n\n"
               "--fill noise makes deep contexts cost nothing; steps take the same time over them.\n\n"
               "  kvasir bench smollm2-135m-instruct --tests pp512,tg32@0,tg32@2048 --threads 2\n"
               "  kvasir bench smollm2-135m-instruct --tests tg8@512..65536 --fill noise --splits\n"
               "  kvasir bench smollm2-135m-instruct --tests tb16x1..32@256 --phases\n"
               "  kvasir bench smollm2-135m-instruct --tests pp512,tg32@2048 --block-sizes\n"
               "  kvasir bench smollm2-135m-instruct --no-cache",
    .options = options,
    .run = run,
};
