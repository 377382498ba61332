#include "serve/chat_prompt.h"

#include <string.h>
#include <time.h>

#include "model/chat.h"
#include "serve/json_limits.h"

/* From JSON to a template's values. After a failure e is filled and every function returns NULL at once. */
typedef struct converter {
    tmpl_data *d;
    size_t n_values, n_content_bytes;
    bool plain; /* texts of arguments stay texts, a content of none is empty (CP1) */
    bool knows_developer;
    bool adapted; /* something would be different if plain */
    api_error *e;
    bool failed;
} converter;

static tmpl_value *fail(converter *c, const char *what)
{
    c->failed = true;
    api_error_set(c->e, 400, "invalid_value", "messages", "%s", what);
    return NULL;
}

static tmpl_value *convert(converter *c, const json_t *v, int depth)
{
    size_t i;
    const char *key;
    json_t *item;
    tmpl_value *to;
    if (c->failed) return NULL;
    if (depth > CHAT_MAX_DEPTH) return fail(c, "the conversation's values are nested too deep");
    if (++c->n_values > CHAT_MAX_VALUES) return fail(c, "the conversation has too many values");
    switch (json_typeof(v)) {
    case JSON_STRING: return tmpl_string(c->d, json_string_value(v), json_string_length(v));
    case JSON_INTEGER: return tmpl_int(c->d, json_integer_value(v));
    case JSON_REAL: return tmpl_float(c->d, json_real_value(v));
    case JSON_TRUE:
    case JSON_FALSE: return tmpl_bool(c->d, json_is_true(v));
    case JSON_NULL: return tmpl_none(c->d);
    case JSON_ARRAY:
        to = tmpl_list(c->d);
        json_array_foreach(v, i, item) tmpl_list_add(c->d, to, convert(c, item, depth + 1));
        return to;
    default:
        to = tmpl_map(c->d);
        json_object_foreach((json_t *)(uintptr_t)v, key, item) tmpl_map_set(c->d, to, key, convert(c, item, depth + 1));
        return to;
    }
}

/* {"name": ..., "arguments": "{...}"}: OpenAI's clients give a text, most templates want the object in it. */
static tmpl_value *convert_function(converter *c, const json_t *function, int depth)
{
    tmpl_value *to = convert(c, function, depth);
    const json_t *text = json_object_get(function, "arguments");
    if (!json_is_string(text) || c->plain) return to;
    api_error too_large;
    if (json_check_limits(json_string_value(text), json_string_length(text), &too_large)) return to;
    json_t *parsed = json_loadb(json_string_value(text), json_string_length(text), JSON_ALLOW_NUL, NULL);
    if (json_is_object(parsed)) {
        tmpl_map_set(c->d, to, "arguments", convert(c, parsed, depth + 1));
        c->adapted = true;
    }
    json_decref(parsed);
    return to;
}

static tmpl_value *convert_calls(converter *c, const json_t *calls, int depth)
{
    size_t i;
    const json_t *call;
    tmpl_value *list = tmpl_list(c->d);
    json_array_foreach(calls, i, call)
    {
        tmpl_value *to = convert(c, call, depth + 1);
        const json_t *function = json_object_get(call, "function");
        if (json_is_object(function)) tmpl_map_set(c->d, to, "function", convert_function(c, function, depth + 2));
        tmpl_list_add(c->d, list, to);
    }
    return list;
}

/* The texts of the parts one after the other. */
static tmpl_value *join_parts(converter *c, const json_t *parts)
{
    size_t i;
    const json_t *part;
    strbuf text;
    strbuf_init(&text, 0);
    json_array_foreach(parts, i, part)
    {
        const json_t *s = json_object_get(part, "text");
        strbuf_add(&text, json_string_value(s), json_string_length(s));
    }
    c->n_content_bytes += text.n_bytes;
    status st = STATUS_INIT;
    tmpl_value *to = NULL;
    if (strbuf_check(&text, &st) == ST_OK) to = tmpl_string(c->d, strbuf_cstr(&text), text.n_bytes);
    else {
        c->failed = true;
        api_error_nomem(c->e);
    }
    strbuf_deinit(&text);
    return to;
}

static tmpl_value *convert_member(converter *c, const char *key, const json_t *v)
{
    bool content = strcmp(key, "content") == 0;
    if (content) c->n_content_bytes += json_string_length(v);
    if (content && json_is_array(v)) return join_parts(c, v);
    if (content && json_is_null(v)) {
        c->adapted = true;
        return c->plain ? tmpl_string(c->d, "", 0) : tmpl_none(c->d);
    }
    if (json_is_null(v)) return NULL;
    if (strcmp(key, "role") == 0 && strcmp(json_string_value(v), "developer") == 0 && !c->knows_developer)
        return chat_role(c->d, "system", 6);
    if (strcmp(key, "role") == 0) return chat_role(c->d, json_string_value(v), json_string_length(v));
    if (strcmp(key, "tool_calls") == 0 && json_is_array(v)) return convert_calls(c, v, 3);
    if (strcmp(key, "function_call") == 0 && json_is_object(v)) return convert_function(c, v, 3);
    return convert(c, v, 3);
}

