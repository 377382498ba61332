/* shapes.h - the attention shapes of well-known models, for planning without their files.
 *
 * Every number is from the model's published configuration, which `source` names; parameters are the sum over its
 * tensors (language model only). Constant data.
 */
#ifndef KVASIR_MODEL_SHAPES_H
#define KVASIR_MODEL_SHAPES_H

#include <stdint.h>

#include "model/arch.h"

typedef struct model_shape {
    const char *name, *source;
    uint64_t n_params;
    int n_layers;
    int n_windowed, window; /* layers whose queries see `window` tokens; 0 = none */
    int n_heads, n_kv_heads;
    int d_k, d_v;    /* of a head; MLA: the part without position, as the heads would have it uncompressed */
    int d_c, d_rope; /* MLA: the latent and the shared rotary part; 0 = K and V by head */
    int context_length;
} model_shape;

const model_shape *model_shape_at(int i); /* NULL past the last */
/* By name, whatever the case; NULL when there is none. */
const model_shape *model_shape_find(const char *name);
/* The shape of a model file. name and source stay the caller's; n_params is 0. */
model_shape model_shape_of(const arch_params *p, const char *name, const char *source);

#endif
