/* request.h - the body of a completion or chat request, from JSON to parameters.
 *
 * Owns: the parsed JSON, and an arena with what is made of it (messages, lists, stop strings). Knows no model.
 *
 *      bytes --jansson--> object --one table of fields--> request --chat_prompt.h--> token ids
 *
 * Q1 A known field with a wrong type or out of range is a 400 that names the field; null is as good as absent; unknown
 *    fields are ignored. What OpenAI's interface has and Kvasir can't do (tools, ...) is refused, never ignored.
 * Q2 Every pointer in a request is into its JSON or its arena: it must not be moved once parsed. Only prompts and
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

/* One prompt of a completion: text, or ids where there is none. */
typedef struct prompt_source {
    const char *text;
    size_t n_bytes;
    const int32_t *ids;
    size_t n_ids;
} prompt_source;

typedef struct request {
    bool chat;
    int n_vocab; /* ids below it are tokens */
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
    /* What comes back. */
    int n, best_of; /* choices shown and made, of each prompt */
    bool stream, include_usage, echo, logprobs;
    int64_t max_tokens; /* -1 = not given */
    bool skip_special;  /* control tokens don't appear in the text */
    bool has_seed;
    generate_params params; /* max_tokens and, without has_seed, the seed are still to be filled in */
    const char *stops[REQUEST_MAX_STOPS]; /* params.stop */
} request;

/* Returns 0 or an HTTP status; request_deinit in either case. */
int request_parse(request *r, bool chat, const char *text, size_t n_bytes, int n_vocab, api_error *e);
void request_forget_json(request *r); /* and with it prompts and the conversation */
void request_deinit(request *r);

/* A JSON object, or a 400: NULL. */
json_t *request_object(const char *text, size_t n_bytes, api_error *e);

/* Between the files that read requests. */
typedef struct field field;
struct field {
    const char *name;
    unsigned where; /* IN_COMPLETION | IN_CHAT */
    int (*read)(request *r, const field *f, const json_t *v, api_error *e);
    size_t offset; /* of a plain value in the request */
    double min, max;
};
int read_prompt(request *r, const field *f, const json_t *v, api_error *e);
int read_messages(request *r, const field *f, const json_t *v, api_error *e);
/* The ids of an array, [n] in the arena. */
int read_ids(request *r, const char *name, const json_t *v, int32_t **ids, size_t *n, api_error *e);
/* "'x' must be what; got a string" */
int wrong_type(api_error *e, const char *name, const char *what, const json_t *got);

#endif
