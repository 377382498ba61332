#include "serve/http.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "serve/refusal.h"

#define MAX_UNSENT_BYTES (64 << 10) /* that the system takes ahead of a client, which hide how slow it is */

static const route routes[] = {
    {"POST", "/v1/chat/completions", false, WHILE_READY, handle_chat},
    {"POST", "/v1/completions", false, WHILE_READY, handle_completion},
    {"GET", "/v1/models", false, ONCE_LOADED, handle_models},
    {"GET", "/v1/models/", false, ONCE_LOADED, handle_model},
    {"GET", "/v1/kv", false, ONCE_LOADED, handle_kv},
    {"POST", "/apply-template", false, WHILE_READY, handle_template},
    {"POST", "/tokenize", false, WHILE_READY, handle_tokenize},
    {"POST", "/detokenize", false, WHILE_READY, handle_detokenize},
    {"GET", "/health", true, ALWAYS, handle_health},
    {"GET", "/ready", true, ALWAYS, handle_ready},
    {"GET", "/metrics", false, ALWAYS, handle_metrics},
};

static const route *find_route(const char *path)
{
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        size_t n = strlen(routes[i].path);
        bool prefix = routes[i].path[n - 1] == '/';
        if (prefix ? strncmp(path, routes[i].path, n) == 0 && path[n] : strcmp(path, routes[i].path) == 0)
            return &routes[i];
    }
    return NULL;
}

