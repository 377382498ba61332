/* layout.h - what one token costs: layouts of K and V, groups of layers, and the one formula for the size of a cache
 * (I1).
 *
 *      GQA(n_kv_heads, d_k, d_v, window)   n_kv_heads * (d_k + d_v) elements per token and layer (MHA, MQA: the same)
 *      MLA(d_c, d_rope)                    d_c + d_rope
 *      X(d_model)                          d_model (XQuant keeps the layer's input)
 *
 * A group is the layers that share one block table: same layout, same policy. Gemma-3 has two: windowed layers and
 * global ones.
 *
 * L1 Nothing else in Kvasir multiplies heads by dimensions by bytes: allocator, explorer, admission, metrics and
 *    documents call here.
 * L2 Every layer of a block starts at a multiple of KV_ALIGN bytes, so a block does too; for the head sizes of real
 *    models that rounds nothing up.
 * Threads: pure functions. Results saturate at UINT64_MAX instead of wrapping.
 */
#ifndef KVASIR_CACHE_LAYOUT_H
#define KVASIR_CACHE_LAYOUT_H

#include <stdint.h>

#include "cache/format.h"

typedef enum kv_kind { KV_GQA, KV_MLA, KV_X } kv_kind;

typedef struct kv_layout {
    kv_kind kind;
    int n_kv_heads, d_k, d_v; /* GQA */
    int d_c, d_rope;          /* MLA */
    int d_model;              /* X */
    int window;               /* tokens that a query sees, itself included; 0 = all */
} kv_layout;

typedef struct kv_group {
    kv_layout layout;
    const int *layers; /* ascending layer numbers of the model; borrowed */
    int n_layers;
} kv_group;

#define KV_ALIGN 64
#define KV_MAX_GROUPS 8 /* of a model */

/* Elements that one token stores in one layer. */
uint64_t kv_row_elems(const kv_layout *l);
/* Bytes of d elements of each of n_tokens tokens: the K (d_k) or the V (d_v) of one head in one layer of a block. */
uint64_t kv_run_bytes(const kv_format *f, uint64_t d, uint64_t n_tokens);
/* Bytes of one layer of one block; bytes of a whole block of the group. */
uint64_t kv_layer_bytes(const kv_layout *l, const kv_format *f, int block_tokens);
uint64_t kv_block_bytes(const kv_group *g, const kv_format *f, int block_tokens);
/* Most blocks that a sequence of n_tokens holds at once when it grows by at most step_tokens at a time. Behind a window
 * w, an append of s rows at length n keeps rows (n - w, n + s), which may begin and end inside a block:
 *
 *      ....[..w w|w w w w|w w s s|s s ..]....      B = 4, w = 9, s = 4: 12 rows in 4 blocks                       */
uint64_t kv_blocks(const kv_layout *l, int block_tokens, uint64_t n_tokens, uint64_t step_tokens);
/* Bytes of those blocks: what a sequence takes in this group. */
uint64_t kv_bytes(const kv_group *g, const kv_format *f, int block_tokens, uint64_t n_tokens, uint64_t step_tokens);
/* Bytes that one more token adds to one layer while nothing falls out of a window, blocks' rounding left out. May be
 * fractional in bits. */
double kv_bytes_per_token_layer(const kv_layout *l, const kv_format *f);

#endif
