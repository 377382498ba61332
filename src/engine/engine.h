/* engine.h - sessions over one model: prefill in chunks, decode, several sequences in one step.
 *
 * Owns: the KV cache, the forward pass, the sessions' records. Borrows: model, team.
 *
 *      session A  ids [1 2 3 4 | 5]         pending 1: one row, wants logits
 *      session B  ids [7 8 ....... 900]     pending 893: rows while the step's budget lasts
 *                      ^ in the cache
 *      engine_step:  running sessions first, then prompts in order, at most `chunk` rows --> forward --> sample
 *                    --> on_token
 *
 * N1 What a session says depends on its tokens and parameters alone: not on the other sessions, the chunk or the team
 *    (I5).
 * N2 Decoding allocates nothing, apart from text that grows and the tree's record of a block that is full, or of the last
 *    one when the answer ends.
 * N3 ids [0, kv length) are in the cache; the rest is pending.
 * N4 A prompt and its answer are at most `context` tokens together, whoever asks: n tokens of prompt leave context - n
 *    for the answer, and one that leaves none begins only where no answer is wanted (max_tokens 0). OVERFLOW_WINDOW
 *    goes on all the same, by dropping; what is left never exceeds the context either.
 * Threads: one caller at a time; callbacks run in engine_step.
 */
#ifndef KVASIR_ENGINE_ENGINE_H
#define KVASIR_ENGINE_ENGINE_H

#include "cache/cache.h"
#include "cache/evict.h"
#include "engine/forward.h"
#include "engine/sampler.h"
#include "model/model.h"

typedef struct engine_config {
    int context;              /* N4; 0 = the model's, less where memory is short */
    int n_sessions;           /* at once, waiting ones included; 0 = 1 */
    int n_running;            /* most sequences of one step; 0 = n_sessions, at most 256 */
    int chunk;                /* most rows of a step; 0 = 512 */
    int logit_rows;           /* rows of one head product; 0 = n_sessions */
    const kv_format *format;  /* NULL = f16 */
    int block_tokens;         /* 0 = 16 */
    uint64_t kv_memory_bytes; /* ceiling for the cache; 0 = from free memory */
    bool exact;               /* float products */
    bool no_split, no_cascade; /* as in forward_config */
    double itl_target_s;      /* shrink prompts' chunks so that running answers get a token this often; 0 = don't */
    const evict_policy *evict; /* NULL = lru */
    bool no_sharing;          /* for comparison: no prefix is shared or kept */
    int64_t (*clock)(void);   /* nanoseconds that deadlines, pins and pace go by; NULL = clock_ns */
    bool reserve;             /* for comparison: admission sets aside blocks for prompt + max_tokens; with no_sharing */
    /* For K and V that come from elsewhere while steps are computed; NULL = none do. A layer of a step is about to read
     * those of seq's earlier rows; a failure ends that sequence's session with its status, and no other (forward.h, E4). */
    int (*kv_wait)(void *user, int layer, const kv_seq *seq, status *st);
    void *kv_user;
} engine_config;

typedef struct engine engine;

/* ST_LIMIT when the memory can't hold a block a group, or not the context that was asked for (the numbers are in the
 * text). */
int engine_new(engine **out, const model *m, threads *team, const engine_config *c, status *st);
void engine_free(engine *e); /* after its sessions */
const model *engine_model(const engine *e);
threads *engine_team(const engine *e);
kv_cache *engine_cache(const engine *e);
int engine_context(const engine *e);
phase_clock *engine_phases(engine *e); /* of its steps; off until somebody starts it */
int engine_chunk(const engine *e); /* most rows of a step */

typedef enum finish_reason {
    FINISH_NONE,      /* still going */
    FINISH_EOS,       /* an end-of-generation token */
    FINISH_STOP,      /* a stop string or stop token */
    FINISH_LENGTH,    /* max_tokens */
    FINISH_CONTEXT,   /* the context is full (N4) */
    FINISH_CANCELLED,
    FINISH_TIMEOUT,   /* its deadline passed */
    FINISH_ERROR      /* session_error tells */
} finish_reason;
const char *finish_name(finish_reason r); /* "eos", "stop", ... */

