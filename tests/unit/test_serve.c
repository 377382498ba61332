/* The whole server over a tiny model: HTTP thread, engine's thread and clients' threads in one process, for the
 * sanitizers; and with allocations that fail. What it answers with a real model is tested end to end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "sanitized.h"
#include "serve_rig.h"
#include "tiny_model.h"

static int start(void **state)
{
    *state = serve_start(server_defaults());
    return 0;
}

static int stop(void **state)
{
    serve_stop(*state);
    return 0;
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
    const serve_rig *s = *state;
    static const char body[] =
        "{\"prompt\": \"hello there\", \"max_tokens\": 12, \"ignore_eos\": true, \"temperature\": 0}";
    json_t *one = serve_json(s, "/v1/completions", body), *two = serve_json(s, "/v1/completions", body);
    assert_int_equal(number(one, "usage", "prompt_tokens"), 11);
    assert_int_equal(number(one, "usage", "completion_tokens"), 12);
    assert_string_equal(text_of(one, 0), text_of(two, 0));
    json_decref(one);
    json_decref(two);
    char *chat = serve_ask(s, "POST", "/v1/chat/completions",
                     "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"max_tokens\": 4, \"stream\": true, "
                     "\"ignore_eos\": true, \"logprobs\": true, \"top_logprobs\": 2}");
    assert_int_equal(serve_code(chat), 200);
    assert_non_null(strstr(chat, "\"role\":\"assistant\""));
    assert_non_null(strstr(chat, "data: [DONE]"));
    free(chat);
}

static void test_choices_fork(void **state)
{
    const serve_rig *s = *state;
    json_t *v = serve_json(s, "/v1/completions",
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
    const serve_rig *s = *state;
    static const struct {
        const char *method, *path, *body;
        int code;
        const char *error;
    } cases[] = {
        {"POST", "/v1/completions", "{", 400, "invalid_json"},
        {"POST", "/v1/completions", "{\"prompt\": \"a\", \"n\": 0}", 400, "invalid_value"},
        {"POST", "/v1/completions", "{\"prompt\": \"a\", \"n\": 25}", 400, "invalid_value"},
        {"POST", "/v1/completions", "{\"prompt\": \"a\", \"max_tokens\": 128}", 400, "context_length_exceeded"},
        {"POST", "/v1/chat/completions", "{\"messages\": []}", 400, "invalid_value"},
        {"GET", "/v1/completions", "", 405, "method_not_allowed"},
        {"GET", "/nowhere", "", 404, "not_found"},
        {"POST", "/tokenize", "{}", 400, "missing_required_parameter"},
        {"POST", "/detokenize", "{\"tokens\": [264]}", 400, "invalid_value"},
        {"GET", "/health", "", 200, NULL},
        {"GET", "/ready", "", 200, NULL},
        {"GET", "/metrics", "", 200, NULL},
        {"GET", "/v1/models", "", 200, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *answer = serve_ask(s, cases[i].method, cases[i].path, cases[i].body);
        assert_int_equal(serve_code(answer), cases[i].code);
        if (cases[i].code == 200) free(answer);
        else serve_expect_error(answer, cases[i].code, cases[i].error);
    }
}

#define CLIENTS 6
#define ROUNDS (SANITIZED ? 6 : 30)

/* Streams, whole answers, forks, departures and nonsense, in an order of its own. */
static void *client(void *arg)
{
    const serve_rig *s = ((void **)arg)[0];
    uint64_t random = (uint64_t)(uintptr_t)((void **)arg)[1];
    for (int i = 0; i < ROUNDS; i++) {
        char body[512];
        int kind = (int)(tiny_random(&random) % 5);
        snprintf(body, sizeof body,
                 "{\"prompt\": \"a shared beginning, then %d\", \"max_tokens\": %d, \"n\": %d, \"stream\": %s, "
                 "\"ignore_eos\": true, \"priority\": %d}",
                 (int)(tiny_random(&random) % 4), kind == 4 ? 90 : 8, kind == 2 ? 3 : 1, kind % 2 ? "true" : "false",
                 kind);
        int fd = serve_send(s, "POST", "/v1/completions", kind == 3 ? body + 1 : body);
        char part[64];
        if (kind == 4 && recv(fd, part, sizeof part, MSG_DONTWAIT) != 0) {
            close(fd);
            continue;
        }
        char *answer = serve_receive(fd);
        int code = serve_code(answer);
        assert_true(code == (kind == 3 ? 400 : 200) || (code == 429 && strstr(answer, "Retry-After")));
        if (code == 200) assert_non_null(strstr(answer, "\"finish_reason\":\"length\""));
        free(answer);
    }
    return NULL;
}

