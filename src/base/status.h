/* status.h - how a function says what went wrong.
 *
 * A function that can fail on input or on resources returns a status code (0 = ST_OK) and takes a `status *`
 * as its last argument, never NULL, which it fills on failure only:
 *
 *      int gguf_open(gguf **out, const char *path, status *st);
 *      if (gguf_open(&g, path, st)) return st->code;
 *
 * S1 On failure *out arguments are left as they were (or NULL) and nothing is owed by the caller.
 * S2 The text is one sentence for a person: what is wrong and what to do. No trailing newline.
 * S3 Mistakes of the programmer are asserts, not statuses.
 * Threads: a status belongs to one thread at a time; there is no global one.
 */
#ifndef KVASIR_BASE_STATUS_H
#define KVASIR_BASE_STATUS_H

#include <stdint.h>

typedef enum status_code {
    ST_OK = 0,
    ST_NOMEM,       /* an allocation failed */
    ST_IO,          /* the operating system refused; text has strerror */
    ST_NOT_FOUND,   /* no such file, model, key */
    ST_FORMAT,      /* bytes that are not what they claim to be; pos tells where */
    ST_UNSUPPORTED, /* well formed, but beyond what this build can do */
    ST_ARG,         /* an argument out of range */
    ST_LIMIT,       /* does not fit: context, pool, depth, steps */
    ST_CANCELLED,   /* the caller asked to stop */
    ST_TIMEOUT,     /* a wait passed its deadline */
} status_code;

#define STATUS_NO_POS UINT64_MAX

typedef struct status {
    int code;       /* a status_code */
    uint64_t pos;   /* byte offset, line or index where the trouble is; STATUS_NO_POS when it has no place */
    char text[496]; /* NUL-terminated; always valid UTF-8 */
} status;

#define STATUS_INIT {ST_OK, STATUS_NO_POS, ""}

/* Fills st and returns code, so that `return status_set(st, ST_IO, STATUS_NO_POS, "...")` reads well.
 * Bytes that are not valid UTF-8 and control characters (names from a hostile file) become '?', line ends a space. */
int status_set(status *st, int code, uint64_t pos, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Puts "what: " in front of the text (context added on the way up); returns st->code. */
int status_prefix(status *st, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ST_NOMEM with a sentence that names the number of bytes. */
int status_nomem(status *st, uint64_t n_bytes);

/* "not found", "format", ...: a stable word for --json. */
const char *status_name(int code);

#endif
