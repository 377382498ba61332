/* json_ids.h - JSON texts, and arrays of token ids among them. */
#ifndef KVASIR_CLI_JSON_IDS_H
#define KVASIR_CLI_JSON_IDS_H

#include <jansson.h>

#include "model/tokenizer.h"

/* The value, to be freed with json_decref; NULL and a status that tells the line. flags: jansson's. */
json_t *json_parse(const char *text, size_t n_bytes, size_t flags, status *st);

/* Appends the ids to out. ST_FORMAT (with the line or the element) for anything but a non-empty array of integers in
 * [0, 2^31). */
int json_ids_parse(token_list *out, const char *text, size_t n_bytes, status *st);

#endif
