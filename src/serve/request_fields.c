/* The fields that are obeyed: what each may hold, and where it goes. */
#include <math.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/request.h"

int wrong_type(api_error *e, const char *name, const char *what, const json_t *got)
{
    return api_error_set(e, 400, "invalid_type", name, "'%s' must be %s; got %s", name, what, json_type_name(got));
}

static int out_of_range(api_error *e, const field *f)
{
    return api_error_set(e, 400, "invalid_value", f->name, "'%s' must be between %.10g and %.10g", f->name, f->min,
                         f->max);
}

static void *at(request *r, const field *f)
{
    return (char *)r + f->offset;
}

static int read_bool(request *r, const field *f, const json_t *v, api_error *e)
{
    if (!json_is_boolean(v)) return wrong_type(e, f->name, "a boolean", v);
    *(bool *)at(r, f) = json_is_true(v);
    return 0;
}

/* JSON knows no integers: 2.0 is 2. */
static int read_whole(const field *f, const json_t *v, json_int_t *out, api_error *e)
{
    double x = json_number_value(v);
    if (!json_is_number(v) || floor(x) != x) return wrong_type(e, f->name, "an integer", v);
    if (x < f->min || x > f->max || (json_is_real(v) && fabs(x) >= 0x1p63)) return out_of_range(e, f);
    *out = json_is_integer(v) ? json_integer_value(v) : (json_int_t)x;
    return 0;
}

static int read_int64(request *r, const field *f, const json_t *v, api_error *e)
{
    json_int_t i = 0;
    if (read_whole(f, v, &i, e)) return e->http_status;
    *(int64_t *)at(r, f) = i;
    return 0;
}

static int read_int(request *r, const field *f, const json_t *v, api_error *e)
{
    json_int_t i = 0;
    if (read_whole(f, v, &i, e)) return e->http_status;
    *(int *)at(r, f) = (int)i;
    return 0;
}

/* -1: as many as fit, as llama-server has it. */
static int read_n_predict(request *r, const field *f, const json_t *v, api_error *e)
{
    if (read_int64(r, f, v, e)) return e->http_status;
    r->fill_context = r->max_tokens < 0;
    return 0;
}

/* Lower goes first, as in vLLM, whose field it is; in the engine higher does. */
static int read_priority(request *r, const field *f, const json_t *v, api_error *e)
{
    if (read_int(r, f, v, e)) return e->http_status;
    if (r->params.priority < r->rules->min_priority)
        return api_error_set(e, 400, "invalid_value", f->name,
                             "'%s' must be at least %d here: lower numbers go first, and the server (--min-priority) "
                             "lets nobody go before that",
                             f->name, r->rules->min_priority);
    r->params.priority = -r->params.priority;
    return 0;
}

static int read_model(request *r, const field *f, const json_t *v, api_error *e)
{
    const char *const *name = r->rules->names;
    if (!json_is_string(v)) return wrong_type(e, f->name, "a string", v);
    for (; name && *name; name++)
        if (strcmp(*name, json_string_value(v)) == 0 && strlen(*name) == json_string_length(v)) return 0;
    if (!r->rules->names || request_ignore(r, f->name)) return 0;
    return api_error_set(e, 404, "model_not_found", f->name,
                         "there is no model '%.100s' here; the one that is served is %s", json_string_value(v),
                         *r->rules->names);
}

static int read_number(const field *f, const json_t *v, double *x, api_error *e)
{
    if (!json_is_number(v)) return wrong_type(e, f->name, "a number", v);
    *x = json_number_value(v);
    return *x < f->min || *x > f->max ? out_of_range(e, f) : 0;
}

static int read_float(request *r, const field *f, const json_t *v, api_error *e)
{
    double x = 0;
    if (read_number(f, v, &x, e)) return e->http_status;
    *(float *)at(r, f) = (float)x;
    return 0;
}

static int read_double(request *r, const field *f, const json_t *v, api_error *e)
{
    return read_number(f, v, at(r, f), e);
}

/* Of interest to others: the type is all that is checked. */
static int read_string(request *r, const field *f, const json_t *v, api_error *e)
{
    (void)r;
    return json_is_string(v) ? 0 : wrong_type(e, f->name, "a string", v);
}

static int read_seed(request *r, const field *f, const json_t *v, api_error *e)
{
    json_int_t i = 0;
    if (read_whole(f, v, &i, e)) return e->http_status;
    r->params.sampling.seed = (uint64_t)i;
    r->has_seed = true;
    return 0;
}

/* Tenants that guess each other's salts must not share: a hash that can't be steered. */
static int read_salt(request *r, const field *f, const json_t *v, api_error *e)
{
    if (!json_is_string(v)) return wrong_type(e, f->name, "a string", v);
    if (json_string_length(v) == 0)
        return api_error_set(e, 400, "invalid_value", f->name, "'%s' must not be empty; leave it out to share",
                             f->name);
    uint8_t digest[SHA256_DIGEST_LENGTH];
    SHA256((const uint8_t *)json_string_value(v), json_string_length(v), digest);
    memcpy(&r->params.salt, digest, sizeof r->params.salt);
    return 0;
}

