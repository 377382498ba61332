/* session.h - inside the engine: one sequence, its tokens, and the answer in the making. For the engine's own files. */
#ifndef KVASIR_ENGINE_SESSION_H
#define KVASIR_ENGINE_SESSION_H

#include "engine/engine.h"
#include "engine/stop.h"

struct session {
    engine *e;
    session *next; /* in the engine's list, by age */
    kv_seq *seq;
    int32_t *ids; /* [context + 1] */
    int64_t n_ids, n_dropped, n_prompt;
    /* The answer in the making. */
    sampler *sampler;
    stop_set stops;
    detokenizer detok;
    strbuf text, shown; /* of one event */
    int32_t *stop_tokens;
    generate_params params;
    session_callbacks cb;
    token_logprob top[MAX_LOGPROBS];
    finish_reason finish; /* FINISH_NONE while it runs */
    status error;
    session_stats stats;
    int64_t start_ns, first_ns, pending_at_start;
};

/* Tokens that are not in the cache yet. */
int64_t session_pending(const session *s);
/* Makes room by the overflow policy when the next token would not fit; ends the session where that is the policy. */
void session_make_room(session *s);
/* The logits after the session's last token: picks the next one, tells the caller, ends the answer if it ends here. */
void session_take_logits(session *s, const float *logits);
void session_fail(session *s, const status *st);

#endif