typedef enum overflow_policy {
    OVERFLOW_STOP,  /* the answer ends when the context is full */
    /* the first `keep` tokens and the newest half of the rest stay and are computed anew; on_drop tells */
    OVERFLOW_WINDOW
} overflow_policy;

typedef struct token_event {
    int32_t token;
    int64_t position;
    /* what can be shown now: whole characters, nothing that may be part of a stop string; may be empty */
    const char *text;
    size_t n_bytes;
    float logprob;    /* of the token, when logprobs were asked for */
    const token_logprob *top;
    int n_top;
} token_event;

/* Callbacks may cancel sessions, this one and others; they may not start, fork or free one. */
typedef struct session_callbacks {
    void (*on_token)(void *user, const token_event *t);
    /* With prompt_logprobs: every token of the prompt but the first, in order, before the first on_token; no text. */
    void (*on_prompt_token)(void *user, const token_event *t);
    /* The answer is over, whatever the reason; once, from engine_step. */
    void (*on_finish)(void *user, finish_reason reason);
    /* of the prompt's tokens that the cache didn't have; not told again after a preemption */
    void (*on_progress)(void *user, int64_t done, int64_t total);
    void (*on_drop)(void *user, int64_t n_dropped);               /* OVERFLOW_WINDOW dropped that many tokens */
    void *user;
} session_callbacks;

typedef struct generate_params {
    sampler_params sampling;
    int64_t max_tokens; /* of the answer; -1 = until the context is full */
    int64_t min_tokens; /* so many end no answer: no end or stop token is drawn, and no stop string ends, among them */
    const char *const *stop;
    int n_stop;
    const int32_t *stop_tokens;
    int n_stop_tokens;
    bool ignore_eos;
    bool show_special;  /* control tokens appear in the text by name */
    int n_logprobs;     /* -1 = none; 0.. = the chosen token's, and that many of the most likely */
    bool prompt_logprobs; /* on_prompt_token: the whole prompt is computed, nothing taken from the cache */
    int priority;       /* higher ones first; equal ones by age */
    double deadline_s;  /* from session_start; 0 = none */
    uint64_t salt;      /* prefixes are shared among equal salts only */
    double pin_s;       /* the prompt stays in the cache for that long after the answer (engine_pin); 0 = no pin */
    bool cache_only;    /* with max_tokens 0: the prompt is computed all the same, as with a pin, and stays cached */
    overflow_policy overflow;
    /* OVERFLOW_WINDOW: tokens at the beginning that stay; -1 = a quarter of the context or the prompt, if shorter */
    int64_t keep;
} generate_params;
#define MAX_LOGPROBS 64
#define MAX_SECONDS (7 * 24 * 3600) /* of deadlines and pins */

typedef struct session_stats {
    /* reused: of the prompt, found in the cache when the session was first admitted */
    int64_t prompt_tokens, reused_tokens, generated_tokens, context_used;
    /* Of context_used, those whose K and V are in the session's sequence, or were when the answer ended: without the last
     * one drawn, which nobody has computed. */
    int64_t stored_tokens;
    int64_t pinned_tokens; /* of the prompt, when the answer is over: 0 without pin_s, or where no pin could be made */
    /* start -> admitted -> first token -> last token; first_token: from the start */
    double queue_s, prefill_s, decode_s, first_token_s;
    int preemptions;
    bool admitted; /* ever */
} session_stats;

typedef struct session session;

/* N4 for a prompt and an answer of n_answer tokens, 0 = none is wanted. ST_ARG: no prompt; ST_LIMIT: they don't fit, with
 * the numbers. */
int context_check(int context, size_t n_prompt, int64_t n_answer, status *st);

