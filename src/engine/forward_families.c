#include "engine/forward_state.h"

/* Llama (arXiv 2302.13971) and its kin: Mistral, Qwen, Phi-3, SmolLM. They differ in what a layer's optional parts are:
 * biases and head norms in forward_qkv, layers without RoPE or with a window in the plan. */
int forward_llama(forward *f, status *st)
{
    for (int l = f->io->layer_begin; l < f->io->layer_end; l++) {
        const model_layer *y = &f->m->layers[l];
        forward_norm(f, f->x, y->attn_norm, f->h);            /* h = norm(x)                      [n][d_model]      */
        forward_qkv(f, y, l);                                 /* q = h Wq, K V += h Wk, h Wv      [n][heads][d]     */
        if (forward_attend(f, l, st)) return st->code;        /* att = softmax(q K^T) V           [n][n_heads][d_v] */
        forward_project(f, &y->o, y->o_bias, f->att, f->h);   /* h = att Wo                       [n][d_model]      */
        forward_add(f);                                       /* x += h                                             */
        forward_norm(f, f->x, y->ffn_norm, f->h);             /* h = norm(x)                                        */
        forward_ffn(f, y);                                    /* h = (silu(h Wg) * (h Wu)) Wd                       */
        forward_add(f);                                       /* x += h                                             */
        forward_tap(f, l);
    }
    return ST_OK;
}

/* Gemma 2 (arXiv 2408.00118) and Gemma 3 (arXiv 2503.19786): a norm after each block as well, GELU, soft-caps or head
 * norms. */
int forward_gemma(forward *f, status *st)
{
    for (int l = f->io->layer_begin; l < f->io->layer_end; l++) {
        const model_layer *y = &f->m->layers[l];
        forward_norm(f, f->x, y->attn_norm, f->h);
        forward_qkv(f, y, l);
        if (forward_attend(f, l, st)) return st->code;
        forward_project(f, &y->o, y->o_bias, f->att, f->h);
        forward_norm(f, f->h, y->post_attn_norm, f->h);
        forward_add(f);
        forward_norm(f, f->x, y->ffn_norm, f->h);
        forward_ffn(f, y);                                    /* h = (gelu(h Wg) * (h Wu)) Wd */
        forward_norm(f, f->h, y->post_ffn_norm, f->h);
        forward_add(f);
        forward_tap(f, l);
    }
    return ST_OK;
}
