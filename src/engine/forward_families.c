#include "engine/forward_state.h"

/* Llama (arXiv 2302.13971) and its kin: Mistral, Qwen, Phi-3, SmolLM. They differ in what a layer's optional parts are:
 * biases and head norms in forward_qkv, layers without RoPE or with a window in the plan. */
void forward_llama(forward *f)
{
    for (int l = f->io->layer_begin; l < f->io->layer_end; l++) {
        const model_layer *y = &f->m->layers[l];
        forward_norm(f, y->attn_norm);                        /* h = norm(x)                      [n][d_model]      */
        forward_qkv(f, y, l);                                 /* q = h Wq, K V += h Wk, h Wv      [n][heads][d]     */
        forward_attend(f, l);                                 /* att = softmax(q K^T) V           [n][n_heads][d_v] */
        forward_out(f, y);                                    /* h = att Wo                       [n][d_model]      */
        forward_add(f, NULL);                                 /* x += h                                             */
        forward_norm(f, y->ffn_norm);                         /* h = norm(x)                                        */
        forward_ffn(f, y);                                    /* h = (silu(h Wg) * (h Wu)) Wd                       */
        forward_add(f, NULL);                                 /* x += h                                             */
        forward_tap(f, l);
    }
}

/* Gemma 2 (arXiv 2408.00118) and Gemma 3 (arXiv 2503.19786): a norm after each block as well, GELU, soft-caps or head
 * norms. */
void forward_gemma(forward *f)
{
    for (int l = f->io->layer_begin; l < f->io->layer_end; l++) {
        const model_layer *y = &f->m->layers[l];
        forward_norm(f, y->attn_norm);
        forward_qkv(f, y, l);
        forward_attend(f, l);
        forward_out(f, y);
        forward_add(f, y->post_attn_norm);                    /* x += norm(h) */
        forward_norm(f, y->ffn_norm);
        forward_ffn(f, y);                                    /* h = (gelu(h Wg) * (h Wu)) Wd */
        forward_add(f, y->post_ffn_norm);
        forward_tap(f, l);
    }
}
