#include "bench/serve_report.h"

#include <stdio.h>

static double hit_rate(const serve_result *r)
{
    return r->prompt_tokens ? (double)r->reused_tokens / (double)r->prompt_tokens : 0;
}

static double waste(const serve_result *r)
{
    return serve_waste_percent(r, r->reserved + r->internal + r->external);
}

static void json_times(const char *name, const serve_quantiles *q)
{
    printf(", \"%s_ms\": {\"p50\": %.3f, \"p90\": %.3f, \"p99\": %.3f}", name, q->p50 * 1e3, q->p90 * 1e3,
           q->p99 * 1e3);
}

static void json_result(const serve_result *r)
{
    printf("{\"work\": \"%s\", \"baseline\": \"%s\", \"context\": %d, \"cache_bytes\": %llu, \"answers\": %d, "
           "\"finished\": %d, \"failed\": %d, \"dropped\": %d, \"seconds\": %.3f",
           work_name(r->work), serve_baseline_name(r->baseline), r->context, (unsigned long long)r->cache_bytes,
           r->n_answers, r->n_finished, r->n_failed, r->n_dropped, r->seconds);
    printf(", \"prompt_tokens\": %llu, \"reused_tokens\": %llu, \"output_tokens\": %llu, \"computed_rows\": %llu, "
           "\"steps\": %llu, \"preemptions\": %llu",
           (unsigned long long)r->prompt_tokens, (unsigned long long)r->reused_tokens,
           (unsigned long long)r->output_tokens, (unsigned long long)r->computed_rows, (unsigned long long)r->steps,
           (unsigned long long)r->preemptions);
    printf(
        ", \"in_flight\": {\"mean\": %.2f, \"max\": %d}, \"waste_percent\": {\"reserved\": %.3f, \"internal\": %.3f, "
        "\"external\": %.3f, \"total\": %.3f}",
        r->running, r->max_running, serve_waste_percent(r, r->reserved), serve_waste_percent(r, r->internal),
        serve_waste_percent(r, r->external), waste(r));
    printf(", \"hit_rate\": %.4f, \"output_tokens_s\": %.2f, \"total_tokens_s\": %.2f", hit_rate(r),
           (double)r->output_tokens / r->seconds, (double)(r->prompt_tokens + r->output_tokens) / r->seconds);
    json_times("ttft", &r->ttft);
    json_times("tpot", &r->tpot);
    json_times("itl", &r->itl);
    printf(", \"goodput\": %.4f, \"hash\": \"%016llx\"}", r->n_within_slo / r->seconds, (unsigned long long)r->hash);
}

void serve_print_json(const serve_report *p)
{
    printf("{\"kv\": \"%s\", \"threads\": %d, \"block_tokens\": %d, \"scale\": %g, \"clients\": %d, \"rate\": %g, "
           "\"temperature\": %g, \"seed\": %llu, \"slo_ttft_ms\": %g, \"slo_tpot_ms\": %g, \"itl_target_ms\": %g, \"runs\": [",
           p->kv, p->threads, p->block_tokens, p->scale, p->c.clients, p->c.rate,
           (double)p->c.temperature, (unsigned long long)p->c.seed, p->c.slo_ttft_s * 1e3, p->c.slo_tpot_s * 1e3, p->itl_target_s * 1e3);
    for (int i = 0; i < p->n; i++) {
        printf(i ? ",\n " : "\n ");
        json_result(&p->results[i]);
    }
    printf("]}\n");
}

static void print_memory(const serve_report *p)
{
    printf("| work | cache | MB | in flight | most | waste %% | reserved | internal | external | hits %% | preempted | "
           "failed |\n"
           "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    for (int i = 0; i < p->n; i++) {
        const serve_result *r = &p->results[i];
        printf("| %s | %s | %.0f | %.1f | %d | %.1f | %.1f | %.1f | %.1f | %.1f | %llu | %d |\n", work_name(r->work),
               serve_baseline_name(r->baseline), (double)r->cache_bytes * 1e-6, r->running, r->max_running, waste(r),
               serve_waste_percent(r, r->reserved), serve_waste_percent(r, r->internal),
               serve_waste_percent(r, r->external), hit_rate(r) * 100, (unsigned long long)r->preemptions,
               r->n_failed + r->n_dropped);
    }
}

static void print_times(const serve_quantiles *q)
{
    printf(" %.0f / %.0f / %.0f |", q->p50 * 1e3, q->p90 * 1e3, q->p99 * 1e3);
}

static void print_speed(const serve_report *p)
{
    printf(
        "\n| work | cache | answers | s | output tokens/s | all tokens/s | TTFT, ms | TPOT, ms | ITL, ms | goodput/s | "
        "hash |\n"
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n");
    for (int i = 0; i < p->n; i++) {
        const serve_result *r = &p->results[i];
        printf("| %s | %s | %d | %.1f | %.1f | %.1f |", work_name(r->work), serve_baseline_name(r->baseline),
               r->n_finished, r->seconds, (double)r->output_tokens / r->seconds,
               (double)(r->prompt_tokens + r->output_tokens) / r->seconds);
        print_times(&r->ttft);
        print_times(&r->tpot);
        print_times(&r->itl);
        printf(" %.2f | %016llx |\n", r->n_within_slo / r->seconds, (unsigned long long)r->hash);
    }
}

void serve_print_markdown(const serve_report *p)
{
    print_memory(p);
    print_speed(p);
    printf("\n%d threads, %s cache in blocks of %d tokens; ", p->threads, p->kv, p->block_tokens);
    if (p->c.rate > 0) printf("%g arrivals/s; ", p->c.rate);
    else printf("%d clients; ", p->c.clients);
    if (p->c.temperature > 0) printf("temperature %g, unfiltered; ", (double)p->c.temperature);
    else printf("greedy; ");
    printf(
        "times are p50 / p90 / p99; goodput: answers/s with the first token within %g ms and the others every %g ms\n",
        p->c.slo_ttft_s * 1e3, p->c.slo_tpot_s * 1e3);
}
