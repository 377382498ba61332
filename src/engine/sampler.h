/* sampler.h - from a row of logits to one token.
 *
 * Owns: the history that penalties look at, none when they are off. A scratch, which samplers of one vocabulary share,
 * holds what one pick needs, and the row at hand:
 *
 *      sampler_read(scratch, logits)     once a row: whether all are numbers, and where the large ones are
 *      sampler_pick(a, scratch, ...)     by each sampler whose next token the row decides
 *      sampler_logprobs(scratch, ...)
 *
 * The order, each step on what the one before left:
 *      1 logit bias            added to the logits
 *      2 repetition, presence, frequency penalties     over the last penalty_last_n tokens (arXiv 1909.05858; OpenAI)
 *      3 DRY                   penalty on continuing a repeated run; barred tokens are out
 *        temperature 0: the largest logit now, ties to the lowest id; nothing below applies
 *      4 top-k                 the k largest
 *      5 typical               locally typical (arXiv 2202.00666)
 *      6 top-p                 nucleus (arXiv 1904.09751)
 *      7 min-p                 p >= min_p * largest p (arXiv 2407.01082)
 *      8 XTC                   with chance xtc_probability drop all but the least likely of those above xtc_threshold
 *      9 temperature           logits / temperature
 *     10 draw                  by the cumulative sum over candidates in descending order, ties by id
 *
 * R1 A draw depends on (seed, choice, position, purpose) alone (I11): a counter-based generator (Philox 4x32-10), no
 *    state.
 * R2 A sampler can be cloned; the clone goes on as the original would.
 * R3 sampler_pick allocates nothing, changes neither sampler nor row, and takes time for a few passes over the row: it
 *    does not sort the vocabulary, but for typical, for XTC that drops something when nothing else is filtered, and for
 *    draws that bounds can't decide (candidates.h).
 * R4 Logprobs are those of the model: log-softmax of the logits before step 1.
 * Threads: one at a time per scratch; samplers may pick at the same time, each with a scratch.
 */
#ifndef KVASIR_ENGINE_SAMPLER_H
#define KVASIR_ENGINE_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kernel/kernel.h"

typedef struct logit_bias {
    int32_t token;
    float bias; /* -INFINITY bans */
} logit_bias;

typedef struct sampler_params {
    float temperature;       /* 0 = greedy */
    int top_k;               /* 0 = off */
    float top_p;             /* 1 = off */
    float min_p;             /* 0 = off */
    float typical_p;         /* 1 = off */
    float repeat_penalty;    /* 1 = off */
    float presence_penalty;  /* 0 = off */
    float frequency_penalty; /* 0 = off */
    int penalty_last_n;      /* tokens of history; 0 = none, -1 = all */
    float dry_multiplier;    /* 0 = off */
    float dry_base;
    int dry_allowed_length;
    int dry_last_n;              /* -1 = all */
    const int32_t *dry_breakers; /* tokens that a repeated run does not reach across; borrowed by sampler_new only */
    int n_dry_breakers;
    float xtc_probability;  /* 0 = off */
    float xtc_threshold;    /* above 0.5 = off */
    const logit_bias *bias; /* borrowed by sampler_new only */
    int n_bias;
    const int32_t *barred; /* tokens that are never drawn for a position below barred_before; borrowed by sampler_new only */
    int n_barred;
    int64_t barred_before;
    uint64_t seed;
    uint32_t choice; /* which of several answers to one prompt */
} sampler_params;

/* Greedy is not the default: temperature 0.8, top_k 40, top_p 0.95, min_p 0.05, penalties off, penalty_last_n 64,
 * dry_base 1.75, dry_allowed_length 2, dry_last_n -1, xtc_threshold 0.1, seed 0. */
sampler_params sampler_defaults(void);
/* ST_ARG names the parameter that is out of range and its range. */
int sampler_check(const sampler_params *p, int n_vocab, status *st);

typedef struct sampler_scratch sampler_scratch;
/* max_history: the longest that a sampler will have. */
int sampler_scratch_new(sampler_scratch **out, const kernels *ks, int n_vocab, int max_history, status *st);
void sampler_scratch_free(sampler_scratch *s);
/* The row that the next picks are about; logits [n_vocab] are borrowed until the next row. False: not all of them are
 * finite numbers. */
bool sampler_read(sampler_scratch *s, const float *logits);

typedef struct sampler sampler;

int sampler_new(sampler **out, const sampler_params *p, int n_vocab, int max_history, status *st);
int sampler_clone(sampler **out, const sampler *s, status *st);
sampler_params sampler_get_params(const sampler *s); /* its arrays are the sampler's */
void sampler_free(sampler *s);
/* Forgets the history. */
void sampler_reset(sampler *s);
/* A token of the prompt or the answer joins the history (the oldest of max_history leaves). */
void sampler_accept(sampler *s, int32_t token);
/* The token for `position` (the one that it will have). The scratch is of the same vocabulary, for as long a history. */
int32_t sampler_pick(const sampler *s, sampler_scratch *scratch, int64_t position);

typedef struct token_logprob {
    int32_t token;
    float logprob;
} token_logprob;
/* Of a row of finite numbers: the n most likely tokens, descending (ties by id); chosen: also the logprob of that token.
 * Returns how many were written. */
int sampler_logprobs(sampler_scratch *scratch, int32_t token, float *chosen, token_logprob *top, int n);

#endif
