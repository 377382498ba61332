#include "serve/request.h"

#include <stdio.h>
#include <string.h>

#include "base/nearest.h"

#define IGNORED_NAME_BYTES 64
#define MAX_IGNORED 64 /* fields of one request */

/* OpenAI's defaults. Penalties look at the whole text so far. */
static void set_defaults(request *r, request_kind kind, const request_rules *rules)
{
    *r = (request){.kind = kind,
                   .rules = rules,
                   .chat = kind == REQUEST_CHAT || kind == REQUEST_TEMPLATE,
                   .n = 1,
                   .best_of = -1,
                   .max_tokens = -1,
                   .add_special = kind == REQUEST_COMPLETION,
                   .skip_special = true,
                   .add_generation_prompt = true};
    r->params = (generate_params){
        .sampling = sampler_defaults(), .max_tokens = -1, .stop = r->stops, .n_logprobs = -1, .keep = -1};
    sampler_params *s = &r->params.sampling;
    s->temperature = s->top_p = 1;
    s->top_k = 0;
    s->min_p = 0;
    s->penalty_last_n = -1;
}

/* What a kind of request can't do without. */
static int check_required(const request *r, api_error *e)
{
    static const char *const names[] = {"prompt", "messages", "messages", "content", "tokens"};
    const char *name = names[r->kind];
    if (r->prompts || r->messages) return 0;
    return api_error_set(e, 400, "missing_required_parameter", name, "a request needs '%s'", name);
}

/* What fields say together. */
static int check_together(request *r, api_error *e)
{
    if (r->kind == REQUEST_TOKENIZE && r->prompts && r->messages)
        return api_error_set(e, 400, "invalid_value", "messages",
                             "either 'content' or 'messages' is tokenized, not both");
    if (r->kind == REQUEST_TOKENIZE && r->messages && r->add_special)
        return api_error_set(e, 400, "invalid_value", "add_special",
                             "with 'messages' the template writes bos and eos: 'add_special' can't be true");
    if (!r->messages && (r->tools || r->documents || r->template_kwargs))
        return api_error_set(e, 400, "missing_required_parameter", "messages", "'%s' needs 'messages'",
                             r->tools       ? "tools"
                             : r->documents ? "documents"
                                            : "chat_template_kwargs");
    if (r->best_of < 0) r->best_of = r->n;
    if (r->cache_only && r->max_tokens < 0) r->max_tokens = 0;
    if (r->best_of < r->n)
        return api_error_set(e, 400, "invalid_value", "best_of", "'best_of' is %d, less than 'n', which is %d",
                             r->best_of, r->n);
    if (r->best_of > r->n && r->stream)
        return api_error_set(e, 400, "invalid_value", "best_of",
                             "with 'stream', 'best_of' can't be greater than 'n': the best are known at the end");
    if (r->cache_only && r->max_tokens > 0)
        return api_error_set(e, 400, "invalid_value", "cache_only",
                             "with 'cache_only' there is no answer; leave out 'max_tokens', or let it be 0");
    if (r->n_prompts * (size_t)r->best_of > REQUEST_MAX_CHOICES)
        return api_error_set(e, 400, "invalid_value", r->best_of > r->n ? "best_of" : "n",
                             "%zu prompts with %d choices each; at most %d choices are possible in one request",
                             r->n_prompts, r->best_of, REQUEST_MAX_CHOICES);
    if (r->chat && r->params.n_logprobs > 0 && !r->logprobs)
        return api_error_set(e, 400, "invalid_value", "top_logprobs", "'top_logprobs' needs 'logprobs' to be true");
    if (r->dry_breakers && r->params.sampling.dry_multiplier > 0 && !request_ignore(r, "dry_sequence_breakers"))
        return api_error_set(e, 400, "unsupported_parameter", "dry_sequence_breakers",
                             "'dry_sequence_breakers' is not supported; runs are repeated across any token here");
    if ((r->include_usage || r->usage_in_chunks) && !r->stream)
        return api_error_set(e, 400, "invalid_value", "stream_options", "'stream_options' needs 'stream' to be true");
    return 0;
}

/* The engine's parameters, as far as the fields decide them. */
static void fill_params(request *r)
{
    generate_params *p = &r->params;
    if (p->sampling.top_k < 0) p->sampling.top_k = 0;
    if (r->chat) p->n_logprobs = !r->logprobs ? -1 : p->n_logprobs < 0 ? 0 : p->n_logprobs;
    if (r->best_of > r->n && p->n_logprobs < 0) p->n_logprobs = 0; /* the best are chosen by them */
    p->prompt_logprobs = r->echo && r->logprobs;
    p->show_special = !r->skip_special;
    if (!r->chat && r->max_tokens < 0 && !r->fill_context) p->max_tokens = 16;
    else p->max_tokens = r->max_tokens;
    p->cache_only = r->cache_only;
}

