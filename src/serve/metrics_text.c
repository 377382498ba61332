#include "serve/metrics_text.h"

#include <stdio.h>
#include <string.h>

/* Where the text goes, and under which names. */
typedef struct page {
    strbuf *out;
    bool vllm;
    strbuf labels; /* model_name="...", or nothing */
} page;

typedef struct family {
    const char *name, *vllm_name; /* NULL: vLLM has no such family */
    const char *help;
} family;

static const char *name_of(const page *p, const family *f)
{
    return p->vllm && f->vllm_name ? f->vllm_name : f->name;
}

static void head(const page *p, const family *f, const char *type)
{
    strbuf_printf(p->out, "# HELP %s %s\n# TYPE %s %s\n", name_of(p, f), f->help, name_of(p, f), type);
}

/* more: further labels, or "". */
static void sample(const page *p, const family *f, const char *suffix, const char *more, double value)
{
    const char *all = strbuf_cstr(&p->labels);
    strbuf_printf(p->out, "%s%s", name_of(p, f), suffix);
    if (*all || *more) strbuf_printf(p->out, "{%s%s%s}", all, *all && *more ? "," : "", more);
    strbuf_printf(p->out, " %.17g\n", value);
}

static void one(const page *p, const char *type, const family *f, double value)
{
    head(p, f, type);
    sample(p, f, "", "", value);
}

static const family histograms[HISTOGRAM_COUNT] = {
    [HISTOGRAM_TTFT] = {"kvasir_time_to_first_token_seconds", "vllm:time_to_first_token_seconds",
                        "From a request's arrival to the first token, of each choice."},
    [HISTOGRAM_ITL] = {"kvasir_inter_token_latency_seconds", "vllm:inter_token_latency_seconds",
                       "From one token of an answer to the next."},
    [HISTOGRAM_E2E] = {"kvasir_request_duration_seconds", "vllm:e2e_request_latency_seconds",
                       "From a request's arrival to the end of an answer, of each choice."},
    [HISTOGRAM_QUEUE] = {"kvasir_request_queue_seconds", "vllm:request_queue_time_seconds",
                         "Time until an answer was first admitted to the batch."},
    [HISTOGRAM_PREFILL] = {"kvasir_request_prefill_seconds", "vllm:request_prefill_time_seconds",
                           "From admission to the first token."},
    [HISTOGRAM_DECODE] = {"kvasir_request_decode_seconds", "vllm:request_decode_time_seconds",
                          "From the first token to the last."},
    [HISTOGRAM_STEP] = {"kvasir_step_seconds", NULL, "One step of the engine that computes."},
    [HISTOGRAM_PROMPT_TOKENS] = {"kvasir_request_prompt_tokens", "vllm:request_prompt_tokens", "Tokens of a prompt, once for all its choices."},
    [HISTOGRAM_GENERATED_TOKENS] = {"kvasir_request_generated_tokens", "vllm:request_generation_tokens",
                                    "Tokens of an answer, an end token included, of each choice."},
};

static void histogram_text(const page *p, const histogram *h, histogram_id id)
{
    const family *f = &histograms[id];
    int n;
    const double *bounds = histogram_bounds(id, &n);
    uint64_t sum = 0;
    char label[64];
    head(p, f, "histogram");
    for (int i = 0; i < n; i++) {
        sum += h->buckets[i];
        snprintf(label, sizeof label, "le=\"%.10g\"", bounds[i]);
        sample(p, f, "_bucket", label, (double)sum);
    }
    sample(p, f, "_bucket", "le=\"+Inf\"", (double)h->count);
    sample(p, f, "_sum", "", h->sum);
    sample(p, f, "_count", "", (double)h->count);
}

static void counters(const page *p, const engine_stats *e)
{
    const struct {
        family f;
        uint64_t value;
    } all[] = {
        {{"kvasir_prompt_tokens_total", "vllm:prompt_tokens_total",
          "Tokens of prompts, for each choice once, when it enters the batch."},
         e->prompt_tokens},
        {{"kvasir_looked_up_tokens_total", "vllm:prefix_cache_queries_total",
          "Those of them that were looked up in the cache: not with the logprobs of a prompt."},
         e->looked_up_tokens},
        {{"kvasir_cached_tokens_total", "vllm:prefix_cache_hits_total",
          "Tokens of prompts that a choice found computed when it entered the batch."},
         e->reused_tokens},
        {{"kvasir_generated_tokens_total", "vllm:generation_tokens_total", "Tokens of answers, end tokens included."}, e->generated_tokens},
        {{"kvasir_computed_rows_total", NULL, "Tokens that went through the model, again after a preemption too."}, e->computed_rows},
        {{"kvasir_steps_total", NULL, "Steps of the engine that compute."}, e->steps},
        {{"kvasir_preemptions_total", "vllm:num_preemptions_total", "Times that an answer had to give its blocks back."},
         e->preemptions},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) one(p, "counter", &all[i].f, (double)all[i].value);
}

/* vLLM's words for how an answer ended. */
static const char *vllm_reason(finish_reason r)
{
    switch (r) {
    case FINISH_EOS:
    case FINISH_STOP: return "stop";
    case FINISH_LENGTH:
    case FINISH_CONTEXT: return "length";
    case FINISH_ERROR: return "error";
    default: return "abort";
    }
}

