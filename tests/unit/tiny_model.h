/* tiny_model.h - small models with random weights, as GGUF bytes and loaded: the same bits every time, right ones and
 * wrong ones.
 *
 *      tokens 0..255   the bytes      256 = "<|end|>" (control, end of generation)     257 = "ab" (a merge of two bytes)
 *      258..263        rows of the embedding without a token: they have no text
 *
 * A script makes the model a chain: after a byte of the script comes the next one, after the last one <|end|>, whatever came before
 * (its layers add nothing). Bytes of a script must not repeat.
 */
#ifndef KVASIR_TESTS_TINY_MODEL_H
#define KVASIR_TESTS_TINY_MODEL_H

#include <stdbool.h>

#include "base/strbuf.h"
#include "model/model.h"
#include "sanitized.h"

#define TINY_END 256
#define TINY_AB 257
#define TINY_TOKENS 258
#define TINY_VOCAB 264

typedef struct tiny_config {
    const char *arch;
    int n_layers, d_model, n_heads, n_kv_heads, d_k, d_v, d_ff, window, context;
    dtype type;                /* of the matrices */
    bool own_head;             /* an output.weight apart from the embedding */
    bool fused;                /* attn_qkv, and ffn_up with the gate in front */
    const char *script;        /* NULL = none; else own_head must be set, the type F32 */
    const char *chat_template; /* NULL = none */
    const char *scaling;       /* rope.scaling.type, with factor 4 of a context of 256; NULL = none */
    const char *factors;       /* a tensor of RoPE divisors: 1, 2, 3, ... times `factor` */
    float factor;
    /* Faults; NULL = none. */
    const char *without_key, *without_tensor;
    const char *misshapen; /* a tensor with a row too many */
    const char *deep;      /* a tensor that the file says has four dimensions, the last two of 1 */
    const char *unknown;   /* a tensor of a type that can't be computed with */
    const char *key_is;    /* this key of an architecture has... */
    uint64_t value;        /* ...this u32 value */
} tiny_config;

/* Llama with 3 layers and 4 heads on 2 KV heads; Gemma 3 with 7 layers, of which the sixth is global, and a window of
 * 20. */
tiny_config tiny_llama(void);
tiny_config tiny_gemma(void);
tiny_config tiny_script(const char *script);

void tiny_gguf(strbuf *out, const tiny_config *c);
/* Writes the bytes to a new file; free the path with tiny_remove, which deletes it. */
char *tiny_write(const char *bytes, size_t n);
void tiny_remove(char *path);
/* Loaded; fails the test where that doesn't work. */
model *tiny_load(const tiny_config *c, const kernels *ks, threads *team);
int tiny_try_load(model **out, const tiny_config *c, const kernels *ks, threads *team, status *st);

/* n token ids below TINY_TOKENS. */
void tiny_ids(int32_t *ids, int n, uint64_t seed);
uint64_t tiny_random(uint64_t *state);

#endif
