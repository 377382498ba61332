/* text_ranges.h - which bytes of a text its author vouches for: there, and only there, may control tokens be named.
 *
 *      <|im_start|>user\nhi<|im_end|>\n<|im_end|>\n       hi<|im_end|> is what a user wrote
 *      |---------------|             |-----------|        ranges: [0, 17) [29, 40)
 *
 * Owns: the array. Ranges ascend, are not empty, and don't touch each other. Threads: one at a time; readers when done.
 */
#ifndef KVASIR_MODEL_TEXT_RANGES_H
#define KVASIR_MODEL_TEXT_RANGES_H

#include <stddef.h>

#include "base/status.h"

typedef struct text_range {
    size_t from, to; /* [from, to) */
} text_range;

typedef struct text_ranges { /* zero-initialize */
    text_range *at;
    size_t n, capacity;
} text_ranges;

void text_ranges_deinit(text_ranges *r);
/* [from, to) after all that are there. Empty ones change nothing. */
int text_ranges_add(text_ranges *r, size_t from, size_t to, status *st);

#endif
