#include <string.h>

#include "base/mem.h"
#include "bench/serve_report.h"
#include "cli/runtime.h"
#include "fetch/progress.h"

#define LEAST_CONTEXT 2048 /* of a request, before the scale: the longest of the mix */

typedef struct plan {
    bool works[WORK_KINDS], baselines[SERVE_BASELINES];
    int n_runs;
    work_config work;
    serve_config serve;
} plan;

/* Marks the names that a repeating option gives; "all", and nothing, as the option's default says. */
static void choose(bool *chosen, int n, const char *(*name)(int), const args *a, const char *option)
{
    int given = args_count(a, option);
    for (int i = 0; i < given || i == 0; i++) {
        const char *text = given ? args_string_at(a, option, i) : args_string(a, option);
        for (int k = 0; k < n; k++) chosen[k] |= strcmp(text, "all") == 0 || strcmp(text, name(k)) == 0;
    }
}

static const char *work_at(int i)
{
    return work_name((work_kind)i);
}

static const char *baseline_at(int i)
{
    return serve_baseline_name((serve_baseline)i);
}

static plan read_plan(const args *a)
{
    plan p = {.work = {.n_answers = (int)args_int(a, "requests"),
                       .seed = (uint64_t)args_int(a, "seed"),
                       .scale = args_float(a, "scale"),
                       .rate = args_float(a, "rate"),
                       .prompt = (int)args_int(a, "prompt"),
                       .answer = (int)args_int(a, "answer")},
              .serve = {.clients = (int)args_int(a, "clients"),
                        .rate = args_float(a, "rate"),
                        .slo_ttft_s = args_float(a, "slo-ttft") * 1e-3,
                        .slo_tpot_s = args_float(a, "slo-tpot") * 1e-3,
                        .temperature = (float)args_float(a, "temperature"),
                        .seed = (uint64_t)args_int(a, "seed")}};
    choose(p.works, WORK_KINDS, work_at, a, "work");
    choose(p.baselines, SERVE_BASELINES, baseline_at, a, "baseline");
    int n_works = 0, n_baselines = 0;
    for (int i = 0; i < WORK_KINDS; i++) n_works += p.works[i];
    for (int i = 0; i < SERVE_BASELINES; i++) n_baselines += p.baselines[i];
    p.n_runs = n_works * n_baselines;
    return p;
}

/* The cache's memory in whole contexts, unless bytes are given: the same for all baselines. */
static int open_engine(runtime *r, const args *a, const workload *w, const plan *p, status *st)
{
    int context = (int)args_int(a, "context"), contexts = (int)args_int(a, "contexts");
    int least = (int)(LEAST_CONTEXT * p->work.scale);
    if (!context) context = w->longest > least ? w->longest : least;
    if (context < w->longest)
        return status_set(st, ST_ARG, STATUS_NO_POS, "a context of %d tokens is too short: the longest request has %d",
                          context, w->longest);
    if (!contexts) contexts = p->serve.clients > 4 ? p->serve.clients / 4 : 1;
    engine_config c = serve_engine_config(w, &p->serve, context);
    c.itl_target_s = args_float(a, "itl-target") * 1e-3;
    if (!args_given(a, "kv-memory") && runtime_cache_bytes(&c.kv_memory_bytes, r, a, c, contexts, st)) return st->code;
    return runtime_open_engine(r, a, c, st);
}

typedef struct bar {
    progress progress;
    uint64_t done;
} bar;

static void tick(void *user, int n_over)
{
    bar *b = user;
    progress_update(&b->progress, b->done + (uint64_t)n_over);
}

static int measure_work(serve_report *report, const plan *p, const workload *w, runtime *r, const args *a, bar *b,
                        status *st)
{
    plan one = *p;
    for (int i = 0; i < SERVE_BASELINES && !st->code; i++) {
        serve_result *out = &report->results[report->n];
        if (!p->baselines[i]) continue;
        one.serve.baseline = (serve_baseline)i;
        if (open_engine(r, a, w, &one, st)) return st->code;
        report->kv = kv_cache_format(engine_cache(r->e))->name;
        report->block_tokens = kv_cache_block_tokens(engine_cache(r->e));
        serve_run(out, r->e, w, &one.serve, tick, b, st);
        runtime_close_engine(r);
        out->work = p->work.kind;
        b->done += (uint64_t)w->n_answers;
        report->n++;
    }
    return st->code;
}

static int measure(serve_report *report, plan *p, runtime *r, const args *a, status *st)
{
    bar b = {.done = 0};
    report->results = mem_calloc((size_t)p->n_runs, sizeof *report->results);
    if (!report->results) return status_nomem(st, (uint64_t)p->n_runs * sizeof *report->results);
    report->threads = threads_count(r->team);
    p->work.n_vocab = r->m->params.n_vocab;
    progress_begin(&b.progress, "serving", (uint64_t)(p->n_runs * p->work.n_answers), "answers");
    for (int i = 0; i < WORK_KINDS && !st->code; i++) {
        workload w;
        p->work.kind = (work_kind)i;
        if (!p->works[i] || workload_new(&w, &p->work, st)) continue;
        measure_work(report, p, &w, r, a, &b, st);
        workload_free(&w);
    }
    progress_end(&b.progress);
    return st->code;
}

static int run(const args *a, status *st)
{
    plan p = read_plan(a);
    runtime r = {0};
    serve_report report = {.c = p.serve, .scale = p.work.scale, .itl_target_s = args_float(a, "itl-target") * 1e-3};
    if (runtime_open_model(&r, a, args_positional(a, 0), 0, st)) return 1;
    int rc = measure(&report, &p, &r, a, st);
    runtime_close(&r);
    if (rc == ST_OK && args_flag(a, "json")) serve_print_json(&report);
    else if (rc == ST_OK) serve_print_markdown(&report);
    mem_free(report.results);
    return rc ? 1 : 0;
}

