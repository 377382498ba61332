/* chat.h - a conversation to prompt text, through the model's chat template.
 *
 *      messages, options -> {messages: [{role, content}...], bos_token, eos_token, add_generation_prompt}
 *                        -> template -> text
 *
 * Owns nothing after it returns. Threads: any number at once over one template.
 */
#ifndef KVASIR_MODEL_CHAT_H
#define KVASIR_MODEL_CHAT_H

#include "model/template/template.h"
#include "model/tokenizer.h"

typedef struct chat_message {
    const char *role; /* "system", "user", "assistant", ... */
    const char *content;
    size_t content_bytes;
} chat_message;

typedef struct chat_options {
    bool add_generation_prompt; /* end with the head of an answer */
    const char *bos, *eos;      /* token texts; NULL = the template sees "" */
    int64_t now_unix_s;         /* what strftime_now sees, UTC */
} chat_options;

/* Appends the prompt to out, which is as before on failure. A template that refuses the conversation
 * (raise_exception) is ST_ARG with its own words. */
int chat_render(const tmpl *t, const chat_message *messages, size_t n, const chat_options *o, strbuf *out, status *st);
/* The prompt as token ids, with the head of an answer, at the present time; appended to out. */
int chat_encode(const tmpl *t, const tokenizer *tok, const chat_message *messages, size_t n, token_list *out,
                status *st);

#endif
