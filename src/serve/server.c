#include "serve/server.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "serve/http.h"

#define RECEIVED_BODIES 16             /* of the largest size, that come in at once */
#define QUEUED_BODIES 4                /* of the largest size, that wait for a worker */
#define UNSENT_ANSWERS 4               /* of the largest size, that are being fetched */
#define SPARE_BYTES ((size_t)64 << 10) /* what every connection may hold */
#define FLUSH_MS 2000                  /* for responses that are ready when the engine is done */

server_config server_defaults(void)
{
    return (server_config){.host = "127.0.0.1",
                           .port = 8080,
                           .max_connections = 1024,
                           .max_body_bytes = (size_t)16 << 20,
                           .max_header_bytes = (size_t)32 << 10,
                           .request_timeout_s = 60,
                           .body_grace_s = 5,
                           .body_rate_bytes_s = 1024,
                           .comment_interval_s = 5,
                           .work_queue = 512};
}

static int bind_one(const struct addrinfo *a, int *out)
{
    int on = 1, fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0) return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 1024) == 0) {
        *out = fd;
        return 0;
    }
    int failed = errno;
    close(fd);
    return failed;
}

static int bound_port(int fd)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    char port[16] = "0";
    if (getsockname(fd, (struct sockaddr *)&a, &n) == 0)
        getnameinfo((struct sockaddr *)&a, n, NULL, 0, port, sizeof port, NI_NUMERICSERV);
    return atoi(port);
}

static int open_socket(server *s, int *fd, status *st)
{
    char port[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *found;
    snprintf(port, sizeof port, "%d", s->config.port);
    int rc = getaddrinfo(s->config.host, port, &hints, &found);
    if (rc)
        return status_set(st, ST_IO, STATUS_NO_POS, "%s is no address to listen on: %s", s->config.host,
                          gai_strerror(rc));
    rc = EADDRNOTAVAIL;
    for (const struct addrinfo *a = found; a && rc; a = a->ai_next) rc = bind_one(a, fd);
    freeaddrinfo(found);
    if (rc)
        return status_set(st, ST_IO, STATUS_NO_POS, "%s port %d can't be listened on: %s%s", s->config.host,
                          s->config.port, strerror(rc), rc == EADDRINUSE ? "; --port 0 takes one that is free" : "");
    s->port = bound_port(*fd);
    return ST_OK;
}

static int start_daemon(server *s, status *st)
{
    int fd = -1;
    if (open_socket(s, &fd, st)) return st->code;
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME;
    s->daemon = MHD_start_daemon(flags, 0, NULL, NULL, http_access, s, /* the socket is its from here on */
                                 MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_COMPLETED, http_completed, s,
                                 MHD_OPTION_NOTIFY_CONNECTION, http_connection, s, MHD_OPTION_CONNECTION_LIMIT,
                                 (unsigned)s->config.max_connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                                 s->config.max_header_bytes, MHD_OPTION_END);
    if (s->daemon) return ST_OK;
    close(fd);
    return status_set(st, ST_IO, STATUS_NO_POS, "the HTTP server can't be started: %s", strerror(errno));
}

int server_new(server **out, const server_config *c, status *st)
{
    server *s = mem_calloc(1, sizeof *s);
    if (!s) return status_nomem(st, sizeof *s);
    s->config = *c;
    metrics_init(&s->figures);
    pthread_mutex_init(&s->lock, NULL);
    watch_limits limits = {.request_s = c->request_timeout_s,
                           .grace_s = c->body_grace_s,
                           .rate = c->body_rate_bytes_s,
                           .bodies_bytes = RECEIVED_BODIES * c->max_body_bytes,
                           .answers_bytes = UNSENT_ANSWERS * JOB_MAX_ANSWER_BYTES,
                           .spare_bytes = SPARE_BYTES,
                           .send_s = c->request_timeout_s,
                           .comment_s = c->comment_interval_s};
    if ((c->api_key_file && auth_load(&s->keys, c->api_key_file, st)) ||
        watch_new(&s->watch, &limits, &s->figures, st) || start_daemon(s, st)) {
        server_free(s);
        return st->code;
    }
    *out = s;
    return ST_OK;
}

int server_port(const server *s)
{
    return s->port;
}

static size_t longest_piece(const tokenizer *t)
{
    size_t most = 1;
    for (int32_t id = 0; id < tokenizer_vocab_size(t); id++) {
        gguf_str name = tokenizer_piece(t, id, true);
        if (name.n > most) most = name.n;
    }
    return most;
}

static int fill_model(server *s, const engine *e, const server_model *m, status *st)
{
    const char *source = m->chat_template;
    if (source && tmpl_parse(&s->template, source, strlen(source), st))
        return status_prefix(st, "the chat template (--chat-template FILE gives another)");
    s->model = (served_model){.m = engine_model(e),
                              .template = s->template,
                              .name = m->names[0],
                              .rules = {.n_vocab = engine_model(e)->params.n_vocab,
                                        .names = m->names,
                                        .chat_template = source,
                                        .lenient = s->config.lenient,
                                        .min_priority = s->config.min_priority},
                              .knows_developer = source && strstr(source, "developer"),
                              .allow_parse_special = s->config.allow_parse_special,
                              .created_unix_s = (int64_t)time(NULL),
                              .context = engine_context(e),
                              .longest_piece = longest_piece(engine_model(e)->tok),
                              .max_choices = m->max_choices};
    return ST_OK;
}

int server_open(server *s, engine *e, const server_model *m, status *st)
{
    if (fill_model(s, e, m, st) ||
        workers_new(&s->workers, &s->model, s->config.work_queue, QUEUED_BODIES * s->config.max_body_bytes, st) ||
        engine_loop_new(&s->loop, e, &s->model, &s->figures, s->config.log, st))
        return st->code;
    pthread_mutex_lock(&s->lock);
    if (s->drain_asked) engine_loop_drain(s->loop, s->drain_s);
    atomic_store(&s->state, s->drain_asked ? SERVER_DRAINING : SERVER_READY);
    pthread_mutex_unlock(&s->lock);
    return ST_OK;
}

void server_run(server *s)
{
    engine_loop_run(s->loop);
    /* The engine is done; what it made may still be on its way. */
    for (int ms = 0; ms < FLUSH_MS && watch_n_answering(s->watch) > 0; ms += 10)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

void server_drain(server *s, double timeout_s)
{
    pthread_mutex_lock(&s->lock);
    s->drain_asked = true;
    s->drain_s = timeout_s;
    if (atomic_load(&s->state) != SERVER_LOADING) {
        atomic_store(&s->state, SERVER_DRAINING);
        engine_loop_drain(s->loop, timeout_s);
    }
    pthread_mutex_unlock(&s->lock);
}

void server_free(server *s)
{
    if (!s) return;
    workers_stop(s->workers); /* no connection is suspended any more */
    if (s->daemon) MHD_stop_daemon(s->daemon);
    watch_free(s->watch);
    workers_free(s->workers);
    engine_loop_free(s->loop);
    tmpl_free(s->template);
    auth_free(s->keys);
    metrics_deinit(&s->figures);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}
