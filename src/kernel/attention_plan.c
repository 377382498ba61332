#include "kernel/attention_plan.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"

#define PARTS_PER_WORKER 8 /* units small enough that a disturbed core delays a step by at most an eighth */
#define MIN_SLOT_BYTES ((size_t)4 << 20)

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static void set_shape(attn_plan *p, attn_shape shape)
{
    assert(shape.n_kv_heads >= 1 && shape.n_heads % shape.n_kv_heads == 0);
    assert(shape.d_k % 8 == 0 && shape.d_v % 8 == 0 && shape.block_tokens >= 8 && shape.block_tokens <= ATTN_CHUNK);
    p->shape = shape;
    p->group = shape.n_heads / shape.n_kv_heads;
    p->tile_heads = p->group < ATTEND_ROWS ? p->group : ATTEND_ROWS;
    p->tile_rows = ATTEND_ROWS / p->tile_heads;
    p->blocks_per_kv = (p->group + p->tile_heads - 1) / p->tile_heads;
}

/* Slots for one row a sequence over everything that the spans can hold; small shapes get room for several rows. */
static void set_limits(attn_plan *p, int max_workers, int max_rows, int max_seqs, int max_spans)
{
    size_t partial_bytes = ((size_t)p->shape.d_v + 2) * sizeof(float);
    size_t chunks = (size_t)max_spans * (size_t)p->shape.block_tokens / ATTN_CHUNK + 2 * (size_t)max_seqs;
    size_t slots = chunks * (size_t)p->shape.n_heads, least = MIN_SLOT_BYTES / partial_bytes;
    p->max_workers = max_workers;
    p->max_rows = max_rows;
    p->max_seqs = max_seqs;
    p->max_spans = max_spans;
    p->max_slots = (int)(slots > least ? slots : least);
    p->max_items = max_rows * p->blocks_per_kv * p->shape.n_kv_heads +
                   2 * PARTS_PER_WORKER * max_workers; /* see attn_plan_build */
}

static int alloc_all(attn_plan *p, status *st)
{
    size_t rows = (size_t)p->max_rows, spans = 2 * (size_t)p->max_spans, items = (size_t)p->max_items;
    size_t slots = round_up((size_t)p->max_slots, 16);
    p->scratch_floats = round_up((size_t)ATTEND_ROWS * (size_t)(p->shape.d_k + ATTN_CHUNK + p->shape.d_v), 16);
    p->scratch_bytes = (size_t)p->max_workers * p->scratch_floats * sizeof(float);
    p->slot_bytes = slots * ((size_t)p->shape.d_v + 2) * sizeof(float);
    p->rows = mem_array(rows, sizeof *p->rows);
    p->seqs = mem_array((size_t)p->max_seqs, sizeof *p->seqs);
    p->spans = mem_array(spans, sizeof *p->spans);
    p->chunks = mem_array(spans, sizeof *p->chunks);
    p->tiles = mem_array(rows, sizeof *p->tiles);
    p->items = mem_array(items, sizeof *p->items);
    p->joins = mem_array(items, sizeof *p->joins);
    p->scratch = mem_pages_alloc(p->scratch_bytes);
    p->slot_o = mem_pages_alloc(p->slot_bytes);
    if (!p->rows || !p->seqs || !p->spans || !p->chunks || !p->tiles || !p->items || !p->joins || !p->scratch ||
        !p->slot_o) {
        return status_nomem(st, p->slot_bytes + p->scratch_bytes);
    }
    p->slot_m = p->slot_o + slots * (size_t)p->shape.d_v;
    p->slot_l = p->slot_m + slots;
    return ST_OK;
}

int attn_plan_new(attn_plan **out, const kernels *ks, attn_shape shape, int max_workers, int max_rows, int max_seqs,
                  int max_spans, status *st)
{
    assert(max_workers >= 1 && max_rows >= 1 && max_seqs >= 1 && max_spans >= 1);
    attn_plan *p = mem_calloc(1, sizeof *p);
    if (!p) return status_nomem(st, sizeof *p);
    p->ks = ks;
    set_shape(p, shape);
    set_limits(p, max_workers, max_rows, max_seqs, max_spans);
    if (alloc_all(p, st)) {
        attn_plan_free(p);
        return st->code;
    }
    *out = p;
    return ST_OK;
}

void attn_plan_free(attn_plan *p)
{
    if (!p) return;
    mem_free(p->rows);
    mem_free(p->seqs);
    mem_free(p->spans);
    mem_free(p->chunks);
    mem_free(p->tiles);
    mem_free(p->items);
    mem_free(p->joins);
    if (p->scratch) mem_pages_free(p->scratch, p->scratch_bytes);
    if (p->slot_o) mem_pages_free(p->slot_o, p->slot_bytes);
    mem_free(p);
}

void attn_plan_reset(attn_plan *p)
{
    p->n_rows = p->n_seqs = p->n_spans = p->n_chunks = p->n_tiles = p->n_items = p->n_joins = p->n_slots = 0;
}

static void add_to_chunk(attn_plan *p, plan_seq *s, attn_span span)
{
    int64_t begin = span.index / ATTN_CHUNK * ATTN_CHUNK;
    if (!s->n_chunks || p->chunks[p->n_chunks - 1].begin != begin) {
        p->chunks[p->n_chunks++] = (plan_chunk){begin, p->n_spans, 0, 0};
        s->n_chunks++;
    }
    plan_chunk *c = &p->chunks[p->n_chunks - 1];
    c->n_spans++;
    c->n_tok += span.n;
    p->spans[p->n_spans++] = span;
}