static int read_stop_string(request *r, const field *f, const json_t *v, api_error *e)
{
    size_t n = json_string_length(v);
    if (n == 0 || n > REQUEST_MAX_STOP_BYTES || strlen(json_string_value(v)) != n)
        return api_error_set(e, 400, "invalid_value", f->name, "a stop string has 1 to %d bytes, none of them zero",
                             REQUEST_MAX_STOP_BYTES);
    const char *copy = arena_strndup(&r->arena, json_string_value(v), n);
    if (!copy) return api_error_nomem(e);
    r->stops[r->params.n_stop++] = copy;
    return 0;
}

static int read_stop(request *r, const field *f, const json_t *v, api_error *e)
{
    r->params.n_stop = 0;
    if (json_is_string(v)) return read_stop_string(r, f, v, e);
    if (!json_is_array(v)) return wrong_type(e, f->name, "a string or an array of strings", v);
    if (json_array_size(v) > REQUEST_MAX_STOPS)
        return api_error_set(e, 400, "invalid_value", f->name, "'%s' has %zu strings; at most %d are possible", f->name,
                             json_array_size(v), REQUEST_MAX_STOPS);
    size_t i;
    json_t *s;
    json_array_foreach(v, i, s)
    {
        if (!json_is_string(s)) return wrong_type(e, f->name, "a string or an array of strings", s);
        if (read_stop_string(r, f, s, e)) return e->http_status;
    }
    return 0;
}

int read_ids(request *r, const char *name, const json_t *v, int32_t **ids, size_t *n, api_error *e)
{
    *n = json_array_size(v);
    *ids = arena_array(&r->arena, *n ? *n : 1, sizeof **ids);
    if (!*ids) return api_error_nomem(e);
    size_t i;
    json_t *id;
    json_array_foreach(v, i, id)
    {
        double k = json_number_value(id);
        if (!json_is_number(id) || floor(k) != k) return wrong_type(e, name, "an array of token ids", id);
        if (k < 0 || k >= r->rules->n_vocab)
            return api_error_set(e, 400, "invalid_value", name, "%.10g is no token: the vocabulary has %d", k,
                                 r->rules->n_vocab);
        (*ids)[i] = (int32_t)k;
    }
    return 0;
}

static int read_stop_tokens(request *r, const field *f, const json_t *v, api_error *e)
{
    if (!json_is_array(v)) return wrong_type(e, f->name, "an array of token ids", v);
    size_t n;
    int32_t *ids;
    if (json_array_size(v) > REQUEST_MAX_CHOICES)
        return api_error_set(e, 400, "invalid_value", f->name, "'%s' has %zu ids; at most %d are possible", f->name,
                             json_array_size(v), REQUEST_MAX_CHOICES);
    if (read_ids(r, f->name, v, &ids, &n, e)) return e->http_status;
    r->params.stop_tokens = ids;
    r->params.n_stop_tokens = (int)n;
    return 0;
}

static int read_bias(request *r, const field *f, const json_t *v, api_error *e)
{
    if (!json_is_object(v)) return wrong_type(e, f->name, "an object of token ids and numbers", v);
    logit_bias *bias = arena_array(&r->arena, json_object_size(v) + 1, sizeof *bias);
    if (!bias) return api_error_nomem(e);
    const char *key;
    json_t *x;
    json_object_foreach((json_t *)(uintptr_t)v, key, x)
    {
        char *end;
        long id = strtol(key, &end, 10);
        bool canonical = *key >= '0' && *key <= '9' && (*key != '0' || !key[1]); /* no token twice */
        if (!canonical || *end || id >= r->rules->n_vocab)
            return api_error_set(e, 400, "invalid_value", f->name, "'%.40s' is no token id: the vocabulary has %d", key,
                                 r->rules->n_vocab);
        double b = 0;
        if (read_number(f, x, &b, e)) return e->http_status;
        bias[r->params.sampling.n_bias++] = (logit_bias){(int32_t)id, (float)b};
    }
    r->params.sampling.bias = bias;
    return 0;
}

/* A member of a field that is an object. */
static int unknown_member(request *r, const field *f, const char *key, const char *known, api_error *e)
{
    char name[sizeof e->param];
    snprintf(name, sizeof name, "%s.%.40s", f->name, key);
    if (request_ignore(r, name)) return 0;
    return api_error_set(e, 400, "unknown_parameter", name, "'%s' has no '%.60s'; it has %s", f->name, key, known);
}

