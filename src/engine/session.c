#include "engine/session.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/engine_state.h"

const char *finish_name(finish_reason r)
{
    static const char *const names[] = {"none", "eos", "stop", "length", "context", "cancelled", "error"};
    return names[r];
}

int session_new(session **out, engine *e, status *st)
{
    if (e->n_sessions == e->max_sessions)
        return status_set(st, ST_LIMIT, STATUS_NO_POS, "all %d sessions of this engine are in use", e->max_sessions);
    session *s = mem_calloc(1, sizeof *s);
    if (!s) return status_nomem(st, sizeof *s);
    s->e = e;
    s->finish = FINISH_CANCELLED;
    s->ids = mem_array((size_t)e->context + 1, sizeof *s->ids); /* a full prompt still gets one token of answer */
    if (!s->ids) status_nomem(st, ((uint64_t)e->context + 1) * sizeof *s->ids);
    else if (!kv_seq_new(&s->seq, e->cache, st)) {
        session **end = &e->sessions;
        while (*end) end = &(*end)->next;
        *end = s;
        e->n_sessions++;
        *out = s;
        return ST_OK;
    }
    mem_free(s->ids);
    mem_free(s);
    return st->code;
}

static void drop_answer(session *s)
{
    sampler_free(s->sampler);
    stop_deinit(&s->stops);
    strbuf_deinit(&s->text);
    strbuf_deinit(&s->shown);
    mem_free(s->stop_tokens);
    s->sampler = NULL;
    s->stop_tokens = NULL;
}

void session_free(session *s)
{
    if (!s) return;
    session **at = &s->e->sessions;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    s->e->n_sessions--;
    drop_answer(s);
    kv_seq_free(s->seq);
    mem_free(s->ids);
    mem_free(s);
}

/* Keeps of the cache what ids share with it, less the last token, whose logits are wanted. */
static int reuse_prefix(session *s, const int32_t *ids, int64_t n, status *st)
{
    int64_t len = kv_seq_len(s->seq), same = 0;
    while (same < len && same < n - 1 && ids[same] == s->ids[same]) same++;
    if (same == len || kv_seq_truncate(s->seq, same, st) == ST_OK) return ST_OK;
    /* A window has moved past the place: begin anew. */
    *st = (status)STATUS_INIT;
    return kv_seq_truncate(s->seq, 0, st);
}

static int copy_params(session *s, const generate_params *p, const session_callbacks *cb, status *st)
{
    drop_answer(s);
    s->params = *p;
    s->cb = cb ? *cb : (session_callbacks){0};
    if (p->n_logprobs > MAX_LOGPROBS)
        return status_set(st, ST_ARG, STATUS_NO_POS, "%d logprobs asked for; at most %d are possible", p->n_logprobs,
                          MAX_LOGPROBS);
    if (stop_init(&s->stops, p->stop, p->n_stop, st)) return st->code;
    s->stop_tokens = mem_array((size_t)p->n_stop_tokens, sizeof *s->stop_tokens);
    if (!s->stop_tokens) return status_nomem(st, 0);
    if (p->n_stop_tokens) memcpy(s->stop_tokens, p->stop_tokens, (size_t)p->n_stop_tokens * sizeof *s->stop_tokens);
    return sampler_new(&s->sampler, &p->sampling, s->e->model->params.n_vocab, s->e->context, st);
}

int session_start(session *s, const int32_t *ids, size_t n, const generate_params *p, const session_callbacks *cb,
                  status *st)
{
    s->finish = FINISH_CANCELLED;
    if (n == 0) return status_set(st, ST_ARG, STATUS_NO_POS, "the prompt is empty; give at least one token");
    if (n > (size_t)s->e->context)
        return status_set(st, ST_LIMIT, STATUS_NO_POS,
                          "the prompt has %zu tokens, but the context holds %d; shorten the prompt or raise the "
                          "context (the model was trained for %d)",
                          n, s->e->context, s->e->model->params.context_length);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= s->e->model->params.n_vocab)
            return status_set(st, ST_ARG, i, "token %d is not in the vocabulary of %d", ids[i],
                              s->e->model->params.n_vocab);
    if (copy_params(s, p, cb, st) || reuse_prefix(s, ids, (int64_t)n, st)) return st->code;
    memcpy(s->ids, ids, n * sizeof *ids);
    s->n_ids = s->n_prompt = (int64_t)n;
    s->n_dropped = 0;
    for (size_t i = 0; i < n; i++) sampler_accept(s->sampler, ids[i]);
    s->detok = (detokenizer){.started = true}; /* the answer continues the prompt: its first space is its own */
    strbuf_clear(&s->text);
    s->error = (status)STATUS_INIT;
    s->stats = (session_stats){.prompt_tokens = (int64_t)n, .reused_tokens = kv_seq_len(s->seq)};
    s->pending_at_start = session_pending(s);
    s->start_ns = clock_ns();
    s->first_ns = 0;
    s->finish = p->max_tokens == 0 ? FINISH_LENGTH : FINISH_NONE;
    return ST_OK;
}

