/* watch.h - eyes on the connections that libmicrohttpd doesn't have: clients that leave while their connection is
 * suspended, that dribble their request, that never fetch their answer, that hold too much memory; and streams that have
 * been silent for long.
 *
 * Owns: a thread, a record for each connection.
 *
 *      HEAD --------> BODY --whole request--> WORKING <--job has more, or waits--> SENDING --sent--> HEAD
 *       | request_s:   | too slow, request_s:  | hung up: its job is cancelled      | a block unsent
 *       | shut         | 408                   | and woken                          | for send_s: shut
 *       |              | holds the most: 503   | silent for comment_s:              | holds the most:
 *       |              |                       | a comment is due                   | shut
 *
 * Z1 Memory that clients hold is bounded: bodies that come in together, long answers that go out together. Above that the
 *    connection that holds the most is shut, whoever came last, of equals the one that has been so for longest; but none
 *    that holds spare_bytes or less: small requests always come in.
 * Z2 What is shut here gets nothing more of libmicrohttpd's: each function returns false for it from then on.
 * The thread sleeps in epoll: without a time while there is no connection, else a second at a time. Shutting a socket
 * down makes the HTTP thread see its end; nothing is closed here.
 * Lock order: the watch's lock, then a job's or the metrics'. Jobs are woken without the watch's lock.
 * Threads: watch_add..watch_remove by the HTTP thread.
 */
#ifndef KVASIR_SERVE_WATCH_H
#define KVASIR_SERVE_WATCH_H

#include "serve/job.h"
#include "serve/metrics.h"

typedef struct watch watch;
typedef struct watched watched;

typedef struct watch_limits {
    double request_s; /* for a request to come in whole, from the connection's start or the answer before */
    double grace_s;   /* a body brings in each span of that length */
    double rate;      /* so many bytes a second, at least */
    size_t bodies_bytes, answers_bytes, spare_bytes;
    double send_s;    /* for a block of an answer to be fetched */
    double comment_s; /* of silence in a stream */
} watch_limits;

int watch_new(watch **out, const watch_limits *limits, metrics *figures, status *st);
void watch_free(watch *w); /* NULL is fine */

/* A connection over the socket; NULL when memory is short: it is not watched. */
watched *watch_add(watch *w, int fd);
void watch_remove(watch *w, watched *c);
/* n more bytes of its body have come. */
bool watch_body(watch *w, watched *c, size_t n);
/* Its request is whole, and the job (NULL: answered at once) is at work on it; the body is held elsewhere. */
bool watch_working(watch *w, watched *c, job *j);
/* Its answer takes that many bytes, of which a block is on its way to the client, who has send_s for it. */
bool watch_sending(watch *w, watched *c, size_t bytes);
/* What was there has been sent: the job has no more for now. */
void watch_waiting(watch *w, watched *c);
void watch_next(watch *w, watched *c); /* all has been sent */
/* Connections in the states WORKING and SENDING. */
int watch_n_answering(watch *w);

#endif
