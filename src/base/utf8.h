/* utf8.h - the few questions about UTF-8 that every folder asks. Pure functions, no state.
 *
 *      41 | E2 82 AC | F0 9F | 80 | E2 82 | 42      characters, and broken parts: each becomes one U+FFFD
 *
 * U1 A broken part is as long as it could still have become a character (Unicode's maximal subpart, as Python's
 *    decode(errors="replace") has it), or else one byte.
 * U2 Text that is cut where utf8_incomplete_tail is 0 falls into the same parts as the whole text.
 */
#ifndef KVASIR_BASE_UTF8_H
#define KVASIR_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length (1..4) of the well-formed character (RFC 3629: no overlong forms, no surrogates) at s, which has n bytes left;
 * 0 when there is none: malformed, or cut off by the end. */
int utf8_length(const char *s, size_t n);

/* Like utf8_length, and stores the code point. */
int utf8_decode(const char *s, size_t n, uint32_t *cp);

#define UTF8_REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */

/* Length (1..4) of what s, which has n > 0 bytes left, begins with: a character (*whole), or a broken part. */
int utf8_part(const char *s, size_t n, bool *whole);
bool utf8_valid(const char *s, size_t n);

/* Counts characters and broken parts as they begin, in text that comes in pieces. Zero-initialize. */
typedef struct utf8_counter {
    size_t n;
    unsigned char missing; /* bytes that the last one lacks; the next byte goes on with it if it is in the range */
    unsigned char low, high;
} utf8_counter;
void utf8_count(utf8_counter *c, const char *s, size_t n);

/* Writes cp (a Unicode scalar value) to out[4]; returns its length. */
int utf8_encode(uint32_t cp, char *out);

/* How many bytes at the end of s[0..n) are the start of a character that more bytes could complete (0..3). */
int utf8_incomplete_tail(const char *s, size_t n);

#endif
