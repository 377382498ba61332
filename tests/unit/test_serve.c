/* The whole server over a tiny model: HTTP thread, engine's thread and clients' threads in one process, for the
 * sanitizers; and with allocations that fail. What it answers with a real model is tested end to end. */
#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/mem.h"
#include "serve/server.h"
#include "tiny_model.h"

typedef struct fixture {
    threads *team;
    model *m;
    engine *e;
    server *s;
    pthread_t thread;
} fixture;

static void *serve(void *arg)
{
    server_run(arg);
    return NULL;
}

static int start(void **state)
{
    fixture *f = mem_calloc(1, sizeof *f);
    tiny_config t = tiny_llama();
    status st = STATUS_INIT;
    t.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}";
    assert_int_equal(threads_new(&f->team, 2, &st), ST_OK);
    f->m = tiny_load(&t, kernels_get(CPU_AUTO), f->team);
    engine_config c = {.context = 128, .n_sessions = 24, .n_running = 6, .chunk = 64, .kv_memory_bytes = 1 << 20};
    assert_int_equal(engine_new(&f->e, f->m, f->team, &c, &st), ST_OK);
    server_config config = server_defaults();
    config.port = 0;
    assert_int_equal(server_new(&f->s, &config, &st), ST_OK);
    static const char *const names[] = {"tiny", NULL};
    server_model m = {.names = names, .chat_template = f->m->chat_template, .max_choices = 24};
    assert_int_equal(server_open(f->s, f->e, &m, &st), ST_OK);
    assert_int_equal(pthread_create(&f->thread, NULL, serve, f->s), 0);
    *state = f;
    return 0;
}

static int stop(void **state)
{
    fixture *f = *state;
    server_drain(f->s, 10);
    pthread_join(f->thread, NULL);
    server_free(f->s);
    status st = STATUS_INIT;
    assert_int_equal(kv_cache_audit(engine_cache(f->e), &st), ST_OK);
    assert_int_equal(engine_n_active(f->e), 0);
    engine_free(f->e);
    model_free(f->m);
    threads_free(f->team);
    mem_free(f);
    return 0;
}

static int connect_to(const server *s)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)server_port(s)),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static int send_request(const server *s, const char *method, const char *path, const char *body)
{
    char text[4096];
    int fd = connect_to(s);
    int n =
        snprintf(text, sizeof text, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
                 method, path, strlen(body), body);
    assert_true(n > 0 && (size_t)n < sizeof text);
    assert_int_equal(send(fd, text, (size_t)n, MSG_NOSIGNAL), n);
    return fd;
}

/* Everything until the server closes; free with free. */
static char *receive(int fd)
{
    size_t n = 0, capacity = 1 << 20;
    char *text = malloc(capacity);
    for (ssize_t k; n + 1 < capacity && (k = recv(fd, text + n, capacity - n - 1, 0)) > 0;) n += (size_t)k;
    text[n] = 0;
    close(fd);
    return text;
}

static char *ask(const server *s, const char *method, const char *path, const char *body)
{
    return receive(send_request(s, method, path, body));
}

static int code_of(const char *answer)
{
    int code = 0;
    sscanf(answer, "HTTP/1.1 %d", &code);
    return code;
}

/* The JSON of a 200; json_decref. */
static json_t *ask_json(const server *s, const char *path, const char *body)
{
    char *answer = ask(s, *body ? "POST" : "GET", path, body);
    assert_int_equal(code_of(answer), 200);
    json_t *v = json_loads(strstr(answer, "\r\n\r\n") + 4, JSON_ALLOW_NUL, NULL);
    assert_non_null(v);
    free(answer);
    return v;
}

static long long number(const json_t *v, const char *a, const char *b)
{
    return json_integer_value(json_object_get(json_object_get(v, a), b));
}

static const char *text_of(const json_t *v, size_t i)
{
    return json_string_value(json_object_get(json_array_get(json_object_get(v, "choices"), i), "text"));
}

static void test_answers(void **state)
{
    const server *s = ((fixture *)*state)->s;
    static const char body[] =
        "{\"prompt\": \"hello there\", \"max_tokens\": 12, \"ignore_eos\": true, \"temperature\": 0}";
    json_t *one = ask_json(s, "/v1/completions", body), *two = ask_json(s, "/v1/completions", body);
    assert_int_equal(number(one, "usage", "prompt_tokens"), 11);
    assert_int_equal(number(one, "usage", "completion_tokens"), 12);
    assert_string_equal(text_of(one, 0), text_of(two, 0));
    json_decref(one);
    json_decref(two);
    char *chat = ask(s, "POST", "/v1/chat/completions",
                     "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"max_tokens\": 4, \"stream\": true, "
                     "\"ignore_eos\": true, \"logprobs\": true, \"top_logprobs\": 2}");
    assert_int_equal(code_of(chat), 200);
    assert_non_null(strstr(chat, "\"role\":\"assistant\""));
    assert_non_null(strstr(chat, "data: [DONE]"));
    free(chat);
}

static void test_choices_fork(void **state)
{
    const server *s = ((fixture *)*state)->s;
    json_t *v = ask_json(s, "/v1/completions",
                         "{\"prompt\": [\"one prompt\", \"another prompt\"], \"n\": 3, \"best_of\": 5, \"seed\": 7, "
                         "\"max_tokens\": 6, \"echo\": true, \"ignore_eos\": true}");
    assert_int_equal(json_array_size(json_object_get(v, "choices")), 6);
    assert_int_equal(number(v, "usage", "completion_tokens"), 60);
    for (size_t i = 0; i < 6; i++)
        assert_ptr_equal(strstr(text_of(v, i), i < 3 ? "one prompt" : "another"), text_of(v, i));
    json_decref(v);
}

