/* request.h - the body of a request, from JSON to parameters.
 *
 * Owns: the parsed JSON, and an arena with what is made of it (messages, lists, stop strings). Knows no model.
 *
 *      bytes --jansson--> object --one table of fields--> request --chat_prompt.h--> token ids
 *
 * RQ1 Nothing that was given is dropped without a word. A field is obeyed (request_fields.c), of no effect by its
 *    nature or at this value (request_known.c), or a 400 that names it; null is as good as absent. Where the rules are lenient
 *    fields that can't be obeyed are ignored, and named in `ignored`.
 * RQ2 Every pointer in a request is into its JSON or its arena: it must not be moved once parsed. Only prompts and
 *    conversations point into the JSON, which takes many times the body's size: it goes once they are tokens.
 * Threads: one at a time.
 */
#ifndef KVASIR_SERVE_REQUEST_H
#define KVASIR_SERVE_REQUEST_H

#include <jansson.h>

#include "base/arena.h"
#include "engine/engine.h"
#include "model/chat.h"
#include "serve/api_error.h"

#define REQUEST_MAX_STOPS 16
#define REQUEST_MAX_STOP_BYTES 256
#define REQUEST_MAX_CHOICES 128
#define REQUEST_IGNORED_BYTES 256

typedef enum request_kind {
    REQUEST_COMPLETION,
    REQUEST_CHAT,
    REQUEST_TEMPLATE, /* a chat whose prompt is shown */
    REQUEST_TOKENIZE,
    REQUEST_DETOKENIZE
} request_kind;

/* What holds for all requests to a server. */
typedef struct request_rules {
    int n_vocab;               /* ids below it are tokens */
    const char *const *names;  /* of the model, NULL behind the last; NULL = any name will do */
    bool lenient;              /* fields that can't be obeyed are ignored */
    const char *chat_template; /* its source; NULL = none */
    int min_priority;          /* lower ones, which would go first, are refused */
} request_rules;

/* One prompt of a completion: text, or ids where there is none. */
typedef struct prompt_source {
    const char *text;
    size_t n_bytes;
    const int32_t *ids;
    size_t n_ids;
} prompt_source;

typedef struct request {
    request_kind kind;
    bool chat; /* its kind, or a chat that is shown */
    const request_rules *rules;
    json_t *body;
    arena arena;
    /* What to go on from: prompts of a completion, a conversation. */
    prompt_source *prompts;
    size_t n_prompts;
    const json_t *messages; /* an array of objects, each with a role that is known and a content of a known type */
    size_t n_messages;
    const json_t *tools, *documents; /* arrays for the template; NULL = none */
    const json_t *template_kwargs;   /* an object: more variables for the template; NULL = none */
    bool add_generation_prompt;
    bool add_special, parse_special; /* how texts become tokens */
    const char *reasoning_effort;    /* NULL = not given */
    /* What comes back. */
    int n, best_of; /* choices shown and made, of each prompt */
    bool stream, include_usage, usage_in_chunks, echo, logprobs;
    bool with_pieces;   /* of tokens */
    int64_t max_tokens; /* -1 = not given, or with fill_context: as many as fit */
    bool fill_context;
    bool cache_only; /* the prompt is computed and stays cached; no answer */
    bool skip_special; /* control tokens don't appear in the text */
    bool has_seed;
    generate_params params;               /* max_tokens and, without has_seed, the seed are still to be filled in */
    const char *stops[REQUEST_MAX_STOPS]; /* params.stop */
    bool dry_breakers;
    char ignored[REQUEST_IGNORED_BYTES]; /* names of fields, "a, b, ...", fit for a header; "" = none */
    bool ignored_more;
} request;

/* Returns 0 or an HTTP status; request_deinit in either case. The rules outlive the request. */
int request_parse(request *r, request_kind kind, const request_rules *rules, const char *text, size_t n_bytes,
                  api_error *e);
void request_forget_json(request *r); /* and with it prompts and the conversation */
void request_deinit(request *r);
/* By which of its names a plain value was given, while there is the JSON; NULL = by none. */
const char *request_name_given(const request *r, size_t offset);
/* Takes down that a field is ignored; false where the rules don't allow that. */
bool request_ignore(request *r, const char *name);
/* Takes down that a field is of no effect with this model. */
void request_note(request *r, const char *name);

/* Between the files that read requests. */
#define IN_COMPLETION (1u << REQUEST_COMPLETION)
#define IN_CHAT (1u << REQUEST_CHAT | 1u << REQUEST_TEMPLATE)
#define IN_TOKENIZE (1u << REQUEST_TOKENIZE)
#define IN_DETOKENIZE (1u << REQUEST_DETOKENIZE)
#define IN_BOTH (IN_COMPLETION | IN_CHAT)
#define IN_ALL (IN_BOTH | IN_TOKENIZE | IN_DETOKENIZE)

/* A field that is obeyed. */
typedef struct field field;
struct field {
    const char *name;
    unsigned where; /* IN_COMPLETION | ... */
    int (*read)(request *r, const field *f, const json_t *v, api_error *e);
    size_t offset; /* of a plain value in the request */
    double min, max;
};
const field *field_at(size_t i); /* NULL past the last */

/* A field that is not, but is known. */
typedef struct known_field {
    const char *name;
    unsigned neutral; /* values that change nothing */
    const char *word; /* another one; NULL = none */
} known_field;
const known_field *known_field_at(size_t i); /* NULL past the last */
const known_field *known_field_find(const char *name);
bool known_field_accepts(const known_field *k, const json_t *v);

/* A JSON object, or a 400: NULL. */
json_t *request_object(const char *text, size_t n_bytes, api_error *e);
const char *json_type_name(const json_t *v); /* "a string" */
/* What to go on from (request_prompt.c, request_chat.c). */
int read_prompt(request *r, const field *f, const json_t *v, api_error *e);
int read_content(request *r, const field *f, const json_t *v, api_error *e);
int read_tokens(request *r, const field *f, const json_t *v, api_error *e);
int read_messages(request *r, const field *f, const json_t *v, api_error *e);
int read_tools(request *r, const field *f, const json_t *v, api_error *e);
int read_tool_choice(request *r, const field *f, const json_t *v, api_error *e);
int read_documents(request *r, const field *f, const json_t *v, api_error *e);
int read_template_kwargs(request *r, const field *f, const json_t *v, api_error *e);
int read_effort(request *r, const field *f, const json_t *v, api_error *e);
/* The ids of an array, [n] in the arena. */
int read_ids(request *r, const char *name, const json_t *v, int32_t **ids, size_t *n, api_error *e);
/* "'x' must be what; got a string" */
int wrong_type(api_error *e, const char *name, const char *what, const json_t *got);

#endif
