#include "model/chat.h"

#include <string.h>

static tmpl_value *token_text(tmpl_data *d, const char *s)
{
    return tmpl_string(d, s ? s : "", s ? strlen(s) : 0);
}

static tmpl_value *conversation(tmpl_data *d, const chat_message *messages, size_t n)
{
    tmpl_value *list = tmpl_list(d);
    for (size_t i = 0; i < n; i++) {
        tmpl_value *message = tmpl_map(d);
        tmpl_map_set(d, message, "role", tmpl_string(d, messages[i].role, strlen(messages[i].role)));
        tmpl_map_set(d, message, "content", tmpl_string(d, messages[i].content, messages[i].content_bytes));
        tmpl_list_add(d, list, message);
    }
    return list;
}

int chat_render(const tmpl *t, const chat_message *messages, size_t n, const chat_options *o, strbuf *out, status *st)
{
    tmpl_data *d = tmpl_data_new();
    if (!d) return status_nomem(st, sizeof(void *));
    tmpl_value *root = tmpl_map(d);
    tmpl_map_set(d, root, "messages", conversation(d, messages, n));
    tmpl_map_set(d, root, "add_generation_prompt", tmpl_bool(d, o->add_generation_prompt));
    tmpl_map_set(d, root, "bos_token", token_text(d, o->bos));
    tmpl_map_set(d, root, "eos_token", token_text(d, o->eos));
    tmpl_limits limits = {.now_unix_s = o->now_unix_s};
    int code = tmpl_render(t, d, root, &limits, out, st);
    tmpl_data_free(d);
    return code;
}