static void test_refusals(void **state)
{
    const server *s = ((fixture *)*state)->s;
    static const struct {
        const char *method, *path, *body;
        int code;
    } cases[] = {
        {"POST", "/v1/completions", "{", 400},
        {"POST", "/v1/completions", "{\"prompt\": \"a\", \"n\": 0}", 400},
        {"POST", "/v1/completions", "{\"prompt\": \"a\", \"n\": 25}", 400},
        {"POST", "/v1/completions", "{\"prompt\": \"a\", \"max_tokens\": 128}", 400},
        {"POST", "/v1/chat/completions", "{\"messages\": []}", 400},
        {"GET", "/v1/completions", "", 405},
        {"GET", "/nowhere", "", 404},
        {"POST", "/tokenize", "{}", 400},
        {"POST", "/detokenize", "{\"tokens\": [264]}", 400},
        {"GET", "/health", "", 200},
        {"GET", "/ready", "", 200},
        {"GET", "/metrics", "", 200},
        {"GET", "/v1/models", "", 200},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *answer = ask(s, cases[i].method, cases[i].path, cases[i].body);
        assert_int_equal(code_of(answer), cases[i].code);
        free(answer);
    }
}

/* Until no answer is being made; then no block is held. */
static void wait_until_idle(const server *s)
{
    for (;;) {
        json_t *v = ask_json(s, "/v1/kv", "");
        const json_t *group = json_array_get(json_object_get(v, "groups"), 0);
        bool idle = json_array_size(json_object_get(v, "sequences")) == 0;
        if (idle) assert_int_equal(number(group, "blocks", "in_use"), 0);
        json_decref(v);
        if (idle) return;
    }
}

#define CLIENTS 6
#define ROUNDS (SANITIZED ? 6 : 30)

/* Streams, whole answers, forks, departures and nonsense, in an order of its own. */
static void *client(void *arg)
{
    const server *s = ((void **)arg)[0];
    uint64_t random = (uint64_t)(uintptr_t)((void **)arg)[1];
    for (int i = 0; i < ROUNDS; i++) {
        char body[512];
        int kind = (int)(tiny_random(&random) % 5);
        snprintf(body, sizeof body,
                 "{\"prompt\": \"a shared beginning, then %d\", \"max_tokens\": %d, \"n\": %d, \"stream\": %s, "
                 "\"ignore_eos\": true, \"priority\": %d}",
                 (int)(tiny_random(&random) % 4), kind == 4 ? 90 : 8, kind == 2 ? 3 : 1, kind % 2 ? "true" : "false",
                 kind);
        int fd = send_request(s, "POST", "/v1/completions", kind == 3 ? body + 1 : body);
        char part[64];
        if (kind == 4 && recv(fd, part, sizeof part, MSG_DONTWAIT) != 0) {
            close(fd);
            continue;
        }
        char *answer = receive(fd);
        int code = code_of(answer);
        assert_true(code == (kind == 3 ? 400 : 200) || (code == 429 && strstr(answer, "Retry-After")));
        if (code == 200) assert_non_null(strstr(answer, "\"finish_reason\":\"length\""));
        free(answer);
    }
    return NULL;
}

static void test_many_threads_of_clients(void **state)
{
    const server *s = ((fixture *)*state)->s;
    pthread_t t[CLIENTS];
    const void *args[CLIENTS][2];
    for (int i = 0; i < CLIENTS; i++) {
        args[i][0] = s;
        args[i][1] = (void *)(uintptr_t)(i + 1);
        assert_int_equal(pthread_create(&t[i], NULL, client, args[i]), 0);
    }
    for (int i = 0; i < CLIENTS; i++) pthread_join(t[i], NULL);
    wait_until_idle(s);
}

/* Whichever allocation fails, the client is told or let go, and the next one is served. */
static void test_failing_allocations(void **state)
{
    const server *s = ((fixture *)*state)->s;
    static const char *const bodies[] = {"{\"prompt\": \"no memory\", \"max_tokens\": 3, \"n\": 2, \"logprobs\": 2, "
                                         "\"echo\": true, \"ignore_eos\": true}",
                                         "{\"prompt\": [7, 8], \"max_tokens\": 3, \"stream\": true, \"stop\": \"zz\", "
                                         "\"stream_options\": {\"include_usage\": true}}"};
    for (size_t b = 0; b < 2; b++)
        for (int n = 1; n <= 60; n++) {
            mem_fail_after(n);
            char *answer = ask(s, "POST", "/v1/completions", bodies[b]);
            mem_fail_after(0);
            int code = code_of(answer);
            if (code && code != 200 && code != 503) fail_msg("allocation %d: %s", n, answer);
            free(answer);
            answer = ask(s, "POST", "/v1/completions", bodies[b]);
            assert_int_equal(code_of(answer), 200);
            free(answer);
        }
    wait_until_idle(s);
}

/* Answers that are cut off are told so. */
static void test_drain(void **state)
{
    void *own = NULL;
    start(&own);
    const server *s = ((fixture *)own)->s;
    int fd = send_request(s, "POST", "/v1/completions",
                          "{\"prompt\": \"a\", \"max_tokens\": 100, \"ignore_eos\": true, \"n\": 24}");
    char *ready = ask(s, "GET", "/v1/kv", ""); /* the engine's thread has seen the one before */
    free(ready);
    server_drain(((fixture *)own)->s, 0);
    char *answer = receive(fd);
    assert_true(code_of(answer) == 503 || code_of(answer) == 200);
    free(answer);
    stop(&own);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_choices_fork),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_many_threads_of_clients),
        cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_drain),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
