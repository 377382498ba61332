/* json_limits.h - what a JSON text may hold: looked at before it is parsed, since the parser makes some hundred bytes of a
 * value of two, follows nesting with its stack, and passes over a zero byte behind a number or a word.
 *
 *      {"a": [1, [2, 3]]}     values: 1 for each of { : [ , [ ,     depth: 3
 *
 * Threads: pure.
 */
#ifndef KVASIR_SERVE_JSON_LIMITS_H
#define KVASIR_SERVE_JSON_LIMITS_H

#include "serve/api_error.h"

#define JSON_MAX_VALUES ((size_t)512 << 10) /* members and elements, all together */
#define JSON_MAX_DEPTH 128

/* Returns 0, or 400 (too_many_values, too_deep; invalid_json for a zero byte). Whether it is JSON at all, the parser
 * says. */
int json_check_limits(const char *text, size_t n_bytes, api_error *e);

#endif
