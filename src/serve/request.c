#include "serve/request.h"

#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>

#include "serve/json_limits.h"

#define IN_COMPLETION 1u
#define IN_CHAT 2u
#define IN_BOTH 3u

static const char *type_name(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number with a fraction";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    default: return "null";
    }
}

int wrong_type(api_error *e, const char *name, const char *what, const json_t *got)
{
    return api_error_set(e, 400, "invalid_type", name, "'%s' must be %s; got %s", name, what, type_name(got));
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

static int read_int64(request *r, const field *f, const json_t *v, api_error *e)
{
    if (!json_is_integer(v)) return wrong_type(e, f->name, "an integer", v);
    json_int_t i = json_integer_value(v);
    if ((double)i < f->min || (double)i > f->max) return out_of_range(e, f);
    *(int64_t *)at(r, f) = i;
    return 0;
}

static int read_int(request *r, const field *f, const json_t *v, api_error *e)
{
    if (!json_is_integer(v)) return wrong_type(e, f->name, "an integer", v);
    json_int_t i = json_integer_value(v);
    if ((double)i < f->min || (double)i > f->max) return out_of_range(e, f);
    *(int *)at(r, f) = (int)i;
    return 0;
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
    if (!json_is_integer(v)) return wrong_type(e, f->name, "an integer", v);
    r->params.sampling.seed = (uint64_t)json_integer_value(v);
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
        if (!json_is_integer(id)) return wrong_type(e, name, "an array of token ids", id);
        json_int_t k = json_integer_value(id);
        if (k < 0 || k >= r->n_vocab)
            return api_error_set(e, 400, "invalid_value", name, "%lld is no token: the vocabulary has %d", (long long)k,
                                 r->n_vocab);
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
        if (!canonical || *end || id >= r->n_vocab)
            return api_error_set(e, 400, "invalid_value", f->name, "'%.40s' is no token id: the vocabulary has %d", key,
                                 r->n_vocab);
        double b = 0;
        if (read_number(f, x, &b, e)) return e->http_status;
        bias[r->params.sampling.n_bias++] = (logit_bias){(int32_t)id, (float)b};
    }
    r->params.sampling.bias = bias;
    return 0;
}

static int read_stream_options(request *r, const field *f, const json_t *v, api_error *e)
{
    if (!json_is_object(v)) return wrong_type(e, f->name, "an object", v);
    const json_t *usage = json_object_get(v, "include_usage");
    if (!usage || json_is_null(usage)) return 0;
    if (!json_is_boolean(usage)) return wrong_type(e, "stream_options.include_usage", "a boolean", usage);
    r->include_usage = json_is_true(usage);
    return 0;
}

/* A completion's logprobs is a number, a chat's a boolean with top_logprobs beside it. */
static int read_logprobs(request *r, const field *f, const json_t *v, api_error *e)
{
    if (r->chat) return read_bool(r, f, v, e);
    if (read_int(r, &(field){.name = f->name, .offset = offsetof(request, params.n_logprobs), .max = MAX_LOGPROBS}, v,
                 e))
        return e->http_status;
    r->logprobs = true;
    return 0;
}

static int read_response_format(request *r, const field *f, const json_t *v, api_error *e)
{
    (void)r;
    if (!json_is_object(v)) return wrong_type(e, f->name, "an object", v);
    const char *type = json_string_value(json_object_get(v, "type"));
    if (!type) return api_error_set(e, 400, "invalid_type", f->name, "'%s' needs a 'type'", f->name);
    if (strcmp(type, "text") == 0) return 0;
    return api_error_set(e, 400, "unsupported_value", f->name, "'%s' can only be text here", f->name);
}

/* Lists and texts that ask for something this server can't do, unless they are empty. */
static int read_unsupported(request *r, const field *f, const json_t *v, api_error *e)
{
    (void)r;
    bool list = json_is_array(v), text = json_is_string(v);
    if (!list && !text) return wrong_type(e, f->name, "an array or a string", v);
    if (list ? json_array_size(v) == 0 : json_string_length(v) == 0) return 0;
    return api_error_set(e, 400, "unsupported_parameter", f->name, "'%s' is not supported", f->name);
}

#define PLACE(member) offsetof(request, member)
#define SAMPLING(member) PLACE(params.sampling.member)

/* Aliases follow the name that they stand for. */
static const field fields[] = {
    {"prompt", IN_COMPLETION, read_prompt, 0, 0, 0},
    {"messages", IN_CHAT, read_messages, 0, 0, 0},
    {"model", IN_BOTH, read_string, 0, 0, 0},
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
    {"dry_multiplier", IN_BOTH, read_float, SAMPLING(dry_multiplier), 0, 100},
    {"dry_base", IN_BOTH, read_float, SAMPLING(dry_base), 1, 100},
    {"dry_allowed_length", IN_BOTH, read_int, SAMPLING(dry_allowed_length), 0, 1e9},
    {"dry_last_n", IN_BOTH, read_int, SAMPLING(dry_last_n), -1, 1e9},
    {"xtc_probability", IN_BOTH, read_float, SAMPLING(xtc_probability), 0, 1},
    {"xtc_threshold", IN_BOTH, read_float, SAMPLING(xtc_threshold), 0, 1},
    {"logit_bias", IN_BOTH, read_bias, 0, -100, 100},
    {"seed", IN_BOTH, read_seed, 0, 0, 0},
    {"stop", IN_BOTH, read_stop, 0, 0, 0},
    {"stop_token_ids", IN_BOTH, read_stop_tokens, 0, 0, 0},
    {"ignore_eos", IN_BOTH, read_bool, PLACE(params.ignore_eos), 0, 0},
    {"skip_special_tokens", IN_BOTH, read_bool, PLACE(skip_special), 0, 0},
    {"add_special_tokens", IN_COMPLETION, read_bool, PLACE(add_special), 0, 0},
    {"parse_special", IN_COMPLETION, read_bool, PLACE(parse_special), 0, 0},
    {"priority", IN_BOTH, read_int, PLACE(params.priority), INT32_MIN, INT32_MAX},
    {"cache_salt", IN_BOTH, read_salt, 0, 0, 0},
    {"cache_pin", IN_BOTH, read_double, PLACE(params.pin_s), 0, MAX_SECONDS},
    {"timeout", IN_BOTH, read_double, PLACE(params.deadline_s), 0.001, MAX_SECONDS},
    {"response_format", IN_CHAT, read_response_format, 0, 0, 0},
    {"tools", IN_CHAT, read_unsupported, 0, 0, 0},
    {"functions", IN_CHAT, read_unsupported, 0, 0, 0},
    {"suffix", IN_COMPLETION, read_unsupported, 0, 0, 0},
};

