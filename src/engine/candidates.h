/* candidates.h - the tokens that are still in play, most likely first, and the filters that thin them out.
 *
 * Owns: arrays for one vocabulary. Borrows: the row of logits and the largest of each of its spans (kernel.h), from one
 * candidates_take to the next.
 *
 *      by token   | . . . x . . | . . . . . . | x . x . . . | . x . . . . |     four spans; the x are "least" or more
 *      ranked     x x x x | next: all up to the next lower "least" ...          looked for in spans that reach it alone
 *                 c[0 .. n_ranked)                              n in play
 *
 * CA1 c[0 .. n_ranked) descends by logit, ties by id, NaN last; what is in play and not ranked comes after it. Filters
 *    keep that order and at least one candidate.
 * CA2 Only the most likely are ranked, by steps, as far as a question asks: a draw seldom falls behind the first hundred.
 *    A draw that does orders only the few candidates that it may mean: of those before them the mass is enough.
 * CA3 Answers are those that ranking everything and adding up the weights in that order gives, to the last bit. Over the
 *    ranked ones the sums are that very chain of additions. The sum of all weights is known within bounds that hold for
 *    any order; where an answer differs between the bounds, everything is ranked and the sum is taken in order.
 * Threads: one at a time.
 */
#ifndef KVASIR_ENGINE_CANDIDATES_H
#define KVASIR_ENGINE_CANDIDATES_H

#include <stdbool.h>
#include <stdint.h>

#include "kernel/kernel.h"

typedef struct candidate {
    int32_t token;
    float logit;
} candidate;

typedef struct candidates {
    const kernels *ks;
    const float *logits;   /* [n_vocab] the row */
    const float *span_max; /* [n_spans] of the row; NULL = not known: everything is ranked at once */
    candidate *c, *other;  /* [n_vocab] each */
    candidate *spans;      /* [n_spans] {span, its largest}, descending */
    double *weight;        /* [n_vocab] e^(logit - largest), of c[0 .. n_ranked) */
    int32_t *found;        /* [SPAN] those of a span that are ranked next */
    float *logit;          /* [n_vocab] by token, while a filter borrows the candidates' own */
    float least;           /* all of the row that reach it are ranked */
    int n, n_ranked, n_vocab, n_spans;
    int n_open; /* spans whose largest are ranked, in the order of spans */
    bool counted;
    int *count; /* a sample of logits by how far below the largest, a bucket for each width; once asked */
    float width;
} candidates;

bool candidates_init(candidates *s, const kernels *ks, int n_vocab); /* false: out of memory, nothing to free */
void candidates_deinit(candidates *s);
/* All tokens (k = 0), or the k of the largest logits, these being ranked; k <= n_vocab. NaN counts as the least. span_max: NULL where a
 * logit is NaN or +infinity. */
void candidates_take(candidates *s, const float *logits, const float *span_max, int k);
void candidates_typical(candidates *s, float p);
void candidates_top_p(candidates *s, float p);
void candidates_min_p(candidates *s, float p);
/* Drops all but the least likely of those whose probability is at least threshold. */
void candidates_xtc(candidates *s, float threshold);
/* The token where the cumulative probability at this temperature passes u in [0, 1). */
int32_t candidates_draw(candidates *s, float temperature, double u);

#endif
