#include "kernel/attend_tile.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static int place_of(int64_t index, int64_t chunk_begin)
{
    int64_t place = index - chunk_begin;
    return place < 0 ? 0 : place > ATTN_CHUNK ? ATTN_CHUNK : (int)place;
}

/* Rows that see nothing get the empty partial here and take no further part. */
static void gather_rows(const attend_args *a, row_tile *t)
{
    t->n = 0;
    t->first = t->dense_lo = ATTN_CHUNK;
    t->last = 0;
    t->dense_hi = ATTN_CHUNK;
    int latest = 0;
    for (int r = 0; r < a->n_rows; r++) {
        const attn_row *row = a->rows[r];
        attn_range seen = attn_row_range(row, a->kind);
        int lo = place_of(seen.lo, a->chunk_begin), hi = place_of(seen.hi, a->chunk_begin);
        memset(a->o[r], 0, (size_t)a->d_v * sizeof(float));
        a->m[r] = -INFINITY;
        a->l[r] = 0;
        if (lo >= hi) continue;
        int dense = row->mask ? place_of(row->hi - row->mask_n, a->chunk_begin) : hi;
        t->q[t->n] = a->q[r];
        t->p[t->n] = a->scratch + (size_t)t->n * ATTN_CHUNK;
        t->o[t->n] = a->o[r];
        t->m[t->n] = &a->m[r];
        t->l[t->n] = &a->l[r];
        t->row[t->n] = row;
        t->lo[t->n] = lo;
        t->hi[t->n++] = hi;
        if (lo < t->first) t->first = lo;
        if (lo > latest) latest = lo;
        if (hi > t->last) t->last = hi;
        if (dense < t->dense_hi) t->dense_hi = dense;
    }
    t->dense_lo = latest;
}

/* Places [first, last) of span s that lie in [*first, *last) of the chunk; empty where first >= last. */
static void clip(const attn_span *s, int64_t chunk_begin, int *first, int *last)
{
    int place = (int)(s->index - chunk_begin);
    if (*first < place) *first = place;
    if (*last > place + s->n) *last = place + s->n;
}

/* Returns how many groups; *n_held: of the places [first, last), how many the spans hold. */
static int gather_keys(const attend_args *a, const attend_ops *ops, int first, int last, key_group *g, int *n_held)
{
    int n = 0, width = ops->group_tokens;
    *n_held = 0;
    for (int j = 0; j < a->n_spans; j++) {
        const attn_span *s = &a->spans[j];
        int from = first, to = last, shift = s->row - (int)(s->index - a->chunk_begin); /* from place to row */
        clip(s, a->chunk_begin, &from, &to);
        int begin = from + shift, end = to + shift;
        if (begin >= end) continue;
        *n_held += end - begin;
        for (int at = begin & -width; at < end; at += width) {
            const uint8_t *k = attend_block(a, s) + a->k_offset + (size_t)at * ops->elem_bytes;
            g[n++] = (key_group){k, at - shift, begin > at ? begin - at : 0, end - at < width ? end - at : width};
        }
    }
    return n;
}

/* Places [first, last), less those that `row` (when given) masks out. */
static int gather_values(const attend_args *a, const attend_ops *ops, int first, int last, const attn_row *row,
                         value_run *runs)
{
    int n = 0;
    size_t row_bytes = (size_t)a->d_v * ops->elem_bytes;
    for (int j = 0; j < a->n_spans; j++) {
        const attn_span *s = &a->spans[j];
        int from = first, to = last, shift = s->row - (int)(s->index - a->chunk_begin);
        clip(s, a->chunk_begin, &from, &to);
        while (from < to) {
            int end = from;
            if (!row) end = to;
            else
                while (end < to && attn_row_sees(row, a->kind, a->chunk_begin + end)) end++;
            if (end > from)
                runs[n++] = (value_run){attend_block(a, s) + a->v_offset + (size_t)(from + shift) * row_bytes, from,
                                        end - from};
            from = end > from ? end : from + 1;
        }
    }
    return n;
}

/* Places of [begin, end) that row r does not see. */
static void mask_scores(const attend_args *a, const row_tile *t, int r, int begin, int end)
{
    float *p = t->p[r];
    for (int i = begin; i < t->lo[r]; i++) p[i] = -INFINITY;
    for (int i = t->hi[r]; i < end; i++) p[i] = -INFINITY;
    for (int i = t->dense_hi; t->row[r]->mask && i < t->hi[r]; i++) {
        if (!attn_row_sees(t->row[r], a->kind, a->chunk_begin + i)) p[i] = -INFINITY;
    }
}

/* Places [lo, hi) for n_rows rows from r on; row: whose mask counts, NULL = every one of them sees all. */
static void add_values(const attend_args *a, const attend_ops *ops, const row_tile *t, int r, int n_rows, int lo,
                       int hi, const attn_row *row)
{
    value_batch b;
    b.d_v = a->d_v;
    for (int at = lo; at < hi; at += VALUE_BATCH) {
        b.n_runs = gather_values(a, ops, at, hi - at < VALUE_BATCH ? hi : at + VALUE_BATCH, row, b.runs);
        if (b.n_runs) ops->values(&b, (const float *const *)t->p + r, t->o + r, n_rows);
    }
}

/* Each row takes its tokens in ascending order: before the common range, there with the other rows, behind it. */
static void values(const attend_args *a, const attend_ops *ops, const row_tile *t)
{
    bool common = t->dense_lo < t->dense_hi;
    for (int r = 0; r < t->n; r++) add_values(a, ops, t, r, 1, t->lo[r], common ? t->dense_lo : t->hi[r], t->row[r]);
    if (!common) return;
    add_values(a, ops, t, 0, t->n, t->dense_lo, t->dense_hi, NULL);
    for (int r = 0; r < t->n; r++) add_values(a, ops, t, r, 1, t->dense_hi, t->hi[r], t->row[r]);
}

void attend_tile(const attend_args *a, const attend_ops *ops)
{
    row_tile t;
    key_group groups[ATTN_CHUNK];
    assert(a->n_rows >= 1 && a->n_rows <= ATTEND_ROWS);
    assert(a->d_k % 8 == 0 && a->d_v % 8 == 0 && a->block_tokens % ops->group_tokens == 0);
    gather_rows(a, &t);
    if (!t.n) return;
    int n_held, n = gather_keys(a, ops, t.first, t.last, groups, &n_held);
    for (int r = 0; r < t.n && n_held < t.last - t.first; r++) {
        for (int i = t.first; i < t.last; i++) t.p[r][i] = -INFINITY; /* places that no span holds */
    }
    ops->scores(a, groups, n, t.q, t.p, t.n);
    for (int r = 0; r < t.n; r++) {
        int begin = t.lo[r] & ~15, end = (t.hi[r] + 15) & ~15;
        mask_scores(a, &t, r, begin, end);
        ops->softmax(t.p[r], begin, end, t.m[r], t.l[r]);
    }
    values(a, ops, &t);
}
