#include "cli/conversation.h"

#include <jansson.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/json_ids.h"

#define MAX_FILE_BYTES ((size_t)64 << 20)

int chat_template_read(strbuf *out, const char *path, status *st)
{
    if (file_read(out, path, MAX_FILE_BYTES, st)) return st->code;
    const char *text = strbuf_cstr(out);
    if (strspn(text, " \t\r\n") < out->n_bytes) return ST_OK;
    return status_set(st, ST_FORMAT, STATUS_NO_POS, "%s is empty; a chat template must write something", path);
}

static int read_template(tmpl **out, const char *path, status *st)
{
    strbuf source;
    strbuf_init(&source, 0);
    if (chat_template_read(&source, path, st) == ST_OK &&
        tmpl_parse(out, strbuf_cstr(&source), source.n_bytes, st))
        status_prefix(st, "%s", path);
    strbuf_deinit(&source);
    return st->code;
}

int conversation_init(conversation *c, const model *m, const char *template_file, status *st)
{
    *c = (conversation){0};
    if (template_file) return read_template(&c->template, template_file, st);
    if (!m->chat_template) return ST_OK;
    if (tmpl_parse(&c->template, m->chat_template, strlen(m->chat_template), st))
        return status_prefix(st, "the model's chat template (--chat-template FILE gives another)");
    return ST_OK;
}

static void free_message(chat_message *m)
{
    mem_free((char *)(uintptr_t)m->role);
    mem_free((char *)(uintptr_t)m->content);
}

void conversation_truncate(conversation *c, size_t n)
{
    while (c->n > n) free_message(&c->messages[--c->n]);
}

void conversation_deinit(conversation *c)
{
    conversation_truncate(c, 0);
    mem_free(c->messages);
    tmpl_free(c->template);
    *c = (conversation){0};
}

static int make_message(chat_message *out, const char *role, const char *text, size_t n_bytes, status *st)
{
    *out = (chat_message){.role = mem_strdup(role), .content = mem_strndup(text, n_bytes), .content_bytes = n_bytes};
    if (out->role && out->content) return ST_OK;
    free_message(out);
    return status_nomem(st, n_bytes);
}

static int reserve(conversation *c, status *st)
{
    if (c->n < c->capacity) return ST_OK;
    size_t capacity = c->capacity ? 2 * c->capacity : 16;
    chat_message *p = mem_resize(c->messages, capacity, sizeof *p);
    if (!p) return status_nomem(st, capacity * sizeof *p);
    c->messages = p;
    c->capacity = capacity;
    return ST_OK;
}

int conversation_add(conversation *c, const char *role, const char *text, size_t n_bytes, status *st)
{
    if (reserve(c, st) || make_message(&c->messages[c->n], role, text, n_bytes, st)) return st->code;
    c->n++;
    return ST_OK;
}

int conversation_set_system(conversation *c, const char *text, status *st)
{
    chat_message m;
    bool has = c->n > 0 && strcmp(c->messages[0].role, "system") == 0, wants = *text != 0;
    if (wants && (reserve(c, st) || make_message(&m, "system", text, strlen(text), st))) return st->code;
    if (has) free_message(&c->messages[0]);
    if (has && !wants) memmove(c->messages, c->messages + 1, --c->n * sizeof *c->messages);
    if (!has && wants) memmove(c->messages + 1, c->messages, c->n++ * sizeof *c->messages);
    if (wants) c->messages[0] = m;
    return ST_OK;
}

static int encode_raw(const conversation *c, const model *m, token_list *out, status *st)
{
    strbuf text;
    strbuf_init(&text, 0);
    for (size_t i = 0; i < c->n; i++) strbuf_add(&text, c->messages[i].content, c->messages[i].content_bytes);
    int rc = strbuf_check(&text, st);
    const encode_options o = {.add_special = true, .parse_special = c->parse_special};
    if (rc == ST_OK) rc = tokenizer_encode(m->tok, strbuf_cstr(&text), text.n_bytes, o, out, st);
    strbuf_deinit(&text);
    return rc;
}

int conversation_encode(const conversation *c, const model *m, token_list *out, status *st)
{
    if (!c->template) return encode_raw(c, m, out, st);
    tmpl_data *d = tmpl_data_new();
    if (!d) return status_nomem(st, sizeof(void *));
    tmpl_value *root = tmpl_map(d);
    tmpl_map_set(d, root, "messages", chat_messages(d, c->messages, c->n));
    const chat_options o = {.add_generation_prompt = true,
                            .parse_special = c->parse_special,
                            .now_unix_s = (int64_t)time(NULL)};
    int rc = chat_encode(c->template, m->tok, d, root, &o, out, st);
    tmpl_data_free(d);
    return rc;
}

int conversation_save(const conversation *c, const char *path, status *st)
{
    strbuf b;
    strbuf_init(&b, 0);
    strbuf_putc(&b, '[');
    for (size_t i = 0; i < c->n; i++) {
        strbuf_puts(&b, i ? ",\n {\"role\": " : "{\"role\": ");
        strbuf_json(&b, c->messages[i].role, strlen(c->messages[i].role));
        strbuf_puts(&b, ", \"content\": ");
        strbuf_json(&b, c->messages[i].content, c->messages[i].content_bytes);
        strbuf_putc(&b, '}');
    }
    strbuf_puts(&b, "]\n");
    int rc = strbuf_check(&b, st);
    if (rc == ST_OK) rc = file_write_atomic(path, b.data, b.n_bytes, st);
    strbuf_deinit(&b);
    return rc;
}

static int add_parsed(conversation *c, const json_t *array, status *st)
{
    if (!json_is_array(array)) return status_set(st, ST_FORMAT, STATUS_NO_POS, "not an array of messages");
    size_t i;
    json_t *m;
    json_array_foreach(array, i, m)
    {
        json_t *role = json_object_get(m, "role"), *content = json_object_get(m, "content");
        if (!json_is_string(role) || strlen(json_string_value(role)) != json_string_length(role) ||
            !json_is_string(content))
            return status_set(st, ST_FORMAT, i, "message %zu lacks a role or content text", i + 1);
        if (json_object_size(m) > 2)
            return status_set(st, ST_FORMAT, i,
                              "message %zu has more than a role and a content, which a chat here can't keep", i + 1);
        if (conversation_add(c, json_string_value(role), json_string_value(content), json_string_length(content), st))
            return st->code;
    }
    return ST_OK;
}

int conversation_parse(conversation *c, const char *text, size_t n_bytes, status *st)
{
    json_t *array = json_parse(text, n_bytes, JSON_ALLOW_NUL, st);
    if (!array) return st->code;
    size_t old = c->n;
    int rc = add_parsed(c, array, st);
    json_decref(array);
    if (rc) {
        conversation_truncate(c, old);
        return rc;
    }
    for (size_t i = 0; i < old; i++) free_message(&c->messages[i]);
    c->n -= old;
    if (old) memmove(c->messages, c->messages + old, c->n * sizeof *c->messages);
    return ST_OK;
}

int conversation_load(conversation *c, const char *path, status *st)
{
    strbuf text;
    strbuf_init(&text, 0);
    int rc = file_read(&text, path, MAX_FILE_BYTES, st);
    if (rc == ST_OK && (rc = conversation_parse(c, strbuf_cstr(&text), text.n_bytes, st)))
        status_prefix(st, "%s", path);
    strbuf_deinit(&text);
    return rc;
}
