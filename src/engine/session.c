#include "engine/session.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine_state.h"

const char *finish_name(finish_reason r)
{
    static const char *const names[] = {"none", "eos", "stop", "length", "context", "cancelled", "timeout", "error"};
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
    if (kv_seq_new(&s->seq, e->cache, st)) return mem_free(s), st->code;
    s->next = e->sessions;
    e->sessions = s;
    e->n_sessions++;
    *out = s;
    return ST_OK;
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

static void leave_list(session *s)
{
    session **at = &s->e->sessions;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
}

/* By priority, then by age: behind all that were begun before, since s is the youngest. Idle ones have no place. */
static void join_list(session *s)
{
    session **at = &s->e->sessions;
    while (*at && (!(*at)->begun || (*at)->params.priority >= s->params.priority)) at = &(*at)->next;
    s->next = *at;
    *at = s;
}

/* Sessions that wait for this one's first logits go by themselves. */
static void drop_followers(session *s)
{
    for (session *f = s->e->sessions; f; f = f->next)
        if (f->leader == s || f->forked_from == s) f->leader = f->forked_from = NULL;
}

static void enter_batch(session *s)
{
    s->running = true;
    s->e->n_running++;
}

/* The rows of a session that failed mean nothing; others may find the rest. */
static void leave_batch(session *s)
{
    status ignored = STATUS_INIT; /* everything can always be cut off */
    if (s->finish == FINISH_ERROR) kv_seq_truncate(s->seq, 0, &ignored);
    else kv_seq_retire(s->seq, s->ids);
    s->e->n_running -= s->running;
    s->running = false;
}

void session_free(session *s)
{
    if (!s) return;
    leave_batch(s);
    drop_followers(s);
    leave_list(s);
    s->e->n_sessions--;
    drop_answer(s);
    kv_seq_free(s->seq);
    mem_free(s->ids);
    mem_free(s);
}

/* Another answer begins: what is left of the one before goes without a word. */
static void session_stop(session *s)
{
    leave_batch(s);
    drop_followers(s);
    s->leader = s->forked_from = NULL;
    s->begun = false;
    s->finish = FINISH_CANCELLED;
}

/* For min_tokens: what would end the answer is barred until it has so many. */
static int new_barring_sampler(session *s, size_t n_prompt, status *st)
{
    const tokenizer *t = s->e->model->tok;
    int n_vocab = s->e->model->params.n_vocab, n = 0;
    sampler_params p = s->params.sampling;
    int32_t *barred = mem_array((size_t)n_vocab + (size_t)s->params.n_stop_tokens, sizeof *barred);
    if (!barred) return status_nomem(st, (uint64_t)n_vocab * sizeof *barred);
    for (int32_t id = 0; id < n_vocab; id++)
        if (tokenizer_is_end(t, id)) barred[n++] = id;
    for (int i = 0; i < s->params.n_stop_tokens; i++) barred[n++] = s->stop_tokens[i];
    p.barred = barred;
    p.n_barred = n;
    p.barred_before = (int64_t)n_prompt + s->params.min_tokens;
    sampler_new(&s->sampler, &p, n_vocab, s->e->context, st);
    mem_free(barred);
    return st->code;
}

static int copy_params(session *s, const generate_params *p, size_t n_prompt, const session_callbacks *cb, status *st)
{
    drop_answer(s);
    s->params = *p;
    s->cb = cb ? *cb : (session_callbacks){0};
    if (p->n_logprobs > MAX_LOGPROBS)
        return status_set(st, ST_ARG, STATUS_NO_POS, "%d logprobs asked for; at most %d are possible", p->n_logprobs,
                          MAX_LOGPROBS);
    if (p->min_tokens < 0 || (p->max_tokens >= 0 && p->min_tokens > p->max_tokens))
        return status_set(st, ST_ARG, STATUS_NO_POS, "at least %lld and at most %lld tokens of an answer can't be",
                          (long long)p->min_tokens, (long long)p->max_tokens);
    if (!(p->deadline_s >= 0 && p->deadline_s <= MAX_SECONDS) || !(p->pin_s >= 0 && p->pin_s <= MAX_SECONDS))
        return status_set(st, ST_ARG, STATUS_NO_POS,
                          "a deadline of %g s and a pin of %g s; 0 (none) to %d s are possible", p->deadline_s,
                          p->pin_s, MAX_SECONDS);
    if (stop_init(&s->stops, p->stop, p->n_stop, st)) return st->code;
    s->stop_tokens = mem_array((size_t)p->n_stop_tokens, sizeof *s->stop_tokens);
    if (!s->stop_tokens) return status_nomem(st, 0);
    if (p->n_stop_tokens) memcpy(s->stop_tokens, p->stop_tokens, (size_t)p->n_stop_tokens * sizeof *s->stop_tokens);
    return p->min_tokens ? new_barring_sampler(s, n_prompt, st)
                         : sampler_new(&s->sampler, &p->sampling, s->e->model->params.n_vocab, s->e->context, st);
}

int context_check(int context, size_t n_prompt, int64_t n_answer, status *st)
{
    if (n_prompt == 0) return status_set(st, ST_ARG, STATUS_NO_POS, "the prompt is empty; give at least one token");
    if (n_prompt > (size_t)context)
        return status_set(st, ST_LIMIT, STATUS_NO_POS,
                          "the prompt has %zu tokens, but the context holds %d; shorten the prompt, or raise the "
                          "context (--ctx)",
                          n_prompt, context);
    int64_t left = context - (int64_t)n_prompt;
    if (n_answer <= left) return ST_OK;
    if (left == 0)
        return status_set(st, ST_LIMIT, STATUS_NO_POS,
                          "the prompt's %zu tokens fill the context of %d, so no room for an answer is left; shorten "
                          "the prompt, or raise the context (--ctx)",
                          n_prompt, context);
    return status_set(st, ST_LIMIT, STATUS_NO_POS,
                      "%zu tokens of prompt and %lld of answer are more than the context's %d; at most %lld are left "
                      "for the answer",
                      n_prompt, (long long)n_answer, context, (long long)left);
}

static int check_prompt(const session *s, const int32_t *ids, size_t n, const generate_params *p, status *st)
{
    int n_vocab = s->e->model->params.n_vocab;
    bool needs_room = p->max_tokens != 0 && p->overflow == OVERFLOW_STOP;
    if (context_check(s->e->context, n, needs_room, st)) return st->code;
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= n_vocab)
            return status_set(st, ST_ARG, i, "token %d is not in the vocabulary of %d", ids[i], n_vocab);
    return ST_OK;
}

