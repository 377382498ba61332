/* http.h - inside the server: one exchange (a request and its response) and what answers it.
 *
 *      headers --exchange_begin: route, key, length--> body --> handler --> response
 *                       \--401, 404, 405, 413               \--> suspended ... resumed --> handler again
 *
 * X1 A handler is called once when the request is whole, and again each time that its connection is resumed, until it
 *    has answered.
 * X2 The HTTP thread does nothing that takes long: bodies are read, and whole answers are written, by workers.
 * X3 Every response has a time to be fetched, from which each block of a long one takes a new beginning (watch.h).
 * Threads: the HTTP thread.
 */
#ifndef KVASIR_SERVE_HTTP_H
#define KVASIR_SERVE_HTTP_H

#include <microhttpd.h>
#include <stdatomic.h>

#include "serve/auth.h"
#include "serve/engine_loop.h"
#include "serve/server.h"
#include "serve/watch.h"
#include "serve/workers.h"

typedef enum server_state { SERVER_LOADING, SERVER_READY, SERVER_DRAINING } server_state;

struct server {
    server_config config;
    auth *keys;
    watch *watch;
    metrics figures;
    struct MHD_Daemon *daemon;
    int port;
    _Atomic int state; /* what follows is constant once it is not LOADING */
    served_model model;
    tmpl *template;
    engine_loop *loop;
    workers *workers;
    /* Before and after a run. */
    pthread_mutex_t lock;
    bool drain_asked;
    double drain_s;
};

typedef struct exchange {
    server *s;
    struct MHD_Connection *connection;
    watched *watched;
    const struct route *route;
    const char *path;
    api_error refused; /* seen in the headers, told when the request is whole */
    strbuf body;
    job *job;
    bool writing; /* a worker writes the job's answer, or has done so */
    strbuf out;   /* a long answer, or what is sent next of a stream */
    /* A stream. */
    size_t out_sent;
    bool ended;
} exchange;

typedef enum route_time { ALWAYS, ONCE_LOADED, WHILE_READY } route_time;

typedef struct route {
    const char *method, *path; /* a path that ends with a slash is a prefix */
    bool open;                 /* no key is asked for */
    route_time when;
    enum MHD_Result (*handle)(exchange *x);
} route;

/* MHD's callbacks; cls is the server. */
enum MHD_Result http_access(void *cls, struct MHD_Connection *connection, const char *url, const char *method,
                            const char *version, const char *upload, size_t *upload_size, void **state);
void http_completed(void *cls, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode how);
void http_connection(void *cls, struct MHD_Connection *connection, void **socket_context,
                     enum MHD_ConnectionNotificationCode how);

/* Responds with the buffer's bytes, which are taken over; where it has failed the connection is closed. */
enum MHD_Result http_reply(exchange *x, int code, const char *type, strbuf *b);
enum MHD_Result http_error(exchange *x, const api_error *e);
/* Headers that every response has, then the response itself, which is given up. */
enum MHD_Result http_queue(exchange *x, int code, const char *type, struct MHD_Response *r);
/* Suspends the connection until the job has something for it. With the job's lock. */
void http_wait(exchange *x);
void http_resume(void *connection); /* a job's */
/* Gives the body and a new job (NULL: memory is short) to the workers, and suspends the connection. */
enum MHD_Result http_offload(exchange *x, job *j);
/* Responds with the job, which is ANSWERED or FAILED. */
enum MHD_Result http_answer(exchange *x);
/* A whole handler: a worker answers with what fn makes of the request. */
enum MHD_Result http_convert(exchange *x, request_kind kind, job_convert fn);

/* Refuses what a request says beside its body and nobody would obey (415, 400). */
int query_check(const exchange *x, api_error *e);
/* A parameter of the address that is 1 (or empty) or 0; false without it. */
int query_flag(const exchange *x, const char *name, bool *out, api_error *e);

/* Handlers. */
enum MHD_Result handle_completion(exchange *x);
enum MHD_Result handle_chat(exchange *x);
enum MHD_Result handle_kv(exchange *x);
enum MHD_Result handle_template(exchange *x);
enum MHD_Result handle_tokenize(exchange *x);
enum MHD_Result handle_detokenize(exchange *x);
enum MHD_Result handle_models(exchange *x);
enum MHD_Result handle_model(exchange *x);
enum MHD_Result handle_health(exchange *x);
enum MHD_Result handle_ready(exchange *x);
enum MHD_Result handle_metrics(exchange *x);
/* Sends a job's answer as it grows. */
enum MHD_Result stream_begin(exchange *x);

#endif
