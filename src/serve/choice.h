/* choice.h - one answer in the making: its text, and its tokens where somebody asked for logprobs.
 *
 * Owns: text and records. See job.h for who may touch what.
 */
#ifndef KVASIR_SERVE_CHOICE_H
#define KVASIR_SERVE_CHOICE_H

#include "base/utf8.h"
#include "engine/engine.h"

typedef struct recorded_token {
    int32_t id;
    float logprob;
    size_t first_top; /* in tops */
    int n_top;
} recorded_token;

typedef struct token_record {
    recorded_token *tokens;
    size_t n, capacity;
    token_logprob *tops;
    size_t n_tops, tops_capacity;
} token_record;

bool token_record_add(token_record *r, const token_event *t); /* false when memory is short */
void token_record_deinit(token_record *r);

typedef struct choice {
    struct job *job;
    size_t prompt;   /* which of the job's */
    uint32_t number; /* among the choices of its prompt */
    /* Under the job's lock. */
    strbuf text;
    token_record tokens;
    double logprob_sum; /* of all tokens, when they were asked for */
    finish_reason finish;
    session_stats stats; /* until it is over generated_tokens alone */
    /* The engine's thread. */
    struct engine_loop *loop;
    session *session;
    int64_t last_ns; /* of its newest token */
    bool out_of_memory;
    /* The HTTP thread: what has been sent. */
    size_t sent_bytes, sent_tokens;
    utf8_counter sent_text; /* for text_offset */
    bool opened, closed;
} choice;

void choice_deinit(choice *c);
/* Takes a token in; record: for logprobs. False when memory is short. */
bool choice_add(choice *c, const token_event *t, bool record);
/* Mean logprob of its tokens: what best_of compares. */
double choice_score(const choice *c);

#endif