int64_t session_longest(const session *s)
{
    int64_t context = s->e->context, most = s->params.max_tokens;
    return most < 0 || most > context - s->n_prompt ? context : s->n_prompt + most;
}

/* Room for the answer's tokens from the start: decoding allocates nothing. A window drops tokens when there is one more
 * than the context holds. */
static int copy_ids(session *s, const int32_t *ids, size_t n, status *st)
{
    bool window = s->params.overflow == OVERFLOW_WINDOW;
    s->n_ids = s->n_prompt = (int64_t)n;
    int64_t most = session_longest(s) + window, need = most + (window ? s->n_prompt : 0);
    if (need > s->max_ids) {
        int32_t *more = mem_resize(s->ids, (size_t)need, sizeof *more);
        if (!more) {
            s->n_ids = s->n_prompt = 0;
            return status_nomem(st, (uint64_t)need * sizeof *more);
        }
        s->ids = more;
        s->max_ids = need;
    }
    memcpy(s->ids, ids, n * sizeof *ids);
    s->prompt = window ? memcpy(s->ids + most, ids, n * sizeof *ids) : s->ids;
    return ST_OK;
}

/* Everything is copied: the answer begins. */
static void begin(session *s)
{
    s->n_dropped = 0;
    for (int64_t i = 0; i < s->n_prompt; i++) sampler_accept(s->sampler, s->ids[i]);
    s->detok = (detokenizer){.started = true}; /* the answer continues the prompt: its first space is its own */
    strbuf_clear(&s->text);
    s->error = (status)STATUS_INIT;
    s->stats = (session_stats){.prompt_tokens = s->n_prompt};
    s->n_reported = s->params.prompt_logprobs ? 1 : s->n_prompt;
    s->pending_at_start = s->n_prompt;
    s->progress = 0;
    s->start_ns = s->e->clock();
    s->admitted_ns = s->first_ns = 0;
    s->deadline_ns = s->params.deadline_s > 0 ? s->start_ns + (int64_t)(s->params.deadline_s * 1e9) : 0;
    s->begun = true;
    bool computes = s->params.max_tokens != 0 || s->params.prompt_logprobs || s->params.cache_only || s->params.pin_s > 0;
    s->finish = computes ? FINISH_NONE : FINISH_LENGTH;
    leave_list(s);
    join_list(s);
}

