/* Responses, and the exchanges whose work leaves the HTTP thread. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "serve/http.h"

#define BLOCK_BYTES 16384 /* of a long answer at a time: each one has the time to send it anew */

/* Browsers of the origin that was named may read the response. */
static void add_cors(const exchange *x, struct MHD_Response *r)
{
    const char *allowed = x->s->config.cors_origin;
    if (!allowed) return;
    MHD_add_response_header(r, "Access-Control-Allow-Origin", allowed);
    if (strcmp(allowed, "*") != 0) MHD_add_response_header(r, "Vary", "Origin");
}

enum MHD_Result http_queue(exchange *x, int code, const char *type, struct MHD_Response *r)
{
    if (!r) return MHD_NO;
    if (type) MHD_add_response_header(r, "Content-Type", type);
    add_cors(x, r);
    if (x->job && *x->job->request.ignored) MHD_add_response_header(r, "X-Kvasir-Ignored", x->job->request.ignored);
    bool open = watch_sending(x->s->watch, x->watched, x->out.n_bytes);
    if (open) metrics_response(&x->s->figures, code);
    enum MHD_Result done = !open ? MHD_NO : MHD_queue_response(x->connection, (unsigned)code, r);
    MHD_destroy_response(r);
    return done;
}

static struct MHD_Response *response_of(strbuf *b)
{
    size_t n = 0;
    char *bytes = strbuf_take(b, &n);
    strbuf_deinit(b);
    if (!bytes) return NULL;
    struct MHD_Response *r = MHD_create_response_from_buffer_with_free_callback(n, bytes, mem_free);
    if (!r) mem_free(bytes);
    return r;
}

static ssize_t read_answer(void *cls, uint64_t pos, char *to, size_t max)
{
    exchange *x = cls;
    size_t left = x->out.n_bytes - (size_t)pos, n = left < max ? left : max;
    if (!watch_sending(x->s->watch, x->watched, x->out.n_bytes)) return MHD_CONTENT_READER_END_WITH_ERROR;
    memcpy(to, x->out.data + pos, n);
    return (ssize_t)n;
}

enum MHD_Result http_reply(exchange *x, int code, const char *type, strbuf *b)
{
    if (b->failed || b->n_bytes <= BLOCK_BYTES) return http_queue(x, code, type, response_of(b));
    x->out = *b;
    strbuf_init(b, 0);
    return http_queue(x, code, type,
                      MHD_create_response_from_callback(x->out.n_bytes, BLOCK_BYTES, read_answer, x, NULL));
}

/* Seconds until it may be worth another try: about as long as an answer takes. */
static void add_retry_after(exchange *x, struct MHD_Response *r)
{
    char text[16];
    double mean = metrics_mean(&x->s->figures, HISTOGRAM_E2E);
    snprintf(text, sizeof text, "%d", mean < 1 ? 1 : mean > 60 ? 60 : (int)mean);
    MHD_add_response_header(r, "Retry-After", text);
}

enum MHD_Result http_error(exchange *x, const api_error *e)
{
    strbuf b;
    strbuf_init(&b, 0);
    api_error_json(e, &b);
    struct MHD_Response *r = response_of(&b);
    if (!r) return MHD_NO;
    if (e->http_status == 429 || e->http_status == 503) add_retry_after(x, r);
    if (e->http_status == 401) MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    if (e->http_status == 405) {
        MHD_add_response_header(r, "Allow", strcmp(x->route->method, "GET") == 0 ? "GET, HEAD" : "POST");
    }
    return http_queue(x, e->http_status, "application/json", r);
}

void http_wait(exchange *x)
{
    x->job->waiting = x->connection;
    MHD_suspend_connection(x->connection);
}

void http_resume(void *connection)
{
    MHD_resume_connection(connection);
}

enum MHD_Result http_offload(exchange *x, job *j)
{
    api_error e;
    int rc;
    if (!j) rc = api_error_nomem(&e);
    else {
        size_t n_bytes = x->body.n_bytes;
        j->body = x->body;
        strbuf_init(&x->body, 0);
        watch_working(x->s->watch, x->watched, j);
        x->job = j;
        pthread_mutex_lock(&j->lock);
        http_wait(x);
        pthread_mutex_unlock(&j->lock);
        rc = workers_submit(x->s->workers, j, n_bytes, &e);
    }
    if (rc == 0) return MHD_YES;
    if (!j) return http_error(x, &e);
    job_fail(j, &e);
    job_wake(j);
    return MHD_YES;
}

enum MHD_Result http_answer(exchange *x)
{
    job *j = x->job;
    return j->state == JOB_FAILED ? http_error(x, &j->error) : http_reply(x, 200, "application/json", &j->answer);
}

static int convert(job *j, const served_model *m, api_error *e)
{
    strbuf b;
    strbuf_init(&b, JOB_MAX_ANSWER_BYTES);
    int rc = request_parse(&j->request, j->kind, &m->rules, strbuf_cstr(&j->body), j->body.n_bytes, e);
    strbuf_deinit(&j->body);
    if (rc == 0) rc = j->convert(&b, &j->request, m, e);
    request_forget_json(&j->request);
    if (rc == 0) return job_take_answer(j, &b, "send less at once", e);
    strbuf_deinit(&b);
    return rc;
}

enum MHD_Result http_convert(exchange *x, request_kind kind, job_convert fn)
{
    job *j = x->job;
    if (!j) {
        j = job_new(http_resume);
        if (j) j->kind = kind, j->work = convert, j->convert = fn;
        return http_offload(x, j);
    }
    if (atomic_load(&j->gone)) return MHD_NO;
    pthread_mutex_lock(&j->lock);
    bool ready = j->state == JOB_ANSWERED || j->state == JOB_FAILED;
    if (!ready) http_wait(x);
    pthread_mutex_unlock(&j->lock);
    if (!ready) return MHD_YES;
    return http_answer(x);
}
