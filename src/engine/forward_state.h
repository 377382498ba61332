/* forward_state.h - inside the forward pass: the buffers, and the steps that the architecture families are written in.
 * For forward*.c alone. Each step reads and writes the named buffers of f; n is the number of rows of the batch. */
#ifndef KVASIR_ENGINE_FORWARD_STATE_H
#define KVASIR_ENGINE_FORWARD_STATE_H

#include "engine/forward.h"

#define ROW_GRAIN 8 /* rows of elementwise work that are worth a worker */
#define MASK_WORDS (FORWARD_MAX_DRAFTS / 64)

/* What is still to be done to each row, in this order; the product that reads h does it row by row as it quantizes. */
typedef struct row_work {
    const float *post_norm; /* h = norm(h) * post_norm */
    bool add;               /* x += h */
    const float *norm;      /* h = norm(x) * norm */
} row_work;

struct forward {
    const model *m;
    const arch_params *p;
    const kernels *ks;
    kv_cache *cache;
    const kv_groups *groups;
    threads *team;
    int max_rows, max_seqs, max_drafts, max_logit_rows;
    bool exact, no_split, no_cascade;

    product_scratch products;
    attn_plan *plans[KV_MAX_GROUPS]; /* by group */
    float *x;            /* [n][d_model] the residual stream */
    float *h;            /* [n][d_model] what a block reads, then what it gives */
    float *q;            /* [n][n_heads][d_k] */
    float *k, *v;        /* [n][n_kv_heads][d_k], [..][d_v]: this step's, before they go to their blocks */
    float *att;          /* [n][n_heads][d_v] */
    float *gate, *up;    /* [n][d_ff] */
    float *logits;       /* [max_logit_rows][n_vocab] */
    float *angles[2];    /* [n][n_rot] {cos, sin} pairs: of global and of windowed layers */
    kv_place *places[KV_MAX_GROUPS]; /* [n] by group: where row i's K and V go */
    uint64_t (*masks[KV_MAX_GROUPS])[MASK_WORDS]; /* [n] of draft rows, by group */
    attn_span *spans;    /* of one sequence, while a plan is made */
    int max_spans;       /* of one sequence */
    arena memory;        /* holds all of the above but plans and products */

    /* The run at hand. */
    const batch *b;
    const forward_io *io;
    int n;
    bool *lost; /* [max_seqs] a wait of it has failed (E4) */
    row_work due;

    phase_clock phases;
};

void forward_plan(forward *f); /* places, angles, masks and attention plans of the batch */

void forward_norm(forward *f, const float *w);                    /* h = norm(x) * w, with the product that reads h */
void forward_qkv(forward *f, const model_layer *y, int layer);    /* h -> q, and K, V into their blocks */
void forward_attend(forward *f, int layer);                       /* q, blocks -> att */
void forward_out(forward *f, const model_layer *y);               /* h = att Wo */
void forward_ffn(forward *f, const model_layer *y);               /* h = down(act(gate h) * up h) */
void forward_add(forward *f, const float *post_norm);             /* x += h, or its norm; with the next norm */
void forward_tap(forward *f, int layer);

void forward_llama(forward *f);
void forward_gemma(forward *f);

#endif
