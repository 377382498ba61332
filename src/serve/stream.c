/* Server-sent events: an answer as it grows. */
#include <string.h>

#include "base/clock.h"
#include "serve/answer_json.h"
#include "serve/http.h"

#define BLOCK_BYTES 16384

/* What there is to send now goes to x->out; nothing: the connection waits. With the job's lock. */
static void collect(exchange *x)
{
    job *j = x->job;
    strbuf_clear(&x->out);
    x->out_sent = 0;
    bool all = j->state == JOB_FAILED || answer_chunks(&x->out, j, &x->s->model);
    if (all && (j->state == JOB_DONE || j->state == JOB_FAILED)) {
        answer_last(&x->out, j, &x->s->model);
        x->ended = true;
    } else if (x->out.n_bytes == 0 && j->comment_due) strbuf_puts(&x->out, ": keep-alive\n\n");
    j->comment_due = false;
    if (x->out.n_bytes) j->last_output_ns = clock_ns();
    else if (!x->out.failed) http_wait(x);
}

static ssize_t read_stream(void *cls, uint64_t pos, char *to, size_t max)
{
    exchange *x = cls;
    (void)pos;
    if (x->out_sent == x->out.n_bytes) {
        if (x->ended) return MHD_CONTENT_READER_END_OF_STREAM;
        if (atomic_load(&x->job->gone)) return MHD_CONTENT_READER_END_WITH_ERROR;
        pthread_mutex_lock(&x->job->lock);
        collect(x);
        pthread_mutex_unlock(&x->job->lock);
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
