/* attention_store.h - for tests (included after cmocka.h): one sequence's K and V in blocks whose unused memory is
 * NaN, and its query rows; attention over it by a plan.
 *
 *      block: layer 0 (NaN) | layer 1: head 0: K, V | head 1: K, V | ...        blocks lie in memory in reverse order
 */
#ifndef KVASIR_TESTS_ATTENTION_STORE_H
#define KVASIR_TESTS_ATTENTION_STORE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "attention_draw.h"
#include "base/half.h"
#include "base/mem.h"
#include "kernel/attention.h"

#define MAX_ROWS 40
#define MAX_SEQS 3
#define MAX_SPANS 1200

/* One sequence of n_ctx stored rows; the last n_rows of them are this step's queries. */
typedef struct setup {
    int n_heads, n_kv_heads, d_k, d_v, n_ctx, n_rows;
    int window; /* 0 = none */
    bool tree;  /* the queries are a tree of drafts: each sees the prefix, itself and some of those before it */
    float softcap;
    bool half;
    int block_tokens;
    int draft_row;     /* the queries' K and V start a block of their own at this row; -1 = they follow the prefix */
    uint64_t cuts;     /* spans are cut at random places drawn from this; 0 = only where blocks end */
    uint64_t identity; /* what the random q, K and V are drawn from */
} setup;

/* What most tests vary. */
static const setup base_setup = {
    .n_heads = 6,
    .n_kv_heads = 2,
    .d_k = 64,
    .d_v = 64,
    .n_ctx = 300,
    .n_rows = 9,
    .block_tokens = 16,
    .draft_row = -1,
    .identity = 1,
};

static const cpu_level levels[] = {CPU_SCALAR, CPU_AVX2, CPU_AVX512, CPU_NEON, CPU_DOTPROD};
#define N_LEVELS ((int)(sizeof levels / sizeof levels[0]))

/* The sequence in memory: layer 1 of 2 of each block holds it, all else is NaN. */
typedef struct store {
    setup s;
    uint8_t *memory;
    size_t n_bytes, block_bytes, elem;
    attn_span spans[MAX_SPANS];
    int n_spans;
    attn_row rows[MAX_ROWS];
    uint64_t masks[MAX_ROWS];
    float *q, *k, *v; /* [n_rows][n_heads][d_k], [n_ctx][n_kv_heads][d_k], [n_ctx][n_kv_heads][d_v] */
} store;

static float *draw_array(uint64_t identity, int what, int64_t n)
{
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = draw(identity, what, i);
    return x;
}

static void put(const store *t, uint8_t *base, int64_t at, float x)
{
    uint16_t h = float_to_half(x);
    if (t->s.half) memcpy(base + 2 * at, &h, 2);
    else memcpy(base + 4 * at, &x, 4);
}

static size_t head_bytes(const store *t)
{
    return (size_t)t->s.block_tokens * (size_t)(t->s.d_k + t->s.d_v) * t->elem;
}

static attn_layer layer_of(const store *t, const kernels *ks)
{
    size_t at = (size_t)t->s.n_kv_heads * head_bytes(t);
    return (attn_layer){
        .source[ATTN_EXACT] = {.attend = t->s.half ? ks->attend_f16 : ks->attend_f32,
                               .blocks = t->memory,
                               .block_bytes = t->block_bytes,
                               .block_tokens = t->s.block_tokens,
                               .k_offset = at,
                               .v_offset = at + (size_t)t->s.block_tokens * (size_t)t->s.d_k * t->elem,
                               .k_head_stride = head_bytes(t),
                               .v_head_stride = head_bytes(t)},
        .scale = 1.0f / sqrtf((float)t->s.d_k),
        .softcap = t->s.softcap,
    };
}

static void put_token(const store *t, int index, uint8_t *block, int row)
{
    const setup *s = &t->s;
    for (int h = 0; h < s->n_kv_heads; h++) {
        uint8_t *k = block + (size_t)(s->n_kv_heads + h) * head_bytes(t);
        uint8_t *v = k + (size_t)s->block_tokens * (size_t)s->d_k * t->elem;
        int64_t at = (int64_t)index * s->n_kv_heads + h;
        for (int d = 0; d < s->d_k; d++) put(t, k, (int64_t)d * s->block_tokens + row, t->k[at * s->d_k + d]);
        for (int d = 0; d < s->d_v; d++) put(t, v, (int64_t)row * s->d_v + d, t->v[at * s->d_v + d]);
    }
}

/* Blocks are taken from the end of the memory to its start: neighbours in the sequence are not neighbours there. */
static void place_tokens(store *t)
{
    const setup *s = &t->s;
    int prefix = s->n_ctx - s->n_rows, oldest = s->window ? prefix + 1 - s->window : 0;
    uint8_t *block = t->memory + t->n_bytes;
    int row = s->block_tokens;
    bool fresh = true; /* the next token starts a span */
    for (int i = 0; i < s->n_ctx; i++) {
        bool draft = s->draft_row >= 0 && i == prefix;
        if (draft || row == s->block_tokens) {
            block -= t->block_bytes;
            row = draft ? s->draft_row : 0;
            fresh = true;
        }
        if (s->cuts && mix(s->cuts + (uint64_t)i) % 5 == 0) fresh = true;
        if (i >= oldest) {
            put_token(t, i, block, row);
            uint32_t number = (uint32_t)((size_t)(block - t->memory) / t->block_bytes);
            if (fresh || !t->n_spans) t->spans[t->n_spans++] = (attn_span){number, ATTN_EXACT, row, 0, i};
            t->spans[t->n_spans - 1].n++;
            fresh = false;
        }
        row++;
    }
}