static void vllm_finishes(const page *p, const family *f, const metrics_values *v)
{
    static const char *const reasons[] = {"stop", "length", "abort", "error"};
    char text[64];
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        uint64_t n = 0;
        for (int r = FINISH_NONE + 1; r < METRICS_FINISHES; r++)
            if (strcmp(vllm_reason((finish_reason)r), reasons[i]) == 0) n += v->finished[r];
        snprintf(text, sizeof text, "finished_reason=\"%s\"", reasons[i]);
        sample(p, f, "", text, (double)n);
    }
}

static void finishes(const page *p, const metrics_values *v)
{
    const family f = {"kvasir_requests_total", "vllm:request_success_total", "Answers that are over, each choice, by reason."};
    char text[64];
    head(p, &f, "counter");
    if (p->vllm) {
        vllm_finishes(p, &f, v);
        return;
    }
    for (int r = FINISH_NONE + 1; r < METRICS_FINISHES; r++) {
        snprintf(text, sizeof text, "finish_reason=\"%s\"", finish_name((finish_reason)r));
        sample(p, &f, "", text, (double)v->finished[r]);
    }
}

static void responses(const page *p, const metrics_values *v)
{
    const family f = {"kvasir_http_responses_total", NULL, "HTTP responses by status code."};
    char label[32];
    head(p, &f, "counter");
    for (int i = 0; i < METRICS_CODES && v->responses[i].code; i++) {
        snprintf(label, sizeof label, "code=\"%d\"", v->responses[i].code);
        sample(p, &f, "", label, (double)v->responses[i].count);
    }
}

/* Blocks by state and group, and how full the fullest group is. */
static void blocks(const page *p, const metrics_gauges *g)
{
    const family f = {"kvasir_kv_blocks", NULL, "Blocks of the cache by group of layers and state; in_use: by running answers and pins."};
    const family usage = {"kvasir_kv_usage_ratio", "vllm:kv_cache_usage_perc",
                          "Share of the cache's blocks that running answers and pins hold, 0 to 1, in the fullest group."};
    char label[64];
    head(p, &f, "gauge");
    for (int i = 0; i < g->n_groups; i++) {
        const pool_counts *c = &g->blocks[i];
        const struct {
            const char *state;
            uint32_t n;
        } states[] = {{"free", c->free}, {"cached", c->cached}, {"in_use", c->in_use}, {"in_flight", c->in_flight}};
        for (size_t k = 0; k < sizeof states / sizeof *states; k++) {
            snprintf(label, sizeof label, "group=\"%d\",state=\"%s\"", i, states[k].state);
            sample(p, &f, "", label, (double)states[k].n);
        }
    }
    one(p, "gauge", &usage, metrics_kv_usage(g));
}

static void tree(const page *p, const kv_tree_counts *c)
{
    one(p, "gauge", &(family){"kvasir_tree_nodes", NULL, "Nodes of the radix tree."}, (double)c->nodes);
    one(p, "gauge", &(family){"kvasir_tree_blocks", NULL, "Blocks of tokens that the radix tree holds in all groups of layers, tails included."},
        (double)c->blocks);
    one(p, "gauge", &(family){"kvasir_tree_tails", NULL, "Partly filled blocks that the radix tree holds."},
        (double)c->tails);
    one(p, "gauge", &(family){"kvasir_tree_bytes", NULL, "Memory of the radix tree itself."}, (double)c->bytes);
    one(p, "counter", &(family){"kvasir_tree_inserted_blocks_total", NULL, "Blocks that entered the radix tree."},
        (double)c->inserted);
    one(p, "counter", &(family){"kvasir_tree_evicted_blocks_total", NULL, "Blocks that left it to make room."},
        (double)c->evicted);
}

void metrics_text(strbuf *out, const metrics_values *v, const char *model_name, bool vllm, bool ready)
{
    page p = {.out = out, .vllm = vllm};
    const metrics_gauges *g = &v->gauges;
    strbuf_init(&p.labels, 0);
    if (vllm) {
        strbuf_puts(&p.labels, "model_name=");
        strbuf_json(&p.labels, model_name, strlen(model_name));
    }
    one(&p, "gauge", &(family){"kvasir_ready", NULL, "Whether requests are taken."}, ready);
    one(&p, "gauge", &(family){"kvasir_requests_running", "vllm:num_requests_running", "Answers in the batch."},
        g->engine.running);
    one(&p, "gauge", &(family){"kvasir_requests_waiting", "vllm:num_requests_waiting", "Answers that wait."},
        g->engine.waiting);
    one(&p, "gauge", &(family){"kvasir_pins", NULL, "Prefixes that stay in the cache for a time (cache_pin)."},
        g->engine.pins);
    one(&p, "counter", &(family){"kvasir_pins_dropped_total", NULL, "Pins that ended before their time, to make room."},
        (double)g->engine.pins_dropped);
    one(&p, "gauge", &(family){"kvasir_chunk_rows", NULL, "Tokens that a step takes from prompts at most, now."},
        g->engine.chunk);
    blocks(&p, g);
    tree(&p, &g->tree);
    counters(&p, &g->engine);
    finishes(&p, v);
    responses(&p, v);
    for (int i = 0; i < HISTOGRAM_COUNT; i++) histogram_text(&p, &v->histograms[i], (histogram_id)i);
    if (p.labels.failed) out->failed = true;
    strbuf_deinit(&p.labels);
}
