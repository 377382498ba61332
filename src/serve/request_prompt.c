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