static void make_rows(store *t)
{
    const setup *s = &t->s;
    for (int i = 0; i < s->n_rows; i++) {
        int64_t hi = s->tree ? s->n_ctx : s->n_ctx - s->n_rows + i + 1;
        int64_t lo = s->window && hi > s->window ? hi - s->window : 0;
        t->masks[i] = (mix(s->identity + 77 + (uint64_t)i) & (((uint64_t)1 << i) - 1)) | (uint64_t)1 << i;
        t->rows[i] =
            (attn_row){.lo = lo, .hi = hi, .mask = s->tree ? &t->masks[i] : NULL, .mask_n = s->tree ? s->n_rows : 0};
    }
}

static store *make_store(const setup *s)
{
    store *t = calloc(1, sizeof *t);
    t->s = *s;
    t->elem = s->half ? 2 : 4;
    t->block_bytes = 2 * (size_t)s->n_kv_heads * head_bytes(t);
    t->n_bytes = (size_t)(s->n_ctx / s->block_tokens + 3) * t->block_bytes;
    t->memory = malloc(t->n_bytes);
    memset(t->memory, 0xFF, t->n_bytes);
    t->q = draw_array(s->identity, 1, (int64_t)s->n_rows * s->n_heads * s->d_k);
    t->k = draw_array(s->identity, 2, (int64_t)s->n_ctx * s->n_kv_heads * s->d_k);
    t->v = draw_array(s->identity, 3, (int64_t)s->n_ctx * s->n_kv_heads * s->d_v);
    place_tokens(t);
    make_rows(t);
    return t;
}

static void free_store(store *t)
{
    free(t->memory);
    free(t->q);
    free(t->k);
    free(t->v);
    free(t);
}

static size_t out_floats(const setup *s)
{
    return (size_t)s->n_rows * (size_t)s->n_heads * (size_t)s->d_v;
}

/* Adds the store's sequence to the plan, its blocks being those from *n_blocks on in a pool that holds all stores'. */
static int add_store(attn_plan *p, const store *t, uint8_t *pool, uint32_t *n_blocks)
{
    attn_span spans[MAX_SPANS];
    for (int i = 0; i < t->n_spans; i++) {
        spans[i] = t->spans[i];
        spans[i].block += *n_blocks;
    }
    memcpy(pool + *n_blocks * t->block_bytes, t->memory, t->n_bytes);
    *n_blocks += (uint32_t)(t->n_bytes / t->block_bytes);
    return attn_plan_seq(p, spans, t->n_spans);
}

/* Rows of `only` (all if negative) of each store, in one plan; the output of store i goes to out[i]. The stores are of
 * one shape. */
static void run_stores(const kernels *ks, store *const *stores, int n_stores, int only, int workers, bool split,
                       float *const *out)
{
    status st = STATUS_INIT;
    threads *team;
    attn_plan *p;
    const setup *s = &stores[0]->s;
    attn_shape shape = {s->n_heads, s->n_kv_heads, s->d_k, s->d_v, s->block_tokens};
    attn_layer layer = layer_of(stores[0], ks);
    int n_spans = 1;
    size_t pool_bytes = 0;
    for (int i = 0; i < n_stores; i++) {
        n_spans += stores[i]->n_spans;
        pool_bytes += stores[i]->n_bytes;
    }
    uint8_t *pool = malloc(pool_bytes);
    uint32_t n_blocks = 0;
    layer.source[ATTN_EXACT].blocks = pool;
    size_t q_row = (size_t)s->n_heads * (size_t)s->d_k, o_row = (size_t)s->n_heads * (size_t)s->d_v, n = 0;
    float *q = malloc(MAX_SEQS * MAX_ROWS * q_row * sizeof *q), *o = malloc(MAX_SEQS * MAX_ROWS * o_row * sizeof *o);

    assert_int_equal(threads_new(&team, workers, &st), ST_OK);
    assert_int_equal(attn_plan_new(&p, ks, shape, workers, MAX_SEQS * MAX_ROWS, MAX_SEQS, n_spans, &st), ST_OK);
    attn_plan_reset(p);
    for (int i = 0; i < n_stores; i++) {
        int seq = add_store(p, stores[i], pool, &n_blocks);
        for (int r = 0; r < stores[i]->s.n_rows; r++) {
            if (only >= 0 && r != only) continue;
            attn_row row = stores[i]->rows[r];
            row.seq = seq;
            attn_plan_row(p, &row);
            memcpy(q + n++ * q_row, stores[i]->q + (size_t)r * q_row, q_row * sizeof *q);
        }
    }
    uint64_t calls = mem_stats().calls;
    attn_plan_build(p, workers, split ? ATTN_SPLIT : 0);
    memset(o, 0xFF, n * o_row * sizeof *o);
    attn_run(p, team, &layer, q, o);
    memset(o, 0xFF, n * o_row * sizeof *o);
    attn_run(p, team, &layer, q, o); /* as the next layer would: the plan is reused */
    assert_int_equal(mem_stats().calls, calls);
    n = 0;
    for (int i = 0; i < n_stores; i++) {
        size_t rows = only >= 0 ? 1 : (size_t)stores[i]->s.n_rows;
        memcpy(out[i], o + n * o_row, rows * o_row * sizeof *o);
        n += rows;
    }
    attn_plan_free(p);
    threads_free(team);
    free(pool);
    free(q);
    free(o);
}

static float *run_one(const kernels *ks, store *t, int workers, bool split)
{
    float *out = calloc(out_floats(&t->s) + 1, sizeof *out);
    run_stores(ks, &t, 1, -1, workers, split, &out);
    return out;
}

#endif
