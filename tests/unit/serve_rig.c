#include "serve_rig.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "tiny_model.h"

static void *serve(void *arg)
{
    server_run(arg);
    return NULL;
}

static int kv_wait(void *user, int layer, const kv_seq *seq, status *st)
{
    serve_rig *r = user;
    (void)seq;
    if (atomic_load(&r->waits_left) == 0 || atomic_fetch_sub(&r->waits_left, 1) != 1) return ST_OK;
    return status_set(st, ST_TIMEOUT, STATUS_NO_POS, "layer %d did not come", layer);
}

serve_rig *serve_start(server_config config)
{
    uint64_t before = mem_stats().bytes;
    serve_rig *r = mem_calloc(1, sizeof *r);
    tiny_config t = tiny_llama();
    status st = STATUS_INIT;
    t.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}";
    assert_int_equal(threads_new(&r->team, 2, &st), ST_OK);
    r->bytes_before = before;
    r->m = tiny_load(&t, kernels_get(CPU_AUTO), r->team);
    engine_config c = {.context = 128, .n_sessions = 24, .n_running = 6, .chunk = 64, .kv_memory_bytes = 1 << 20,
                       .kv_wait = kv_wait, .kv_user = r};
    assert_int_equal(engine_new(&r->e, r->m, r->team, &c, &st), ST_OK);
    config.port = 0;
    assert_int_equal(server_new(&r->s, &config, &st), ST_OK);
    static const char *const names[] = {"tiny", NULL};
    server_model m = {.names = names, .chat_template = r->m->chat_template, .max_choices = 24};
    assert_int_equal(server_open(r->s, r->e, &m, &st), ST_OK);
    assert_int_equal(pthread_create(&r->thread, NULL, serve, r->s), 0);
    return r;
}

void serve_stop(serve_rig *r)
{
    status st = STATUS_INIT;
    uint64_t before = r->bytes_before;
    server_drain(r->s, 10);
    pthread_join(r->thread, NULL);
    server_free(r->s);
    assert_int_equal(kv_cache_audit(engine_cache(r->e), &st), ST_OK);
    assert_int_equal(engine_n_active(r->e), 0);
    engine_free(r->e);
    model_free(r->m);
    threads_free(r->team);
    mem_free(r);
    assert_int_equal(mem_stats().bytes, before);
}

int serve_connect(const serve_rig *r)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)server_port(r->s)),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

int serve_send_head(const serve_rig *r, const char *method, const char *path, size_t length)
{
    char text[256];
    int fd = serve_connect(r);
    int n = snprintf(text, sizeof text, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n",
                     method, path, length);
    assert_true(n > 0 && (size_t)n < sizeof text);
    assert_int_equal(send(fd, text, (size_t)n, MSG_NOSIGNAL), n);
    return fd;
}

int serve_send(const serve_rig *r, const char *method, const char *path, const char *body)
{
    size_t n = strlen(body);
    int fd = serve_send_head(r, method, path, n);
    for (ssize_t k; n > 0 && (k = send(fd, body, n, MSG_NOSIGNAL)) > 0; n -= (size_t)k) body += k;
    return fd;
}

char *serve_receive(int fd)
{
    size_t n = 0, capacity = 4096;
    char *text = malloc(capacity);
    for (ssize_t k; (k = recv(fd, text + n, capacity - n - 1, 0)) > 0;) {
        n += (size_t)k;
        if (capacity - n < 2) text = realloc(text, capacity *= 2);
    }
    text[n] = 0;
    close(fd);
    return text;
}

char *serve_ask(const serve_rig *r, const char *method, const char *path, const char *body)
{
    return serve_receive(serve_send(r, method, path, body));
}

int serve_code(const char *answer)
{
    int code = 0;
    sscanf(answer, "HTTP/1.1 %d", &code);
    return code;
}

static json_t *json_of(const char *answer)
{
    const char *body = strstr(answer, "\r\n\r\n");
    return body ? json_loads(body + 4, JSON_ALLOW_NUL, NULL) : NULL;
}

void serve_expect_error(char *answer, int http_status, const char *code)
{
    json_t *v = json_of(answer), *e = json_object_get(v, "error");
    const char *told = json_string_value(json_object_get(e, "code"));
    bool same = code ? told && strcmp(told, code) == 0 : json_is_null(json_object_get(e, "code"));
    bool whole = json_string_length(json_object_get(e, "message")) > 0 && json_is_string(json_object_get(e, "type")) &&
                 json_object_get(e, "param");
    if (serve_code(answer) != http_status || !same || !whole) fail_msg("not %d %s: %.300s", http_status, code, answer);
    json_decref(v);
    free(answer);
}

json_t *serve_json(const serve_rig *r, const char *path, const char *body)
{
    char *answer = serve_ask(r, *body ? "POST" : "GET", path, body);
    assert_int_equal(serve_code(answer), 200);
    json_t *v = json_of(answer);
    assert_non_null(v);
    free(answer);
    return v;
}

void serve_wait_until_idle(const serve_rig *r)
{
    for (bool idle = false; !idle;) {
        json_t *v = serve_json(r, "/v1/kv", "");
        const json_t *group = json_array_get(json_object_get(v, "groups"), 0);
        idle = json_array_size(json_object_get(v, "sequences")) == 0;
        if (idle) assert_int_equal(json_integer_value(json_object_get(json_object_get(group, "blocks"), "in_use")), 0);
        json_decref(v);
    }
}
