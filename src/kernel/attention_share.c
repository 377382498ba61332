#include <string.h>

#include "kernel/attention_plan.h"

#define LEAST_ROWS 12      /* of a tile that is cut smaller than it could be */
#define TILES_PER_WORKER 6 /* of one run of shared chunks */

static size_t mix(uint64_t x)
{
    x = (x ^ x >> 32) * 0xD6E8FEB86659FD93u;
    return (size_t)(x ^ x >> 32);
}

static bool same_spans(const attn_plan *p, const plan_chunk *a, const plan_chunk *b)
{
    size_t n = (size_t)a->n_spans;
    return a->n_spans == b->n_spans &&
           !memcmp(p->spans + a->first_span, p->spans + b->first_span, n * sizeof *p->spans);
}

/* The place in the table of the chunks with these spans: of the last of them that was found, or empty. */
static int *find_place(const attn_plan *p, const plan_chunk *c, size_t table_size)
{
    const attn_span *s = &p->spans[c->first_span];
    size_t at = mix((uint64_t)s->block << 32 ^ (uint64_t)s->index << 2 ^ (uint64_t)s->kind);
    for (;; at++) {
        int *place = &p->table[at & (table_size - 1)];
        if (*place < 0 || same_spans(p, &p->chunks[*place], c)) return place;
    }
}

/* All rows of a sequence, few enough for a tile to hold another's as well. */
static bool may_share(const attn_plan *p, const plan_group *g)
{
    int seq = p->rows[p->order[g->first_row]].seq;
    return 2 * g->n_rows * p->tile_heads <= ATTEND_ROWS && g->n_rows == p->seqs[seq].n_rows;
}

/* Chains the chunks that have the same spans, in the order of groups. */
static void chain_chunks(attn_plan *p)
{
    int n = 0;
    for (int i = 0; i < p->n_groups; i++) n += may_share(p, &p->groups[i]) ? p->groups[i].n_chunks : 0;
    size_t size = 1;
    while (size < 2 * (size_t)n) size *= 2;
    for (size_t i = 0; i < size; i++) p->table[i] = -1;
    for (int i = 0; i < p->n_groups; i++) {
        const plan_group *g = &p->groups[i];
        for (int c = g->first_chunk; may_share(p, g) && c < g->first_chunk + g->n_chunks; c++) {
            int *last = find_place(p, &p->chunks[c], size);
            p->chunks[c].group = i;
            p->chunks[c].next = -1;
            p->chunks[c].leads = *last < 0;
            if (*last >= 0) p->chunks[*last].next = c;
            *last = c;
        }
    }
}

/* Whether chunk b comes right after chunk a for all groups of a's chain, and for no other. */
static bool goes_on(const attn_plan *p, int a, int b)
{
    if (!p->chunks[b].leads) return false;
    for (; a >= 0 && b >= 0; a = p->chunks[a].next, b = p->chunks[b].next) {
        if (b != a + 1 || p->chunks[b].group != p->chunks[a].group) return false;
    }
    return a == b;
}

/* One tile of as many groups of the chain from `chunk` on as hold about `want` rows. Returns the rest of the chain. */
static int share_tile(attn_plan *p, int chunk, int n_chunks, int want)
{
    int n_members = p->n_members;
    plan_tile *t = plan_add_tile(p, chunk, n_chunks);
    for (; chunk >= 0 && t->n_rows < want; chunk = p->chunks[chunk].next) {
        plan_group *g = &p->groups[p->chunks[chunk].group];
        if ((t->n_rows + g->n_rows) * p->tile_heads > ATTEND_ROWS || p->n_members == p->max_shares) break;
        if (plan_give_slots(p, g)) plan_add_member(p, t, p->chunks[chunk].group, chunk);
    }
    if (t->n_members < 2) { /* no room: each goes on alone */
        p->n_members = n_members;
        p->n_tiles--;
        return t->n_members ? chunk : -1;
    }
    t->first_chunk = p->members[t->first_member].first_chunk;
    for (int i = 0; i < t->n_members; i++) {
        int first = p->members[t->first_member + i].first_chunk;
        for (int c = first; c < first + n_chunks; c++) p->chunks[c].shared = true;
    }
    return chunk;
}

/* Tiles for the groups of the chain, as equal as can be: as many as keep the workers busy, so that most run through all
 * chunks and merge them on the way, but of LEAST_ROWS or more. */
static void share_run(attn_plan *p, int first, int n_chunks, int n_workers)
{
    int n_rows = 0, most = ATTEND_ROWS / p->tile_heads, few = (LEAST_ROWS + p->tile_heads - 1) / p->tile_heads;
    for (int c = first; c >= 0; c = p->chunks[c].next) n_rows += p->groups[p->chunks[c].group].n_rows;
    int n_tiles = (n_rows + most - 1) / most, wanted = n_workers * TILES_PER_WORKER / p->head_blocks;
    if (wanted > n_rows / few) wanted = n_rows / few;
    if (n_workers > 1 && n_tiles < wanted) n_tiles = wanted;
    for (int c = first; c >= 0;) c = share_tile(p, c, n_chunks, (n_rows + n_tiles - 1) / n_tiles);
}

void plan_share(attn_plan *p, int n_workers)
{
    chain_chunks(p);
    for (int i = 0; i < p->n_groups; i++) {
        const plan_group *g = &p->groups[i];
        if (!may_share(p, g)) continue;
        for (int c = g->first_chunk, end = c + g->n_chunks, n; c < end; c += n) {
            n = 1;
            if (!p->chunks[c].leads || p->chunks[c].next < 0) continue;
            while (c + n < end && goes_on(p, c + n - 1, c + n)) n++;
            share_run(p, c, n, n_workers);
        }
    }
}
