/* api.c - include/kvasir.h over the engine: handles around the inner objects, options into configurations. */
#include "kvasir.h"

#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"

/* The public status and codes are the inner ones under their public names. */
_Static_assert(sizeof(kvasir_status) == sizeof(status) && offsetof(kvasir_status, text) == offsetof(status, text),
               "status layout");
_Static_assert(KVASIR_TIMEOUT == (int)ST_TIMEOUT && KVASIR_LIMIT == (int)ST_LIMIT && KVASIR_FORMAT == (int)ST_FORMAT,
               "status codes");
_Static_assert(KVASIR_FINISH_ERROR == (int)FINISH_ERROR && KVASIR_FINISH_STOP == (int)FINISH_STOP, "finish reasons");

static status *inner(kvasir_status *st)
{
    return (status *)st;
}

struct kvasir_model {
    model *m;
};

struct kvasir_engine {
    engine *e;
    threads *team;
};

struct kvasir_session {
    session *s;
    kvasir_token_fn *on_token;
    void *user;
};

const char *kvasir_version(void)
{
    return KVASIR_VERSION;
}

static int new_team(threads **out, int n, status *st)
{
    return threads_new(out, n ? n : threads_available(), st);
}

int kvasir_model_load(kvasir_model **out, const char *path, const kvasir_model_options *options, kvasir_status *st)
{
    kvasir_model_options o = options ? *options : (kvasir_model_options){0};
    kvasir_model *h = mem_calloc(1, sizeof *h);
    if (!h) return status_nomem(inner(st), sizeof *h);
    threads *team = NULL;
    int rc = new_team(&team, o.threads, inner(st));
    if (rc == ST_OK) {
        model_options mo = {
            .ks = kernels_get(CPU_AUTO), .team = team, .context = o.context, .progress = o.progress, .user = o.user};
        rc = model_load(&h->m, path, &mo, inner(st));
    }
    threads_free(team);
    if (rc) mem_free(h);
    else *out = h;
    return rc;
}

void kvasir_model_free(kvasir_model *m)
{
    if (!m) return;
    model_free(m->m);
    mem_free(m);
}

int kvasir_model_vocab_size(const kvasir_model *m)
{
    return m->m->params.n_vocab;
}

int kvasir_model_context(const kvasir_model *m)
{
    return m->m->params.context_length;
}

const char *kvasir_model_chat_template(const kvasir_model *m)
{
    return m->m->chat_template;
}

int kvasir_tokenize(const kvasir_model *m, const char *text, size_t n_bytes, int add_special, int parse_special,
                    int32_t *ids, size_t capacity, size_t *n_ids, kvasir_status *st)
{
    token_list l = {0};
    encode_options o = {.add_special = add_special != 0, .parse_special = parse_special != 0};
    int rc = tokenizer_encode(m->m->tok, text, n_bytes, o, &l, inner(st));
    if (rc == ST_OK) {
        *n_ids = l.n;
        size_t n = l.n < capacity ? l.n : capacity;
        if (n) memcpy(ids, l.ids, n * sizeof *ids);
    }
    token_list_deinit(&l);
    return rc;
}

int kvasir_detokenize(const kvasir_model *m, const int32_t *ids, size_t n_ids, int with_special, char *text,
                      size_t capacity, size_t *n_bytes, kvasir_status *st)
{
    strbuf b;
    strbuf_init(&b, 0);
    int rc = tokenizer_decode(m->m->tok, ids, n_ids, with_special != 0, &b, inner(st));
    if (rc == ST_OK) {
        *n_bytes = b.n_bytes;
        size_t n = b.n_bytes < capacity ? b.n_bytes : capacity;
        if (n) memcpy(text, b.data, n);
    }
    strbuf_deinit(&b);
    return rc;
}

int kvasir_engine_new(kvasir_engine **out, const kvasir_model *m, const kvasir_engine_options *options,
                      kvasir_status *st)
{
    kvasir_engine_options o = options ? *options : (kvasir_engine_options){0};
    const kv_format *format = kv_format_get(o.kv_format ? o.kv_format : "f16");
    if (!format)
        return status_set(inner(st), ST_ARG, STATUS_NO_POS, "there is no cache format '%s'; choose f16 or f32",
                          o.kv_format);
    kvasir_engine *h = mem_calloc(1, sizeof *h);
    if (!h) return status_nomem(inner(st), sizeof *h);
    engine_config c = {.context = o.context,
                       .n_sessions = o.sessions,
                       .n_running = o.running,
                       .chunk = o.chunk,
                       .itl_target_s = o.itl_target_s,
                       .format = format,
                       .block_tokens = o.block_tokens,
                       .kv_memory_bytes = o.kv_memory_bytes,
                       .exact = o.exact != 0};
    int rc = new_team(&h->team, o.threads, inner(st));
    if (rc == ST_OK) rc = engine_new(&h->e, m->m, h->team, &c, inner(st));
    if (rc) kvasir_engine_free(h);
    else *out = h;
    return rc;
}

