#include "model/chat.h"

#include <string.h>

tmpl_value *chat_role(tmpl_data *d, const char *s, size_t n)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function"};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strlen(roles[i]) == n && memcmp(roles[i], s, n) == 0) return tmpl_trusted(d, s, n);
    return tmpl_string(d, s, n);
}

tmpl_value *chat_messages(tmpl_data *d, const chat_message *messages, size_t n)
{
    tmpl_value *list = tmpl_list(d);
    for (size_t i = 0; i < n; i++) {
        tmpl_value *message = tmpl_map(d);
        tmpl_map_set(d, message, "role", chat_role(d, messages[i].role, strlen(messages[i].role)));
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
    return tmpl_trusted(d, name.data, name.n);
}

int chat_render(const tmpl *t, const tokenizer *tok, tmpl_data *d, tmpl_value *root, const chat_options *o, strbuf *out,
                text_ranges *trusted, status *st)
{
    tmpl_map_set(d, root, "bos_token", token_text(d, tok, tok ? tokenizer_bos(tok) : -1));
    tmpl_map_set(d, root, "eos_token", token_text(d, tok, tok ? tokenizer_eos(tok) : -1));
    tmpl_map_set(d, root, "add_generation_prompt", tmpl_bool(d, o->add_generation_prompt));
    static const char *const lists[] = {"tools", "documents"};
    for (int i = 0; i < 2; i++)
        if (!tmpl_map_has(root, lists[i])) tmpl_map_set(d, root, lists[i], tmpl_none(d));
    tmpl_limits limits = {.now_unix_s = o->now_unix_s};
    size_t before = out->n_bytes;
    if (!o->parse_special || !trusted) return tmpl_render(t, d, root, &limits, out, trusted, st);
    int rc = tmpl_render(t, d, root, &limits, out, NULL, st);
    if (rc == ST_OK && (rc = text_ranges_add(trusted, before, out->n_bytes, st))) out->data[out->n_bytes = before] = 0;
    return rc;
}

int chat_encode(const tmpl *t, const tokenizer *tok, tmpl_data *d, tmpl_value *root, const chat_options *o,
                token_list *out, status *st)
{
    strbuf text;
    text_ranges trusted = {0};
    strbuf_init(&text, 0);
    int rc = chat_render(t, tok, d, root, o, &text, &trusted, st);
    /* The template writes every special token itself, the first one too. */
    const encode_options as_written = {.trusted = &trusted};
    if (rc == ST_OK) rc = tokenizer_encode(tok, strbuf_cstr(&text), text.n_bytes, as_written, out, st);
    strbuf_deinit(&text);
    text_ranges_deinit(&trusted);
    return rc;
}
