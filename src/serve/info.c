/* The small endpoints: models, tokens, health, metrics. */
#include <string.h>

#include "base/utf8.h"
#include "serve/chat_prompt.h"
#include "serve/http.h"
#include "serve/metrics_text.h"

static const char content_type[] = "application/json";

static void model_json(strbuf *b, const served_model *m)
{
    strbuf_puts(b, "{\"id\":");
    strbuf_json(b, m->name, strlen(m->name));
    strbuf_printf(b,
                  ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"kvasir\",\"max_model_len\":%d,"
                  "\"priority_order\":\"lowest_first\"}",
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
    const char *asked = x->path + strlen("/v1/models/"), *const *name = m->rules.names;
    while (*name && strcmp(*name, asked) != 0) name++;
    if (!*name) {
        api_error_set(&e, 404, "model_not_found", "model",
                      "there is no model '%.100s' here; the one that is served is %s", asked, m->name);
        return http_error(x, &e);
    }
    strbuf b;
    strbuf_init(&b, 0);
    model_json(&b, m);
    return http_reply(x, 200, content_type, &b);
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

static int tokenize(strbuf *b, const request *r, const served_model *m, api_error *e)
{
    encode_options how = {.add_special = r->add_special, .parse_special = r->parse_special};
    const prompt_source *text = r->prompts;
    token_list ids = {0};
    status st = STATUS_INIT;
    int rc;
    if (r->messages) rc = chat_prompt_ids(r, m, &ids, e);
    else {
        rc = tokenizer_encode(m->m->tok, text->text, text->n_bytes, how, &ids, &st);
        if (rc) rc = api_error_from_status(e, &st);
    }
    if (rc) {
        token_list_deinit(&ids);
        return rc;
    }
    strbuf_puts(b, "{\"tokens\":[");
    for (size_t i = 0; i < ids.n && !b->failed; i++) {
        if (i) strbuf_putc(b, ',');
        if (r->with_pieces) piece_json(b, m->m->tok, ids.ids[i]);
        else strbuf_printf(b, "%d", ids.ids[i]);
    }
    strbuf_printf(b, "],\"count\":%zu,\"dropped_bytes\":%zu,\"max_model_len\":%d}", ids.n, ids.n_dropped, m->context);
    token_list_deinit(&ids);
    return 0;
}

static int detokenize(strbuf *b, const request *r, const served_model *m, api_error *e)
{
    const prompt_source *ids = &r->prompts[0];
    strbuf text;
    status st = STATUS_INIT;
    strbuf_init(&text, 0);
    int rc = tokenizer_decode(m->m->tok, ids->ids, ids->n_ids, true, &text, &st);
    if (rc == ST_OK) {
        strbuf_puts(b, "{\"content\":");
        strbuf_json(b, strbuf_cstr(&text), text.n_bytes);
        strbuf_putc(b, '}');
    }
    strbuf_deinit(&text);
    return rc ? api_error_from_status(e, &st) : 0;
}

static int apply_template(strbuf *b, const request *r, const served_model *m, api_error *e)
{
    strbuf text;
    strbuf_init(&text, 0);
    int rc = chat_prompt_text(r, m, &text, NULL, e);
    if (rc == 0) {
        strbuf_puts(b, "{\"prompt\":");
        strbuf_json(b, strbuf_cstr(&text), text.n_bytes);
        strbuf_putc(b, '}');
    }
    strbuf_deinit(&text);
    return rc;
}

enum MHD_Result handle_template(exchange *x)
{
    return http_convert(x, REQUEST_TEMPLATE, apply_template);
}

enum MHD_Result handle_tokenize(exchange *x)
{
    return http_convert(x, REQUEST_TOKENIZE, tokenize);
}

enum MHD_Result handle_detokenize(exchange *x)
{
    return http_convert(x, REQUEST_DETOKENIZE, detokenize);
}

/* At once, as the cache was after the last step; an audit waits for the end of the one that is under way. */
enum MHD_Result handle_kv(exchange *x)
{
    api_error e;
    bool audit = false;
    if (query_flag(x, "audit", &audit, &e)) return http_error(x, &e);
    if (audit && !x->job) {
        job *j = x->job = job_new(http_resume);
        if (!j) {
            api_error_nomem(&e);
            return http_error(x, &e);
        }
        watch_working(x->s->watch, x->watched, j);
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