int session_start(session *s, const int32_t *ids, size_t n, const generate_params *p, const session_callbacks *cb,
                  status *st)
{
    session_stop(s);
    if (check_prompt(s, ids, n, p, st) || copy_params(s, p, n, cb, st) || copy_ids(s, ids, n, st)) return st->code;
    begin(s);
    return ST_OK;
}

int session_fork(session *s, session *leader, uint32_t choice, const session_callbacks *cb, status *st)
{
    if (s == leader || !leader->sampler || !leader->n_prompt)
        return status_set(st, ST_ARG, STATUS_NO_POS, "a fork needs another session, one that has been started");
    session_stop(s);
    while (leader->leader) leader = leader->leader; /* of the same prompt, and the one that computes it */
    generate_params p = leader->params;
    p.stop = (const char *const *)leader->stops.strings;
    p.stop_tokens = leader->stop_tokens;
    p.sampling = sampler_get_params(leader->sampler);
    p.sampling.choice = choice;
    p.prompt_logprobs = false;
    if (copy_params(s, &p, (size_t)leader->n_prompt, cb, st) || copy_ids(s, leader->prompt, (size_t)leader->n_prompt, st)) return st->code;
    begin(s);
    if (session_active(leader) && leader->stats.generated_tokens == 0) s->leader = leader;
    return ST_OK;
}

int64_t session_reusable(const session *s)
{
    return s->n_reported < s->n_prompt ? 0 : s->n_ids - 1;
}

int64_t session_cached(const session *s, uint32_t *in_use)
{
    return kv_cache_match(s->e->cache, s->params.salt, s->ids, session_reusable(s), in_use);
}

void session_admit(session *s)
{
    kv_seq_match(s->seq, s->params.salt, s->ids, session_reusable(s), s->params.priority);
    enter_batch(s);
}

void session_admitted(session *s, int64_t found)
{
    engine_stats *stats = &s->e->stats;
    if (s->admitted_ns) return;
    s->admitted_ns = s->e->clock();
    s->stats.admitted = true;
    s->stats.queue_s = (double)(s->admitted_ns - s->start_ns) * 1e-9;
    s->stats.reused_tokens = found < s->n_prompt ? found : s->n_prompt;
    s->pending_at_start = s->n_prompt - s->stats.reused_tokens;
    stats->prompt_tokens += (uint64_t)s->n_prompt;
    if (kv_cache_tree(s->e->cache) && !s->params.prompt_logprobs) stats->looked_up_tokens += (uint64_t)s->n_prompt;
    stats->reused_tokens += (uint64_t)s->stats.reused_tokens;
}

void session_withdraw(session *s)
{
    leave_batch(s);
}

void session_preempt(session *s)
{
    leave_batch(s);
    s->stats.preemptions++;
    s->e->stats.preemptions++;
}

/* A tail block in every group, and one over for each running session (H3). */
static bool has_room_for_fork(const engine *e)
{
    for (int g = 0; g < kv_cache_n_groups(e->cache); g++)
        if (kv_cache_available(e->cache, g) <= (uint32_t)e->n_running) return false;
    return e->n_running < e->max_running;
}

/* The rows are of use while neither has moved on from its prompt. Without them, or without room, the fork waits for its
 * turn, and finds in the tree what it can. */
void session_join_leader(session *s)
{
    const session *leader = s->forked_from;
    status ignored = STATUS_INIT;
    s->forked_from = NULL;
    if (!session_active(s) || s->n_dropped || leader->n_dropped || !has_room_for_fork(s->e)) return;
    if (kv_seq_copy(s->seq, leader->seq, s->n_prompt, &ignored) == ST_OK) enter_batch(s);
}

