/* arch.h - what a GGUF file says about its network: one record of numbers per model, one line of differences per
 * architecture.
 *
 *      "general.architecture" --table--> arch_traits (norms, biases, RoPE style, window pattern)
 *      "{arch}.*" keys        --------->  arch_params (sizes), each bounded before anything is allocated by it
 *
 * AC1 After arch_read every number is in range: products of any two of them fit in int64, heads divide, n_rot is even
 *    and <= d_k.
 * Threads: plain values.
 */
#ifndef KVASIR_MODEL_ARCH_H
#define KVASIR_MODEL_ARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "kernel/kernel.h"
#include "model/gguf.h"

typedef enum arch_family {
    FAMILY_LLAMA, /* x += attn(norm(x)); x += ffn(norm(x)); SiLU gate */
    FAMILY_GEMMA  /* the same with a norm after each block too, GELU gate, scaled embedding */
} arch_family;

/* What the architecture's name alone decides. */
typedef struct arch_traits {
    const char *name; /* as in general.architecture */
    const char *models; /* for listings: "Qwen2, Qwen2.5" */
    arch_family family;
    rope_style rope;
    bool qkv_bias;      /* biases on q, k, v are required */
    bool qk_norm;       /* RMS norm of every head of q and k before RoPE is required */
    /* n: every n-th layer is global, the others windowed; 0 = the window (if any) holds for all layers */
    int window_every;
    int nope_every;     /* n: every n-th layer has no RoPE; 0 = none */
    int window;         /* where the file has no key; 0 = none */
    float rope_base;    /* where the file has no key */
    float window_rope_base; /* of windowed layers, whose angles are never scaled; 0 = they turn like the others */
} arch_traits;

typedef enum rope_scaling {
    ROPE_SCALING_NONE,
    ROPE_SCALING_LINEAR,
    ROPE_SCALING_YARN,
    ROPE_SCALING_LONGROPE
} rope_scaling;

/* One rotary embedding: everything that fixes its angles. */
typedef struct rope_params {
    float base;
    rope_scaling scaling;
    float factor;           /* context extension */
    int original_context;   /* YaRN, LongRoPE */
    float attn_factor;      /* cos and sin are multiplied with it; 0 = LongRoPE's own rule, 1 for the others */
    float yarn_attn_factor; /* and with this under YaRN; 0 = YaRN's own rule */
    float yarn_beta_fast, yarn_beta_slow;
} rope_params;

typedef struct arch_params {
    const arch_traits *traits;
    int n_layers, d_model, n_heads, n_kv_heads, d_k, d_v, d_ff, n_vocab, context_length;
    int n_rot;          /* elements of a head that turn */
    float norm_eps;
    int window;         /* tokens that a windowed layer's query sees, itself included; 0 = no windows */
    rope_params rope;         /* of global layers (all layers without windows) */
    rope_params rope_window;  /* of windowed layers */
    float attn_scale;   /* of q . k */
    float attn_softcap, logit_softcap; /* 0 = none */
    float embed_scale;  /* 1 = none */
} arch_params;

#define ARCH_MAX_LAYERS 1024

/* ST_UNSUPPORTED names an architecture that Kvasir doesn't run; ST_FORMAT a key that is missing or out of range. */
int arch_read(arch_params *out, const gguf *g, status *st);
bool arch_layer_windowed(const arch_params *p, int layer);
bool arch_layer_has_rope(const arch_params *p, int layer);
/* The table, for listings; NULL past the last. */
const arch_traits *arch_traits_at(int i);

#endif
