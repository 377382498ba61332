#include <assert.h>
#include <math.h>
#include <stdatomic.h>
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

/* The query rows of one tile and head block, and where results go. Row i is token i / heads.n, head i % heads.n. */
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

/* One item on its way through a worker. */
typedef struct unit {
    const attn_job *job;
    const plan_item *item;
    const plan_item *expected; /* the worker's next item, most likely; or NULL */
    tile_io io;
    attend_args a;
} unit;

/* The chunk after the item's i-th, in this item or at the start of the expected one. */
static void announce(unit *u, int i)
{
    const attn_plan *p = u->job->p;
    const plan_item *item = i + 1 < u->item->n_chunks ? u->item : u->expected;
    u->a.n_next = 0;
    if (!item || !item->n_chunks) return;
    const plan_chunk *c = &p->chunks[item->first_chunk + (item == u->item ? i + 1 : 0)];
    u->a.next = p->spans + c->first_span;
    u->a.n_next = c->n_spans;
    u->a.next_k_offset = keys_of(u->job, item->head_block);
}

static void attend_chunk(unit *u, int i)
{
    const attn_plan *p = u->job->p;
    const plan_chunk *c = &p->chunks[u->item->first_chunk + i];
    announce(u, i);
    u->a.spans = p->spans + c->first_span;
    u->a.n_spans = c->n_spans;
    u->a.chunk_begin = c->begin;
    u->job->layer->attend(&u->a);
    u->a.announced = true;
}

/* All chunks of the tile: the first one's partial goes straight to the output, where the others are merged to it. */
static void run_whole(unit *u, float *spare)
{
    const attn_plan *p = u->job->p;
    int d_v = p->shape.d_v, n = u->io.n;
    float m[ATTEND_ROWS], l[ATTEND_ROWS], m2[ATTEND_ROWS], l2[ATTEND_ROWS];
    float *part[ATTEND_ROWS];
    for (int i = 0; i < n; i++) {
        part[i] = spare + (size_t)i * (size_t)d_v;
        l[i] = 0;
    }
    for (int c = 0; c < u->item->n_chunks; c++) {
        u->a.o = c ? part : u->io.out;
        u->a.m = c ? m2 : m;
        u->a.l = c ? l2 : l;
        attend_chunk(u, c);
        for (int i = 0; c && i < n; i++) p->ks->merge(u->io.out[i], &m[i], &l[i], part[i], m2[i], l2[i], d_v);
    }
    for (int i = 0; i < n; i++) normalize(p, u->io.out[i], l[i]);
}

static void run_part(unit *u)
{
    const attn_plan *p = u->job->p;
    float *o[ATTEND_ROWS];
    for (int c = 0; c < u->item->n_chunks; c++) {
        size_t slot = (size_t)(u->item->slot + c * u->io.n);
        for (int i = 0; i < u->io.n; i++) o[i] = p->slot_o + (slot + (size_t)i) * (size_t)p->shape.d_v;
        u->a.o = o;
        u->a.m = p->slot_m + slot;
        u->a.l = p->slot_l + slot;
        attend_chunk(u, c);
    }
}

/* Merges in one order, whoever does it. */
static void run_join(const attn_plan *p, const plan_join *join, const tile_io *io)
{
    for (int i = 0; i < io->n; i++) {
        float m = -INFINITY, l = 0;
        for (int c = 0; c < io->tile->n_chunks; c++) {
            size_t slot = (size_t)(join->slot + c * io->n + i);
            const float *o = p->slot_o + slot * (size_t)p->shape.d_v;
            p->ks->merge(io->out[i], &m, &l, o, p->slot_m[slot], p->slot_l[slot], p->shape.d_v);
        }
        normalize(p, io->out[i], l);
    }
}

static void run_item(const attn_job *j, const plan_item *item, const plan_item *expected, bool announced,
                     float *scratch)
{
    const attn_plan *p = j->p;
    const float *q[ATTEND_ROWS];
    float *scores = scratch + (size_t)ATTEND_ROWS * (size_t)p->shape.d_k;
    unit u = {j, item, expected, open_tile(j, item->tile, item->head_block), {0}};
    scale_queries(j, &u.io, scratch, q);
    u.a = (attend_args){
        .q = q,
        .n_rows = u.io.n,
        .d_k = p->shape.d_k,
        .d_v = p->shape.d_v,
        .block_tokens = p->shape.block_tokens,
        .softcap = j->layer->softcap,
        .k_offset = keys_of(j, item->head_block),
        .v_offset = j->layer->v_offset + (size_t)u.io.heads.kv_head * j->layer->v_head_stride,
        .announced = announced,
        .rows = u.io.rows,
        .scratch = scores,
    };
    if (item->slot < 0) {
        run_whole(&u, scores + (size_t)ATTEND_ROWS * ATTN_CHUNK);
        return;
    }
    run_part(&u);
    plan_join *join = &p->joins[item->join];
    if (atomic_fetch_sub_explicit(&join->n_left, 1, memory_order_acq_rel) > 1) return;
    run_join(p, join, &u.io);
    atomic_store_explicit(&join->n_left, join->n_parts,
                          memory_order_relaxed); /* the next run begins behind a barrier */
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
        const plan_item *expected = i + j->n_workers < p->n_items ? &p->items[i + j->n_workers] : NULL;
        run_item(j, &p->items[i], expected, announced, scratch);
    }
}

void attn_run(attn_plan *p, threads *team, const attn_layer *layer, const float *q, float *out)
{
    attn_job job = {.p = p, .layer = layer, .q = q, .out = out, .n_workers = threads_count(team)};
    assert(job.n_workers <= p->max_workers);
    for (int i = 0; i < job.n_workers; i++) job.expected[i] = -1;
    if (p->n_items) threads_run(team, run_items, &job, p->n_items, 1);
}
