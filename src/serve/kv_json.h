/* kv_json.h - the state of the cache as it was after a step, and as JSON: pools, groups, tree, sequences (GET /v1/kv).
 *
 *      engine's thread --kv_report_take, after each step--> report --a copy--> kv_report_json, by the HTTP thread
 *
 * Owns: the list of sequences. Taking one costs some hundred nanoseconds a sequence, and allocates nothing.
 * Threads: a report belongs to one thread at a time.
 */
#ifndef KVASIR_SERVE_KV_JSON_H
#define KVASIR_SERVE_KV_JSON_H

#include "serve/job.h"

typedef struct kv_group_report {
    pool_counts blocks;
    uint64_t copied_rows;
} kv_group_report;

typedef struct kv_sequence_report {
    char request[40]; /* its id */
    size_t prompt;
    uint32_t choice;
    bool running;
    int priority;
    session_stats stats;
} kv_sequence_report;

typedef struct kv_report {
    const engine *e; /* for what is constant */
    uint64_t bytes, capacity_tokens, longest_sequence_tokens;
    kv_group_report groups[KV_MAX_GROUPS];
    kv_tree_counts tree;
    pin_report pins[MAX_PINS];
    int n_pins;
    kv_sequence_report *sequences;
    size_t n_sequences, max_sequences;
} kv_report;

int kv_report_init(kv_report *r, const engine *e, int max_sequences, status *st);
void kv_report_deinit(kv_report *r); /* zeroed is fine */
/* By the engine's thread, between steps. running: a list of jobs, by next; sequences beyond the most are left out. */
void kv_report_take(kv_report *r, const job *running);
/* Of two that were made with the same arguments. */
void kv_report_copy(kv_report *to, const kv_report *from);
/* audit: what a recount has found audit_age_s ago; NULL = not asked for. */
void kv_report_json(strbuf *out, const kv_report *r, const char *audit, double audit_age_s);

#endif
