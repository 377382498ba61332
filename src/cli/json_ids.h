/* json_ids.h - a JSON array of token ids. */
#ifndef KVASIR_CLI_JSON_IDS_H
#define KVASIR_CLI_JSON_IDS_H

#include "model/tokenizer.h"

/* Appends the ids to out. ST_FORMAT (with the line or the element) for anything but a non-empty array of integers in [0, 2^31). */
int json_ids_parse(token_list *out, const char *text, size_t n_bytes, status *st);

#endif