static int read_stream_options(request *r, const field *f, const json_t *v, api_error *e)
{
    static const struct {
        const char *name;
        size_t offset;
        bool only_false; /* what it asks for is not done */
    } members[] = {{"include_usage", offsetof(request, include_usage), false},
                   {"continuous_usage_stats", offsetof(request, usage_in_chunks), false},
                   {"include_obfuscation", 0, true}};
    const char *key;
    json_t *x;
    if (!json_is_object(v)) return wrong_type(e, f->name, "an object", v);
    json_object_foreach((json_t *)(uintptr_t)v, key, x)
    {
        size_t i = 0, n = sizeof members / sizeof *members;
        char name[64];
        while (i < n && strcmp(members[i].name, key) != 0) i++;
        snprintf(name, sizeof name, "%s.%.40s", f->name, key);
        if (i == n && unknown_member(r, f, key, "include_usage, continuous_usage_stats", e)) return e->http_status;
        if (i == n || json_is_null(x)) continue;
        if (!json_is_boolean(x)) return wrong_type(e, name, "a boolean", x);
        if (!members[i].only_false) *(bool *)((char *)r + members[i].offset) = json_is_true(x);
        else if (json_is_true(x) && !request_ignore(r, name))
            return api_error_set(e, 400, "unsupported_parameter", name, "'%s' can only be false here", name);
    }
    return 0;
}

/* A completion's logprobs is a number, a chat's a boolean with top_logprobs beside it. */
static int read_logprobs(request *r, const field *f, const json_t *v, api_error *e)
{
    if (r->chat) return read_bool(r, f, v, e);
    if (json_is_false(v)) return 0;
    if (read_int(r, &(field){.name = f->name, .offset = offsetof(request, params.n_logprobs), .max = MAX_LOGPROBS}, v,
                 e))
        return e->http_status;
    r->logprobs = true;
    return 0;
}

static int read_response_format(request *r, const field *f, const json_t *v, api_error *e)
{
    const char *key, *type = json_string_value(json_object_get(v, "type"));
    json_t *x;
    if (!json_is_object(v)) return wrong_type(e, f->name, "an object", v);
    if (!type) return api_error_set(e, 400, "invalid_type", f->name, "'%s' needs a 'type', a string", f->name);
    if (strcmp(type, "text") != 0)
        return api_error_set(e, 400, "unsupported_value", f->name, "the type of '%s' can only be text here; got %.40s",
                             f->name, type);
    json_object_foreach((json_t *)(uintptr_t)v, key, x)
    {
        if (strcmp(key, "type") != 0 && !json_is_null(x) && unknown_member(r, f, key, "a type", e))
            return e->http_status;
    }
    return 0;
}

/* Where a repeated run may not be continued, for some clients the text of an array: of no effect while DRY is off, which
 * check_together looks at. */
static int read_breakers(request *r, const field *f, const json_t *v, api_error *e)
{
    if (!json_is_array(v) && !json_is_string(v)) return wrong_type(e, f->name, "an array of strings", v);
    r->dry_breakers = json_array_size(v) + json_string_length(v) > 0;
    return 0;
}

#define PLACE(member) offsetof(request, member)
#define SAMPLING(member) PLACE(params.sampling.member)

