/* Completions and chats: what workers do of them, from body to job, and from job to answer. */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "serve/answer_json.h"
#include "serve/http.h"

/* "cmpl-" or "chatcmpl-" and 96 random bits. */
static void make_id(job *j)
{
    uint32_t r[3] = {0};
    if (getrandom(r, sizeof r, 0) < 0) r[0] = (uint32_t)j->created_unix_s; /* an id, not a secret */
    snprintf(j->id, sizeof j->id, "%s-%08x%08x%08x", j->kind == REQUEST_CHAT ? "chatcmpl" : "cmpl", r[0], r[1], r[2]);
}

/* From bytes to a job that the engine has. */
static int prepare(job *j, const served_model *m, api_error *e)
{
    uint64_t *seed = &j->request.params.sampling.seed;
    int rc = request_parse(&j->request, j->kind, &m->rules, strbuf_cstr(&j->body), j->body.n_bytes, e);
    strbuf_deinit(&j->body); /* all that is needed of it has been copied */
    make_id(j);
    if (!j->request.has_seed && getrandom(seed, sizeof *seed, 0) <= 0) *seed = (uint64_t)(uintptr_t)j;
    if (rc == 0 && !atomic_load(&j->cancelled)) rc = job_prepare(j, m, e);
    request_forget_json(&j->request); /* here, not where the job ends: that may be the HTTP thread */
    if (rc) return rc;
    job_set_state(j, JOB_QUEUED);
    return engine_loop_submit(j->loop, j, e);
}

static int write_answer(job *j, const served_model *m, api_error *e)
{
    strbuf b;
    strbuf_init(&b, JOB_MAX_ANSWER_BYTES);
    answer_whole(&b, j, m);
    return job_take_answer(j, &b, "ask for fewer choices or logprobs, or for a stream", e);
}

/* About as much as there is to write. */
static size_t answer_bytes(const job *j)
{
    size_t n = 0;
    for (size_t i = 0; i < j->n_choices; i++) {
        const token_record *r = &j->choices[i].tokens;
        n += j->choices[i].text.n_bytes + (r->n + r->n_tops) * 32;
    }
    for (size_t i = 0; i < j->n_prompts && j->request.echo; i++)
        n += (j->prompts[i].n_bytes + (j->prompts[i].tokens.n + j->prompts[i].tokens.n_tops) * 32) *
             (size_t)j->request.n;
    return n;
}

/* The sessions are over: the answer is to be written, which the exchange has done once. */
static void write_whole(exchange *x)
{
    api_error e;
    if (x->writing) return;
    x->writing = true;
    x->job->work = write_answer;
    if (workers_submit_next(x->s->workers, x->job, answer_bytes(x->job), &e) == 0) return;
    job_fail(x->job, &e);
    job_wake(x->job);
}

static enum MHD_Result generate(exchange *x, request_kind kind)
{
    job *j = x->job;
    if (!j) {
        j = job_new(http_resume);
        if (j) j->kind = kind, j->work = prepare, j->loop = x->s->loop;
        return http_offload(x, j);
    }
    if (atomic_load(&j->gone)) return MHD_NO;
    pthread_mutex_lock(&j->lock);
    job_state state = j->state;
    bool stream = state > JOB_QUEUED && j->request.stream;
    bool ready = state == JOB_ANSWERED || state == JOB_FAILED || stream;
    if (!ready) http_wait(x);
    pthread_mutex_unlock(&j->lock);
    if (state == JOB_DONE && !stream) write_whole(x);
    if (!ready) return MHD_YES;
    return state == JOB_FAILED || state == JOB_ANSWERED ? http_answer(x) : stream_begin(x);
}

enum MHD_Result handle_completion(exchange *x)
{
    return generate(x, REQUEST_COMPLETION);
}

enum MHD_Result handle_chat(exchange *x)
{
    return generate(x, REQUEST_CHAT);
}
