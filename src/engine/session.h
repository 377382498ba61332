/* session.h - inside the engine: one sequence, its tokens, and the answer in the making. For the engine's own files. */
#ifndef KVASIR_ENGINE_SESSION_H
#define KVASIR_ENGINE_SESSION_H

#include "engine/engine.h"
#include "engine/stop.h"

struct session {
    engine *e;
    session *next; /* in the engine's list */
    kv_seq *seq;
    int32_t *ids;    /* [max_ids], of which n_ids count */
    int32_t *prompt; /* [n_prompt]: the front of ids, or behind them where ids may move on from it (OVERFLOW_WINDOW) */
    int64_t n_ids, max_ids, n_dropped, n_prompt;
    /* Where it stands: begun and not over; among those, in the batch or waiting; waiting for leader's first logits. */
    bool begun, running;
    session *leader, *forked_from; /* forked_from: has its first token; the rows are still to be copied */
    int64_t deadline_ns, n_reported; /* reported: tokens of the prompt that on_prompt_token has had, or needs not */
    /* The answer in the making. */
    sampler *sampler;
    stop_set stops;
    detokenizer detok;
    strbuf text, shown; /* of one event */
    int32_t *stop_tokens;
    generate_params params;
    session_callbacks cb;
    struct {             /* from this step's logits, until session_take_token */
        int32_t token;
        float logprob;
        int n_top;
    } drawn;
    token_logprob top[MAX_LOGPROBS];
    finish_reason finish; /* FINISH_NONE while it runs */
    status error;
    session_stats stats;
    int64_t start_ns, admitted_ns, first_ns, pending_at_start, progress; /* progress: what on_progress was told */
};

/* Tokens that are not in the cache yet. */
int64_t session_pending(const session *s);
/* How many of a waiting session's tokens may come from the cache. The last one is always computed, since its logits are
 * wanted; while logprobs of the prompt are still to be told, all are. */
int64_t session_reusable(const session *s);
/* As kv_cache_match, of those. */
int64_t session_cached(const session *s, uint32_t *in_use);
/* Tokens that the session may come to. */
int64_t session_longest(const session *s);
/* The answer's newest token has come: makes room by the overflow policy when the context is full, or ends the session. */
void session_make_room(session *s);
/* The logits after the session's last token, which scratch has read: draws the next one. Touches this session alone. */
void session_draw(session *s, sampler_scratch *scratch);
/* Takes the token that was drawn, tells the caller, ends the answer if it ends here. */
void session_take_token(session *s);
/* A row of the prompt before the last: the logprob of the token that follows it. */
void session_report_prompt(session *s, int64_t position, const float *logits);
void session_fail(session *s, const status *st);
/* Into the batch, with what the cache has of its tokens; it stays there, having found so many of them; it didn't fit
 * after all; out of it again, its blocks left to the tree. */
void session_admit(session *s);
void session_admitted(session *s, int64_t found);
void session_withdraw(session *s);
void session_preempt(session *s);
/* Into the batch with the rows of the session that it is a fork of, where there is room. */
void session_join_leader(session *s);
void session_expire(session *s); /* its deadline has passed */
/* Tells the caller that an answer is over, and gives everything back. */
void session_end(session *s);

#endif
