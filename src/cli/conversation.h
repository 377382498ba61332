/* conversation.h - messages, and the prompt that the model's chat template makes of them.
 *
 * Owns: copies of roles and texts, the parsed template. Threads: one at a time.
 */
#ifndef KVASIR_CLI_CONVERSATION_H
#define KVASIR_CLI_CONVERSATION_H

#include "base/strbuf.h"
#include "cli/cli.h"
#include "model/chat.h"
#include "model/model.h"

typedef struct conversation {
    tmpl *template; /* NULL: the model has none, prompts are raw */
    chat_message *messages;
    size_t n, capacity;
    bool parse_special; /* control tokens that messages name are those tokens */
} conversation;

/* A template's source from a file, appended to out; one that is empty is ST_FORMAT. */
int chat_template_read(strbuf *out, const char *path, status *st);
/* template_file (may be NULL) overrides the model's own template. */
int conversation_init(conversation *c, const model *m, const char *template_file, status *st);
void conversation_deinit(conversation *c);
int conversation_add(conversation *c, const char *role, const char *text, size_t n_bytes, status *st);
void conversation_truncate(conversation *c, size_t n); /* keeps the first n messages */
/* The system message comes first; an empty text removes it. */
int conversation_set_system(conversation *c, const char *text, status *st);
/* Token ids of the whole conversation, with the opening of the assistant's next turn; appended to out. Without a
 * template: the texts of all messages one after the other. */
int conversation_encode(const conversation *c, const model *m, token_list *out, status *st);
/* JSON: [{"role": ..., "content": ...}, ...]. */
int conversation_save(const conversation *c, const char *path, status *st);
/* Replaces all messages by those of such a text; on failure they stay. */
int conversation_parse(conversation *c, const char *text, size_t n_bytes, status *st);
int conversation_load(conversation *c, const char *path, status *st);

#endif