/* Aliases follow the name that they stand for. */
static const field fields[] = {
    {"prompt", IN_COMPLETION, read_prompt, 0, 0, 0},
    {"messages", IN_CHAT | IN_TOKENIZE, read_messages, 0, 0, 0},
    {"tools", IN_CHAT | IN_TOKENIZE, read_tools, 0, 0, 0},
    {"tool_choice", IN_CHAT, read_tool_choice, 0, 0, 0},
    {"documents", IN_CHAT | IN_TOKENIZE, read_documents, 0, 0, 0},
    {"chat_template_kwargs", IN_CHAT | IN_TOKENIZE, read_template_kwargs, 0, 0, 0},
    {"reasoning_effort", IN_CHAT | IN_TOKENIZE, read_effort, 0, 0, 0},
    {"add_generation_prompt", IN_CHAT | IN_TOKENIZE, read_bool, PLACE(add_generation_prompt), 0, 0},
    {"model", IN_ALL, read_model, 0, 0, 0},
    {"user", IN_BOTH, read_string, 0, 0, 0},
    {"n", IN_BOTH, read_int, PLACE(n), 1, REQUEST_MAX_CHOICES},
    {"best_of", IN_COMPLETION, read_int, PLACE(best_of), 1, REQUEST_MAX_CHOICES},
    {"echo", IN_COMPLETION, read_bool, PLACE(echo), 0, 0},
    {"stream", IN_BOTH, read_bool, PLACE(stream), 0, 0},
    {"stream_options", IN_BOTH, read_stream_options, 0, 0, 0},
    {"logprobs", IN_BOTH, read_logprobs, PLACE(logprobs), 0, 0},
    {"top_logprobs", IN_CHAT, read_int, PLACE(params.n_logprobs), 0, MAX_LOGPROBS},
    {"max_tokens", IN_BOTH, read_int64, PLACE(max_tokens), 0, 1e9},
    {"max_completion_tokens", IN_BOTH, read_int64, PLACE(max_tokens), 0, 1e9},
    {"max_new_tokens", IN_BOTH, read_int64, PLACE(max_tokens), 0, 1e9},
    {"n_predict", IN_BOTH, read_n_predict, PLACE(max_tokens), -1, 1e9},
    {"num_predict", IN_BOTH, read_n_predict, PLACE(max_tokens), -1, 1e9},
    {"min_tokens", IN_BOTH, read_int64, PLACE(params.min_tokens), 0, 1e9},
    {"temperature", IN_BOTH, read_float, SAMPLING(temperature), 0, 2},
    {"top_p", IN_BOTH, read_float, SAMPLING(top_p), 0, 1},
    {"top_k", IN_BOTH, read_int, SAMPLING(top_k), -1, 1e9},
    {"min_p", IN_BOTH, read_float, SAMPLING(min_p), 0, 1},
    {"typical_p", IN_BOTH, read_float, SAMPLING(typical_p), 0, 1},
    {"repeat_penalty", IN_BOTH, read_float, SAMPLING(repeat_penalty), 0.01, 100},
    {"repetition_penalty", IN_BOTH, read_float, SAMPLING(repeat_penalty), 0.01, 100},
    {"presence_penalty", IN_BOTH, read_float, SAMPLING(presence_penalty), -2, 2},
    {"frequency_penalty", IN_BOTH, read_float, SAMPLING(frequency_penalty), -2, 2},
    {"penalty_last_n", IN_BOTH, read_int, SAMPLING(penalty_last_n), -1, 1e9},
    {"repeat_last_n", IN_BOTH, read_int, SAMPLING(penalty_last_n), -1, 1e9},
    {"dry_multiplier", IN_BOTH, read_float, SAMPLING(dry_multiplier), 0, 100},
    {"dry_base", IN_BOTH, read_float, SAMPLING(dry_base), 1, 100},
    {"dry_allowed_length", IN_BOTH, read_int, SAMPLING(dry_allowed_length), 0, 1e9},
    {"dry_last_n", IN_BOTH, read_int, SAMPLING(dry_last_n), -1, 1e9},
    {"dry_penalty_last_n", IN_BOTH, read_int, SAMPLING(dry_last_n), -1, 1e9},
    {"dry_sequence_breakers", IN_BOTH, read_breakers, 0, 0, 0},
    {"xtc_probability", IN_BOTH, read_float, SAMPLING(xtc_probability), 0, 1},
    {"xtc_threshold", IN_BOTH, read_float, SAMPLING(xtc_threshold), 0, 1},
    {"logit_bias", IN_BOTH, read_bias, 0, -100, 100},
    {"seed", IN_BOTH, read_seed, 0, -0x1p63, 0x1p63},
    {"stop", IN_BOTH, read_stop, 0, 0, 0},
    {"stop_token_ids", IN_BOTH, read_stop_tokens, 0, 0, 0},
    {"ignore_eos", IN_BOTH, read_bool, PLACE(params.ignore_eos), 0, 0},
    {"skip_special_tokens", IN_BOTH, read_bool, PLACE(skip_special), 0, 0},
    {"content", IN_TOKENIZE, read_content, 0, 0, 0},
    {"prompt", IN_TOKENIZE, read_content, 0, 0, 0},
    {"tokens", IN_DETOKENIZE, read_tokens, 0, 0, 0},
    {"add_special", IN_TOKENIZE, read_bool, PLACE(add_special), 0, 0},
    {"add_special_tokens", IN_COMPLETION | IN_TOKENIZE, read_bool, PLACE(add_special), 0, 0},
    {"parse_special", IN_BOTH | IN_TOKENIZE, read_bool, PLACE(parse_special), 0, 0},
    {"with_pieces", IN_TOKENIZE, read_bool, PLACE(with_pieces), 0, 0},
    {"priority", IN_BOTH, read_priority, PLACE(params.priority), -INT32_MAX, INT32_MAX},
    {"cache_salt", IN_BOTH, read_salt, 0, 0, 0},
    {"cache_only", IN_BOTH, read_bool, PLACE(cache_only), 0, 0},
    {"cache_pin", IN_BOTH, read_double, PLACE(params.pin_s), 0, MAX_SECONDS},
    {"timeout", IN_BOTH, read_double, PLACE(params.deadline_s), 0.001, MAX_SECONDS},
    {"response_format", IN_CHAT, read_response_format, 0, 0, 0},
};

const field *field_at(size_t i)
{
    return i < sizeof fields / sizeof *fields ? &fields[i] : NULL;
}
