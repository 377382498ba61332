/* server.h - an engine behind OpenAI's interface.
 *
 * Owns: the listening socket, the HTTP thread, the watch's thread, the workers. Borrows: engine, model, template's text.
 *
 *      server_new ---- listens; everything but /health and /metrics is 503
 *      server_open --- requests are taken, and wait
 *      server_run ---- the caller's thread becomes the engine's --> 200
 *      server_drain -- no new requests; those at work go on, for a time; server_run returns
 *      server_free
 *
 *      client ==HTTP==> HTTP thread (all connections) <--jobs--> workers (parse, tokenize, write) --jobs--> engine's thread
 *                       watch (clients that left, dribble, don't fetch)
 *
 * SV1 A connection without anything to send or receive costs no time: it is suspended, and resumed when there is.
 * SV2 Answers depend on the requests alone, not on other clients (N1).
 * SV3 Nothing is printed: lines for the operator go to the log.
 * Threads: new, open, run and free by one thread; drain by any.
 */
#ifndef KVASIR_SERVE_SERVER_H
#define KVASIR_SERVE_SERVER_H

#include "base/log.h"
#include "engine/engine.h"

typedef struct server_config {
    const char *host;         /* a name or an address; NULL = 127.0.0.1 */
    int port;                 /* 0 = any that is free */
    const char *api_key_file; /* NULL = no keys */
    const char *cors_origin;  /* whom browsers may let in; "*" = everybody, NULL = nobody */
    int max_connections;
    size_t max_body_bytes;
    size_t max_header_bytes;
    double request_timeout_s;  /* for a request to come in, an answer to be fetched, a connection to be idle */
    double body_grace_s;       /* a body brings, in each span of that length, */
    double body_rate_bytes_s;  /* so many bytes a second: else it is refused */
    double comment_interval_s; /* of silence in a stream, before a comment is sent */
    int work_queue;            /* requests that wait to be read, small ones and large ones */
    bool vllm_metrics;
    int min_priority;         /* that requests may ask for; lower numbers go first */
    bool lenient;             /* fields of requests that can't be obeyed are ignored, and named in a header */
    bool allow_parse_special; /* requests may name control tokens in their texts */
    const log_sink *log;      /* NULL = none */
} server_config;

typedef struct server_model {
    const char *const *names;  /* the first is the id that clients see, others are as good; NULL behind the last */
    const char *chat_template; /* its source; NULL = none: no chats */
    int max_choices;           /* answers running and waiting: the engine's n_sessions */
} server_model;

typedef struct server server;

/* 127.0.0.1, port 8080, no keys, no CORS, 1024 connections, 16 MiB, 32 KiB, 60 s, 1 KiB/s over 5 s, comments after 5 s,
 * queues of 512. */
server_config server_defaults(void);
/* The texts of c outlive the server. ST_IO when the address can't be listened on. */
int server_new(server **out, const server_config *c, status *st);
int server_port(const server *s);
/* Ready from now on. ST_FORMAT, ST_UNSUPPORTED: of the template. */
int server_open(server *s, engine *e, const server_model *m, status *st);
void server_run(server *s); /* until drained */
/* Also before run, which then returns at once. A second call can only shorten the time. */
void server_drain(server *s, double timeout_s);
void server_free(server *s); /* NULL is fine */

#endif
