/* engine_loop.h - the one thread that owns the engine: takes jobs in, steps while there is work, sleeps otherwise.
 *
 * Owns: the sessions, the list of running jobs. Borrows: engine, metrics.
 *
 *      submit --> incoming --start--> running --step, step, ...--> done --> wake the connection
 *                                        ^ cancelled by a flag, looked at before each step
 *
 * EL1 Only the thread in engine_loop_run touches the engine.
 * EL2 A job that was submitted ends DONE or FAILED, and its connection is woken, whatever happens.
 * EL3 Idle, it sleeps on a condition; nothing ticks.
 * Threads: run by one; submit and drain by any.
 */
#ifndef KVASIR_SERVE_ENGINE_LOOP_H
#define KVASIR_SERVE_ENGINE_LOOP_H

#include "base/log.h"
#include "serve/job.h"
#include "serve/metrics.h"

typedef struct engine_loop engine_loop;

int engine_loop_new(engine_loop **out, engine *e, const served_model *m, metrics *figures, const log_sink *log,
                    status *st);
void engine_loop_free(engine_loop *l); /* NULL is fine; after run */
/* Takes a reference. Returns 0; 429 when the queue is full, 503 when the server drains. */
int engine_loop_submit(engine_loop *l, job *j, api_error *e);
/* The state of the cache as it was after the last step, as JSON: at once, whatever the engine is at, and also after its
 * end. With the last audit's result, if that is wanted. */
void engine_loop_report(engine_loop *l, bool with_audit, strbuf *out);
/* The job is DONE, and its connection woken, when blocks and references have been recounted between two steps. That
 * takes at most a twentieth of the engine's time: where it was just done, it isn't done again. */
void engine_loop_audit(engine_loop *l, job *j);
/* Until it is drained. */
void engine_loop_run(engine_loop *l);
/* No new jobs from now on; those that are there may go on for timeout_s, then they are cancelled. A second call can
 * only shorten that. */
void engine_loop_drain(engine_loop *l, double timeout_s);

#endif
