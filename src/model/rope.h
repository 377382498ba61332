/* rope.h - rotary embedding: from a model's parameters to the angles of one position.
 *
 *      theta_i = base^(-2i / n_rot)                              RoFormer
 *      linear:   theta_i / factor                                position interpolation
 *      factors:  theta_i / factors[i]                            Llama-3 (rope_freqs), LongRoPE
 *      YaRN:     a blend of theta_i and theta_i / factor by wavelength, and cos, sin times 0.1 ln(factor) + 1
 *                (arXiv 2309.00071)
 *
 * Owns: the table of theta. Threads: constant after rope_init.
 */
#ifndef KVASIR_MODEL_ROPE_H
#define KVASIR_MODEL_ROPE_H

#include <stdint.h>

#include "base/status.h"
#include "model/arch.h"

typedef struct rope {
    int n_rot;
    double *theta; /* [n_rot / 2] */
    double scale;  /* of cos and sin */
} rope;

/* factors: [n_rot / 2] divisors of theta, or NULL. */
int rope_init(rope *r, const rope_params *p, int n_rot, const float *factors, status *st);
void rope_deinit(rope *r);
/* out: n_rot / 2 pairs {cos, sin}, rounded once from double, so that large positions stay exact. */
void rope_angles(const rope *r, int64_t position, float *out);

#endif