bool session_active(const session *s)
{
    return s->finish == FINISH_NONE;
}

void session_cancel(session *s)
{
    if (session_active(s)) s->finish = FINISH_CANCELLED;
}

finish_reason session_finish(const session *s)
{
    return s->finish;
}

const status *session_error(const session *s)
{
    return &s->error;
}

session_stats session_get_stats(const session *s)
{
    session_stats stats = s->stats;
    stats.context_used = s->n_ids < s->e->context ? s->n_ids : s->e->context;
    return stats;
}

const int32_t *session_ids(const session *s, size_t *n)
{
    *n = (size_t)s->n_ids;
    return s->ids;
}

int64_t session_pending(const session *s)
{
    return s->n_ids - kv_seq_len(s->seq);
}

void session_fail(session *s, const status *st)
{
    s->error = *st;
    s->finish = FINISH_ERROR;
    status ignored = STATUS_INIT; /* everything can always be cut off */
    kv_seq_truncate(s->seq, 0, &ignored);
}

void session_make_room(session *s)
{
    int64_t context = s->e->context;
    if (s->n_ids <= context) return;
    if (s->params.overflow == OVERFLOW_STOP) {
        s->finish = FINISH_CONTEXT;
        return;
    }
    int64_t keep = s->params.keep >= 0 ? s->params.keep : s->n_prompt < context / 4 ? s->n_prompt : context / 4;
    if (keep > context / 2) keep = context / 2;
    int64_t stay = (context - keep + 1) / 2, dropped = s->n_ids - keep - stay;
    memmove(s->ids + keep, s->ids + keep + dropped, (size_t)stay * sizeof *s->ids);
    s->n_ids = keep + stay;
    s->n_dropped += dropped;
    status st = STATUS_INIT;
    if (kv_seq_truncate(s->seq, keep, &st) && kv_seq_truncate(s->seq, 0, &st)) session_fail(s, &st);
    if (s->cb.on_drop) s->cb.on_drop(s->cb.user, dropped);
}

static bool is_stop_token(const session *s, int32_t id)
{
    for (int i = 0; i < s->params.n_stop_tokens; i++)
        if (s->stop_tokens[i] == id) return true;
    return false;
}

/* Text of the event: what the token adds, held back while it may be part of a character or of a stop string. A token
 * that ends the answer has no text of its own. */
static void make_text(session *s, int32_t id, bool has_text)
{
    status st = STATUS_INIT;
    strbuf_clear(&s->text);
    strbuf_clear(&s->shown);
    const tokenizer *t = s->e->model->tok;
    if (has_text && id < tokenizer_vocab_size(t) &&
        detokenizer_push(&s->detok, t, id, s->params.show_special, &s->text, &st))
        session_fail(s, &st);
    if (s->finish != FINISH_NONE && detokenizer_flush(&s->detok, &s->text, &st)) session_fail(s, &st);
    bool stopped = stop_push(&s->stops, strbuf_cstr(&s->text), s->text.n_bytes, &s->shown);
    if (!stopped && s->finish != FINISH_NONE) stopped = stop_flush(&s->stops, &s->shown);
    if (stopped && s->finish != FINISH_ERROR) s->finish = FINISH_STOP;
    if (strbuf_check(&s->shown, &st)) session_fail(s, &st);
}

static void count_time(session *s)
{
    int64_t now = clock_ns();
    if (!s->first_ns) {
        s->first_ns = now;
        s->stats.prefill_s = s->stats.first_token_s = (double)(now - s->start_ns) * 1e-9;
    } else s->stats.decode_s = (double)(now - s->first_ns) * 1e-9;
}

void session_take_logits(session *s, const float *logits)
{
    int64_t position = s->n_ids + s->n_dropped;
    int32_t id = sampler_pick(s->sampler, logits, position);
    token_event event = {.token = id, .position = position, .top = s->top};
    if (s->params.n_logprobs >= 0)
        event.n_top = sampler_logprobs(s->sampler, logits, id, &event.logprob, s->top, s->params.n_logprobs);
    sampler_accept(s->sampler, id);
    s->ids[s->n_ids++] = id;
    s->stats.generated_tokens++;
    count_time(s);
    if (!s->params.ignore_eos && tokenizer_is_end(s->e->model->tok, id)) s->finish = FINISH_EOS;
    else if (is_stop_token(s, id)) s->finish = FINISH_STOP;
    bool has_text = s->finish == FINISH_NONE;
    if (has_text && s->stats.generated_tokens == s->params.max_tokens) s->finish = FINISH_LENGTH;
    else if (has_text) session_make_room(s);
    make_text(s, id, has_text);
    event.text = strbuf_cstr(&s->shown);
    event.n_bytes = s->shown.n_bytes;
    if (s->cb.on_token) s->cb.on_token(s->cb.user, &event);
}
