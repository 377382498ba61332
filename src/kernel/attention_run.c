#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernel/attention_plan.h"

typedef struct attn_job {
    const attn_plan *p;
    const attn_layer *layer;
    const float *q;
    float *out;
    int n_workers;
    int expected[THREADS_MAX]; /* the item that each worker most likely takes next, whose first keys it fetches ahead */
} attn_job;

/* The query rows of one tile and head block, and where each one's results go. Row i is token i / heads.n, head i % heads.n. */
typedef struct tile_io {
    const plan_tile *tile;
    head_range heads;
    int n;
    const attn_row *rows[ATTEND_ROWS];
    float *out[ATTEND_ROWS];
} tile_io;

static tile_io open_tile(const attn_job *j, int tile, int head_block)
{
    const attn_plan *p = j->p;
    tile_io io = {.tile = &p->tiles[tile], .heads = plan_heads(p, head_block)};
    io.n = io.tile->n_rows * io.heads.n;
    for (int i = 0; i < io.n; i++) {
        int64_t row = io.tile->first_row + i / io.heads.n;
        int64_t head = io.heads.first + i % io.heads.n;
        io.rows[i] = &p->rows[row];
        io.out[i] = j->out + (row * p->shape.n_heads + head) * p->shape.d_v;
    }
    return io;
}

/* q * scale of the tile's rows, into the worker's scratch. */
static void scale_queries(const attn_job *j, const tile_io *io, float *scratch, const float **q)
{
    const attn_plan *p = j->p;
    int64_t d_k = p->shape.d_k;
    for (int i = 0; i < io->n; i++) {
        int64_t row = io->tile->first_row + i / io->heads.n, head = io->heads.first + i % io->heads.n;
        float *to = scratch + i * d_k;
        p->ks->scale(j->q + (row * p->shape.n_heads + head) * d_k, j->layer->scale, d_k, to);
        q[i] = to;
    }
}

/* out = o / l; zeros for a row that saw nothing. */
static void normalize(const attn_plan *p, float *o, float l)
{
    if (l > 0 || isnan(l)) p->ks->scale(o, 1.0f / l, p->shape.d_v, o);
    else memset(o, 0, (size_t)p->shape.d_v * sizeof(float));
}

static size_t keys_of(const attn_job *j, int head_block)
{
    return j->layer->k_offset + (size_t)plan_heads(j->p, head_block).kv_head * j->layer->k_head_stride;
}

/* Announces chunk c (NULL = none) of a KV head whose K begins at k_offset. */
static void announce(const attn_plan *p, const plan_chunk *c, size_t k_offset, attend_args *a)
{
    a->next = c ? p->spans + c->first_span : NULL;
    a->n_next = c ? c->n_spans : 0;
    a->next_k_offset = k_offset;
}

/* The i-th chunk of the item; the one after it is the item's next, or the first of the expected item. */
static void attend_chunk(const attn_job *j, const plan_item *item, int i, const plan_item *expected, attend_args *a)
{
    const attn_plan *p = j->p;
    const plan_chunk *c = &p->chunks[item->first_chunk + i];
    if (i + 1 < item->n_chunks) announce(p, c + 1, a->k_offset, a);
    else if (expected && expected->n_chunks) announce(p, &p->chunks[expected->first_chunk], keys_of(j, expected->head_block), a);
    else announce(p, NULL, 0, a);
    a->spans = p->spans + c->first_span;
    a->n_spans = c->n_spans;
    a->chunk_begin = c->begin;
    j->layer->attend(a);
    a->announced = true;
}

/* All chunks of the tile: the first one's partial goes straight to the output, where the others are merged to it. */
static void run_whole(const attn_job *j, const plan_item *item, const plan_item *expected, const tile_io *io, attend_args *a, float *spare)
{
    const attn_plan *p = j->p;
    int d_v = p->shape.d_v;
    float m[ATTEND_ROWS], l[ATTEND_ROWS], m2[ATTEND_ROWS], l2[ATTEND_ROWS];
    float *part[ATTEND_ROWS];
    for (int i = 0; i < io->n; i++) {
        part[i] = spare + (size_t)i * (size_t)d_v;
        l[i] = 0;
    }
    for (int c = 0; c < item->n_chunks; c++) {
        a->o = c ? part : io->out;
        a->m = c ? m2 : m;
        a->l = c ? l2 : l;
        attend_chunk(j, item, c, expected, a);
        for (int i = 0; c && i < io->n; i++) p->ks->merge(io->out[i], &m[i], &l[i], part[i], m2[i], l2[i], d_v);
    }
    for (int i = 0; i < io->n; i++) normalize(p, io->out[i], l[i]);
}

