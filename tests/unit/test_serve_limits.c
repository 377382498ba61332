/* What clients may cost: the size of a JSON text, the memory of bodies and answers, the time of the slow. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "sanitized.h"
#include "serve/json_limits.h"
#include "serve_rig.h"

#define MIB ((size_t)1 << 20)

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

static char *filled(size_t n, const char *unit)
{
    size_t k = strlen(unit);
    char *text = malloc(n * k + 1);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++) memcpy(text + i * k, unit, k);
    text[n * k] = 0;
    return text;
}

static void expect_limit(const char *text, const char *code)
{
    api_error e = {.http_status = 0};
    int rc = json_check_limits(text, strlen(text), &e);
    if (!code) assert_int_equal(rc, 0);
    else {
        assert_int_equal(rc, 400);
        assert_string_equal(e.code, code);
    }
}

static void test_values_and_depth_are_counted(void **state)
{
    (void)state;
    char *text = filled(JSON_MAX_VALUES, ",");
    expect_limit(text, NULL);
    free(text);
    static const char *const units[] = {",", ":", "[]", "{}"};
    for (size_t i = 0; i < 4; i++) {
        text = filled(JSON_MAX_VALUES + 1, units[i]);
        expect_limit(text, "too_many_values");
        free(text);
    }
    for (size_t i = 0; i < 2; i++) {
        text = filled(JSON_MAX_DEPTH, i ? "{" : "[");
        expect_limit(text, NULL);
        free(text);
        text = filled(JSON_MAX_DEPTH + 1, i ? "{" : "[");
        expect_limit(text, "too_deep");
        free(text);
    }
}

/* What stands in a string is text, however it is escaped and wherever it ends. */
static void test_strings_are_no_structure(void **state)
{
    (void)state;
    static const char *const before[] = {"\"", "\"\\\"", "\"\\\\\\\"", "{\"a\":\"x"};
    static const char *const after[] = {"\"", "", "\\", "\\\"", "\\\\\""};
    char *inner = filled(JSON_MAX_VALUES + 1, "[");
    char *text = malloc(JSON_MAX_VALUES + 64);
    for (size_t i = 0; i < sizeof before / sizeof *before; i++)
        for (size_t k = 0; k < sizeof after / sizeof *after; k++) {
            snprintf(text, JSON_MAX_VALUES + 64, "%s%s%s", before[i], inner, after[k]);
            expect_limit(text, NULL);
        }
    snprintf(text, JSON_MAX_VALUES + 64, "\"\\\\\"%s", inner); /* the string has ended */
    expect_limit(text, "too_deep");
    free(text);
    free(inner);
}

static void send_all(int fd, const char *bytes, size_t n)
{
    for (ssize_t k; n > 0 && (k = send(fd, bytes, n, MSG_NOSIGNAL)) > 0; n -= (size_t)k) bytes += k;
}

static bool has_answer(int fd)
{
    return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) == 1;
}

/* Z1: those who hold the most pay, and nobody else: not who comes last, not who holds little. */
static void test_dribblers_refuse_nobody(void **state)
{
    (void)state;
    enum { N = 20, N_KEPT = 15 }; /* of 16 MiB, some are taken by the one that holds little */
    server_config c = server_defaults();
    c.max_body_bytes = MIB;
    serve_rig *r = serve_start(c);
    int fds[N];
    char *body = filled(MIB - 1, " ");
    int few = serve_send_head(r, "POST", "/tokenize", 64 << 10);
    send_all(few, body, (64 << 10) - 1);
    for (int i = 0; i < N; i++) {
        fds[i] = serve_send_head(r, "POST", "/tokenize", MIB);
        send_all(fds[i], body, MIB - 1);
        json_t *v = serve_json(r, "/tokenize", "{\"content\": \"hello there\"}");
        assert_int_equal(json_integer_value(json_object_get(v, "count")), 11);
        json_decref(v);
    }
    int n_open = N;
    while (n_open > N_KEPT) { /* the last of what was sent is still being read */
        n_open = 0;
        for (int i = 0; i < N; i++) n_open += !has_answer(fds[i]);
        nap();
    }
    assert_false(has_answer(few));
    for (int i = 0; i < N; i++)
        if (has_answer(fds[i])) serve_expect_error(serve_receive(fds[i]), 503, "overloaded");
        else { /* who was let in is answered when he is done */
            send_all(fds[i], " ", 1);
            serve_expect_error(serve_receive(fds[i]), 400, "invalid_json");
        }
    assert_int_equal(n_open, N_KEPT);
    close(few);
    free(body);
    serve_stop(r);
}

