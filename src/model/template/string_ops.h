/* string_ops.h - operations on strings that filters and methods share. Same contract as interp.h. */
#ifndef KVASIR_MODEL_TEMPLATE_STRING_OPS_H
#define KVASIR_MODEL_TEMPLATE_STRING_OPS_H

#include "model/template/interp.h"

enum { TRIM_LEFT = 1, TRIM_RIGHT = 2 };

int string_upper(interp *in, value s, value *out);
int string_lower(interp *in, value s, value *out);
int string_capitalize(interp *in, value s, value *out);
/* chars V_ABSENT or none: white space */
int string_trim(interp *in, value s, value chars, int sides, value *out);
int string_replace(interp *in, value s, value old, value new, int64_t count, value *out); /* count < 0: all */
/* As HTML, marked safe; a text that is so already stays as it is. */
int string_escape(interp *in, value v, value *out);
int string_join(interp *in, value separator, const list *items, value *out);
/* The line at *s and its end are taken off; false when there is nothing left. kept: bytes of the line with its end. */
bool string_next_line(value *s, value *line, size_t *kept);
/* Byte offset of the first (or last) needle, SIZE_MAX when there is none. */
size_t string_find(value s, value needle, bool last);

#endif