int attn_plan_seq(attn_plan *p, const attn_span *spans, int n_spans)
{
    assert(p->n_seqs < p->max_seqs);
    plan_seq *s = &p->seqs[p->n_seqs];
    *s = (plan_seq){p->n_chunks, 0};
    int64_t end = 0;
    for (int i = 0; i < n_spans; i++) {
        attn_span a = spans[i];
        assert(a.index >= end && a.row >= 0 && a.n >= 1 && a.row + a.n <= p->shape.block_tokens);
        end = a.index + a.n;
        int room = (int)(ATTN_CHUNK - a.index % ATTN_CHUNK);
        assert(p->n_spans + (a.n > room ? 2 : 1) <= 2 * p->max_spans);
        if (a.n > room) {
            add_to_chunk(p, s, (attn_span){a.block, a.row, room, a.index});
            a = (attn_span){a.block, a.row + room, a.n - room, a.index + room};
        }
        add_to_chunk(p, s, a);
    }
    return p->n_seqs++;
}

void attn_plan_row(attn_plan *p, const attn_row *row)
{
    assert(p->n_rows < p->max_rows && row->seq >= 0 && row->seq < p->n_seqs && row->mask_n >= 0);
    p->rows[p->n_rows++] = *row;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The chunks that any row of the tile sees, and what they cost: loads of K and V, and the arithmetic of every row. */
static void find_chunks(const attn_plan *p, plan_tile *t)
{
    const plan_seq *s = &p->seqs[p->rows[t->first_row].seq];
    int64_t lo = INT64_MAX, hi = INT64_MIN, n_tok = 0;
    for (int i = t->first_row; i < t->first_row + t->n_rows; i++) {
        const attn_row *r = &p->rows[i];
        if (r->lo >= r->hi) continue;
        lo = least(lo, r->lo);
        hi = r->hi > hi ? r->hi : hi;
    }
    const plan_chunk *c = p->chunks + s->first_chunk;
    int first = 0, end = s->n_chunks;
    while (first < end && c[first].begin + ATTN_CHUNK <= lo) first++;
    while (end > first && c[end - 1].begin >= hi) end--;
    for (int i = first; i < end; i++) n_tok += least(c[i].n_tok, least(hi, c[i].begin + ATTN_CHUNK) - c[i].begin);
    t->first_chunk = s->first_chunk + first;
    t->n_chunks = end - first;
    t->cost = n_tok * (2 + t->n_rows * p->tile_heads);
}

static int64_t make_tiles(attn_plan *p)
{
    int64_t total = 0;
    for (int at = 0; at < p->n_rows;) {
        int n = 1;
        while (n < p->tile_rows && at + n < p->n_rows && p->rows[at + n].seq == p->rows[at].seq) n++;
        plan_tile *t = &p->tiles[p->n_tiles++];
        *t = (plan_tile){at, n, 0, 0, 0};
        find_chunks(p, t);
        total += t->cost;
        at += n;
    }
    return total;
}

/* Cuts the tile's chunks into n_parts runs of nearly equal length; false when the slots don't suffice. */
static bool add_parts(attn_plan *p, int tile, int head_block, int n_parts)
{
    const plan_tile *t = &p->tiles[tile];
    int rows = t->n_rows * plan_heads(p, head_block).n;
    if (t->n_chunks > (p->max_slots - p->n_slots) / rows) return false;
    plan_join *join = &p->joins[p->n_joins];
    *join = (plan_join){tile, head_block, p->n_slots, n_parts, 0};
    atomic_store_explicit(&join->n_left, n_parts, memory_order_relaxed);
    for (int i = 0; i < n_parts; i++) {
        int begin = (int)((int64_t)t->n_chunks * i / n_parts), end = (int)((int64_t)t->n_chunks * (i + 1) / n_parts);
        p->items[p->n_items++] =
            (plan_item){tile, head_block, t->first_chunk + begin, end - begin, p->n_slots + begin * rows, p->n_joins};
    }
    p->n_joins++;
    p->n_slots += t->n_chunks * rows;
    return true;
}

/* One KV head after the other, so that workers share its K and V in the caches; the longest rows (the last of a prompt)
 * first, so that no long item is left to the end. With W workers the parts are at most 2 W PARTS_PER_WORKER: a tile that
 * is split costs more than `most`, of which the total holds W PARTS_PER_WORKER, and has at most cost / most + 1 parts. */
void attn_plan_build(attn_plan *p, int n_workers, bool split)
{
    assert(n_workers >= 1 && n_workers <= p->max_workers && p->n_items == 0);
    int head_blocks = p->blocks_per_kv * p->shape.n_kv_heads;
    int64_t total = make_tiles(p) * head_blocks;
    int64_t most = total / ((int64_t)n_workers * PARTS_PER_WORKER) + 1; /* what one item may cost */
    for (int b = 0; b < head_blocks; b++) {
        for (int i = p->n_tiles - 1; i >= 0; i--) {
            const plan_tile *t = &p->tiles[i];
            int n_parts = (int)least((t->cost + most - 1) / most, t->n_chunks);
            if (split && n_workers > 1 && n_parts > 1 && add_parts(p, i, b, n_parts)) continue;
            p->items[p->n_items++] = (plan_item){i, b, t->first_chunk, t->n_chunks, -1, -1};
        }
    }
}