static tmpl_value *convert_message(converter *c, const json_t *message)
{
    const char *key;
    json_t *v;
    tmpl_value *to = tmpl_map(c->d);
    json_object_foreach((json_t *)(uintptr_t)message, key, v)
    {
        tmpl_map_set(c->d, to, key, convert_member(c, key, v));
    }
    return to;
}

static tmpl_value *convert_request(converter *c, const request *r)
{
    size_t i;
    const json_t *message;
    tmpl_value *root = r->template_kwargs ? convert(c, r->template_kwargs, 1) : tmpl_map(c->d), *list = tmpl_list(c->d);
    json_array_foreach(r->messages, i, message) tmpl_list_add(c->d, list, convert_message(c, message));
    tmpl_map_set(c->d, root, "messages", list);
    tmpl_map_set(c->d, root, "tools", r->tools ? convert(c, r->tools, 1) : tmpl_none(c->d));
    if (r->reasoning_effort) {
        const char *effort = r->reasoning_effort;
        tmpl_map_set(c->d, root, "reasoning_effort", tmpl_string(c->d, effort, strlen(effort)));
    }
    tmpl_map_set(c->d, root, "documents", r->documents ? convert(c, r->documents, 1) : tmpl_none(c->d));
    return root;
}

/* The text is bound to be too long if its contents are. */
static int check_length(const converter *c, const served_model *m)
{
    size_t n_tokens = c->n_content_bytes / m->longest_piece;
    if (c->failed) return c->e->http_status;
    if (n_tokens <= (size_t)m->context) return 0;
    return api_error_set(
        c->e, 400, "context_length_exceeded", "messages",
        "the prompt's %zu bytes are more than %zu tokens, but the context holds %d; shorten the prompt",
        c->n_content_bytes, n_tokens, m->context);
}

/* *again: the template failed, and rendering plainly would be something else. */
static int render(const request *r, const served_model *m, bool plain, bool *again, strbuf *out, text_ranges *trusted,
                  api_error *e)
{
    status st = STATUS_INIT;
    converter c = {.d = tmpl_data_new(), .plain = plain, .knows_developer = m->knows_developer, .e = e};
    if (!c.d) return api_error_nomem(e);
    const chat_options o = {.add_generation_prompt = r->add_generation_prompt,
                            .parse_special = r->parse_special,
                            .now_unix_s = (int64_t)time(NULL)};
    tmpl_value *root = convert_request(&c, r);
    int rc = check_length(&c, m);
    if (rc == 0 && chat_render(m->template, m->m->tok, c.d, root, &o, out, trusted, &st))
        rc = st.code == ST_NOMEM ? api_error_nomem(e)
                                 : api_error_set(e, 400, "chat_template", "messages", "%s", st.text);
    *again = c.adapted && st.code == ST_ARG;
    tmpl_data_free(c.d);
    return rc;
}

int chat_prompt_text(const request *r, const served_model *m, strbuf *out, text_ranges *trusted, api_error *e)
{
    if (!m->template)
        return api_error_set(e, 400, "no_chat_template", NULL,
                             "%s has no chat template (a base model?); use /v1/completions", m->name);
    if (json_array_size(r->messages) > (size_t)m->context)
        return api_error_set(e, 400, "context_length_exceeded", "messages",
                             "%zu messages are more than the context's %d tokens; send fewer",
                             json_array_size(r->messages), m->context);
    bool again = false;
    int rc = render(r, m, false, &again, out, trusted, e);
    if (rc == 0 || !again) return rc;
    api_error second;
    if (render(r, m, true, &again, out, trusted, &second)) return rc;
    *e = (api_error){0};
    return 0;
}

#define COUNTED_CONTEXTS 4 /* beyond that nobody needs to know how many tokens it would have been */

int prompt_encode(const served_model *m, const char *text, size_t n_bytes, encode_options how, const char *param,
                  token_list *out, api_error *e)
{
    status st = STATUS_INIT;
    out->limit = (size_t)m->context * COUNTED_CONTEXTS;
    if (tokenizer_encode(m->m->tok, text, n_bytes, how, out, &st) == ST_OK) return 0;
    if (st.code != ST_LIMIT) return api_error_from_status(e, &st);
    return api_error_set(e, 400, "context_length_exceeded", param,
                         "the prompt has more than %zu tokens, but the context holds %d; shorten the prompt",
                         out->limit, m->context);
}

int chat_prompt_ids(const request *r, const served_model *m, token_list *out, api_error *e)
{
    strbuf text;
    text_ranges trusted = {0};
    strbuf_init(&text, 0);
    int rc = chat_prompt_text(r, m, &text, &trusted, e);
    const encode_options as_written = {.trusted = &trusted};
    if (rc == 0) rc = prompt_encode(m, strbuf_cstr(&text), text.n_bytes, as_written, "messages", out, e);
    strbuf_deinit(&text);
    text_ranges_deinit(&trusted);
    return rc;
}
