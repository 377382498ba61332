#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/strbuf.h"
#include "bench/sim.h"
#include "cli/cli.h"

/* 10000, 10k, 1.5M, 2G: powers of 1000. */
static bool parse_count(const char *text, uint64_t *n)
{
    static const char units[] = "kMG";
    char *end;
    if (*text < '0' || *text > '9' || strspn(text, ".0123456789kMG") != strlen(text)) return false;
    double v = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (*end && (!unit || end[1])) return false;
    for (const char *u = units; unit && u <= unit; u++) v *= 1000;
    if (!(v <= 1e12)) return false;
    *n = (uint64_t)v;
    return v == (double)*n;
}

static double rate(uint64_t hits, uint64_t blocks)
{
    return blocks ? (double)hits / (double)blocks : 0;
}

static void put_json(strbuf *b, const sim_result *r)
{
    strbuf_printf(b,
                  "{\"policy\": \"%s\", \"capacity\": %llu, \"requests\": %llu, \"blocks\": %llu, \"hits\": %llu, "
                  "\"hit_rate\": %.6f, \"evicted\": %llu, \"seconds\": %.6f, \"blocks_per_second\": %.0f}",
                  r->policy, (unsigned long long)r->capacity, (unsigned long long)r->requests,
                  (unsigned long long)r->blocks, (unsigned long long)r->hits, rate(r->hits, r->blocks),
                  (unsigned long long)r->evicted, r->seconds, (double)r->blocks / (r->seconds > 0 ? r->seconds : 1e-9));
}

static void put_text(strbuf *b, const sim_result *results, int n, const trace *t)
{
    strbuf_printf(b, "%zu requests, %zu blocks, %u of them different\n\n", t->n_requests, t->n_blocks, t->n_distinct);
    strbuf_puts(b, "policy     capacity  hit rate        hits     evicted  million blocks/s\n");
    for (int i = 0; i < n; i++) {
        const sim_result *r = &results[i];
        char capacity[24] = "no end";
        if (r->capacity) snprintf(capacity, sizeof capacity, "%llu", (unsigned long long)r->capacity);
        strbuf_printf(b, "%-8s %10s    %.4f  %10llu  %10llu  %16.1f\n", r->policy, capacity, rate(r->hits, r->blocks),
                      (unsigned long long)r->hits, (unsigned long long)r->evicted,
                      (double)r->blocks / (r->seconds > 0 ? r->seconds : 1e-9) * 1e-6);
    }
}

static int simulate(sim_result *out, const trace *t, const char *policy, uint64_t capacity, status *st)
{
    if (strcmp(policy, SIM_FLAT_LRU) == 0) return sim_flat_lru(out, t, capacity, st);
    return sim_tree(out, t, evict_policy_get(policy), capacity, st);
}

/* Every policy with every capacity. */
static int simulate_all(const args *a, const trace *t, const uint64_t *capacities, int n_capacities, status *st)
{
    int n_policies = args_count(a, "policy"), n = 0, rc = ST_OK;
    if (n_policies == 0) n_policies = 1;
    sim_result *results = mem_calloc((size_t)n_policies * (size_t)n_capacities, sizeof *results);
    if (!results) return status_nomem(st, (size_t)n_policies * (size_t)n_capacities * sizeof *results);
    for (int p = 0; p < n_policies; p++) {
        const char *policy = args_given(a, "policy") ? args_string_at(a, "policy", p) : args_string(a, "policy");
        for (int c = 0; rc == ST_OK && c < n_capacities; c++)
            rc = simulate(&results[n++], t, policy, capacities[c], st);
    }
    strbuf b;
    strbuf_init(&b, 0);
    if (rc == ST_OK && args_flag(a, "json")) {
        for (int i = 0; i < n; i++) {
            strbuf_puts(&b, i ? ",\n " : n > 1 ? "[" : "");
            put_json(&b, &results[i]);
        }
        strbuf_puts(&b, n > 1 ? "]\n" : "\n");
    } else if (rc == ST_OK) {
        put_text(&b, results, n, t);
    }
    if (rc == ST_OK) rc = strbuf_check(&b, st);
    if (rc == ST_OK) fputs(strbuf_cstr(&b), stdout);
    strbuf_deinit(&b);
    mem_free(results);
    return rc;
}

static int run(const args *a, status *st)
{
    int n = args_count(a, "blocks"), rc = 1;
    trace t = TRACE_INIT;
    uint64_t *capacities = mem_calloc((size_t)n + 1, sizeof *capacities); /* 0, no end, when none is given */
    if (!capacities) return status_nomem(st, ((size_t)n + 1) * sizeof *capacities), 1;
    for (int i = 0; i < n; i++) {
        if (parse_count(args_string_at(a, "blocks", i), &capacities[i])) continue;
        status_set(st, ST_ARG, STATUS_NO_POS,
                   "--blocks takes a number of blocks such as 4096, 10k or 1.5M, not '%.40s'",
                   args_string_at(a, "blocks", i));
        mem_free(capacities);
        return 2;
    }
    if (trace_read(&t, args_positional(a, 0), st) == ST_OK &&
        simulate_all(a, &t, capacities, n ? n : 1, st) == ST_OK)
        rc = 0;
    trace_deinit(&t);
    mem_free(capacities);
    return rc;
}

static const option_spec options[] = {
    {.name = "blocks", .letter = 'b', .kind = OPTION_STRING, .arg = "N", .fallback = "0", .repeats = true,
     .help = "blocks that the cache holds: 4096, 10k, 1.5M; 0 = no end; may be repeated"},
    {.name = "policy", .letter = 'p', .kind = OPTION_CHOICE, .arg = "POLICY", .fallback = "lru", .repeats = true,
     .choices = EVICT_NAMES "|" SIM_FLAT_LRU,
     .help = "which leaf of the tree goes first; flat-lru: no tree; may be repeated"},
    {.name = "json", .kind = OPTION_FLAG, .help = "print JSON: an object, or an array for more than one result"},
    {.name = NULL},
};

const command cmd_sim_cache = {
    .name = "sim cache",
    .positional = "FILE",
    .min_positional = 1,
    .max_positional = 1,
    .summary = "Replay a trace of requests through the cache's tree, without a model",
    .details = "Reads a trace (JSON lines, plain or gzip; - for standard input) and says how many of its blocks a "
               "cache of so many blocks would have had, with the tree and the policies of the engine. Each line is a "
               "request, with timestamp and hash_ids, the ids of its prompt's blocks; or a conversation, with "
               "hash_id_scope and requests, each with t and hash_ids. An id names a block and everything before "
               "it.\n\n"
               "Requests are served one at a time, in order of time. A hit is a block of the longest prefix in the "
               "tree; flat-lru looks up each block by itself in one list, as a comparison.\n\n"
               "Examples:\n\n"
               "  kvasir sim cache trace.jsonl.gz --blocks 10k\n"
               "  kvasir sim cache trace.jsonl --blocks 1k --blocks 10k --policy lru --policy cost --json\n",
    .options = options,
    .run = run,
};
