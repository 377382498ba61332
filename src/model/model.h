/* model.h - a model in memory: parameters, packed weights, RoPE tables, tokenizer, chat template.
 *
 * Owns: all of it; the file is closed when model_load returns.
 *
 *      token_embd [n_vocab][d_model]                    (also the output head where the file has none of its own)
 *      layer: q [n_heads * d_k][d_model]  k, v [n_kv_heads * d][d_model]  o [d_model][n_heads * d_v]
 *             gate, up [d_ff][d_model]  down [d_model][d_ff]  norms [d_model], q_norm, k_norm [d_k]
 *
 * W1 Every tensor's shape is checked against the parameters before it is packed; a missing or odd one is an error that
 *    names it.
 * W2 Weights are in memory once: a tensor's file pages are released as soon as it is packed.
 * Threads: constant after model_load; any number of engines may share it.
 */
#ifndef KVASIR_MODEL_MODEL_H
#define KVASIR_MODEL_MODEL_H

#include "base/arena.h"
#include "base/threads.h"
#include "kernel/product.h"
#include "model/arch.h"
#include "model/rope.h"
#include "model/tokenizer.h"

typedef struct model_layer {
    weight q, k, v, o, gate, up, down;
    const float *attn_norm, *ffn_norm;           /* [d_model] */
    const float *post_attn_norm, *post_ffn_norm; /* [d_model]; NULL where the family has none */
    const float *q_norm, *k_norm;                /* [d_k]; NULL where the architecture has none */
    const float *q_bias, *k_bias, *v_bias, *o_bias; /* NULL where the file has none */
} model_layer;

typedef struct model {
    arch_params params;
    const kernels *ks;
    weight embed, own_head;
    const weight *head; /* own_head, or embed where they are tied */
    const float *output_norm;
    model_layer *layers; /* [n_layers] */
    rope rope, rope_window; /* of global and of windowed layers */
    tokenizer *tok;
    char *chat_template; /* NUL-terminated; NULL where the file has none */
    char *name;          /* general.name, or the file's name */
    uint8_t fingerprint[32]; /* of the file */
    int rope_context;        /* that chose among LongRoPE's factors; 0 without them */
    uint64_t weight_bytes;
    /* of weights that one token's step reads: all but the rows of the embedding that it doesn't look up */
    uint64_t step_bytes;
    void *panels;        /* of all matrices, in the order of loading */
    size_t panels_bytes;
    arena floats;        /* norms and biases */
} model;

typedef struct model_options {
    const kernels *ks;
    threads *team; /* packs; may be freed after */
    int context;   /* longest context that will be used (LongRoPE chooses its factors by it); 0 = the model's own */
    const uint8_t *known_fingerprint; /* [32] of this very file, or NULL: computed. Of a split file it is not believed */
    void (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes); /* may be NULL */
    void *user;
} model_options;

int model_load(model **out, const char *path, const model_options *o, status *st);
void model_free(model *m);

#endif
