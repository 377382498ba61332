/* inspect.h - what `kvasir inspect` found in a file, between finding it and printing it.
 *
 *      gguf --inspection_make--> inspection --inspection_text--> page
 *                                           --inspection_json--> one JSON object
 *
 * Threads: plain values; an inspection borrows its gguf.
 */
#ifndef KVASIR_CLI_INSPECT_H
#define KVASIR_CLI_INSPECT_H

#include "base/strbuf.h"
#include "engine/groups.h"
#include "model/arch.h"
#include "model/gguf.h"

/* One slot for each type id below the last; ids without a name share the last one. */
#define INSPECT_TYPES 64

typedef struct type_sum {
    const char *name;
    uint64_t n_tensors, n_bytes;
} type_sum;

typedef struct inspection {
    const char *path;
    const gguf *g;
    gguf_str architecture, tokenizer, pre; /* n = 0 where the file does not say */
    bool arch_ok, types_ok, tokenizer_ok, has_template, template_ok;
    arch_params arch; /* this and the rest: if arch_ok */
    kv_groups groups;
    int n_windowed;            /* layers */
    double kv_bytes_per_token; /* all layers, f16, while nothing falls out of a window */
    type_sum types[INSPECT_TYPES];
    int n_reasons; /* why Kvasir can't run it: none = it can */
    char reasons[3][sizeof(((status *)0)->text)];
    char note[sizeof(((status *)0)->text)]; /* about the chat template; may be empty */
} inspection;

/* path and g outlive the result. Fails for lack of memory alone: what is wrong with the model is part of the answer. */
int inspection_make(inspection *out, const char *path, const gguf *g, status *st);

/* "Q4_K", or "type 77" for an id without a name. */
const char *inspect_type_name(uint32_t type, char buffer[24]);
/* The shortest decimal that reads back as this float. */
const char *inspect_float(float f, char buffer[24]);

/* `full`: arrays and strings whole. */
void inspection_text(const inspection *x, bool full, strbuf *out);
/* Appends one line. */
int inspection_json(const inspection *x, bool full, strbuf *out, status *st);

#endif
