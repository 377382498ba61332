/* answer_json.h - answers as JSON in OpenAI's shapes: whole ones, and the chunks of a stream.
 *
 *      whole:   {"id", "object", "created", "model", "choices": [...], "usage"}
 *      stream:  data: {... "choices": [{one choice, what is new of it}]}   for each choice with something new
 *               data: {... "choices": [], "usage"}                         with include_usage
 *               data: [DONE]
 *
 * Each broken part of UTF-8 becomes one U+FFFD; choices grow by whole characters and parts, so chunks never cut one.
 * Threads: the HTTP thread or a worker, with the job's lock; of a job that is DONE without.
 */
#ifndef KVASIR_SERVE_ANSWER_JSON_H
#define KVASIR_SERVE_ANSWER_JSON_H

#include "serve/job.h"

/* Of a job that is DONE. */
void answer_whole(strbuf *out, const job *j, const served_model *m);
/* What is new in each choice since the last call, as events. False: there is more, but these are enough for now. */
bool answer_chunks(strbuf *out, job *j, const served_model *m);
/* About how many bytes answer_chunks would make if it didn't stop; 0 = none. */
size_t answer_chunks_bytes(const job *j);
/* The last events: usage if wanted and [DONE], or the job's error. */
void answer_last(strbuf *out, const job *j, const served_model *m);

/* "logprobs" of tokens [first, n) of the choice; with echo, those of the prompt come first when first is 0.
 * place: what comes before that token in the text, moved on. */
void logprobs_json(strbuf *out, const job *j, const choice *c, size_t first, utf8_counter *place, const tokenizer *tok);

#endif
