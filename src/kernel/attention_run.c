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
} attn_job;

/* The query rows of one tile and head block, group after group, row after row, head after head, and where results go.
 * */
typedef struct tile_io {
    const plan_tile *tile;
    head_range heads;
    int n;
    const attn_row *rows[ATTEND_ROWS];
    const float *q[ATTEND_ROWS];
    float *out[ATTEND_ROWS];
    size_t slot[ATTEND_ROWS], step[ATTEND_ROWS]; /* of the tile's first chunk, and on to the next; of parts alone */
} tile_io;

static void add_group(const attn_job *j, const plan_member *m, tile_io *io)
{
    const attn_plan *p = j->p;
    const plan_group *g = &p->groups[m->group];
    size_t slot = plan_slot(g, io->heads, m->first_chunk);
    int n = g->n_rows * io->heads.n;
    for (int i = 0; i < n; i++, io->n++) {
        int64_t row = p->order[g->first_row + i / io->heads.n];
        int64_t head = io->heads.first + i % io->heads.n;
        io->rows[io->n] = &p->rows[row];
        io->q[io->n] = j->q + (row * p->shape.n_heads + head) * p->shape.d_k;
        io->out[io->n] = j->out + (row * p->shape.n_heads + head) * p->shape.d_v;
        io->slot[io->n] = slot + (size_t)i;
        io->step[io->n] = (size_t)n;
    }
}

static void open_tile(const attn_job *j, int tile, int head_block, tile_io *io)
{
    const attn_plan *p = j->p;
    io->tile = &p->tiles[tile];
    io->heads = plan_heads(p, head_block);
    io->n = 0;
    for (int m = 0; m < io->tile->n_members; m++) add_group(j, &p->members[io->tile->first_member + m], io);
}

/* q * scale of the tile's rows, into the worker's scratch. */
static void scale_queries(const attn_job *j, tile_io *io, float *scratch)
{
    int64_t d_k = j->p->shape.d_k;
    for (int i = 0; i < io->n; i++, scratch += d_k) {
        j->p->ks->scale(io->q[i], j->layer->scale, d_k, scratch);
        io->q[i] = scratch;
    }
}

/* out = o / l; zeros for a row that saw nothing. */
static void normalize(const attn_plan *p, float *o, float l)
{
    if (l > 0 || isnan(l)) p->ks->scale(o, 1.0f / l, p->shape.d_v, o);
    else memset(o, 0, (size_t)p->shape.d_v * sizeof(float));
}

/* One item on its way through a worker. */
typedef struct unit {
    const attn_job *job;
    const plan_item *item;
    tile_io io;
    attend_args a;
    float *o[ATTEND_ROWS], m[ATTEND_ROWS], l[ATTEND_ROWS]; /* a partial of each row */
} unit;

static const plan_chunk *chunk_of(const attn_plan *p, const plan_item *item, int i)
{
    return &p->chunks[p->tiles[item->tile].first_chunk + item->first_chunk + i];
}

static void attend_chunk(unit *u, int i)
{
    const attn_plan *p = u->job->p;
    const plan_chunk *c = chunk_of(p, u->item, i);
    const attn_source *s = &u->job->layer->source[c->kind];
    size_t kv_head = (size_t)u->io.heads.kv_head;
    u->a.kind = c->kind;
    u->a.spans = p->spans + c->first_span;
    u->a.n_spans = c->n_spans;
    u->a.chunk_begin = c->begin;
    u->a.blocks = s->blocks;
    u->a.block_bytes = s->block_bytes;
    u->a.block_tokens = s->block_tokens;
    u->a.k_offset = s->k_offset + kv_head * s->k_head_stride;
    u->a.v_offset = s->v_offset + kv_head * s->v_head_stride;
    s->attend(&u->a);
}

/* All chunks of the item: the first one's partial goes straight to `to`, where the others are merged to it. */
static void fold_chunks(unit *u, float *const *to, float *m, float *l, float *spare)
{
    const attn_plan *p = u->job->p;
    int d_v = p->shape.d_v, n = u->io.n;
    for (int i = 0; i < n; i++) u->o[i] = spare + (size_t)i * (size_t)d_v;
    for (int c = 0; c < u->item->n_chunks; c++) {
        u->a.o = c ? u->o : to;
        attend_chunk(u, c);
        if (c) {
            for (int i = 0; i < n; i++) p->ks->merge(to[i], &m[i], &l[i], u->o[i], u->m[i], u->l[i], d_v);
        } else {
            memcpy(m, u->m, (size_t)n * sizeof *m);
            memcpy(l, u->l, (size_t)n * sizeof *l);
        }
    }
}

