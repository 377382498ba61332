#include "model/chat.h"

#include <string.h>
#include <time.h>

#include "base/mem.h"

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

/* *out = a token's name with a NUL behind it; NULL where the model has no such token. */
static int token_name(char **out, const tokenizer *tok, int32_t id, status *st)
{
    *out = NULL;
    if (id < 0) return ST_OK;
    gguf_str name = tokenizer_name(tok, id);
    *out = mem_strndup(name.data, name.n);
    return *out ? ST_OK : status_nomem(st, name.n);
}

int chat_encode(const tmpl *t, const tokenizer *tok, const chat_message *messages, size_t n, token_list *out,
                status *st)
{
    char *bos = NULL, *eos = NULL;
    strbuf text;
    strbuf_init(&text, 0);
    int rc = token_name(&bos, tok, tokenizer_bos(tok), st);
    if (rc == ST_OK) rc = token_name(&eos, tok, tokenizer_eos(tok), st);
    chat_options o = {.add_generation_prompt = true, .bos = bos, .eos = eos, .now_unix_s = (int64_t)time(NULL)};
    if (rc == ST_OK) rc = chat_render(t, messages, n, &o, &text, st);
    /* The template writes every special token itself, the first one too. */
    const encode_options as_written = {.parse_special = true};
    if (rc == ST_OK) rc = tokenizer_encode(tok, strbuf_cstr(&text), text.n_bytes, as_written, out, st);
    strbuf_deinit(&text);
    mem_free(bos);
    mem_free(eos);
    return rc;
}