static void test_slow_bodies(void **state)
{
    (void)state;
    server_config c = server_defaults();
    c.body_grace_s = 0.1;
    c.body_rate_bytes_s = 1e6;
    serve_rig *r = serve_start(c);
    int fd = serve_send_head(r, "POST", "/v1/completions", 1000);
    send_all(fd, "{\"prompt\"", 9);
    serve_expect_error(serve_receive(fd), 408, "request_too_slow");
    serve_stop(r);
    c = server_defaults();
    c.request_timeout_s = 0.5;
    r = serve_start(c);
    fd = serve_send_head(r, "POST", "/v1/completions", 1000);
    send_all(fd, "{\"prompt\"", 9);
    serve_expect_error(serve_receive(fd), 408, "request_timeout");
    serve_stop(r);
}

/* Of an answer of megabytes, whose client doesn't read on. */
static void test_unfetched_answers_are_dropped(void **state)
{
    (void)state;
    server_config c = server_defaults();
    c.request_timeout_s = 0.5;
    serve_rig *r = serve_start(c);
    char *text = filled(MIB, "a"), *body = malloc(MIB + 64);
    snprintf(body, MIB + 64, "{\"content\": \"%s\"}", text);
    uint64_t before = mem_stats().bytes;
    int fd = serve_send(r, "POST", "/tokenize", body);
    char start[13] = "";
    assert_int_equal(recv(fd, start, 12, MSG_WAITALL), 12); /* it is there */
    assert_string_equal(start, "HTTP/1.1 200");
    while (mem_stats().bytes > before + MIB) nap(); /* it has gone */
    char *answer = serve_receive(fd);
    assert_non_null(strstr(answer, "{\"tokens\":["));
    assert_null(strstr(answer, "\"count\":"));
    free(answer);
    free(body);
    free(text);
    serve_stop(r);
}

/* Reports tell what was found, and however often they are asked for, that costs a bounded part of the time. */
static void test_audits(void **state)
{
    (void)state;
    serve_rig *r = serve_start(server_defaults());
    int fd = serve_send(r, "POST", "/v1/completions",
                        "{\"prompt\": \"a\", \"max_tokens\": 100, \"ignore_eos\": true, \"n\": 24}");
    for (int i = 0; i < 50; i++) {
        json_t *v = serve_json(r, "/v1/kv?audit=1", "");
        assert_string_equal(json_string_value(json_object_get(v, "audit")), "clean");
        assert_true(json_real_value(json_object_get(v, "audit_age_s")) >= 0);
        json_decref(v);
        v = serve_json(r, "/v1/kv", "");
        assert_null(json_object_get(v, "audit"));
        json_decref(v);
    }
    char *answer = serve_receive(fd);
    assert_int_equal(serve_code(answer), 200);
    free(answer);
    serve_stop(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_and_depth_are_counted), cmocka_unit_test(test_strings_are_no_structure),
        cmocka_unit_test(test_dribblers_refuse_nobody),      cmocka_unit_test(test_slow_bodies),
        cmocka_unit_test(test_unfetched_answers_are_dropped), cmocka_unit_test(test_audits),
    };
    return cmocka_run_group_tests_name("serve_limits", tests, NULL, NULL);
}
