/* unicode.h - characters as Python sees them, as far as chat templates need it.
 *
 * White space is exact. Case covers Latin, Greek, Cyrillic, Armenian and full-width letters, one character to one
 * (and sharp s to SS); other scripts pass unchanged. Bytes that are not UTF-8 count as one character each.
 * Pure functions.
 */
#ifndef KVASIR_MODEL_TEMPLATE_UNICODE_H
#define KVASIR_MODEL_TEMPLATE_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the character at s (n >= 1 left), and its code point; a malformed byte is 1 byte and 0xDC00 + byte. */
size_t char_next(const char *s, size_t n, uint32_t *cp);
size_t char_count(const char *s, size_t n);
/* Offset of the i-th character (n when there are fewer). */
size_t char_offset(const char *s, size_t n, size_t i);

bool cp_is_space(uint32_t cp);
bool cp_is_alpha(uint32_t cp);
bool cp_is_word(uint32_t cp); /* \w */
bool cp_is_printable(uint32_t cp);
uint32_t cp_upper(uint32_t cp);
uint32_t cp_lower(uint32_t cp);

/* s[0..n) without white space at its ends. */
void trim_left(const char **s, size_t *n);
void trim_right(const char *s, size_t *n);

#endif
