/* watch.h - eyes on the connections that libmicrohttpd doesn't have: clients that leave while their connection is
 * suspended, that dribble their request, that never fetch their answer; and streams that have been silent for long.
 *
 * Owns: a thread, a record for each connection.
 *
 *      RECEIVING --whole request--> ANSWERING --sent, next request--> RECEIVING
 *        | request_s, half: shut      | hung up: the job is cancelled and woken
 *        |                            | silent for comment_s: a comment is due
 *        |                            | a block of it unsent for send_s: shut
 *
 * The thread sleeps in epoll: without a time while there is no connection, else a second at a time. Shutting a socket
 * down makes the HTTP thread see its end; nothing is closed here.
 * Lock order: the watch's lock, then a job's. Jobs are woken without the watch's lock.
 * Threads: watch_add..watch_remove by the HTTP thread.
 */
#ifndef KVASIR_SERVE_WATCH_H
#define KVASIR_SERVE_WATCH_H

#include "serve/job.h"

typedef struct watch watch;
typedef struct watched watched;

typedef struct watch_limits {
    double request_s; /* for a request to come in whole, from the connection's start or the answer before */
    double send_s;    /* for a block of an answer to be fetched */
    double comment_s; /* of silence in a stream */
} watch_limits;

int watch_new(watch **out, const watch_limits *limits, status *st);
void watch_free(watch *w); /* NULL is fine */

/* A connection over the socket; NULL when memory is short: it is not watched. */
watched *watch_add(watch *w, int fd);
void watch_remove(watch *w, watched *c);
/* Its request is whole, and the job (NULL: answered at once) is at work on it. */
void watch_answering(watch *w, watched *c, job *j);
void watch_receiving(watch *w, watched *c);
/* Bytes have been given to its socket's side, which has send_s to take them; or not: what is next comes from the job. */
void watch_sending(watch *w, watched *c, bool sending);
/* Exchanges in the state ANSWERING. */
int watch_n_answering(watch *w);

#endif