static const option_spec options[] = {
    {.name = "work", .letter = 'w', .kind = OPTION_CHOICE, .arg = "WORK", .fallback = "mix",
     .choices = "fixed|mix|agents|chat|tree|all", .repeats = true, .help = "what is asked"},
    {.name = "baseline", .letter = 'b', .kind = OPTION_CHOICE, .arg = "CACHE", .fallback = "all",
     .choices = "shared|paged|contiguous|all", .repeats = true, .help = "how the cache is kept"},
    {.name = "requests", .letter = 'n', .kind = OPTION_INT, .arg = "N", .fallback = "32", .min = 1, .max = 100000,
     .help = "answers; conversations and trees are finished"},
    {.name = "clients", .excludes = "rate",
     .letter = 'c', .kind = OPTION_INT, .arg = "N", .fallback = "16", .min = 1, .max = 1024,
     .help = "requests at once"},
    {.name = "rate", .kind = OPTION_FLOAT, .arg = "R", .fallback = "0", .min = 0, .max = 1e6,
     .help = "arrivals per second (Poisson) instead of clients; 0 = clients"},
    {.name = "seed", .kind = OPTION_INT, .arg = "N", .fallback = "1", .help = "of tokens, lengths, arrivals and draws"},
    {.name = "temperature", .kind = OPTION_FLOAT, .arg = "T", .fallback = "0", .min = 0, .max = 100,
     .help = "draw from the whole vocabulary, unfiltered; 0 = greedy"},
    {.name = "scale", .kind = OPTION_FLOAT, .arg = "F", .fallback = "1", .min = 0.001, .max = 100,
     .help = "all lengths times that"},
    {.name = "prompt", .needs = "work=fixed|work=all", .kind = OPTION_INT, .arg = "N", .fallback = "256", .min = 1, .max = 1 << 20,
     .help = "tokens of a prompt of 'fixed'"},
    {.name = "answer", .needs = "work=fixed|work=all", .kind = OPTION_INT, .arg = "N", .fallback = "64", .min = 1, .max = 1 << 20,
     .help = "tokens of an answer of 'fixed'"},
    {.name = "slo-ttft", .kind = OPTION_FLOAT, .arg = "MS", .fallback = "2000", .min = 0, .max = 1e9,
     .help = "goodput: the first token comes within that"},
    {.name = "slo-tpot", .kind = OPTION_FLOAT, .arg = "MS", .fallback = "100", .min = 0, .max = 1e9,
     .help = "goodput: the others take that long each, on average"},
    {.name = "itl-target", .kind = OPTION_FLOAT, .arg = "MS", .fallback = "0", .min = 0, .max = 1e9,
     .help = "prompts leave running answers a token that often; 0 = no target"},
    {.name = "context", .kind = OPTION_INT, .arg = "N", .fallback = "0", .min = 0, .max = 1 << 24,
     .help = "tokens of a whole context; 0 = 2048 times the scale, or the longest request"},
    {.name = "contexts", .excludes = "kv-memory", .kind = OPTION_INT, .arg = "N", .fallback = "0", .min = 0, .max = 1 << 20,
     .help = "memory for that many instead of --kv-memory; 0 = a quarter of the clients"},
    {.name = "json", .kind = OPTION_FLAG, .help = "print one JSON object"},
    RUNTIME_OPTIONS,
    CACHE_OPTIONS,
    {0},
};

const command cmd_bench_serve = {
    .name = "bench serve",
    .positional = "MODEL",
    .min_positional = 1,
    .max_positional = 1,
    .summary = "Measure a serving load: memory, hits, throughput and times",
    .details =
        "Drives the engine as a server does, with requests made from the seed alone. Work: 'fixed', prompts and "
        "answers of --prompt and --answer tokens; 'mix', log-normal lengths with the means of ShareGPT's conversations as "
        "published with PagedAttention (prompts 161 tokens, answers 338, together at most 2048); 'agents', a prompt of "
        "5000 tokens that all share and 60 of their own each, answers of 32; 'chat', conversations of four turns, each "
        "of 80 more tokens (the first of 200) after all that was said, answers of 48; 'tree', thoughts of 32 tokens "
        "over a prompt of 512: four, then four after each of the best two, then four after the best of each. Answers are "
        "greedy unless --temperature is given; thoughts are drawn in any case, at 1 by default.\n\n"
        "Caches: 'shared', the default one; 'paged', blocks without any sharing of prefixes; 'contiguous', the same, "
        "and a request enters when its whole context can be set aside for it, as where a sequence needs one piece of "
        "memory. Every request may use the whole context as far as the engine knows; the load ends it after its "
        "tokens. All caches must give the same tokens, so the same hash.\n\n"
        "Waste is what nobody else can have and nobody uses, as a share of that and the used memory, both summed over steps: "
        "reserved, set aside for later; internal, unused rows of blocks (the last of each sequence; and behind a "
        "window); external, free, but too little for the request that is next. In flight are the answers that go on after a "
        "step, mean and most; hits the share of prompts' tokens found computed, each branch's counted.\n\n"
        "  kvasir bench serve smollm2-135m-instruct --work mix --requests 64\n"
        "  kvasir bench serve smollm2-135m-instruct --work all --scale 0.25 --json\n"
        "  kvasir bench serve smollm2-135m-instruct --work chat -b shared --rate 4 --itl-target 150\n",
    .options = options,
    .run = run,
};
