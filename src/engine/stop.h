/* stop.h - stop strings over a stream of bytes.
 *
 * Owns: the strings, and the bytes that may yet turn out to be the start of one.
 *
 *      push "ab", stop "bcd":   "a" can be shown, "b" is held      push "cd" -> stopped, "bcd" never shown
 *      barred:                  a string that ends now is text like any other; one that ends later may have begun
 *
 * Threads: one at a time.
 */
#ifndef KVASIR_ENGINE_STOP_H
#define KVASIR_ENGINE_STOP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "base/strbuf.h"

#define STOP_MAX_STRINGS 16
#define STOP_MAX_BYTES 256

typedef struct stop_set {
    char *strings[STOP_MAX_STRINGS];
    size_t lengths[STOP_MAX_STRINGS];
    int n;
    int hit; /* which string ended the stream; -1 */
    strbuf held;
    bool barred;     /* for the next push or flush, set by the caller: no string may end in it */
    size_t n_barred; /* of held, from its start: the bytes that no string may end in */
} stop_set;

/* Strings are copied; empty ones, too many or too long ones are ST_ARG. */
int stop_init(stop_set *s, const char *const *strings, int n, status *st);
void stop_deinit(stop_set *s);
/* Takes the next bytes, appends to out what can be shown. Returns true when a stop string is complete: out then ends
 * before it; out has failed where memory was short. The earliest match in the stream wins, then the longest string. */
bool stop_push(stop_set *s, const char *bytes, size_t n, strbuf *out);
/* The stream ends: appends what was held, up to a string that a longer one's start had hidden; true where there is
 * one. */
bool stop_flush(stop_set *s, strbuf *out);

#endif