/* OpenAI's defaults. Penalties look at the whole text so far. */
static void set_defaults(request *r)
{
    *r = (request){
        .n = 1, .best_of = -1, .max_tokens = -1, .add_special = true, .parse_special = true, .skip_special = true,
        .add_generation_prompt = true};
    r->params = (generate_params){
        .sampling = sampler_defaults(), .max_tokens = -1, .stop = r->stops, .n_logprobs = -1, .keep = -1};
    sampler_params *s = &r->params.sampling;
    s->temperature = s->top_p = 1;
    s->top_k = 0;
    s->min_p = 0;
    s->penalty_last_n = -1;
}

/* What fields say together. */
static int check_together(request *r, api_error *e)
{
    if (r->chat ? !r->messages : !r->prompts)
        return api_error_set(e, 400, "missing_required_parameter", r->chat ? "messages" : "prompt",
                             "a request needs '%s'", r->chat ? "messages" : "prompt");
    if (r->best_of < 0) r->best_of = r->n;
    if (r->best_of < r->n)
        return api_error_set(e, 400, "invalid_value", "best_of", "'best_of' is %d, less than 'n', which is %d",
                             r->best_of, r->n);
    if (r->best_of > r->n && r->stream)
        return api_error_set(e, 400, "invalid_value", "best_of",
                             "with 'stream', 'best_of' can't be greater than 'n': the best are known at the end");
    if (r->n_prompts * (size_t)r->best_of > REQUEST_MAX_CHOICES)
        return api_error_set(e, 400, "invalid_value", r->best_of > r->n ? "best_of" : "n",
                             "%zu prompts with %d choices each; at most %d choices are possible in one request",
                             r->n_prompts, r->best_of, REQUEST_MAX_CHOICES);
    if (r->chat && r->params.n_logprobs >= 0 && !r->logprobs)
        return api_error_set(e, 400, "invalid_value", "top_logprobs", "'top_logprobs' needs 'logprobs' to be true");
    if (r->include_usage && !r->stream)
        return api_error_set(e, 400, "invalid_value", "stream_options", "'stream_options' needs 'stream' to be true");
    return 0;
}

/* The engine's parameters, as far as the fields decide them. */
static void fill_params(request *r)
{
    generate_params *p = &r->params;
    if (p->sampling.top_k < 0) p->sampling.top_k = 0;
    if (r->chat && r->logprobs && p->n_logprobs < 0) p->n_logprobs = 0;
    if (r->best_of > r->n && p->n_logprobs < 0) p->n_logprobs = 0; /* the best are chosen by them */
    p->prompt_logprobs = r->echo && r->logprobs;
    p->show_special = !r->skip_special;
    if (!r->chat && r->max_tokens < 0) p->max_tokens = 16;
    else p->max_tokens = r->max_tokens;
}

json_t *request_object(const char *text, size_t n_bytes, api_error *e)
{
    json_error_t error;
    if (json_check_limits(text, n_bytes, e)) return NULL;
    json_t *v = json_loadb(text, n_bytes, JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
    if (!v && json_error_code(&error) == json_error_out_of_memory) api_error_nomem(e);
    else if (!v)
        api_error_set(e, 400, "invalid_json", NULL, "the body is not valid JSON (line %d, column %d): %s", error.line,
                      error.column, error.text);
    else if (!json_is_object(v)) {
        api_error_set(e, 400, "invalid_type", NULL, "the body must be a JSON object; got %s", type_name(v));
        json_decref(v);
        v = NULL;
    }
    return v;
}

int request_parse(request *r, bool chat, const char *text, size_t n_bytes, int n_vocab, api_error *e)
{
    set_defaults(r);
    r->chat = chat;
    r->n_vocab = n_vocab;
    arena_init(&r->arena, 0);
    r->body = request_object(text, n_bytes, e);
    if (!r->body) return e->http_status;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const field *f = &fields[i];
        const json_t *v = f->where & (chat ? IN_CHAT : IN_COMPLETION) ? json_object_get(r->body, f->name) : NULL;
        if (v && !json_is_null(v) && f->read(r, f, v, e)) return e->http_status;
    }
    if (check_together(r, e)) return e->http_status;
    fill_params(r);
    return 0;
}

void request_forget_json(request *r)
{
    json_decref(r->body);
    r->body = NULL;
    r->prompts = NULL;
    r->messages = r->tools = r->documents = r->template_kwargs = NULL;
}

void request_deinit(request *r)
{
    request_forget_json(r);
    arena_deinit(&r->arena);
}
