/* What a request goes on from: prompts in their four forms, and messages. */
#include <string.h>

#include "serve/request.h"

static int text_prompt(request *r, const json_t *v)
{
    r->prompts[r->n_prompts++] = (prompt_source){.text = json_string_value(v), .n_bytes = json_string_length(v)};
    return 0;
}

static int ids_prompt(request *r, const char *name, const json_t *v, api_error *e)
{
    int32_t *ids;
    size_t n;
    if (json_array_size(v) == 0)
        return api_error_set(e, 400, "invalid_value", name, "an empty array of tokens can't be gone on from");
    if (read_ids(r, name, v, &ids, &n, e)) return e->http_status;
    r->prompts[r->n_prompts++] = (prompt_source){.ids = ids, .n_ids = n};
    return 0;
}

/* "text", ["text", ...], [id, ...] or [[id, ...], ...]. */
int read_prompt(request *r, const field *f, const json_t *v, api_error *e)
{
    static const char forms[] = "a string, or an array of strings, of token ids, or of arrays of token ids";
    bool many = json_is_array(v) && json_array_size(v) > 0 && !json_is_number(json_array_get(v, 0));
    size_t n = many ? json_array_size(v) : 1;
    if (n > REQUEST_MAX_CHOICES)
        return api_error_set(e, 400, "invalid_value", f->name, "%zu prompts; at most %d are possible in one request", n,
                             REQUEST_MAX_CHOICES);
    r->prompts = arena_array(&r->arena, n, sizeof *r->prompts);
    if (!r->prompts) return api_error_nomem(e);
    if (json_is_string(v)) return text_prompt(r, v);
    if (!json_is_array(v)) return wrong_type(e, f->name, forms, v);
    if (!many) return ids_prompt(r, f->name, v, e);
    bool texts = json_is_string(json_array_get(v, 0));
    size_t i;
    json_t *p;
    json_array_foreach(v, i, p)
    {
        if (texts ? !json_is_string(p) : !json_is_array(p)) return wrong_type(e, f->name, forms, p);
        if (texts ? text_prompt(r, p) : ids_prompt(r, f->name, p, e)) return e->http_status;
    }
    return 0;
}

/* A text to tokenize, under either of its names. */
int read_content(request *r, const field *f, const json_t *v, api_error *e)
{
    if (!json_is_string(v)) return wrong_type(e, f->name, "a string", v);
    if (r->prompts)
        return api_error_set(e, 400, "invalid_value", f->name, "'content' and 'prompt' are two names of one text");
    r->prompts = arena_array(&r->arena, 1, sizeof *r->prompts);
    return r->prompts ? text_prompt(r, v) : api_error_nomem(e);
}

int read_tokens(request *r, const field *f, const json_t *v, api_error *e)
{
    prompt_source ids = {0};
    int32_t *list;
    if (!json_is_array(v)) return wrong_type(e, f->name, "an array of token ids", v);
    if (read_ids(r, f->name, v, &list, &ids.n_ids, e)) return e->http_status;
    ids.ids = list;
    r->prompts = arena_array(&r->arena, 1, sizeof *r->prompts);
    if (!r->prompts) return api_error_nomem(e);
    r->prompts[r->n_prompts++] = ids;
    return 0;
}

static bool is_role(const json_t *v)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function"};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (json_string_length(v) == strlen(roles[i]) && strcmp(json_string_value(v), roles[i]) == 0) return true;
    return false;
}

/* [{"type": "text", "text": "..."}, ...] */
static int check_parts(const json_t *parts, api_error *e)
{
    size_t i;
    const json_t *part;
    json_array_foreach(parts, i, part)
    {
        const json_t *type = json_object_get(part, "type"), *text = json_object_get(part, "text");
        if (!json_is_string(type)) return wrong_type(e, "messages", "parts with a type and a text", part);
        if (strcmp(json_string_value(type), "text") != 0)
            return api_error_set(e, 400, "unsupported_value", "messages", "content parts can only be text here");
        if (!json_is_string(text))
            return api_error_set(e, 400, "invalid_type", "messages", "a text part needs a 'text'");
    }
    return 0;
}

static int check_message(size_t index, const json_t *v, api_error *e)
{
    if (!json_is_object(v)) return wrong_type(e, "messages", "an array of objects", v);
    const json_t *role = json_object_get(v, "role"), *content = json_object_get(v, "content");
    if (!json_is_string(role))
        return api_error_set(e, 400, "invalid_type", "messages", "message %zu needs a 'role', a string", index);
    if (!is_role(role))
        return api_error_set(e, 400, "invalid_value", "messages",
                             "the role of message %zu is none of system, developer, user, assistant, tool, function",
                             index);
    if (json_is_array(content)) return check_parts(content, e);
    bool nothing = !content || json_is_null(content);
    if (nothing && strcmp(json_string_value(role), "assistant") != 0)
        return api_error_set(e, 400, "missing_required_parameter", "messages", "message %zu needs a 'content'", index);
    if (!nothing && !json_is_string(content))
        return wrong_type(e, "messages", "an array of messages whose content is a string or an array of text parts",
                          content);
    return 0;
}

int read_messages(request *r, const field *f, const json_t *v, api_error *e)
{
    if (!json_is_array(v)) return wrong_type(e, f->name, "an array of messages", v);
    if (json_array_size(v) == 0)
        return api_error_set(e, 400, "invalid_value", f->name, "'%s' must have at least one message", f->name);
    size_t i;
    const json_t *m;
    json_array_foreach(v, i, m)
    {
        if (check_message(i, m, e)) return e->http_status;
    }
    r->messages = v;
    r->n_messages = i;
    r->n_prompts = 1;
    return 0;
}