/* Completions have 16 tokens by default: known now. */
static int check_min_tokens(const request *r, api_error *e)
{
    const generate_params *p = &r->params;
    if (p->max_tokens < 0 || p->min_tokens <= p->max_tokens) return 0;
    return api_error_set(e, 400, "invalid_value", "min_tokens",
                         "'min_tokens' is %lld, more than the %lld tokens that the answer may have; give a larger "
                         "'max_tokens'",
                         (long long)p->min_tokens, (long long)p->max_tokens);
}

/* Names in a header: nothing but what can't end one, and not more than fit. */
void request_note(request *r, const char *name)
{
    static const char rest[] = ", ...";
    size_t used = strlen(r->ignored), n = strnlen(name, IGNORED_NAME_BYTES);
    char *to = r->ignored + used;
    if (r->ignored_more) return;
    r->ignored_more = used + 2 + n + sizeof rest > sizeof r->ignored;
    to += snprintf(to, sizeof r->ignored - used, "%s", r->ignored_more ? rest : used ? ", " : "");
    for (size_t i = 0; i < n && !r->ignored_more; i++) {
        bool plain = strchr("._-", name[i]) || (name[i] >= '0' && name[i] <= '9') ||
                     ((name[i] | 0x20) >= 'a' && (name[i] | 0x20) <= 'z');
        *to++ = plain ? name[i] : '?';
    }
}

bool request_ignore(request *r, const char *name)
{
    if (r->rules->lenient) request_note(r, name);
    return r->rules->lenient;
}

/* Whether two names of one value were given, and don't say the same. */
static const field *contradicts(const request *r, size_t i, const json_t *v)
{
    const field *f = field_at(i), *other;
    if (strcmp(f->name, "max_completion_tokens") == 0) return NULL; /* OpenAI lets it win over max_tokens */
    for (; i > 0 && f->offset && (other = field_at(i - 1))->offset == f->offset; i--) {
        const json_t *w = json_object_get(r->body, other->name);
        if (w && !json_is_null(w) && !json_equal(v, w)) return other;
    }
    return NULL;
}

const char *request_name_given(const request *r, size_t offset)
{
    const char *name = NULL;
    const field *f;
    for (size_t i = 0; (f = field_at(i)); i++) {
        const json_t *v = f->offset == offset ? json_object_get(r->body, f->name) : NULL;
        if (v && !json_is_null(v)) name = f->name; /* the last one wins, as in read_fields */
    }
    return name;
}

static int read_fields(request *r, api_error *e)
{
    const field *f, *other;
    for (size_t i = 0; (f = field_at(i)); i++) {
        const json_t *v = f->where & 1u << r->kind ? json_object_get(r->body, f->name) : NULL;
        if (!v || json_is_null(v)) continue;
        if ((other = contradicts(r, i, v)))
            return api_error_set(e, 400, "invalid_value", f->name,
                                 "'%s' and '%s' say different things; give one of them", other->name, f->name);
        if (f->read(r, f, v, e)) return e->http_status;
    }
    return 0;
}

static const field *find_field(request_kind kind, const char *name, bool any_kind)
{
    const field *f;
    for (size_t i = 0; (f = field_at(i)); i++)
        if ((any_kind || f->where & 1u << kind) && strcmp(f->name, name) == 0) return f;
    return NULL;
}

static int refuse_unknown(const request *r, const char *name, api_error *e)
{
    static const char *const paths[] = {"/v1/completions", "/v1/chat/completions", "/apply-template", "/tokenize",
                                        "/detokenize"};
    nearest near;
    const field *f;
    nearest_init(&near, name);
    for (size_t i = 0; (f = field_at(i)); i++)
        if (f->where & 1u << r->kind) nearest_offer(&near, f->name);
    return api_error_set(e, 400, "unknown_parameter", name, "%s has no field '%.60s'%s%s%s", paths[r->kind], name,
                         near.best ? "; did you mean '" : "", near.best ? near.best : "", near.best ? "'?" : "");
}

/* Fields that nobody has read: of no effect by their nature or their value, or refused. */
static int check_others(request *r, api_error *e)
{
    const char *name;
    json_t *v;
    size_t n = 0;
    json_object_foreach(r->body, name, v)
    {
        if (find_field(r->kind, name, false)) continue;
        const known_field *k = known_field_find(name);
        if (k && known_field_accepts(k, v)) continue;
        if (n++ < MAX_IGNORED && request_ignore(r, name)) continue;
        if (r->rules->lenient)
            return api_error_set(e, 400, "unknown_parameter", name, "more than %d fields are unknown", MAX_IGNORED);
        if (!k && !find_field(r->kind, name, true)) return refuse_unknown(r, name, e);
        return api_error_set(e, 400, "unsupported_parameter", name, "'%s' is not supported %s; leave it out", name,
                             k && (k->neutral || k->word) ? "at this value" : "here");
    }
    return 0;
}

int request_parse(request *r, request_kind kind, const request_rules *rules, const char *text, size_t n_bytes,
                  api_error *e)
{
    set_defaults(r, kind, rules);
    arena_init(&r->arena, 0);
    r->body = request_object(text, n_bytes, e);
    if (!r->body || read_fields(r, e) || check_others(r, e) || check_required(r, e) || check_together(r, e))
        return e->http_status;
    fill_params(r);
    return check_min_tokens(r, e);
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
