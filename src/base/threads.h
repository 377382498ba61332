/* threads.h - a team of workers that runs one function over many units, again and again.
 *
 * Owns: n - 1 threads; the caller of threads_run is worker 0.
 *
 *      threads_run(t, fn, arg, 100, 4)
 *          worker 0: [0..4) [8..12) ...      each worker begins with a run of `grain` units of its own, then claims
 *          worker 1: [4..8) [12..16) ...     the next until none is left; the call returns when all are done
 *
 * TH1 fn must give the same result whoever runs a unit (units write disjoint outputs): only a worker's first run of
 *    units is determined.
 * TH2 Between runs workers spin for a short while, then park on a futex: idle costs nothing.
 * TH3 threads_run is a full barrier: what was written before it is seen inside, what was written inside is seen after
 *    it.
 * Threads: one caller at a time; fn must not call threads_run on the same team.
 */
#ifndef KVASIR_BASE_THREADS_H
#define KVASIR_BASE_THREADS_H

#include <stdint.h>

#include "base/status.h"

#define THREADS_MAX 256

typedef struct threads threads;
typedef void threads_fn(void *arg, int begin, int end, int worker);

/* n: 1..THREADS_MAX workers, the caller included. Free with threads_free (NULL is fine). */
int threads_new(threads **out, int n, status *st);
void threads_free(threads *t);
/* Ties each worker, the caller as well, to a processor of its own, if the team is as large as the set of processors
 * that the caller may use; else does nothing. By the thread that calls threads_run, which threads_available then gives
 * one processor; undone by threads_resize and threads_free. */
void threads_pin(threads *t);
/* Between runs only. On failure the team keeps the workers that it has. */
int threads_resize(threads *t, int n, status *st);
int threads_count(const threads *t);
/* Runs fn over [0, n_units) in pieces of at most grain (>= 1) units. */
void threads_run(threads *t, threads_fn *fn, void *arg, int n_units, int grain);
/* From now on the time that the caller waits for the others, at the end of each run, is added to *ns; NULL = not
 * measured. */
void threads_time_waits(threads *t, int64_t *ns);
/* Processors that this process may run on (sched_getaffinity). */
int threads_available(void);

#endif
