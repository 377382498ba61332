/* served.h - what the HTTP thread knows of the model that it serves. Constant while the server runs. */
#ifndef KVASIR_SERVE_SERVED_H
#define KVASIR_SERVE_SERVED_H

#include "model/chat.h"
#include "model/model.h"
#include "serve/request.h"

typedef struct served_model {
    const model *m;
    const tmpl *template;     /* of chats; NULL = none */
    bool knows_developer;     /* the template has that role */
    bool allow_parse_special; /* requests may name control tokens in their texts */
    const char *name;         /* the id that clients see: the first of the rules' names */
    request_rules rules;
    int64_t created_unix_s;
    int context;          /* most tokens of prompt and answer (engine.h, N4) */
    size_t longest_piece; /* bytes of text that one token can stand for, at most */
    int max_choices;      /* running and waiting, of all requests */
} served_model;

#endif