static void test_many_threads_of_clients(void **state)
{
    const serve_rig *s = *state;
    pthread_t t[CLIENTS];
    const void *args[CLIENTS][2];
    for (int i = 0; i < CLIENTS; i++) {
        args[i][0] = s;
        args[i][1] = (void *)(uintptr_t)(i + 1);
        assert_int_equal(pthread_create(&t[i], NULL, client, args[i]), 0);
    }
    for (int i = 0; i < CLIENTS; i++) pthread_join(t[i], NULL);
    serve_wait_until_idle(s);
}

/* Whichever allocation fails, the client is told or the connection closed, nothing leaks, and the next one is served. */
static void test_failing_allocations(void **state)
{
    const serve_rig *s = *state;
    static const struct {
        const char *path, *body;
    } cases[] = {
        {"/v1/completions", "{\"prompt\": \"no memory\", \"max_tokens\": 3, \"n\": 2, \"logprobs\": 2, \"echo\": true, "
                            "\"ignore_eos\": true}"},
        {"/v1/completions", "{\"prompt\": [7, 8], \"max_tokens\": 3, \"stream\": true, \"stop\": \"zz\", "
                            "\"stream_options\": {\"include_usage\": true}}"},
        {"/v1/chat/completions", "{\"messages\": [{\"role\": \"user\", \"content\": \"no memory\"}], \"max_tokens\": 2}"},
        {"/tokenize", "{\"content\": \"a text of some words, which takes several steps to tokenize\"}"},
        {"/detokenize", "{\"tokens\": [97, 98, 99, 100]}"},
        {"/v1/kv?audit=1", ""},
    };
    for (size_t b = 0; b < sizeof cases / sizeof *cases; b++)
        for (int n = 1; n <= 60; n++) {
            const char *method = *cases[b].body ? "POST" : "GET";
            mem_fail_after(n);
            char *answer = serve_ask(s, method, cases[b].path, cases[b].body);
            mem_fail_after(0);
            int code = serve_code(answer);
            if (code == 503) serve_expect_error(answer, 503, "out_of_memory");
            else {
                if (code && code != 200) fail_msg("%s, allocation %d: %s", cases[b].path, n, answer);
                free(answer);
            }
            answer = serve_ask(s, method, cases[b].path, cases[b].body);
            assert_int_equal(serve_code(answer), 200);
            free(answer);
        }
    serve_wait_until_idle(s);
}

/* An answer that fails is an error: the only answer before a stream has begun, and else its last event, before which
 * nothing says that a choice has failed. */
static void test_failures_inside_a_step(void **state)
{
    serve_rig *s = *state;
    int n_streams = 0;
    for (int i = 0; i < 60; i++) {
        atomic_store(&s->waits_left, 1 + 10 * i);
        char *answer = serve_ask(s, "POST", "/v1/completions",
                                 "{\"prompt\": [7, 8], \"max_tokens\": 120, \"stream\": true, \"n\": 2, "
                                 "\"ignore_eos\": true}");
        assert_int_equal(atomic_load(&s->waits_left), 0);
        const char *event = strstr(answer, "data: {\"error\"");
        if (serve_code(answer) == 500) {
            serve_expect_error(answer, 500, NULL);
            continue;
        }
        assert_int_equal(serve_code(answer), 200);
        assert_non_null(event);
        assert_non_null(strstr(event, "did not come"));
        assert_null(strstr(event + 1, "data: "));
        assert_null(strstr(answer, "\"finish_reason\":\"error\""));
        assert_null(strstr(answer, "\"finish_reason\":\"cancelled\""));
        free(answer);
        n_streams++;
    }
    assert_true(n_streams > 0);
    serve_wait_until_idle(s);
}

/* Answers that are cut off are told so; the cache tells its state meanwhile. */
static void test_drain(void **state)
{
    serve_rig *r = serve_start(server_defaults());
    int fd = serve_send(r, "POST", "/v1/completions",
                        "{\"prompt\": \"a\", \"max_tokens\": 100, \"ignore_eos\": true, \"n\": 24}");
    for (bool begun = false; !begun;) {
        json_t *v = serve_json(r, "/v1/kv", "");
        begun = json_array_size(json_object_get(v, "sequences")) == 24;
        json_decref(v);
    }
    server_drain(r->s, 0);
    serve_expect_error(serve_receive(fd), 503, "shutting_down");
    serve_expect_error(serve_ask(r, "POST", "/tokenize", "{\"content\": \"a\"}"), 503, "shutting_down");
    json_t *v = serve_json(r, "/v1/kv?audit=1", "");
    const char *audit = json_string_value(json_object_get(v, "audit")); /* is the engine still there? */
    assert_true(strcmp(audit, "clean") == 0 || strcmp(audit, "not made yet") == 0);
    json_decref(v);
    serve_stop(r);
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
        cmocka_unit_test(test_failures_inside_a_step),
    };
    const struct CMUnitTest alone[] = {cmocka_unit_test(test_drain)};
    return cmocka_run_group_tests(tests, start, stop) + cmocka_run_group_tests(alone, NULL, NULL);
}
