#include "kernel/attention_plan.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "base/minmax.h"

#define GROUP_ROWS 16      /* query rows of one sequence that are walked together */
#define SHARES_PER_SEQ 8   /* tiles of several sequences that one may be in, on average */
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
    p->tile_heads = p->group < GROUP_ROWS ? p->group : GROUP_ROWS;
    p->group_rows = GROUP_ROWS / p->tile_heads;
    p->blocks_per_kv = (p->group + p->tile_heads - 1) / p->tile_heads;
    p->head_blocks = p->blocks_per_kv * shape.n_kv_heads;
}

/* Slots for one row a sequence over everything that the spans can hold; small shapes get room for several rows.
 * A group has one tile of its own, and one more for each time that it shares one. */
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
    p->max_shares = SHARES_PER_SEQ * max_seqs;
    p->max_tiles = max_rows + 2 * p->max_shares;
    p->max_items = p->max_tiles * p->head_blocks + 2 * PARTS_PER_WORKER * max_workers; /* see attn_plan_build */
    p->table_size = 1;
    while (p->table_size < 4 * (size_t)max_spans) p->table_size *= 2;
}

static int alloc_all(attn_plan *p, status *st)
{
    size_t rows = (size_t)p->max_rows, spans = 2 * (size_t)p->max_spans, shares = (size_t)p->max_shares;
    size_t slots = round_up((size_t)p->max_slots, 16);
    p->scratch_floats = round_up((size_t)ATTEND_ROWS * (size_t)(p->shape.d_k + ATTN_CHUNK + p->shape.d_v), 16);
    p->scratch_bytes = (size_t)p->max_workers * p->scratch_floats * sizeof(float);
    p->slot_bytes = slots * ((size_t)p->shape.d_v + 2) * sizeof(float);
    p->rows = mem_array(rows, sizeof *p->rows);
    p->order = mem_array(rows, sizeof *p->order);
    p->seqs = mem_array((size_t)p->max_seqs, sizeof *p->seqs);
    p->spans = mem_array(spans, sizeof *p->spans);
    p->chunks = mem_array(spans, sizeof *p->chunks);
    p->table = mem_array(p->table_size, sizeof *p->table);
    p->groups = mem_array(rows, sizeof *p->groups);
    p->members = mem_array(rows + 2 * shares, sizeof *p->members);
    p->tiles = mem_array((size_t)p->max_tiles, sizeof *p->tiles);
    p->items = mem_array((size_t)p->max_items, sizeof *p->items);
    p->joins = mem_array(rows * (size_t)p->head_blocks, sizeof *p->joins);
    p->scratch = mem_pages_alloc(p->scratch_bytes);
    p->slot_o = mem_pages_alloc(p->slot_bytes);
    if (!p->rows || !p->order || !p->seqs || !p->spans || !p->chunks || !p->table || !p->groups || !p->members ||
        !p->tiles || !p->items || !p->joins || !p->scratch || !p->slot_o) {
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
    mem_free(p->order);
    mem_free(p->seqs);
    mem_free(p->spans);
    mem_free(p->chunks);
    mem_free(p->table);
    mem_free(p->groups);
    mem_free(p->members);
    mem_free(p->tiles);
    mem_free(p->items);
    mem_free(p->joins);
    if (p->scratch) mem_pages_free(p->scratch, p->scratch_bytes);
    if (p->slot_o) mem_pages_free(p->slot_o, p->slot_bytes);
    mem_free(p);
}

void attn_plan_reset(attn_plan *p)
{
    p->n_rows = p->n_seqs = p->n_spans = p->n_chunks = 0;
    p->n_groups = p->n_members = p->n_tiles = p->n_items = p->n_slots = 0;
}

static void add_to_chunk(attn_plan *p, plan_seq *s, attn_span span)
{
    int64_t begin = span.index / ATTN_CHUNK * ATTN_CHUNK;
    const plan_chunk *last = s->n_chunks ? &p->chunks[p->n_chunks - 1] : NULL;
    if (!last || last->begin != begin || last->kind != (attn_kind)span.kind) {
        p->chunks[p->n_chunks++] = (plan_chunk){.begin = begin, .kind = (attn_kind)span.kind, .first_span = p->n_spans};
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
    *s = (plan_seq){.first_chunk = p->n_chunks};
    int64_t end = 0;
    int kind = 0;
    for (int i = 0; i < n_spans; i++) {
        attn_span a = spans[i];
        assert(a.kind >= kind && a.kind < ATTN_KINDS && (a.kind > kind || a.index >= end));
        assert(a.index >= 0 && a.row >= 0 && a.n >= 1 && a.row + a.n <= p->shape.block_tokens);
        end = a.index + a.n;
        kind = a.kind;
        int room = (int)(ATTN_CHUNK - a.index % ATTN_CHUNK);
        assert(p->n_spans + (a.n > room ? 2 : 1) <= 2 * p->max_spans);
        if (a.n > room) {
            add_to_chunk(p, s, (attn_span){a.block, a.kind, a.row, room, a.index});
            a = (attn_span){a.block, a.kind, a.row + room, a.n - room, a.index + room};
        }
        add_to_chunk(p, s, a);
    }
    return p->n_seqs++;
}

void attn_plan_row(attn_plan *p, const attn_row *row)
{
    assert(p->n_rows < p->max_rows && row->seq >= 0 && row->seq < p->n_seqs && row->mask_n >= 0);
    p->rows[p->n_rows++] = *row;
    p->seqs[row->seq].n_rows++;
}

/* What any row of the group sees of each kind: from the first index to the last. */
static void find_ranges(const attn_plan *p, const plan_group *g, attn_range seen[ATTN_KINDS])
{
    for (int k = 0; k < ATTN_KINDS; k++) {
        seen[k] = (attn_range){INT64_MAX, INT64_MIN};
        for (int i = g->first_row; i < g->first_row + g->n_rows; i++) {
            attn_range r = attn_row_range(&p->rows[p->order[i]], (attn_kind)k);
            if (r.lo >= r.hi) continue;
            seen[k].lo = min_i64(seen[k].lo, r.lo);
            seen[k].hi = max_i64(seen[k].hi, r.hi);
        }
    }
}

static bool meets(const plan_chunk *c, const attn_range seen[ATTN_KINDS])
{
    return c->begin + ATTN_CHUNK > seen[c->kind].lo && c->begin < seen[c->kind].hi;
}

/* From the first chunk that any row of the group sees to the last. Between them may lie chunks that none sees, as when
 * its rows come before a segment that this step seals: their partials are empty. */
static void find_chunks(const attn_plan *p, const plan_seq *s, plan_group *g)
{
    attn_range seen[ATTN_KINDS];
    find_ranges(p, g, seen);
    const plan_chunk *c = p->chunks + s->first_chunk;
    int first = 0, end = s->n_chunks;
    while (first < end && !meets(&c[first], seen)) first++;
    while (end > first && !meets(&c[end - 1], seen)) end--;
    g->first_chunk = s->first_chunk + first;
    g->n_chunks = end - first;
}

static void make_groups(attn_plan *p)
{
    int at = 0;
    for (int i = 0; i < p->n_seqs; i++) {
        p->seqs[i].first_row = at;
        at += p->seqs[i].n_rows;
        p->seqs[i].n_rows = 0;
    }
    for (int i = 0; i < p->n_rows; i++) {
        plan_seq *s = &p->seqs[p->rows[i].seq];
        p->order[s->first_row + s->n_rows++] = i;
    }
    for (int i = 0; i < p->n_seqs; i++) {
        const plan_seq *s = &p->seqs[i];
        for (int done = 0; done < s->n_rows; done += p->group_rows) {
            plan_group *g = &p->groups[p->n_groups++];
            *g = (plan_group){s->first_row + done, (int)min_i64(s->n_rows - done, p->group_rows), 0, 0, -1, 1};
            find_chunks(p, s, g);
        }
    }
}

bool plan_give_slots(attn_plan *p, plan_group *g)
{
    if (g->slot >= 0) return true;
    int rows = g->n_rows * p->shape.n_heads;
    if (g->n_chunks > (p->max_slots - p->n_slots) / rows) return false;
    g->slot = p->n_slots;
    p->n_slots += g->n_chunks * rows;
    return true;
}

plan_tile *plan_add_tile(attn_plan *p, int first_chunk, int n_chunks)
{
    assert(p->n_tiles < p->max_tiles);
    plan_tile *t = &p->tiles[p->n_tiles++];
    *t = (plan_tile){.first_member = p->n_members, .first_chunk = first_chunk, .n_chunks = n_chunks};
    return t;
}

void plan_add_member(attn_plan *p, plan_tile *t, int group, int first_chunk)
{
    p->members[p->n_members++] = (plan_member){group, first_chunk};
    t->n_members++;
    t->n_rows += p->groups[group].n_rows;
}

/* Tiles of one group: of the chunks that it shares with none. */
static void add_own_tiles(attn_plan *p, int group)
{
    const plan_group *g = &p->groups[group];
    int end = g->first_chunk + g->n_chunks;
    bool all = g->n_chunks == 0; /* sees nothing, which makes an item too: zeros */
    for (int c = g->first_chunk; c < end || all; all = false) {
        int first = c;
        while (c < end && !p->chunks[c].shared) c++;
        if (c > first || all) plan_add_member(p, plan_add_tile(p, first, c - first), group, first);
        while (c < end && p->chunks[c].shared) c++;
    }
}

/* Loads of K and V, and the arithmetic of every row; of the last chunk, as far as any row sees. */
static int64_t find_cost(const attn_plan *p, const plan_tile *t)
{
    int64_t n_tok = 0, hi[ATTN_KINDS] = {0};
    for (int m = t->first_member; m < t->first_member + t->n_members; m++) {
        attn_range seen[ATTN_KINDS];
        find_ranges(p, &p->groups[p->members[m].group], seen);
        for (int k = 0; k < ATTN_KINDS; k++) hi[k] = max_i64(hi[k], seen[k].hi);
    }
    for (int i = t->first_chunk; i < t->first_chunk + t->n_chunks; i++) {
        int64_t end = min_i64(p->chunks[i].n_tok, hi[p->chunks[i].kind] - p->chunks[i].begin);
        n_tok += max_i64(end, 0);
    }
    return n_tok * (2 + t->n_rows * p->tile_heads);
}

static int64_t make_tiles(attn_plan *p, int n_workers, bool cascade)
{
    int64_t total = 0;
    if (cascade && p->n_groups > 1) plan_share(p, n_workers);
    p->n_shared_tiles = p->n_tiles;
    for (int i = 0; i < p->n_groups; i++) add_own_tiles(p, i);
    for (int i = 0; i < p->n_tiles; i++) {
        p->tiles[i].cost = find_cost(p, &p->tiles[i]);
        total += p->tiles[i].cost;
    }
    return total * p->head_blocks;
}

static bool begins_all(const attn_plan *p, const plan_tile *t)
{
    for (int m = t->first_member; m < t->first_member + t->n_members; m++)
        if (p->members[m].first_chunk != p->groups[p->members[m].group].first_chunk) return false;
    return true;
}

/* Cuts the tile's chunks into runs of nearly equal length that cost at most about `most`. */
static void add_items(attn_plan *p, int tile, int head_block, int64_t most, bool split)
{
    const plan_tile *t = &p->tiles[tile];
    int n = split && t->cost > most ? (int)min_i64((t->cost + most - 1) / most, t->n_chunks) : 1;
    bool folds = begins_all(p, t);
    int n_folded = folds ? t->n_chunks / n : 1;
    for (int i = 0; i < n; i++) {
        int begin = (int)((int64_t)t->n_chunks * i / n), end = (int)((int64_t)t->n_chunks * (i + 1) / n);
        p->items[p->n_items++] = (plan_item){tile, head_block, begin, end - begin, folds && i == 0};
    }
    for (int m = t->first_member; m < t->first_member + t->n_members; m++) {
        int group = p->members[m].group;
        p->joins[group * p->head_blocks + head_block].n_parts += n;
        if (folds) p->groups[group].n_folded = n_folded;
    }
}

/* One KV head after the other, so that workers share its K and V in the caches; the longest rows (the last of a prompt)
 * first, so that no long item is left to the end. With W workers the parts are at most 2 W PARTS_PER_WORKER: a tile
 * that is split costs more than `most`, of which the total holds W PARTS_PER_WORKER, and has at most cost / most + 1
 * parts. */
void attn_plan_build(attn_plan *p, int n_workers, unsigned how)
{
    assert(n_workers >= 1 && n_workers <= p->max_workers && p->n_items == 0);
    make_groups(p);
    bool split = (how & ATTN_SPLIT) && n_workers > 1;
    int64_t most =
        make_tiles(p, n_workers, how & ATTN_CASCADE) / ((int64_t)n_workers * PARTS_PER_WORKER) + 1; /* of one item */
    int n_joins = p->n_groups * p->head_blocks;
    for (int i = 0; i < n_joins; i++) p->joins[i].n_parts = 0;
    for (int b = 0; b < p->head_blocks; b++) {
        for (int i = 0; i < p->n_shared_tiles; i++) add_items(p, i, b, 2 * most, split);
        for (int i = p->n_tiles - 1; i >= p->n_shared_tiles; i--) {
            plan_group *g = &p->groups[p->members[p->tiles[i].first_member].group];
            bool costly = split && p->tiles[i].cost > most && p->tiles[i].n_chunks > 1;
            add_items(p, i, b, most, costly && plan_give_slots(p, g));
        }
    }
    for (int i = 0; i < n_joins; i++)
        atomic_store_explicit(&p->joins[i].n_left, p->joins[i].n_parts, memory_order_relaxed);
}
