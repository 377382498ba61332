/* utf8.h - the few questions about UTF-8 that every folder asks. Pure functions, no state. */
#ifndef KVASIR_BASE_UTF8_H
#define KVASIR_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Length (1..4) of the well-formed character (RFC 3629: no overlong forms, no surrogates) at s, which has n bytes left;
 * 0 when there is none: malformed, or cut off by the end. */
int utf8_length(const char *s, size_t n);

/* Like utf8_length, and stores the code point. */
int utf8_decode(const char *s, size_t n, uint32_t *cp);

/* Writes cp (a Unicode scalar value) to out[4]; returns its length. */
int utf8_encode(uint32_t cp, char *out);

/* How many bytes at the end of s[0..n) are the start of a character that more bytes could complete (0..3). */
int utf8_incomplete_tail(const char *s, size_t n);

#endif
