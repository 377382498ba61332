/* workers.h - threads for what would hold the HTTP thread up: they parse, render, tokenize, and write whole answers.
 *
 * Owns: the threads, two queues of jobs. Borrows: the model.
 *
 *      HTTP thread --submit--> small [j][j][j] --any worker---------\
 *                    | full    large [j][j]    --all but the first---+--> job->work --job_wake--> HTTP thread
 *                    \--> 429                                        |
 *                                                                    \--(a prompt's)--> engine_loop_submit
 *
 * Y1 A job that was taken is worked on or FAILED, and its connection is woken, whatever happens.
 * Y2 A large job never delays a small one: the first worker takes none.
 * Y3 A job that is cancelled while it waits is not worked on, and takes no place from others.
 * The end: once the engine's loop has ended it refuses what is still prepared (503); workers_stop fails what waits; then no
 * connection is suspended any more, and libmicrohttpd can be stopped.
 * Threads: submit by any; stop and free by one.
 */
#ifndef KVASIR_SERVE_WORKERS_H
#define KVASIR_SERVE_WORKERS_H

#include "serve/job.h"

typedef struct workers workers;

/* queue: the most that wait of each kind; queue_bytes: of the large ones together. */
int workers_new(workers **out, const served_model *m, int queue, size_t queue_bytes, status *st);
/* Takes a reference; bytes: what there is to work on. Returns 0; 429 when the queue is full, 503 after workers_stop. */
int workers_submit(workers *w, job *j, size_t bytes, api_error *e);
/* The same for the next piece of work of a job that had been taken: there always is room. */
int workers_submit_next(workers *w, job *j, size_t bytes, api_error *e);
void workers_stop(workers *w); /* NULL is fine */
void workers_free(workers *w); /* NULL is fine; stops them */

#endif
