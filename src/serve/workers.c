#include "serve/workers.h"

#include <string.h>

#include "base/mem.h"

#define N_WORKERS 2
#define SMALL_BYTES ((size_t)64 << 10)

/* A queue. */
typedef struct lane {
    job *first, **end;
    int n, limit;
    size_t n_bytes, limit_bytes;
} lane;

typedef struct worker {
    workers *all;
    bool takes_large;
    pthread_t thread;
} worker;

struct workers {
    const served_model *m;
    worker threads[N_WORKERS];
    int n_threads;
    pthread_mutex_t lock; /* the next ones */
    pthread_cond_t work;
    lane small, large;
    bool quit;
};

static void shutting_down(api_error *e)
{
    api_error_set(e, 503, "shutting_down", NULL, "the server is shutting down");
}

static void push(lane *l, job *j)
{
    j->next_work = NULL;
    *l->end = j;
    l->end = &j->next_work;
    l->n++;
    l->n_bytes += j->work_bytes;
}

static job *pop(lane *l)
{
    job *j = l->first;
    if (!j) return NULL;
    l->first = j->next_work;
    if (!l->first) l->end = &l->first;
    l->n--;
    l->n_bytes -= j->work_bytes;
    j->next_work = NULL;
    return j;
}

static bool has_room(const lane *l, size_t bytes)
{
    return l->n < l->limit && l->n_bytes + bytes <= l->limit_bytes;
}

/* A prompt that the engine has is no longer this worker's: nothing but its state may be looked at. */
static void finish(job *j, const api_error *e)
{
    if (e) {
        job_fail(j, e);
        job_unpark(j);
    }
    pthread_mutex_lock(&j->lock);
    bool over = j->state == JOB_ANSWERED || j->state == JOB_FAILED;
    pthread_mutex_unlock(&j->lock);
    if (over) job_wake(j);
    job_unref(j);
}

static void work_on(const workers *w, job *j)
{
    api_error e;
    int rc;
    bool large = j->work_bytes > SMALL_BYTES; /* it leaves much free memory behind */
    if (!atomic_load(&j->cancelled)) rc = j->work(j, w->m, &e);
    else {
        shutting_down(&e); /* or its client has left, and is told nothing */
        rc = e.http_status;
    }
    finish(j, rc ? &e : NULL);
    if (large) mem_trim();
}

static void *run(void *arg)
{
    const worker *me = arg;
    workers *w = me->all;
    for (;;) {
        job *j = NULL;
        pthread_mutex_lock(&w->lock);
        while (!w->quit && !(j = pop(&w->small)) && !(me->takes_large && (j = pop(&w->large))))
            pthread_cond_wait(&w->work, &w->lock);
        pthread_mutex_unlock(&w->lock);
        if (!j) return NULL;
        work_on(w, j);
    }
}

static void lane_init(lane *l, int limit, size_t limit_bytes)
{
    *l = (lane){.end = &l->first, .limit = limit, .limit_bytes = limit_bytes};
}

int workers_new(workers **out, const served_model *m, int queue, size_t queue_bytes, status *st)
{
    workers *w = mem_calloc(1, sizeof *w);
    if (!w) return status_nomem(st, sizeof *w);
    w->m = m;
    lane_init(&w->small, queue, SIZE_MAX);
    lane_init(&w->large, queue, queue_bytes);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->work, NULL);
    for (int i = 0; i < N_WORKERS; i++) {
        w->threads[i] = (worker){.all = w, .takes_large = i > 0};
        int rc = pthread_create(&w->threads[i].thread, NULL, run, &w->threads[i]);
        if (rc) {
            workers_free(w);
            return status_set(st, ST_IO, STATUS_NO_POS, "a thread can't be started: %s", strerror(rc));
        }
        w->n_threads++;
    }
    *out = w;
    return ST_OK;
}

/* Takes the cancelled ones out: they are `dropped`, a list. */
static void sweep(lane *l, lane *dropped)
{
    lane kept;
    lane_init(&kept, 0, 0);
    for (job *j; (j = pop(l));) push(atomic_load(&j->cancelled) ? dropped : &kept, j);
    for (job *j; (j = pop(&kept));) push(l, j);
}

static void fail_all(lane *l, const api_error *e)
{
    for (job *j; (j = pop(l));) finish(j, e);
}

static int submit(workers *w, job *j, size_t bytes, bool always, api_error *e)
{
    int rc = 0;
    lane dropped;
    lane_init(&dropped, 0, 0);
    j->work_bytes = bytes;
    pthread_mutex_lock(&w->lock);
    lane *l = bytes <= SMALL_BYTES ? &w->small : &w->large;
    if (!has_room(l, bytes)) sweep(l, &dropped);
    if (w->quit) {
        shutting_down(e);
        rc = e->http_status;
    } else if (!always && !has_room(l, bytes))
        rc = api_error_set(e, 429, "queue_full", NULL, "%d requests (%zu bytes) wait to be read; try again later", l->n,
                           l->n_bytes);
    else {
        push(l, job_ref(j));
        pthread_cond_broadcast(&w->work);
    }
    pthread_mutex_unlock(&w->lock);
    api_error left;
    shutting_down(&left);
    fail_all(&dropped, &left);
    return rc;
}

int workers_submit(workers *w, job *j, size_t bytes, api_error *e)
{
    return submit(w, j, bytes, false, e);
}

int workers_submit_next(workers *w, job *j, size_t bytes, api_error *e)
{
    return submit(w, j, bytes, true, e);
}

void workers_stop(workers *w)
{
    if (!w) return;
    api_error e;
    shutting_down(&e);
    pthread_mutex_lock(&w->lock);
    w->quit = true;
    pthread_cond_broadcast(&w->work);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->n_threads; i++) pthread_join(w->threads[i].thread, NULL);
    w->n_threads = 0;
    fail_all(&w->small, &e);
    fail_all(&w->large, &e);
}

void workers_free(workers *w)
{
    if (!w) return;
    workers_stop(w);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->work);
    mem_free(w);
}
