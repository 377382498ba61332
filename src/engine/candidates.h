/* candidates.h - the tokens that are still in play, most likely first, and the filters that thin them out.
 *
 * Owns: arrays for one vocabulary. c[0 .. n) descends by logit, ties by id; filters keep that order and at least one
 * candidate.
 * Threads: one at a time.
 */
#ifndef KVASIR_ENGINE_CANDIDATES_H
#define KVASIR_ENGINE_CANDIDATES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct candidate {
    int32_t token;
    float logit;
} candidate;

typedef struct candidates {
    candidate *c, *other; /* [n_vocab] each */
    double *weight;       /* [n_vocab] e^(logit - largest), of c[0 .. n) */
    float *logit;         /* [n_vocab] by token, while a filter borrows the candidates' own */
    int n, n_vocab;
} candidates;

bool candidates_init(candidates *s, int n_vocab); /* false: out of memory, nothing to free */
void candidates_deinit(candidates *s);
/* All tokens, or the k (> 0) of the largest logits. NaN counts as the least. */
void candidates_take(candidates *s, const float *logits, int k);
void candidates_typical(candidates *s, float p);
void candidates_top_p(candidates *s, float p);
void candidates_min_p(candidates *s, float p);
/* Drops all but the least likely of those whose probability is at least threshold. */
void candidates_xtc(candidates *s, float threshold);
/* The token where the cumulative probability at this temperature passes u in [0, 1). */
int32_t candidates_draw(candidates *s, float temperature, double u);

#endif
