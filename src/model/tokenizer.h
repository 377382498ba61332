/* tokenizer.h - text <-> token ids, as the model's file defines it.
 *
 * Owns: copies of the vocabulary, merges and compiled patterns; nothing refers to the file after tokenizer_new.
 *
 *      text --special tokens cut out (leftmost, longest)--> fragments
 *      gpt2: fragment --pre-tokenizer (PCRE2)--> words --byte alphabet, merges by rank--> ids
 *      llama (SPM): fragment --space or U+2581 to space--> characters --merges by score--> ids, else bytes <0xNN>
 *
 * TK1 Any bytes encode, valid UTF-8 or not, and decode back byte for byte, but for what the model's own tokenizer can't
 *    tell apart: special tokens, SPM's U+2581 (it is its space), and bytes that the vocabulary has no token for (they
 *    are left out, and counted).
 * TK2 Time is near linear in the text, whatever the text. Memory beside the ids, and a copy of the text for SPM, is that
 *    of two windows, unless a long word can't be cut (tokenizer_window.c).
 * TK3 Text is not trusted: outside of what parse_special or `trusted` name no text yields a control token, whatever the
 *    merges would allow. The text around is encoded as one, whoever wrote which part of it.
 * Threads: constant after tokenizer_new; any number of threads may encode and decode.
 */
#ifndef KVASIR_MODEL_TOKENIZER_H
#define KVASIR_MODEL_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/strbuf.h"
#include "model/gguf.h"
#include "model/text_ranges.h"

typedef struct tokenizer tokenizer;

/* ST_UNSUPPORTED names a tokenizer model or pre-tokenizer that Kvasir doesn't know; ST_FORMAT what is wrong with the
 * file. */
int tokenizer_new(tokenizer **out, const gguf *g, status *st);
void tokenizer_free(tokenizer *t); /* NULL is fine */

int32_t tokenizer_vocab_size(const tokenizer *t);
/* Special ids, -1 where the model has none. */
int32_t tokenizer_bos(const tokenizer *t);
int32_t tokenizer_eos(const tokenizer *t);
bool tokenizer_adds_bos(const tokenizer *t);
bool tokenizer_adds_eos(const tokenizer *t);
/* End of generation: eos, eot, eom and their kin (<|im_end|>, <|eot_id|>, <end_of_turn>, ...). */
bool tokenizer_is_end(const tokenizer *t, int32_t id);
bool tokenizer_is_control(const tokenizer *t, int32_t id);

typedef struct token_list { /* zero-initialize; free with token_list_deinit */
    int32_t *ids;
    size_t n, capacity;
    size_t limit;     /* one id more than that is ST_LIMIT; 0 = none. Encoding stops there, however long the text is */
    size_t n_dropped; /* bytes of encoded text that were left out */
} token_list;
void token_list_deinit(token_list *l);
int token_list_add(token_list *l, int32_t id, status *st);

typedef struct encode_options {
    bool add_special;           /* bos / eos as the model's file says */
    bool parse_special;         /* control tokens in the text are recognized; user-defined ones always are */
    const text_ranges *trusted; /* or only those that lie wholly in one of these ranges; may be NULL */
} encode_options;
/* Appends to out; on failure out holds what it held before. Text of 2 GiB and more is ST_LIMIT, and so are more ids than
 * out's limit. */
int tokenizer_encode(const tokenizer *t, const char *text, size_t n_bytes, encode_options o, token_list *out,
                     status *st);

/* The bytes of one token as they stand in text (a control token: its name if with_special, else nothing). Borrowed; not
 * terminated. An id outside the vocabulary has no bytes. */
gguf_str tokenizer_piece(const tokenizer *t, int32_t id, bool with_special);
/* The token's name in the file (for listings). */
gguf_str tokenizer_name(const tokenizer *t, int32_t id);
/* Whole list to text, appended to out: with the SPM's added leading spaces taken off again. An id outside the
 * vocabulary is ST_ARG, with its index as position; out then holds what it held before. */
int tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n, bool with_special, strbuf *out, status *st);

/* Streaming: bytes come out as soon as they are whole UTF-8 characters. Zero-initialize for a text from its start; set
 * `started` for one that goes on from other text (a raw completion), whose first space is not an added one. */
typedef struct detokenizer {
    char held[4]; /* the start of a character */
    int n_held;
    bool started;
} detokenizer;
/* Appends what can be shown after id. Bytes that can no longer become a character are passed on as they are.
 * On failure d is as it was. */
int detokenizer_push(detokenizer *d, const tokenizer *t, int32_t id, bool with_special, strbuf *out, status *st);
/* Appends what is still held, at the end of the stream. */
int detokenizer_flush(detokenizer *d, strbuf *out, status *st);

#endif
