/* chat_prompt.h - a request's conversation to the text or the tokens of its prompt.
 *
 *      request: messages, tools, documents, template_kwargs --values--> the model's template --> text, ids
 *
 * CP1 Messages reach the template whole, as the client gave them, except: parts of text are joined, members that are
 *    null are left out (content stays, as none), arguments of calls that are the text of a JSON object become that
 *    object, "developer" is "system" where the template doesn't know it. Where the template fails on that, texts of
 *    arguments stay texts and a content of none is the empty text.
 * CP2 The request's own fields win over template_kwargs of the same name.
 * CP3 A value has at most CHAT_MAX_DEPTH levels, a conversation CHAT_MAX_VALUES values.
 * Owns nothing after it returns. Threads: any.
 */
#ifndef KVASIR_SERVE_CHAT_PROMPT_H
#define KVASIR_SERVE_CHAT_PROMPT_H

#include "serve/request.h"
#include "serve/served.h"

#define CHAT_MAX_DEPTH 64
#define CHAT_MAX_VALUES 200000

/* Appended to out. Return 0 or an HTTP status. */
int chat_prompt_text(const request *r, const served_model *m, strbuf *out, text_ranges *trusted, api_error *e);
int chat_prompt_ids(const request *r, const served_model *m, token_list *out, api_error *e);
/* Text to ids. Of a text that can't fit only the beginning is read. param: names the text in errors. */
int prompt_encode(const served_model *m, const char *text, size_t n_bytes, encode_options how, const char *param,
                  token_list *out, api_error *e);

#endif