static void run_whole(unit *u, float *spare)
{
    float m[ATTEND_ROWS], l[ATTEND_ROWS] = {0};
    fold_chunks(u, u->io.out, m, l, spare);
    for (int i = 0; i < u->io.n; i++) normalize(u->job->p, u->io.out[i], l[i]);
}

/* Where the item's i-th chunk goes. */
static void open_slots(const unit *u, int i, size_t *slot, float **o)
{
    const attn_plan *p = u->job->p;
    for (int r = 0; r < u->io.n; r++) {
        slot[r] = u->io.slot[r] + (size_t)(u->item->first_chunk + i) * u->io.step[r];
        o[r] = p->slot_o + slot[r] * (size_t)p->shape.d_v;
    }
}

static void close_slots(const unit *u, const size_t *slot, const float *m, const float *l)
{
    for (int r = 0; r < u->io.n; r++) {
        u->job->p->slot_m[slot[r]] = m[r];
        u->job->p->slot_l[slot[r]] = l[r];
    }
}

static void run_part(unit *u, float *spare)
{
    size_t slot[ATTEND_ROWS];
    float *o[ATTEND_ROWS], m[ATTEND_ROWS], l[ATTEND_ROWS];
    if (u->item->folds) {
        open_slots(u, 0, slot, o);
        fold_chunks(u, o, m, l, spare);
        close_slots(u, slot, m, l);
        return;
    }
    u->a.o = u->o;
    for (int c = 0; c < u->item->n_chunks; c++) {
        open_slots(u, c, slot, u->o);
        attend_chunk(u, c);
        close_slots(u, slot, u->m, u->l);
    }
}

/* Merges in one order, whoever does it. first: the group's place among the tile's rows. */
static void run_join(const attn_plan *p, const plan_group *g, const tile_io *io, int first)
{
    int n = g->n_rows * io->heads.n;
    size_t slot = plan_slot(g, io->heads, g->first_chunk);
    for (int i = 0; i < n; i++) {
        float m = -INFINITY, l = 0, *out = io->out[first + i];
        for (int c = 0; c < g->n_chunks; c += c ? 1 : g->n_folded) {
            size_t from = slot + (size_t)(c * n + i);
            const float *o = p->slot_o + from * (size_t)p->shape.d_v;
            p->ks->merge(out, &m, &l, o, p->slot_m[from], p->slot_l[from], p->shape.d_v);
        }
        normalize(p, out, l);
    }
}

/* Of the item's groups: joins those that were left with this part alone. */
static void end_part(const attn_plan *p, const plan_item *item, const tile_io *io)
{
    const plan_tile *t = io->tile;
    for (int i = t->first_member, first = 0; i < t->first_member + t->n_members; i++) {
        int group = p->members[i].group;
        plan_join *join = &p->joins[group * p->head_blocks + item->head_block];
        if (atomic_fetch_sub_explicit(&join->n_left, 1, memory_order_acq_rel) == 1) {
            run_join(p, &p->groups[group], io, first);
            atomic_store_explicit(&join->n_left, join->n_parts,
                                  memory_order_relaxed); /* the next run begins behind a barrier */
        }
        first += p->groups[group].n_rows * io->heads.n;
    }
}

static void run_item(const attn_job *j, const plan_item *item, float *scratch)
{
    const attn_plan *p = j->p;
    float *scores = scratch + (size_t)ATTEND_ROWS * (size_t)p->shape.d_k, *spare = scores + ATTEND_ROWS * ATTN_CHUNK;
    unit u;
    u.job = j;
    u.item = item;
    open_tile(j, item->tile, item->head_block, &u.io);
    scale_queries(j, &u.io, scratch);
    u.a = (attend_args){
        .q = u.io.q,
        .n_rows = u.io.n,
        .d_k = p->shape.d_k,
        .d_v = p->shape.d_v,
        .softcap = j->layer->softcap,
        .rows = u.io.rows,
        .m = u.m,
        .l = u.l,
        .scratch = scores,
    };
    if (p->groups[p->members[u.io.tile->first_member].group].slot < 0) {
        run_whole(&u, spare);
        return;
    }
    run_part(&u, spare);
    end_part(p, item, &u.io);
}

static void run_items(void *arg, int begin, int end, int worker)
{
    const attn_job *j = arg;
    float *scratch = j->p->scratch + (size_t)worker * j->p->scratch_floats;
    for (int i = begin; i < end; i++) run_item(j, &j->p->items[i], scratch);
}

void attn_run(attn_plan *p, threads *team, const attn_layer *layer, const float *q, float *out)
{
    attn_job job = {.p = p, .layer = layer, .q = q, .out = out};
    assert(threads_count(team) <= p->max_workers);
    if (p->n_items) threads_run(team, run_items, &job, p->n_items, 1);
}
