/* trace.h - request traces for `kvasir sim`: which blocks each request's prompt consists of, in order of time.
 *
 *      {"timestamp": 27, "input_length": 1100, "output_length": 50, "hash_ids": [0, 14, 15]}     a request a line
 *      {"id": ..., "hash_id_scope": "local", "requests": [{"t": 0.5, "hash_ids": [1, 2]}, ...]}  a conversation a line
 *
 * An id names a block and all before it. Ids of a conversation with the scope "local" are its own: it has a salt, which
 * is 0 for everything else. Every different (salt, id) gets a number, so that a number stands for a block's tokens.
 * Entries of a conversation that have requests of their own (what it delegated) are left out.
 *
 * Owns its arrays. A trace is as untrusted as any input. One thread.
 */
#ifndef KVASIR_BENCH_TRACE_H
#define KVASIR_BENCH_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct trace_request {
    double time; /* in the trace's own unit */
    uint32_t salt;
    uint32_t n;
    size_t first; /* blocks[first .. first + n) */
} trace_request;

typedef struct trace_name trace_name;

typedef struct trace {
    trace_request *requests;
    size_t n_requests, requests_cap;
    int32_t *blocks; /* [n_blocks], each in [0, n_distinct) */
    size_t n_blocks, blocks_cap;
    uint32_t n_distinct, n_salts;
    trace_name *names; /* hash table [names_cap] of what has a number */
    size_t names_cap;
} trace;

#define TRACE_INIT {.n_salts = 1}

/* Adds a line's requests, a JSON object; a blank line adds nothing. Without a timestamp a request comes with the one
 * before it. On failure part of the line may have been added. */
int trace_add(trace *t, const char *line, size_t n_bytes, status *st);
void trace_sort(trace *t); /* by time; those of the same time stay as they are */
/* The whole file, plain or compressed with gzip, sorted; "-" is standard input. Errors name the line, which is
 * status.pos. */
int trace_read(trace *t, const char *path, status *st);
void trace_deinit(trace *t);

#endif
