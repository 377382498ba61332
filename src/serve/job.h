/* job.h - one request on its way: what is asked, and what has been answered so far.
 *
 * Owns: the body, the request, its prompts' tokens, the choices' texts. Shared by threads, and freed by the last of them:
 *
 *      HTTP thread          a worker                     engine's thread
 *      submit ------------> parse, render, tokenize ---> start sessions
 *      suspended            lock                         tokens, at each step: choice.text, choice.tokens
 *      resumed: send what is new of a stream <- job_wake - after the step (much that is new a worker writes)
 *      resumed ------------> write a whole answer
 *      resumed: send it <---
 *      client gone: cancelled: isn't worked on --------> cancel sessions, before the next step
 *      unref                unref                        unref, when no session is left
 *
 *      READING --prepared--> QUEUED --engine took it--> STARTED --last session over--> DONE --written--> ANSWERED
 *        |  \------------------\---------------------------\--it can't be answered--> FAILED
 *        \--what needs no engine (/tokenize, ...)--> ANSWERED
 *
 * JB1 What stands below `lock` is read and written with the lock; what stands above is the worker's while READING, and
 *    constant from then on; the rest belongs to the thread that is named.
 * JB2 `waiting` or `parked` is set exactly while the connection is suspended; who takes it out resumes it.
 * Lock order: a job's lock is taken last, but for libmicrohttpd's own, which suspending and resuming takes.
 */
#ifndef KVASIR_SERVE_JOB_H
#define KVASIR_SERVE_JOB_H

#include <pthread.h>
#include <stdatomic.h>

#include "serve/choice.h"
#include "serve/request.h"
#include "serve/served.h"

#define JOB_MAX_ANSWER_BYTES ((size_t)64 << 20)

typedef enum job_state { JOB_READING, JOB_QUEUED, JOB_STARTED, JOB_DONE, JOB_ANSWERED, JOB_FAILED } job_state;

typedef struct job_prompt {
    const char *text; /* for echo */
    size_t n_bytes;
    token_list ids;
    token_record tokens; /* under the lock: their logprobs, all but the first one's */
} job_prompt;

typedef struct job job;

/* What a worker does next. Returns 0 or the HTTP status of the error that ends the job. */
typedef int (*job_work)(job *j, const served_model *m, api_error *e);
/* An answer that needs no engine. */
typedef int (*job_convert)(strbuf *out, const request *r, const served_model *m, api_error *e);

struct job {
    strbuf body;       /* until it has been parsed */
    size_t work_bytes; /* about as much as there is to work on */
    job_work work;
    job_convert convert;
    struct engine_loop *loop;
    request_kind kind;
    request request;
    job_prompt *prompts;
    size_t n_prompts;
    choice *choices; /* [n_prompts][request.best_of] */
    size_t n_choices;
    char id[40];
    int64_t created_unix_s, submitted_ns;
    void (*resume)(void *connection);

    pthread_mutex_t lock;
    job_state state;
    api_error error;  /* FAILED */
    size_t n_open;    /* choices that still grow */
    void *waiting;    /* the suspended connection, or NULL */
    void *parked;     /* the same while a worker writes a stream's events: nobody but the worker resumes it */
    bool comment_due; /* it has been silent for long */
    int64_t last_output_ns;
    strbuf answer; /* ANSWERED; of a stream, events to be sent next */
    bool told_end; /* they are the last ones */

    _Atomic int refs;
    _Atomic bool cancelled; /* the engine shall drop it */
    _Atomic bool gone;      /* its client has left */

    /* The workers' queue, which a stream enters while the engine runs it; the engine's thread: its lists. */
    job *next_work;
    job *next, *next_dirty;
    bool dirty;
};

/* With one reference. NULL when memory is short. */
job *job_new(void (*resume)(void *connection));
job *job_ref(job *j);
void job_unref(job *j); /* NULL is fine */
/* Tokenizes what the request goes on from and makes room for its choices. Returns 0 or an HTTP status. */
int job_prepare(job *j, const served_model *m, api_error *e);
/* Resumes the connection if it waits. Not under the lock. */
void job_wake(job *j);
/* Who waits for a worker waits as others do: to be woken. */
void job_unpark(job *j);
/* Ends it with an error: for whoever waits. */
void job_fail(job *j, const api_error *e);
void job_fail_locked(job *j, const api_error *e); /* under the lock */
/* Ends it with an answer, whose bytes are taken over, or says why that can't be; advice: what makes it smaller. */
int job_take_answer(job *j, strbuf *answer, const char *advice, api_error *e);
/* Reached before any other thread can take it further. */
void job_set_state(job *j, job_state state);

#endif
