/* chat.h - a conversation to a prompt, through the model's chat template.
 *
 *      root: {messages: [{role, content, ...}...], tools, documents, any other variable}     the caller's
 *            + bos_token, eos_token, add_generation_prompt                                   added here
 *                --template--> text --tokenizer--> ids
 *
 * CH1 Only what the template wrote, the texts of bos and eos, and the roles that chats know may become control tokens:
 *    a message is text whatever it spells.
 * CH2 A template sees what Hugging Face's apply_chat_template shows it: messages whole, tools and documents none where
 *    there are none.
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
    bool parse_special;         /* control tokens in messages too: not CH1 */
    int64_t now_unix_s;         /* what strftime_now sees, UTC */
} chat_options;

/* A list of messages that have a role and a text alone, for root's "messages". NULL when memory is short. */
tmpl_value *chat_messages(tmpl_data *d, const chat_message *messages, size_t n);
/* A role as a value: one that chats know (system, user, assistant, ...) is trusted, since templates make control tokens
 * of it (<|user|>). */
tmpl_value *chat_role(tmpl_data *d, const char *s, size_t n);
/* Appends the prompt to out, and where control tokens may be in it to trusted (may be NULL); both are as before on failure. A template that refuses the conversation
 * (raise_exception) is ST_ARG with its own words. tok (may be NULL) gives the texts of bos and eos. */
int chat_render(const tmpl *t, const tokenizer *tok, tmpl_data *d, tmpl_value *root, const chat_options *o, strbuf *out,
                text_ranges *trusted, status *st);
/* The prompt as token ids, appended to out. */
int chat_encode(const tmpl *t, const tokenizer *tok, tmpl_data *d, tmpl_value *root, const chat_options *o,
                token_list *out, status *st);

#endif