int session_new(session **out, engine *e, status *st);
void session_free(session *s);
/* Begins an answer to ids [0, n): it waits until engine_step admits it. What the cache holds of them as a prefix is not
 * computed again (the last one always is). params and callbacks are copied, their arrays too. ST_ARG: empty prompt, bad
 * parameter; ST_LIMIT: no token of an answer fits (context_check). max_tokens beyond what is left is no mistake: the
 * answer ends with FINISH_CONTEXT. */
int session_start(session *s, const int32_t *ids, size_t n, const generate_params *p, const session_callbacks *cb,
                  status *st);
/* Begins another answer to leader's prompt, with leader's parameters but for sampling.choice. Where leader has not yet
 * made its first token, the prompt is computed once: both go on from the same rows and logits. ST_ARG where leader was
 * never started. */
int session_fork(session *s, session *leader, uint32_t choice, const session_callbacks *cb, status *st);
bool session_active(const session *s); /* waiting or running */
bool session_running(const session *s); /* in the batch */
void session_cancel(session *s);
finish_reason session_finish(const session *s);
const status *session_error(const session *s);
session_stats session_get_stats(const session *s);
/* The session's tokens, prompt and answer; borrowed until the next call. */
const int32_t *session_ids(const session *s, size_t *n);

/* One batch through the model. A session that can't go on (memory for its text, K and V that don't come, logits that are
 * no numbers) ends with FINISH_ERROR and gives its blocks back; the others of the batch go on, with the same bits. ST_*
 * only when the step itself can't be made. Does nothing when no session is active. */
int engine_step(engine *e, status *st);
int engine_n_active(const engine *e);

#define MAX_PINS 64
/* Keeps what the cache has of a prefix for some time. What is promised: it is not evicted, but for a session that runs
 * alone and could not go on otherwise, or could not enter; then the fewest pins go that make room, the oldest first
 * (pins_dropped). *n_pinned: tokens, of full blocks; 0 makes no pin. ST_LIMIT when there are MAX_PINS. */
int engine_pin(engine *e, uint64_t salt, const int32_t *ids, size_t n, double seconds, int64_t *n_pinned, status *st);
typedef struct pin_report {
    int64_t n_tokens, until_ns; /* by the clock */
} pin_report;
int engine_list_pins(const engine *e, pin_report out[MAX_PINS]); /* the oldest first; their number */
/* Releases pins that have run out, as each step does. When the next one does, by the clock; 0: there is none. */
int64_t engine_expire_pins(engine *e);

typedef struct engine_stats {
    int running, waiting;                /* sessions, now */
    int pins;                            /* now */
    /* Ever. Of prompts: when a session is first admitted, each fork like any other; looked_up: without those whose
     * logprobs need all of them computed. computed_rows: all, again after a preemption too. */
    uint64_t steps, prompt_tokens, looked_up_tokens, reused_tokens, generated_tokens, computed_rows;
    uint64_t preemptions, finished;
    uint64_t pins_dropped;               /* before their time, to make room */
    int chunk;                           /* rows that a step's prompts may take now (itl_target_s) */
} engine_stats;
engine_stats engine_get_stats(const engine *e);

/* Teacher forcing, below the sessions: tokens that the caller chooses for sequences that the caller owns (kv_seq_new
 * over engine_cache), in one step. */
typedef struct feed {
    kv_seq *seq;
    const int32_t *ids; /* [n] the tokens that follow those in seq */
    int n;
    bool all_logits;    /* of every token, or of the last alone */
} feed;
/* position: the token's index in its sequence; logits [n_vocab] are valid during the call. */
typedef void feed_logits_fn(void *user, int feed, int64_t position, const float *logits);
/* At most n_sessions feeds, at most `chunk` tokens together (asserted); on failure no sequence has grown. on_logits may
 * be NULL: no head. */
int engine_feed(engine *e, const feed *feeds, int n_feeds, feed_logits_fn *on_logits, void *user, status *st);

#endif
