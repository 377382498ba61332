/* Server-sent events: an answer as it grows. */
#include <string.h>

#include "base/clock.h"
#include "serve/answer_json.h"
#include "serve/http.h"

#define BLOCK_BYTES 16384
#define LARGE_BYTES ((size_t)64 << 10) /* more events than that are a worker's to write */

static void write_events(job *j, const served_model *m)
{
    bool all = j->state == JOB_FAILED || answer_chunks(&j->answer, j, m);
    if (!all || (j->state != JOB_DONE && j->state != JOB_FAILED)) return;
    answer_last(&j->answer, j, m);
    j->told_end = true;
}

static int write_much(job *j, const served_model *m, api_error *e)
{
    (void)e;
    pthread_mutex_lock(&j->lock);
    write_events(j, m);
    pthread_mutex_unlock(&j->lock);
    job_unpark(j);
    job_wake(j);
    return 0;
}

/* What there is to send now goes to x->out; nothing: the connection waits. Returns how much a worker has to write first;
 * 0 = none of that. With the job's lock. */
static size_t collect(exchange *x)
{
    job *j = x->job;
    strbuf_clear(&x->out);
    x->out_sent = 0;
    if (j->answer.n_bytes == 0 && !j->answer.failed) {
        size_t bytes = j->state == JOB_FAILED ? 0 : answer_chunks_bytes(j);
        if (bytes > LARGE_BYTES) {
            j->work = write_much;
            j->parked = x->connection;
            MHD_suspend_connection(x->connection);
            return bytes;
        }
        write_events(j, &x->s->model);
    }
    strbuf none = x->out;
    x->out = j->answer;
    j->answer = none;
    x->ended = j->told_end;
    if (x->out.n_bytes == 0 && j->comment_due) strbuf_puts(&x->out, ": keep-alive\n\n");
    j->comment_due = false;
    if (x->out.n_bytes) j->last_output_ns = clock_ns();
    else if (!x->out.failed) http_wait(x);
    return 0;
}

/* Where the workers have ended the stream ends with that. */
static void have_written(exchange *x, size_t bytes)
{
    api_error e;
    job *j = x->job;
    if (workers_submit_next(x->s->workers, j, bytes, &e) == 0) return;
    job_fail(j, &e);
    job_unpark(j);
    job_wake(j);
}

static ssize_t read_stream(void *cls, uint64_t pos, char *to, size_t max)
{
    exchange *x = cls;
    (void)pos;
    if (x->out_sent == x->out.n_bytes) {
        if (x->ended) return MHD_CONTENT_READER_END_OF_STREAM;
        if (atomic_load(&x->job->gone)) return MHD_CONTENT_READER_END_WITH_ERROR;
        pthread_mutex_lock(&x->job->lock);
        size_t bytes = collect(x);
        pthread_mutex_unlock(&x->job->lock);
        if (bytes) have_written(x, bytes);
    }
    if (x->out.n_bytes == 0) watch_waiting(x->s->watch, x->watched);
    else if (!watch_sending(x->s->watch, x->watched, x->out.n_bytes)) return MHD_CONTENT_READER_END_WITH_ERROR;
    if (x->out.failed) return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t left = x->out.n_bytes - x->out_sent, n = left < max ? left : max;
    if (n) memcpy(to, x->out.data + x->out_sent, n);
    x->out_sent += n;
    return (ssize_t)n;
}

enum MHD_Result stream_begin(exchange *x)
{
    struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_stream, x, NULL);
    if (!r) return MHD_NO;
    MHD_add_response_header(r, "Cache-Control", "no-cache");
    MHD_add_response_header(r, "X-Accel-Buffering", "no"); /* proxies pass events on at once */
    return http_queue(x, 200, "text/event-stream; charset=utf-8", r);
}