static const char *header(const exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

/* A browser asks before it sends: what may it? */
static enum MHD_Result preflight(exchange *x)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (!r) return MHD_NO;
    MHD_add_response_header(r, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    MHD_add_response_header(r, "Access-Control-Allow-Headers", "Authorization, Content-Type");
    MHD_add_response_header(r, "Access-Control-Max-Age", "86400");
    return http_queue(x, 204, NULL, r);
}

static bool method_fits(const route *r, const char *method)
{
    return strcmp(r->method, method) == 0 || (strcmp(r->method, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

typedef struct framing {
    int n_lengths, n_codings;
    const char *coding;
} framing;

static enum MHD_Result read_framing(void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
    framing *f = cls;
    (void)kind;
    f->n_lengths += strcasecmp(name, "Content-Length") == 0;
    if (strcasecmp(name, "Transfer-Encoding") != 0) return MHD_YES;
    f->n_codings++;
    f->coding = value;
    return MHD_YES;
}

/* A body whose end a proxy may see elsewhere could hide a second request. */
static int check_framing(const exchange *x, api_error *e)
{
    framing f = {0};
    MHD_get_connection_values(x->connection, MHD_HEADER_KIND, read_framing, &f);
    if (f.n_lengths + f.n_codings > 1)
        return api_error_set(e, 400, "ambiguous_length", NULL,
                             "one Content-Length or one Transfer-Encoding can be given, not several of them");
    if (f.n_codings && (!f.coding || strcasecmp(f.coding, "chunked") != 0))
        return api_error_set(e, 400, "unsupported_coding", NULL, "the only Transfer-Encoding taken is chunked");
    return 0;
}

/* What can be said before the body has come. */
static int check_head(exchange *x, const char *method, api_error *e)
{
    const char *length = header(x, "Content-Length");
    if (!x->route) return api_error_set(e, 404, "not_found", NULL, "there is no %.200s here", x->path);
    if (!method_fits(x->route, method))
        return api_error_set(e, 405, "method_not_allowed", NULL, "%s takes %s", x->route->path, x->route->method);
    if (!x->route->open && !auth_allows(x->s->keys, header(x, "Authorization")))
        return api_error_set(e, 401, "invalid_api_key", NULL, "a valid API key is needed: Authorization: Bearer KEY");
    if (length && strtoull(length, NULL, 10) > x->s->config.max_body_bytes)
        return api_error_set(e, 413, "body_too_large", NULL, "the body has %.20s bytes; at most %zu are taken", length,
                             x->s->config.max_body_bytes);
    return query_check(x, e);
}

static int check_state(const exchange *x, api_error *e)
{
    int state = atomic_load(&x->s->state);
    if (x->route->when == ALWAYS || state == SERVER_READY) return 0;
    if (x->route->when == ONCE_LOADED && state == SERVER_DRAINING) return 0;
    return state == SERVER_LOADING ? api_error_set(e, 503, "loading", NULL, "the model is still being loaded")
                                   : api_error_set(e, 503, "shutting_down", NULL, "the server is shutting down");
}

static enum MHD_Result exchange_begin(server *s, struct MHD_Connection *connection, const char *url, const char *method,
                                      void **state)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    exchange *x = info && info->socket_context ? mem_calloc(1, sizeof *x) : NULL;
    if (!x) return MHD_NO;
    *x = (exchange){.s = s, .connection = connection, .watched = info->socket_context, .path = url};
    strbuf_init(&x->body, s->config.max_body_bytes);
    strbuf_init(&x->out, 0);
    *state = x;
    x->route = find_route(url);
    bool framed = !check_framing(x, &x->refused);
    if (framed && s->config.cors_origin && strcmp(method, "OPTIONS") == 0) return preflight(x);
    if (framed && !check_head(x, method, &x->refused)) return MHD_YES;
    /* A response before the body ends the connection, which spares the body. */
    bool has_body = header(x, "Content-Length") || header(x, "Transfer-Encoding");
    return has_body ? http_error(x, &x->refused) : MHD_YES;
}

/* A body without a stated length may never end: the connection is closed in the middle of it. */
static enum MHD_Result refuse_body(exchange *x)
{
    api_error e;
    if (x->body.over_limit)
        api_error_set(&e, 413, "body_too_large", NULL, "the body is too large; at most %zu bytes are taken",
                      x->s->config.max_body_bytes);
    else api_error_nomem(&e);
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info) refusal_write(info->connect_fd, &e, &x->s->figures);
    return MHD_NO;
}

static enum MHD_Result exchange_body(exchange *x, const char *bytes, size_t *n)
{
    strbuf_add(&x->body, bytes, *n);
    bool open = watch_body(x->s->watch, x->watched, *n);
    *n = 0;
    if (!open) return MHD_NO;
    return x->body.failed ? refuse_body(x) : MHD_YES;
}

/* The request is whole, or its connection was resumed. */
static enum MHD_Result exchange_handle(exchange *x)
{
    api_error e;
    if (!x->job && !watch_working(x->s->watch, x->watched, NULL)) return MHD_NO;
    if (x->refused.http_status) return http_error(x, &x->refused);
    if (!x->job && check_state(x, &e)) return http_error(x, &e);
    return x->route->handle(x);
}

enum MHD_Result http_access(void *cls, struct MHD_Connection *connection, const char *url, const char *method,
                            const char *version, const char *upload, size_t *upload_size, void **state)
{
    (void)version;
    if (!*state) return exchange_begin(cls, connection, url, method, state);
    if (*upload_size) return exchange_body(*state, upload, upload_size);
    return exchange_handle(*state);
}

void http_completed(void *cls, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode how)
{
    server *s = cls;
    exchange *x = *state;
    (void)connection;
    (void)how;
    if (!x) return;
    if (x->job) atomic_store(&x->job->cancelled, true); /* of no effect when it is done */
    watch_next(s->watch, x->watched);
    strbuf_deinit(&x->body);
    strbuf_deinit(&x->out);
    job_unref(x->job);
    mem_free(x);
    *state = NULL;
}

void http_connection(void *cls, struct MHD_Connection *connection, void **socket_context,
                     enum MHD_ConnectionNotificationCode how)
{
    server *s = cls;
    if (how == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (*socket_context) watch_remove(s->watch, *socket_context);
        *socket_context = NULL;
        return;
    }
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (!info) return;
    int unsent_bytes = MAX_UNSENT_BYTES;
    setsockopt(info->connect_fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_bytes, sizeof unsent_bytes);
    *socket_context = watch_add(s->watch, info->connect_fd);
    if (!*socket_context) shutdown(info->connect_fd, SHUT_RDWR); /* memory is short, and without a watch it could stay */
}
