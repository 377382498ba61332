/* The small endpoints: models, tokens, health, metrics. */
#include <string.h>

#include "base/utf8.h"
#include "serve/http.h"
#include "serve/metrics_text.h"

static const char content_type[] = "application/json";

static void model_json(strbuf *b, const served_model *m)
{
    strbuf_puts(b, "{\"id\":");
    strbuf_json(b, m->name, strlen(m->name));
    strbuf_printf(b, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"kvasir\",\"max_model_len\":%d}",
                  (long long)m->created_unix_s, m->context);
}

enum MHD_Result handle_models(exchange *x)
{
    strbuf b;
    strbuf_init(&b, 0);
    strbuf_puts(&b, "{\"object\":\"list\",\"data\":[");
    model_json(&b, &x->s->model);
    strbuf_puts(&b, "]}");
    return http_reply(x, 200, content_type, &b);
}

enum MHD_Result handle_model(exchange *x)
{
    const served_model *m = &x->s->model;
    api_error e;
    if (strcmp(x->path + strlen("/v1/models/"), m->name) != 0) {
        api_error_set(&e, 404, "model_not_found", "model", "the model here is %s", m->name);
        return http_error(x, &e);
    }
    strbuf b;
    strbuf_init(&b, 0);
    model_json(&b, m);
    return http_reply(x, 200, content_type, &b);
}

/* An optional boolean of the object. */
static int read_flag(const json_t *o, const char *name, bool *out, api_error *e)
{
    const json_t *v = json_object_get(o, name);
    if (!v || json_is_null(v)) return 0;
    if (!json_is_boolean(v)) return wrong_type(e, name, "a boolean", v);
    *out = json_is_true(v);
    return 0;
}

/* A token as text, or as an array of bytes where it isn't whole characters. */
static void piece_json(strbuf *b, const tokenizer *tok, int32_t id)
{
    gguf_str s = tokenizer_piece(tok, id, true);
    bool is_text = utf8_valid(s.data, s.n);
    strbuf_printf(b, "{\"id\":%d,\"piece\":", id);
    if (is_text) strbuf_json(b, s.data, s.n);
    else
        for (size_t k = 0; k < s.n; k++) strbuf_printf(b, k ? ",%d" : "[%d", (unsigned char)s.data[k]);
    strbuf_puts(b, is_text ? "}" : "]}");
}

static int tokenize(strbuf *b, const json_t *o, const served_model *m, api_error *e)
{
    encode_options how = {.parse_special = true};
    bool pieces = false;
    const json_t *text = json_object_get(o, "content");
    if (!text || json_is_null(text)) text = json_object_get(o, "prompt");
    if (!json_is_string(text))
        return api_error_set(e, 400, "invalid_type", "content", "'content' (or 'prompt') must be a string");
    if (read_flag(o, "add_special", &how.add_special, e) || read_flag(o, "add_special_tokens", &how.add_special, e) ||
        read_flag(o, "parse_special", &how.parse_special, e) || read_flag(o, "with_pieces", &pieces, e))
        return e->http_status;
    token_list ids = {0};
    status st = STATUS_INIT;
    if (tokenizer_encode(m->m->tok, json_string_value(text), json_string_length(text), how, &ids, &st)) {
        token_list_deinit(&ids);
        return api_error_from_status(e, &st);
    }
    strbuf_puts(b, "{\"tokens\":[");
    for (size_t i = 0; i < ids.n && !b->failed; i++) {
        if (i) strbuf_putc(b, ',');
        if (pieces) piece_json(b, m->m->tok, ids.ids[i]);
        else strbuf_printf(b, "%d", ids.ids[i]);
    }
    strbuf_printf(b, "],\"count\":%zu,\"max_model_len\":%d}", ids.n, m->context);
    token_list_deinit(&ids);
    return 0;
}

static int detokenize(strbuf *b, const json_t *o, const served_model *m, api_error *e)
{
    const json_t *tokens = json_object_get(o, "tokens"), *id;
    if (!json_is_array(tokens))
        return api_error_set(e, 400, "invalid_type", "tokens", "'tokens' must be an array of token ids");
    token_list ids = {0};
    status st = STATUS_INIT;
    size_t i;
    int rc = 0;
    json_array_foreach(tokens, i, id)
    {
        json_int_t k = json_is_integer(id) ? json_integer_value(id) : -1;
        if (k < 0 || k >= m->m->params.n_vocab)
            rc = api_error_set(e, 400, "invalid_value", "tokens", "element %zu is no token: the vocabulary has %d", i,
                               m->m->params.n_vocab);
        else if (token_list_add(&ids, (int32_t)k, &st)) rc = api_error_from_status(e, &st);
        if (rc) break;
    }
    strbuf text;
    strbuf_init(&text, 0);
    if (rc == 0 && tokenizer_decode(m->m->tok, ids.ids, ids.n, true, &text, &st)) rc = api_error_from_status(e, &st);
    if (rc == 0) {
        strbuf_puts(b, "{\"content\":");
        strbuf_json(b, strbuf_cstr(&text), text.n_bytes);
        strbuf_putc(b, '}');
    }
    strbuf_deinit(&text);
    token_list_deinit(&ids);
    return rc;
}

enum MHD_Result handle_tokenize(exchange *x)
{
    return http_convert(x, tokenize);
}

enum MHD_Result handle_detokenize(exchange *x)
{
    return http_convert(x, detokenize);
}

/* At once, as the cache was after the last step; an audit waits for the end of the one that is under way. */
enum MHD_Result handle_kv(exchange *x)
{
    api_error e;
    bool audit = MHD_lookup_connection_value(x->connection, MHD_GET_ARGUMENT_KIND, "audit") != NULL;
    if (audit && !x->job) {
        job *j = x->job = job_new(http_resume);
        if (!j) {
            api_error_nomem(&e);
            return http_error(x, &e);
        }
        watch_answering(x->s->watch, x->watched, j);
        engine_loop_audit(x->s->loop, j);
    }
    if (x->job) {
        job *j = x->job;
        if (atomic_load(&j->gone)) return MHD_NO;
        pthread_mutex_lock(&j->lock);
        bool ready = j->state == JOB_DONE;
        if (!ready) http_wait(x);
        pthread_mutex_unlock(&j->lock);
        if (!ready) return MHD_YES;
    }
    strbuf b;
    strbuf_init(&b, 0);
    engine_loop_report(x->s->loop, audit, &b);
    return http_reply(x, 200, content_type, &b);
}

static enum MHD_Result say(exchange *x, int code, const char *text)
{
    strbuf b;
    strbuf_init(&b, 0);
    strbuf_printf(&b, "{\"status\":\"%s\"}", text);
    return http_reply(x, code, content_type, &b);
}

enum MHD_Result handle_health(exchange *x)
{
    return say(x, 200, "ok");
}

enum MHD_Result handle_ready(exchange *x)
{
    static const char *const words[] = {"loading", "ready", "draining"};
    int state = atomic_load(&x->s->state);
    return say(x, state == SERVER_READY ? 200 : 503, words[state]);
}

enum MHD_Result handle_metrics(exchange *x)
{
    metrics_values v;
    strbuf b;
    int state = atomic_load(&x->s->state);
    strbuf_init(&b, 0);
    metrics_read(&x->s->figures, &v);
    metrics_text(&b, &v, state == SERVER_LOADING ? "" : x->s->model.name, x->s->config.vllm_metrics,
                 state == SERVER_READY);
    return http_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", &b);
}
