/* serve_rig.h - a whole server over a tiny model whose tokens are bytes, and clients' ends of its connections. */
#ifndef KVASIR_TESTS_SERVE_RIG_H
#define KVASIR_TESTS_SERVE_RIG_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "serve/server.h"

typedef struct serve_rig {
    struct threads *team;
    struct model *m;
    engine *e;
    server *s;
    pthread_t thread; /* the engine's */
    uint64_t bytes_before;
    _Atomic int waits_left; /* when it comes to 0, once, the K and V of a sequence don't come */
} serve_rig;

/* At any port; 24 answers at most, 6 at once, a context of 128. */
serve_rig *serve_start(server_config c);
/* Drains; what is left is audited, and all memory must have come back. */
void serve_stop(serve_rig *r);

/* The client's end of a new connection. */
int serve_connect(const serve_rig *r);
/* A connection that asks to be closed after the answer; length: of the body that is announced. */
int serve_send_head(const serve_rig *r, const char *method, const char *path, size_t length);
int serve_send(const serve_rig *r, const char *method, const char *path, const char *body);
/* Everything until the server closes; free with free. */
char *serve_receive(int fd);
char *serve_ask(const serve_rig *r, const char *method, const char *path, const char *body);
int serve_code(const char *answer);
/* It has that status, and the shape of an error with that code (NULL: null). Frees it. */
void serve_expect_error(char *answer, int http_status, const char *code);
/* The JSON of a 200; json_decref. GET where the body is empty. */
json_t *serve_json(const serve_rig *r, const char *path, const char *body);
/* Waits until no answer is being made; then no block is held. */
void serve_wait_until_idle(const serve_rig *r);

#endif
