#include "model/chat.h"

#include <string.h>

tmpl_value *chat_messages(tmpl_data *d, const chat_message *messages, size_t n)
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

/* A token's name, empty where the model has no such token. */
static tmpl_value *token_text(tmpl_data *d, const tokenizer *tok, int32_t id)
{
    gguf_str name = {"", 0};
    if (id >= 0) name = tokenizer_name(tok, id);
    return tmpl_string(d, name.data, name.n);
}

int chat_render(const tmpl *t, const tokenizer *tok, tmpl_data *d, tmpl_value *root, const chat_options *o, strbuf *out,
                status *st)
{
    tmpl_map_set(d, root, "bos_token", token_text(d, tok, tok ? tokenizer_bos(tok) : -1));
    tmpl_map_set(d, root, "eos_token", token_text(d, tok, tok ? tokenizer_eos(tok) : -1));
    tmpl_map_set(d, root, "add_generation_prompt", tmpl_bool(d, o->add_generation_prompt));
    static const char *const lists[] = {"tools", "documents"};
    for (int i = 0; i < 2; i++)
        if (!tmpl_map_has(root, lists[i])) tmpl_map_set(d, root, lists[i], tmpl_none(d));
    tmpl_limits limits = {.now_unix_s = o->now_unix_s};
    return tmpl_render(t, d, root, &limits, out, st);
}

int chat_encode(const tmpl *t, const tokenizer *tok, tmpl_data *d, tmpl_value *root, const chat_options *o,
                token_list *out, status *st)
{
    strbuf text;
    strbuf_init(&text, 0);
    int rc = chat_render(t, tok, d, root, o, &text, st);
    /* The template writes every special token itself, the first one too. */
    const encode_options as_written = {.parse_special = true};
    if (rc == ST_OK) rc = tokenizer_encode(tok, strbuf_cstr(&text), text.n_bytes, as_written, out, st);
    strbuf_deinit(&text);
    return rc;
}
