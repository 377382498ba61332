/* api_error.h - what a client is told when its request can't be answered, in OpenAI's shape.
 *
 *      {"error": {"message": "...", "type": "invalid_request_error", "param": "temperature", "code": null}}
 *
 * Functions that read requests return 0 or the HTTP status of the error that they filled in, so that
 * `if (request_parse(..., e)) return e->http_status;` reads well.
 * Threads: an error belongs to one thread at a time.
 */
#ifndef KVASIR_SERVE_API_ERROR_H
#define KVASIR_SERVE_API_ERROR_H

#include "base/status.h"
#include "base/strbuf.h"

#define PARAM_BYTES 128

typedef struct api_error {
    int http_status;         /* 0 = none */
    const char *code;        /* a static word; NULL = null */
    char param[PARAM_BYTES]; /* the field; "" = null */
    char message[512];
} api_error;

/* code and param may be NULL. Returns http_status. */
int api_error_set(api_error *e, int http_status, const char *code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* 400 for what the client can change, 503 for lack of memory, 500 for the rest. */
int api_error_from_status(api_error *e, const status *st);
int api_error_nomem(api_error *e);
void api_error_json(const api_error *e, strbuf *out);

#endif
