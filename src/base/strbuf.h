/* strbuf.h - a growing string that remembers its first failure.
 *
 * B1 data is always NUL-terminated (strbuf_cstr gives "" for a fresh one); n_bytes does not count the NUL, and data may
 *    hold NULs.
 * B2 After an append failed (out of memory, or over limit_bytes) `failed` is set and later appends do nothing: check
 *    once, at the end.
 */
#ifndef KVASIR_BASE_STRBUF_H
#define KVASIR_BASE_STRBUF_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct strbuf {
    char *data;
    size_t n_bytes, capacity, limit_bytes; /* limit 0 = none */
    bool failed, over_limit;               /* over_limit: the failure was the limit's */
} strbuf;

void strbuf_init(strbuf *b, size_t limit_bytes);
void strbuf_deinit(strbuf *b);
void strbuf_clear(strbuf *b); /* empty, not failed; keeps the memory */
void strbuf_add(strbuf *b, const char *s, size_t n);
void strbuf_puts(strbuf *b, const char *s);
void strbuf_putc(strbuf *b, char c);
void strbuf_printf(strbuf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Appends s[0..n) as a JSON string with its quotes; each broken part of it (utf8.h) becomes U+FFFD. */
void strbuf_json(strbuf *b, const char *s, size_t n);
/* Appends s[0..n) as valid UTF-8, in the same way. */
void strbuf_utf8(strbuf *b, const char *s, size_t n);
const char *strbuf_cstr(const strbuf *b);
int strbuf_check(const strbuf *b, status *st); /* ST_OK, ST_NOMEM or ST_LIMIT */
/* Hands the bytes to the caller (mem_free) and empties b; NULL if failed. */
char *strbuf_take(strbuf *b, size_t *n_bytes);

#endif
