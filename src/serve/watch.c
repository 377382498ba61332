#include "serve/watch.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "serve/refusal.h"

#define MAX_EVENTS 64
#define HANG_UP_SECONDS 2 /* for the HTTP thread to see what was sent before */

typedef enum watched_state { HEAD, BODY, WORKING, SENDING } watched_state;

struct watched {
    watched *next, **link;
    int fd;
    uint64_t number; /* epoll's name for it: never used twice */
    watched_state state;
    int64_t since_ns;   /* HEAD, BODY: its request began; WORKING; SENDING: this block */
    int64_t hung_up_ns; /* when its client stopped sending; 0 = it didn't */
    job *job;           /* a reference */
    bool shut, begun;  /* begun: something of the response has been written */
    size_t held_bytes; /* BODY, SENDING */
    /* BODY: at the last look. */
    size_t seen_bytes;
    int64_t seen_ns;
};

struct watch {
    watch_limits limits;
    metrics *figures;
    int epoll, event; /* event: something for the thread to look at */
    pthread_t thread;
    pthread_mutex_t lock; /* the next ones */
    watched *first;
    uint64_t last_number;
    int n_answering;
    size_t bodies_bytes, answers_bytes; /* that all connections hold */
    bool quit;
};

static void ring(watch *w)
{
    uint64_t one = 1;
    ssize_t ignored = write(w->event, &one, sizeof one); /* it can only be full, and then it rings already */
    (void)ignored;
}

/* Jobs to be woken once the lock is given back. */
typedef struct wake_list {
    job *jobs[MAX_EVENTS];
    int n;
} wake_list;

static void wake_all(wake_list *l)
{
    for (int i = 0; i < l->n; i++) {
        job_wake(l->jobs[i]);
        job_unref(l->jobs[i]);
    }
    l->n = 0;
}

static void hang_up(watch *w, uint64_t number, wake_list *l)
{
    for (watched *c = w->first; c; c = c->next) {
        if (c->number != number) continue;
        c->hung_up_ns = clock_ns();
        if (!c->job) return;
        atomic_store(&c->job->gone, true);
        atomic_store(&c->job->cancelled, true);
        l->jobs[l->n++] = job_ref(c->job);
        return;
    }
}

static double age(int64_t now, int64_t since)
{
    return (double)(now - since) * 1e-9;
}

static size_t *total_of(watch *w, watched_state s)
{
    return s == BODY ? &w->bodies_bytes : &w->answers_bytes;
}

/* In BODY and SENDING only anything is held. */
static void hold(watch *w, watched *c, size_t bytes)
{
    *total_of(w, c->state) += bytes - c->held_bytes;
    c->held_bytes = bytes;
}

static void enter(watch *w, watched *c, watched_state s)
{
    hold(w, c, 0);
    w->n_answering += (s >= WORKING) - (c->state >= WORKING);
    c->state = s;
    c->since_ns = clock_ns();
}

static void shut(watch *w, watched *c)
{
    shutdown(c->fd, SHUT_RDWR);
    c->shut = true;
    hold(w, c, 0);
}

/* With words, as long as nothing of a response has been written. */
static void refuse(watch *w, watched *c, const api_error *e)
{
    if (!c->begun) refusal_write(c->fd, e, w->figures);
    shut(w, c);
}

static watched *largest(const watch *w, watched_state s)
{
    watched *most = NULL;
    for (watched *c = w->first; c; c = c->next) {
        if (c->state != s || c->shut || c->held_bytes <= w->limits.spare_bytes) continue;
        if (!most || c->held_bytes > most->held_bytes ||
            (c->held_bytes == most->held_bytes && c->since_ns < most->since_ns))
            most = c;
    }
    return most;
}

/* Z1, after one in that state has come to hold more. */
static void bound(watch *w, watched_state s)
{
    size_t limit = s == BODY ? w->limits.bodies_bytes : w->limits.answers_bytes;
    api_error e;
    for (watched *c; *total_of(w, s) > limit && (c = largest(w, s));) {
        api_error_set(&e, 503, "overloaded", NULL,
                      "%s of all clients take more than %zu bytes, and this one's took the most; try again later",
                      s == BODY ? "the requests" : "the answers", limit);
        refuse(w, c, &e);
    }
}

