/* size.h - what a model's cache takes, between the question and the page that answers it.
 *
 *      shape, format, context, batch, memory --size_answer_make--> numbers --size_text--> page
 *                                                                          --size_json--> one JSON object
 *
 * Every byte count comes from cache/layout.h. Threads: plain values; an answer borrows what its question borrows.
 */
#ifndef KVASIR_CLI_SIZE_H
#define KVASIR_CLI_SIZE_H

#include <stdbool.h>

#include "base/strbuf.h"
#include "cache/layout.h"
#include "model/shapes.h"

/* Precisions of a cache for planning: the engine's own formats, and others of which only the size is known. NULL past
 * the last. */
const kv_format *size_format_at(int i);
bool size_format_stored(const kv_format *f); /* the engine can store it */

typedef struct size_question {
    const model_shape *shape;
    const kv_format *format;
    const char *weights_type;
    uint64_t weights_bytes;
    uint64_t context, batch, memory_bytes;
    int block_tokens;
} size_question;

/* The same heads with K and V kept in the four usual ways: bytes per token and layer. */
enum { SIZE_MHA, SIZE_GQA, SIZE_MQA, SIZE_MLA, SIZE_KINDS };

typedef struct size_kind {
    const char *name;
    int n_kv_heads; /* 0 for MLA */
    int d_c, d_rope;
    double bytes_per_token_layer;
    bool own; /* how the model itself does it */
} size_kind;

typedef struct size_answer {
    size_question q;
    size_kind kinds[SIZE_KINDS];
    double bytes_per_token_layer, bytes_per_token; /* while nothing falls out of a window */
    uint64_t bytes_per_sequence;       /* in blocks, at the context asked for */
    /* tokens of a contiguous buffer: the model's context, or a longer one asked for */
    uint64_t longest;
    uint64_t bytes_contiguous;         /* such a buffer: every layer, every token */
    uint64_t cache_bytes, total_bytes; /* of the batch; with the weights */
    uint64_t fits, fits_contiguous;    /* sequences in the memory that the weights leave */
} size_answer;

size_answer size_answer_make(const size_question *q);
void size_text(const size_answer *a, strbuf *out);
void size_json(const size_answer *a, strbuf *out); /* one line */

#endif
