/* Completions and chats: from body to job to answer. */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "serve/answer_json.h"
#include "serve/http.h"

static void resume(void *connection)
{
    MHD_resume_connection(connection);
}

/* "cmpl-" or "chatcmpl-" and 96 random bits. */
static void make_id(job *j)
{
    uint32_t r[3] = {0};
    if (getrandom(r, sizeof r, 0) < 0) r[0] = (uint32_t)j->created_unix_s; /* an id, not a secret */
    snprintf(j->id, sizeof j->id, "%s-%08x%08x%08x", j->request.chat ? "chatcmpl" : "cmpl", r[0], r[1], r[2]);
}

static void make_seed(request *r)
{
    if (r->has_seed || getrandom(&r->params.sampling.seed, sizeof r->params.sampling.seed, 0) > 0) return;
    r->params.sampling.seed = (uint64_t)(uintptr_t)r;
}

/* From bytes to a job that the engine has. */
static int submit(exchange *x, job *j, bool chat, api_error *e)
{
    const served_model *m = &x->s->model;
    int n_vocab = m->m->params.n_vocab;
    int rc = request_parse(&j->request, chat, strbuf_cstr(&x->body), x->body.n_bytes, n_vocab, e);
    strbuf_deinit(&x->body); /* all that is needed of it has been copied */
    make_id(j);
    make_seed(&j->request);
    if (rc == 0) rc = job_prepare(j, m, e);
    if (rc == 0 && x->watched) watch_answering(x->s->watch, x->watched, j);
    return rc ? rc : engine_loop_submit(x->s->loop, j, e);
}

static enum MHD_Result start(exchange *x, job *j, bool chat)
{
    api_error e;
    if (!j) api_error_nomem(&e);
    if (!j || submit(x, j, chat, &e)) {
        job_unref(j);
        return http_error(x, &e);
    }
    x->job = j;
    return MHD_YES;
}

static enum MHD_Result whole(exchange *x)
{
    strbuf b;
    strbuf_init(&b, 0);
    answer_whole(&b, x->job, &x->s->model);
    return http_reply(x, 200, "application/json", &b);
}

/* Answers if the job is so far, else waits. */
static enum MHD_Result answer(exchange *x)
{
    job *j = x->job;
    if (atomic_load(&j->gone)) return MHD_NO;
    pthread_mutex_lock(&j->lock);
    job_state state = j->state;
    bool ready = state == JOB_DONE || state == JOB_FAILED || (state == JOB_STARTED && j->request.stream);
    if (!ready) http_wait(x);
    pthread_mutex_unlock(&j->lock);
    if (!ready) return MHD_YES;
    if (state == JOB_FAILED) return http_error(x, &j->error);
    return j->request.stream ? stream_begin(x) : whole(x);
}

static enum MHD_Result generate(exchange *x, bool chat)
{
    if (x->job) return answer(x);
    enum MHD_Result done = start(x, job_new(resume), chat);
    return x->job ? answer(x) : done;
}

enum MHD_Result handle_completion(exchange *x)
{
    return generate(x, false);
}

enum MHD_Result handle_chat(exchange *x)
{
    return generate(x, true);
}

/* The engine's thread writes the report. */
enum MHD_Result handle_kv(exchange *x)
{
    api_error e;
    if (!x->job) {
        job *j = job_new(resume);
        if (!j) api_error_nomem(&e);
        if (j) {
            j->is_report = true;
            j->audit = MHD_lookup_connection_value(x->connection, MHD_GET_ARGUMENT_KIND, "audit") != NULL;
        }
        if (!j || engine_loop_submit(x->s->loop, j, &e)) {
            job_unref(j);
            return http_error(x, &e);
        }
        x->job = j;
    }
    job *j = x->job;
    pthread_mutex_lock(&j->lock);
    bool ready = j->state == JOB_DONE;
    if (!ready) http_wait(x);
    pthread_mutex_unlock(&j->lock);
    return ready ? http_reply(x, 200, "application/json", &j->report) : MHD_YES;
}