/* It brings too little; else a new span begins. */
static bool is_slow(const watch *w, watched *c, int64_t now)
{
    double s = age(now, c->seen_ns);
    if (s < w->limits.grace_s) return false;
    bool slow = (double)(c->held_bytes - c->seen_bytes) < w->limits.rate * s;
    c->seen_bytes = c->held_bytes;
    c->seen_ns = now;
    return slow;
}

static void look_at_body(watch *w, watched *c, int64_t now)
{
    api_error e;
    bool late = age(now, c->since_ns) >= w->limits.request_s;
    if (!late && !is_slow(w, c, now)) return;
    if (late)
        api_error_set(&e, 408, "request_timeout", NULL, "the request took longer than %g s to come in",
                      w->limits.request_s);
    else
        api_error_set(&e, 408, "request_too_slow", NULL, "the body comes in at less than %g bytes a second",
                      w->limits.rate);
    refuse(w, c, &e);
}

static void look_at_job(const watch *w, job *j, int64_t now, wake_list *l)
{
    bool wake = false;
    if (pthread_mutex_trylock(&j->lock)) return; /* a worker may have it for long, and the watch's lock is held */
    double silent_s = age(now, j->last_output_ns);
    if (j->state == JOB_STARTED && j->waiting && j->request.stream && silent_s >= w->limits.comment_s)
        wake = j->comment_due = true;
    pthread_mutex_unlock(&j->lock);
    if (wake) l->jobs[l->n++] = job_ref(j);
}

/* What time has brought about for one connection. */
static void look_at(watch *w, watched *c, int64_t now, wake_list *l)
{
    if (c->shut) return;
    bool half = c->state <= BODY && c->hung_up_ns && age(now, c->hung_up_ns) >= HANG_UP_SECONDS;
    if (half) shut(w, c);
    else if (c->state == BODY) look_at_body(w, c, now);
    else if (c->state == HEAD && age(now, c->since_ns) >= w->limits.request_s) shut(w, c);
    else if (c->state == SENDING && age(now, c->since_ns) >= w->limits.send_s) shut(w, c);
    else if (c->state == WORKING && c->job) look_at_job(w, c->job, now, l);
}

/* When the list is full, it begins anew: those that were woken don't wait any more. */
static void tick(watch *w)
{
    wake_list l = {.n = 0};
    bool full;
    int64_t now = clock_ns();
    do {
        pthread_mutex_lock(&w->lock);
        for (watched *c = w->first; c && l.n < MAX_EVENTS; c = c->next) look_at(w, c, now, &l);
        pthread_mutex_unlock(&w->lock);
        full = l.n == MAX_EVENTS;
        wake_all(&l);
    } while (full);
}

static void *run(void *arg)
{
    watch *w = arg;
    struct epoll_event events[MAX_EVENTS];
    wake_list l = {.n = 0};
    int64_t ticked = 0;
    for (;;) {
        pthread_mutex_lock(&w->lock);
        bool quit = w->quit, any = w->first != NULL;
        pthread_mutex_unlock(&w->lock);
        if (quit) return NULL;
        int n = epoll_wait(w->epoll, events, MAX_EVENTS, any ? 1000 : -1);
        pthread_mutex_lock(&w->lock);
        for (int i = 0; i < n; i++) {
            uint64_t rings;
            if (events[i].data.u64) hang_up(w, events[i].data.u64, &l);
            else if (read(w->event, &rings, sizeof rings) < 0) continue;
        }
        pthread_mutex_unlock(&w->lock);
        wake_all(&l);
        if (clock_ns() - ticked < 1000000000) continue;
        tick(w);
        ticked = clock_ns();
    }
}

static int listen_to(watch *w, int fd, uint32_t events, uint64_t number)
{
    struct epoll_event e = {.events = events, .data.u64 = number};
    return epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &e);
}