static void run_part(const attn_job *j, const plan_item *item, const plan_item *expected, const tile_io *io, attend_args *a)
{
    const attn_plan *p = j->p;
    float *o[ATTEND_ROWS];
    for (int c = 0; c < item->n_chunks; c++) {
        size_t slot = (size_t)(item->slot + c * io->n);
        for (int i = 0; i < io->n; i++) o[i] = p->slot_o + (slot + (size_t)i) * (size_t)p->shape.d_v;
        a->o = o;
        a->m = p->slot_m + slot;
        a->l = p->slot_l + slot;
        attend_chunk(j, item, c, expected, a);
    }
}

static void run_item(const attn_job *j, int i, const plan_item *expected, bool announced, float *scratch)
{
    const attn_plan *p = j->p;
    const plan_item *item = &p->items[i];
    tile_io io = open_tile(j, item->tile, item->head_block);
    const float *q[ATTEND_ROWS];
    float *scores = scratch + (size_t)ATTEND_ROWS * (size_t)p->shape.d_k, *spare = scores + (size_t)ATTEND_ROWS * ATTN_CHUNK;
    scale_queries(j, &io, scratch, q);
    attend_args a = {
        .q = q, .n_rows = io.n, .d_k = p->shape.d_k, .d_v = p->shape.d_v, .block_tokens = p->shape.block_tokens,
        .softcap = j->layer->softcap,
        .k_offset = keys_of(j, item->head_block), .announced = announced,
        .v_offset = j->layer->v_offset + (size_t)io.heads.kv_head * j->layer->v_head_stride,
        .rows = io.rows, .scratch = scores,
    };
    if (item->slot < 0) run_whole(j, item, expected, &io, &a, spare);
    else run_part(j, item, expected, &io, &a);
}

static void run_join(const attn_job *j, const plan_join *join)
{
    const attn_plan *p = j->p;
    tile_io io = open_tile(j, join->tile, join->head_block);
    for (int i = 0; i < io.n; i++) {
        float m = -INFINITY, l = 0;
        for (int c = 0; c < io.tile->n_chunks; c++) {
            size_t slot = (size_t)(join->slot + c * io.n + i);
            const float *o = p->slot_o + slot * (size_t)p->shape.d_v;
            p->ks->merge(io.out[i], &m, &l, o, p->slot_m[slot], p->slot_l[slot], p->shape.d_v);
        }
        normalize(p, io.out[i], l);
    }
}

/* Workers take items in turn, so that a worker's next is most likely as many items on as there are workers. */
static void run_items(void *arg, int begin, int end, int worker)
{
    attn_job *j = arg;
    const attn_plan *p = j->p;
    float *scratch = p->scratch + (size_t)worker * p->scratch_floats;
    for (int i = begin; i < end; i++) {
        bool announced = j->expected[worker] == i;
        j->expected[worker] = i + j->n_workers;
        run_item(j, i, i + j->n_workers < p->n_items ? &p->items[i + j->n_workers] : NULL, announced, scratch);
    }
}

static void run_joins(void *arg, int begin, int end, int worker)
{
    const attn_job *j = arg;
    (void)worker;
    for (int i = begin; i < end; i++) run_join(j, &j->p->joins[i]);
}

void attn_run(attn_plan *p, threads *team, const attn_layer *layer, const float *q, float *out)
{
    attn_job job = {.p = p, .layer = layer, .q = q, .out = out, .n_workers = threads_count(team)};
    assert(job.n_workers <= p->max_workers);
    for (int i = 0; i < job.n_workers; i++) job.expected[i] = -1;
    if (p->n_items) threads_run(team, run_items, &job, p->n_items, 1);
    if (p->n_joins) threads_run(team, run_joins, &job, p->n_joins, 1);
}