void kvasir_engine_free(kvasir_engine *e)
{
    if (!e) return;
    engine_free(e->e);
    threads_free(e->team);
    mem_free(e);
}

int kvasir_engine_context(const kvasir_engine *e)
{
    return engine_context(e->e);
}

int kvasir_engine_step(kvasir_engine *e, kvasir_status *st)
{
    return engine_step(e->e, inner(st));
}

kvasir_cache_info kvasir_engine_cache_info(const kvasir_engine *e)
{
    const kv_cache *c = engine_cache(e->e);
    kvasir_cache_info info = {.bytes = kv_cache_bytes(c), .block_tokens = kv_cache_block_tokens(c)};
    for (int g = 0; g < kv_cache_n_groups(c); g++) {
        pool_counts n = pool_count(kv_cache_pool(c, g));
        info.blocks += n.total;
        info.free_blocks += n.free;
        info.cached_blocks += n.cached;
    }
    return info;
}

int kvasir_engine_audit(const kvasir_engine *e, kvasir_status *st)
{
    return kv_cache_audit(engine_cache(e->e), inner(st));
}

kvasir_sampling kvasir_sampling_defaults(void)
{
    sampler_params p = sampler_defaults();
    return (kvasir_sampling){.temperature = p.temperature,
                             .top_k = p.top_k,
                             .top_p = p.top_p,
                             .min_p = p.min_p,
                             .repeat_penalty = p.repeat_penalty,
                             .seed = p.seed,
                             .max_tokens = -1};
}

int kvasir_session_new(kvasir_session **out, kvasir_engine *e, kvasir_status *st)
{
    kvasir_session *h = mem_calloc(1, sizeof *h);
    if (!h) return status_nomem(inner(st), sizeof *h);
    int rc = session_new(&h->s, e->e, inner(st));
    if (rc) mem_free(h);
    else *out = h;
    return rc;
}

void kvasir_session_free(kvasir_session *s)
{
    if (!s) return;
    session_free(s->s);
    mem_free(s);
}

static void pass_token(void *user, const token_event *t)
{
    kvasir_session *s = user;
    if (s->on_token) s->on_token(s->user, t->token, t->text, t->n_bytes);
}

int kvasir_session_start(kvasir_session *s, const int32_t *ids, size_t n_ids, const kvasir_sampling *sampling,
                         kvasir_token_fn *on_token, void *user, kvasir_status *st)
{
    kvasir_sampling k = sampling ? *sampling : kvasir_sampling_defaults();
    generate_params p = {.sampling = sampler_defaults(),
                         .max_tokens = k.max_tokens,
                         .stop = k.stop,
                         .n_stop = k.n_stop,
                         .ignore_eos = k.ignore_eos != 0,
                         .n_logprobs = -1,
                         .priority = k.priority,
                         .deadline_s = k.deadline_s,
                         .salt = k.salt,
                         .keep = -1};
    p.sampling.temperature = k.temperature;
    p.sampling.top_k = k.top_k;
    p.sampling.top_p = k.top_p;
    p.sampling.min_p = k.min_p;
    p.sampling.repeat_penalty = k.repeat_penalty;
    p.sampling.seed = k.seed;
    s->on_token = on_token;
    s->user = user;
    session_callbacks cb = {.on_token = pass_token, .user = s};
    return session_start(s->s, ids, n_ids, &p, &cb, inner(st));
}

int kvasir_session_fork(kvasir_session *s, kvasir_session *leader, uint32_t choice, kvasir_token_fn *on_token,
                        void *user, kvasir_status *st)
{
    s->on_token = on_token;
    s->user = user;
    session_callbacks cb = {.on_token = pass_token, .user = s};
    return session_fork(s->s, leader->s, choice, &cb, inner(st));
}

int kvasir_session_active(const kvasir_session *s)
{
    return session_active(s->s);
}

void kvasir_session_cancel(kvasir_session *s)
{
    session_cancel(s->s);
}

kvasir_finish kvasir_session_finish(const kvasir_session *s)
{
    return (kvasir_finish)session_finish(s->s);
}

const kvasir_status *kvasir_session_error(const kvasir_session *s)
{
    return (const kvasir_status *)session_error(s->s);
}
