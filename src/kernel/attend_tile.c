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
        int lo = place_of(row->lo, a->chunk_begin), hi = place_of(row->hi, a->chunk_begin);
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
            const uint8_t *k = s->block + a->k_offset + (size_t)at * ops->elem_bytes;
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
                while (end < to && attn_row_sees(row, a->chunk_begin + end)) end++;
            if (end > from)
                runs[n++] = (value_run){s->block + a->v_offset + (size_t)(from + shift) * row_bytes, from, end - from};
            from = end > from ? end : from + 1;
        }
    }
    return n;
}

/* The K of whole blocks, in runs of 16 tokens' size. A large block of which less than half is seen is left to be read
 * in place. */
static void list_keys(fetch_list *f, const attend_args *a, const attend_ops *ops, const attn_span *spans, int n_spans,
                      size_t k_offset)
{
    int pieces = a->block_tokens > 16 ? a->block_tokens / 16 : 1, room = 2 * ATTN_CHUNK / 16;
    f->n = f->first = 0;
    f->at = 0;
    f->run_bytes = (size_t)a->d_k * (size_t)(a->block_tokens / pieces) * ops->elem_bytes;
    for (int j = 0; j < n_spans; j++) {
        if (pieces > 1 && 2 * spans[j].n < a->block_tokens) continue;
        if (j && spans[j].block == spans[j - 1].block) continue;
        for (int i = 0; i < pieces && f->n < room; i++)
            f->run[f->n++] = spans[j].block + k_offset + (size_t)i * f->run_bytes;
    }
    for (int i = f->n; f->n && i % FETCH_RUNS; i++) f->run[i] = f->run[f->n - 1];
}

static void fetch_all(fetch_list *f)
{
    for (int which = 0; f->first < f->n; which ^= 1) fetch_pair(f, which, 1);
}

/* Places of [begin, end) that row r does not see. */
static void hide(const attend_args *a, const row_tile *t, int r, int begin, int end)
{
    float *p = t->p[r];
    for (int i = begin; i < t->lo[r]; i++) p[i] = -INFINITY;
    for (int i = t->hi[r]; i < end; i++) p[i] = -INFINITY;
    for (int i = t->dense_hi; t->row[r]->mask && i < t->hi[r]; i++) {
        if (!attn_row_sees(t->row[r], a->chunk_begin + i)) p[i] = -INFINITY;
    }
}

/* The rows of the runs, four runs in turn; what is left of `rows` repeats the first. */
static void list_rows(const value_run *runs, int n_runs, size_t row_bytes, const uint8_t *rows[VALUE_BATCH])
{
    int n = 0;
    for (int j = 0; j < n_runs; j += FETCH_RUNS) {
        int n_turn = n_runs - j < FETCH_RUNS ? n_runs - j : FETCH_RUNS, longest = 0;
        for (int i = 0; i < n_turn; i++) longest = runs[j + i].n > longest ? runs[j + i].n : longest;
        for (int t = 0; t < longest; t++) {
            for (int i = 0; i < n_turn; i++) {
                if (t < runs[j + i].n) rows[n++] = runs[j + i].v + (size_t)t * row_bytes;
            }
        }
    }
    for (int i = n; i < VALUE_BATCH; i++) rows[i] = rows[0];
}

static void values_one_row(const attend_args *a, const attend_ops *ops, const row_tile *t, int r, int first, int last,
                           value_batch *b)
{
    for (int at = first; at < last; at += VALUE_BATCH) {
        b->n_runs = gather_values(a, ops, at, last - at < VALUE_BATCH ? last : at + VALUE_BATCH, t->row[r], b->runs);
        if (!b->n_runs) continue;
        for (int i = 0; i < VALUE_BATCH; i++) b->after[i] = b->runs[0].v;
        ops->values(b, (const float *const *)t->p + r, t->o + r, 1);
    }
}

static void values_together(const attend_args *a, const attend_ops *ops, const row_tile *t, value_batch *b)
{
    value_run after[VALUE_BATCH];
    int lo = t->dense_lo, hi = t->dense_hi;
    b->n_runs = gather_values(a, ops, lo, hi - lo < VALUE_BATCH ? hi : lo + VALUE_BATCH, NULL, b->runs);
    for (int at = lo; at < hi; at += VALUE_BATCH) {
        int from = at + VALUE_BATCH, to = hi - from < VALUE_BATCH ? hi : from + VALUE_BATCH;
        int n = gather_values(a, ops, from, to, NULL, after);
        if (b->n_runs) {
            list_rows(n ? after : b->runs, n ? n : b->n_runs, (size_t)a->d_v * ops->elem_bytes, b->after);
            ops->values(b, (const float *const *)t->p, t->o, t->n);
        }
        memcpy(b->runs, after, (size_t)n * sizeof *after);
        b->n_runs = n;
    }
}

/* Each row takes its tokens in ascending order: before the common range, there with the other rows, behind it. */
static void values(const attend_args *a, const attend_ops *ops, const row_tile *t, fetch_list *next)
{
    bool common = t->dense_lo < t->dense_hi;
    value_batch b;
    b.d_v = a->d_v;
    b.next = next;
    b.fetch = a->prefetch;
    for (int r = 0; r < t->n; r++) values_one_row(a, ops, t, r, t->lo[r], common ? t->dense_lo : t->hi[r], &b);
    if (!common) return;
    values_together(a, ops, t, &b);
    for (int r = 0; r < t->n; r++) values_one_row(a, ops, t, r, t->dense_hi, t->hi[r], &b);
}

void attend_tile(const attend_args *a, const attend_ops *ops)
{
    row_tile t;
    key_group groups[ATTN_CHUNK];
    fetch_list f;
    assert(a->n_rows >= 1 && a->n_rows <= ATTEND_ROWS);
    assert(a->d_k % 8 == 0 && a->d_v % 8 == 0 && a->block_tokens % ops->group_tokens == 0);
    gather_rows(a, &t);
    if (!t.n) return;
    int n_held, n = gather_keys(a, ops, t.first, t.last, groups, &n_held);
    for (int r = 0; r < t.n && n_held < t.last - t.first; r++) {
        for (int i = t.first; i < t.last; i++) t.p[r][i] = -INFINITY; /* places that no span holds */
    }
    if (!a->announced && a->prefetch) {
        list_keys(&f, a, ops, a->spans, a->n_spans, a->k_offset);
        fetch_all(&f);
    }
    ops->scores(a, groups, n, t.q, t.p, t.n);
    for (int r = 0; r < t.n; r++) {
        int begin = t.lo[r] & ~15, end = (t.hi[r] + 15) & ~15;
        hide(a, &t, r, begin, end);
        ops->softmax(t.p[r], begin, end, t.m[r], t.l[r]);
    }
    list_keys(&f, a, ops, a->next, a->n_next, a->next_k_offset);
    values(a, ops, &t, &f);
    if (a->prefetch) fetch_all(&f); /* what few values left no time for */
}