void session_expire(session *s)
{
    s->finish = FINISH_TIMEOUT;
}

void session_end(session *s)
{
    engine *e = s->e;
    s->begun = false;
    s->leader = s->forked_from = NULL;
    drop_followers(s);
    s->stats.stored_tokens = s->running && s->finish != FINISH_ERROR ? kv_seq_len(s->seq) : 0;
    leave_batch(s);
    e->stats.finished++;
    if (s->params.pin_s > 0 && s->finish != FINISH_ERROR) {
        status ignored = STATUS_INIT; /* too many pins: this prompt goes like any other, and pinned_tokens tell */
        engine_pin(e, s->params.salt, s->prompt, (size_t)s->n_prompt, s->params.pin_s, &s->stats.pinned_tokens,
                   &ignored);
    }
    if (s->cb.on_finish) s->cb.on_finish(s->cb.user, s->finish);
}

bool session_active(const session *s)
{
    return s->finish == FINISH_NONE;
}

bool session_running(const session *s)
{
    return s->running;
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
    if (s->running) stats.stored_tokens = kv_seq_len(s->seq);
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
}

void session_make_room(session *s)
{
    int64_t context = s->e->context;
    if (s->params.overflow == OVERFLOW_STOP) {
        if (s->n_ids == context) s->finish = FINISH_CONTEXT;
        return;
    }
    if (s->n_ids <= context) return;
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
    s->stops.barred = s->stats.generated_tokens <= s->params.min_tokens && s->params.min_tokens > 0;
    bool stopped = stop_push(&s->stops, strbuf_cstr(&s->text), s->text.n_bytes, &s->shown);
    if (!stopped && s->finish != FINISH_NONE) stopped = stop_flush(&s->stops, &s->shown);
    if (stopped && s->finish != FINISH_ERROR) s->finish = FINISH_STOP;
    if (strbuf_check(&s->shown, &st)) session_fail(s, &st);
}

static void count_time(session *s)
{
    int64_t now = s->e->clock();
    if (!s->first_ns) {
        s->first_ns = now;
        s->stats.first_token_s = (double)(now - s->start_ns) * 1e-9;
        s->stats.prefill_s = s->stats.first_token_s - s->stats.queue_s;
    } else s->stats.decode_s = (double)(now - s->first_ns) * 1e-9;
}

void session_report_prompt(session *s, int64_t position, const float *logits)
{
    if (position + 1 < s->n_reported || position + 1 >= s->n_prompt) return;
    token_event event = {.token = s->ids[position + 1], .position = position + 1, .text = "", .top = s->top};
    int n = s->params.n_logprobs > 0 ? s->params.n_logprobs : 0;
    sampler_scratch *scratch = s->e->scratch[0];
    sampler_read(scratch, logits);
    event.n_top = sampler_logprobs(scratch, event.token, &event.logprob, s->top, n);
    s->n_reported = position + 2;
    if (s->cb.on_prompt_token) s->cb.on_prompt_token(s->cb.user, &event);
}

void session_draw(session *s, sampler_scratch *scratch)
{
    if (s->params.max_tokens == 0) return;
    s->drawn.token = sampler_pick(s->sampler, scratch, s->n_ids + s->n_dropped);
    if (s->params.n_logprobs >= 0)
        s->drawn.n_top =
            sampler_logprobs(scratch, s->drawn.token, &s->drawn.logprob, s->top, s->params.n_logprobs);
}

void session_take_token(session *s)
{
    if (s->params.max_tokens == 0) { /* only the prompt was wanted */
        s->finish = FINISH_LENGTH;
        return;
    }
    int32_t id = s->drawn.token;
    token_event event = {.token = id, .position = s->n_ids + s->n_dropped, .top = s->top};
    if (s->params.n_logprobs >= 0) {
        event.logprob = s->drawn.logprob;
        event.n_top = s->drawn.n_top;
    }
    sampler_accept(s->sampler, id);
    s->ids[s->n_ids++] = id;
    s->stats.generated_tokens++;
    s->e->stats.generated_tokens++;
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
