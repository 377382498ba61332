/* template.h - chat templates: the subset of Jinja that models use, from source text to prompt text.
 *
 * Owns (tmpl): the parsed program. A render owns its values in an arena that dies with it.
 *
 *      source --lexer--> tokens --parser--> tree --interpreter(values)--> text
 *
 * It behaves as Jinja set up the way chat templates expect: trim_blocks, lstrip_blocks, break and continue, generation
 * blocks, tojson without HTML escaping, no autoescape, the default Undefined (prints nothing, has no members); besides
 * from_json, which templates written for llama.cpp use.
 *
 * J1 What is outside the subset is an error (ST_UNSUPPORTED) that names line and construct, never a silent difference:
 *    statements, filters and tests when parsed, methods and uses of values when reached. A malformed template is
 *    ST_FORMAT, a render that fails as it would in Jinja ST_ARG; pos is the line. Known differences: filters that Jinja
 *    runs lazily run at once; case covers the scripts of unicode.h; integers have 64 bits (beyond is ST_LIMIT).
 *    Lists and dicts can't be changed (append, pop, update...), as in the immutable sandbox of Hugging Face.
 * J2 A render is bounded: depth, steps, output bytes, memory (tmpl_limits); a hostile template ends in ST_LIMIT.
 * J3 Text and values are bytes; the template's own text is expected to be UTF-8 and is passed through as it is.
 * J4 Every byte of the result is known to be the template's own or the input's, however it was cut, joined and
 *    filtered, so that only the former may name control tokens.
 * Threads: a tmpl is constant after tmpl_parse; renders may run side by side.
 */
#ifndef KVASIR_MODEL_TEMPLATE_TEMPLATE_H
#define KVASIR_MODEL_TEMPLATE_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/strbuf.h"
#include "model/text_ranges.h"

typedef struct tmpl tmpl;

int tmpl_parse(tmpl **out, const char *source, size_t n_bytes, status *st);
void tmpl_free(tmpl *t);

/* Input values. Build a tree, pass its root (a map) to tmpl_render. All nodes live in the tmpl_data and die with it;
 * builders return NULL when memory is short and accept NULL containers; tmpl_render then answers ST_NOMEM. */
typedef struct tmpl_data tmpl_data;
typedef struct tmpl_value tmpl_value;
tmpl_data *tmpl_data_new(void);
void tmpl_data_free(tmpl_data *d);
bool tmpl_data_failed(const tmpl_data *d);
tmpl_value *tmpl_none(tmpl_data *d);
tmpl_value *tmpl_bool(tmpl_data *d, bool b);
tmpl_value *tmpl_int(tmpl_data *d, int64_t i);
tmpl_value *tmpl_float(tmpl_data *d, double f);
tmpl_value *tmpl_string(tmpl_data *d, const char *s, size_t n); /* copied */
/* Text that may name control tokens as the template's own may: the model's metadata, a constant of the caller. */
tmpl_value *tmpl_trusted(tmpl_data *d, const char *s, size_t n);
tmpl_value *tmpl_list(tmpl_data *d);
tmpl_value *tmpl_map(tmpl_data *d); /* keeps insertion order */
void tmpl_list_add(tmpl_data *d, tmpl_value *list, tmpl_value *item);
void tmpl_map_set(tmpl_data *d, tmpl_value *map, const char *key, tmpl_value *item);
bool tmpl_map_has(const tmpl_value *map, const char *key); /* NULL has nothing */

typedef struct tmpl_limits {
    int max_depth;           /* nesting of calls and of values; 0 = default (100) */
    uint64_t max_steps;      /* 0 = default (20 million) */
    size_t max_output_bytes; /* 0 = default (64 MiB) */
    size_t max_memory_bytes; /* 0 = default (256 MiB) */
    int64_t now_unix_s;      /* what strftime_now sees, UTC */
} tmpl_limits;

/* Appends the text to out, and which of its bytes are trusted (J4) to trusted, which may be NULL; both are as before
 * on failure. raise_exception(msg) is ST_ARG with that message. limits may be NULL. */
int tmpl_render(const tmpl *t, tmpl_data *d, const tmpl_value *root, const tmpl_limits *limits, strbuf *out,
                text_ranges *trusted, status *st);

#endif