int watch_new(watch **out, const watch_limits *limits, metrics *figures, status *st)
{
    watch *w = mem_calloc(1, sizeof *w);
    if (!w) return status_nomem(st, sizeof *w);
    w->limits = *limits;
    w->figures = figures;
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    w->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&w->lock, NULL);
    int rc = w->epoll < 0 || w->event < 0 || listen_to(w, w->event, EPOLLIN, 0) ? errno : 0;
    if (rc == 0) rc = pthread_create(&w->thread, NULL, run, w);
    if (rc == 0) {
        *out = w;
        return ST_OK;
    }
    status_set(st, ST_IO, STATUS_NO_POS, "connections can't be watched: %s", strerror(rc));
    if (w->epoll >= 0) close(w->epoll);
    if (w->event >= 0) close(w->event);
    pthread_mutex_destroy(&w->lock);
    mem_free(w);
    return st->code;
}

void watch_free(watch *w)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->quit = true;
    pthread_mutex_unlock(&w->lock);
    ring(w);
    pthread_join(w->thread, NULL);
    while (w->first) watch_remove(w, w->first);
    close(w->epoll);
    close(w->event);
    pthread_mutex_destroy(&w->lock);
    mem_free(w);
}

watched *watch_add(watch *w, int fd)
{
    watched *c = mem_calloc(1, sizeof *c);
    if (!c) return NULL;
    c->fd = fd;
    c->since_ns = clock_ns();
    pthread_mutex_lock(&w->lock);
    c->number = ++w->last_number;
    c->next = w->first;
    c->link = &w->first;
    if (c->next) c->next->link = &c->next;
    w->first = c;
    bool first = !c->next;
    listen_to(w, fd, EPOLLRDHUP | EPOLLONESHOT, c->number); /* in vain: its leaving shows when it is written to */
    pthread_mutex_unlock(&w->lock);
    if (first) ring(w);
    return c;
}

void watch_remove(watch *w, watched *c)
{
    pthread_mutex_lock(&w->lock);
    *c->link = c->next;
    if (c->next) c->next->link = c->link;
    enter(w, c, HEAD);
    epoll_ctl(w->epoll, EPOLL_CTL_DEL, c->fd, NULL);
    pthread_mutex_unlock(&w->lock);
    job_unref(c->job);
    mem_free(c);
}

bool watch_body(watch *w, watched *c, size_t n)
{
    pthread_mutex_lock(&w->lock);
    if (c->state == HEAD) {
        int64_t began = c->since_ns;
        enter(w, c, BODY);
        c->seen_bytes = 0;
        c->seen_ns = c->since_ns;
        c->since_ns = began;
    }
    if (!c->shut) {
        hold(w, c, c->held_bytes + n);
        bound(w, BODY);
    }
    bool open = !c->shut;
    pthread_mutex_unlock(&w->lock);
    return open;
}

/* The job that it had is released. */
static bool change(watch *w, watched *c, watched_state s, job *j)
{
    pthread_mutex_lock(&w->lock);
    job *old = c->job;
    c->job = j ? job_ref(j) : NULL;
    enter(w, c, s);
    c->begun = false;
    if (j && c->hung_up_ns) {
        atomic_store(&j->gone, true);
        atomic_store(&j->cancelled, true);
    }
    bool open = !c->shut;
    pthread_mutex_unlock(&w->lock);
    job_unref(old);
    return open;
}

bool watch_working(watch *w, watched *c, job *j)
{
    return change(w, c, WORKING, j);
}

void watch_next(watch *w, watched *c)
{
    change(w, c, HEAD, NULL);
}

bool watch_sending(watch *w, watched *c, size_t bytes)
{
    pthread_mutex_lock(&w->lock);
    if (c->state != SENDING) enter(w, c, SENDING);
    c->since_ns = clock_ns();
    if (!c->shut) {
        hold(w, c, bytes);
        bound(w, SENDING);
    }
    c->begun = true;
    bool open = !c->shut;
    pthread_mutex_unlock(&w->lock);
    return open;
}

void watch_waiting(watch *w, watched *c)
{
    pthread_mutex_lock(&w->lock);
    enter(w, c, WORKING);
    pthread_mutex_unlock(&w->lock);
}

int watch_n_answering(watch *w)
{
    pthread_mutex_lock(&w->lock);
    int n = w->n_answering;
    pthread_mutex_unlock(&w->lock);
    return n;
}
