#include "cache/layout.h"

#include <assert.h>

#include "base/minmax.h"

static uint64_t add_sat(uint64_t a, uint64_t b)
{
    uint64_t c;
    return __builtin_add_overflow(a, b, &c) ? UINT64_MAX : c;
}

static uint64_t mul_sat(uint64_t a, uint64_t b)
{
    uint64_t c;
    return __builtin_mul_overflow(a, b, &c) ? UINT64_MAX : c;
}

static uint64_t divide_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

uint64_t kv_row_elems(const kv_layout *l)
{
    switch (l->kind) {
    case KV_GQA: return (uint64_t)l->n_kv_heads * ((uint64_t)l->d_k + (uint64_t)l->d_v);
    case KV_MLA: return (uint64_t)l->d_c + (uint64_t)l->d_rope;
    case KV_X: return (uint64_t)l->d_model;
    }
    assert(!"unknown layout");
    return 0;
}

/* Bits of formats are multiples of 1/64 (a 16-bit setting for up to 1024 elements), so integers hold them exactly. */
#define BIT_PARTS 64

uint64_t kv_run_bytes(const kv_format *f, uint64_t d, uint64_t n_tokens)
{
    uint64_t parts = mul_sat(mul_sat(d, n_tokens), (uint64_t)(f->bits * BIT_PARTS));
    return parts == UINT64_MAX ? parts : divide_up(parts, 8 * BIT_PARTS);
}

uint64_t kv_layer_bytes(const kv_layout *l, const kv_format *f, int block_tokens)
{
    uint64_t b = (uint64_t)block_tokens, n;
    if (l->kind == KV_GQA)
        n = mul_sat((uint64_t)l->n_kv_heads,
                    add_sat(kv_run_bytes(f, (uint64_t)l->d_k, b), kv_run_bytes(f, (uint64_t)l->d_v, b)));
    else n = kv_run_bytes(f, kv_row_elems(l), b);
    return mul_sat(divide_up(n, KV_ALIGN), KV_ALIGN);
}

uint64_t kv_block_bytes(const kv_group *g, const kv_format *f, int block_tokens)
{
    return mul_sat(kv_layer_bytes(&g->layout, f, block_tokens), (uint64_t)g->n_layers);
}

uint64_t kv_blocks(const kv_layout *l, int block_tokens, uint64_t n_tokens, uint64_t step_tokens)
{
    uint64_t b = (uint64_t)block_tokens, all = divide_up(n_tokens, b);
    if (!l->window) return all;
    uint64_t rows = add_sat((uint64_t)l->window - 1, step_tokens ? step_tokens : 1);
    return rows >= n_tokens ? all : min_u64(all, divide_up(rows - 1, b) + 1);
}

uint64_t kv_bytes(const kv_group *g, const kv_format *f, int block_tokens, uint64_t n_tokens, uint64_t step_tokens)
{
    return mul_sat(kv_blocks(&g->layout, block_tokens, n_tokens, step_tokens), kv_block_bytes(g, f, block_tokens));
}

double kv_bytes_per_token_layer(const kv_layout *l, const kv_format *f)
{
    return (double)kv_row_elems(l) * f->bits / 8;
}
