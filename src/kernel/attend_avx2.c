/* One chunk of attention: scores, softmax, values, for a tile of query rows. The formats differ in load8 alone.
 *
 *      scores   R query rows x V vectors of eight tokens at a time: q is broadcast, K is read once per R rows
 *      values   R query rows x V vectors of eight dimensions: p is broadcast, V is read once per R rows, batch by batch
 *
 * Every number is one chain in a fixed order (scores: d ascending; o: tokens ascending; l: lane i of eight sums the
 * places i, i + 8, ...), so neither the tiling nor where blocks begin can be seen in the bits.
 *
 * Memory: runs of a few KB far apart, which the hardware prefetches badly. So the scores fetch V's lines into the
 * second cache, and the values those of the next chunk's K; fetching into the first cache is only two thirds as fast.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernel/attention.h"
#include "kernel/fill.h"

#if defined(__x86_64__)

#include "kernel/avx2_math.h"

#define INLINE static inline __attribute__((always_inline))
#define VALUE_BATCH 64 /* tokens whose V stays in the first cache while all rows take them */

/* Eight rows of a block's K; lanes [begin, end) are places place + lane of the chunk. */
typedef struct key_group {
    const uint8_t *k;
    int place, begin, end;
} key_group;

/* V rows of n consecutive places, and what is fetched meanwhile: the same part of the next chunk's K. */
typedef struct value_run {
    const uint8_t *v, *ahead;
    int place, n;
} value_run;

/* The rows of the call that see part of this chunk, with the places they see. */
typedef struct row_tile {
    int n;
    const float *q[ATTEND_ROWS];
    float *p[ATTEND_ROWS], *o[ATTEND_ROWS], *m[ATTEND_ROWS], *l[ATTEND_ROWS];
    const attn_row *row[ATTEND_ROWS];
    int lo[ATTEND_ROWS], hi[ATTEND_ROWS];
    int first, last;        /* the union of all [lo, hi) */
    int dense_lo, dense_hi; /* places that every row sees, masks apart; empty when dense_lo >= dense_hi */
} row_tile;

INLINE __m256 load8(const uint8_t *p, bool half)
{
    return half ? _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)) : _mm256_loadu_ps((const float *)p);
}

INLINE size_t elem_bytes(bool half)
{
    return half ? 2 : 4;
}

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

static int gather_keys(const attend_args *a, int first, int last, bool half, key_group *g)
{
    int n = 0;
    for (int j = 0; j < a->n_spans; j++) {
        const attn_span *s = &a->spans[j];
        int place = (int)(s->index - a->chunk_begin);
        int begin = s->row + (first > place ? first - place : 0);
        int end = s->row + (last < place + s->n ? last - place : s->n);
        for (int at = begin & ~7; at < end; at += 8) {
            int from = begin > at ? begin - at : 0, to = end - at < 8 ? end - at : 8;
            g[n++] = (key_group){s->block + a->k_offset + (size_t)at * elem_bytes(half), place + at - s->row, from, to};
        }
    }
    return n;
}

/* For a chunk that no earlier call announced. */
static void fetch_keys(const attend_args *a, const key_group *g, int n, bool half)
{
    size_t step = (size_t)a->block_tokens * elem_bytes(half), n_bytes = (size_t)a->d_k * step;
    size_t line = step > 64 ? step : 64;
    for (int i = 0; i<n; i += step> 16 ? 2 : 1) {
        for (size_t at = 0; at < n_bytes; at += line) _mm_prefetch((const char *)(g[i].k + at), _MM_HINT_T1);
    }
}

/* Places [first, last), less those that `row` (when given) masks out. */
static int gather_values(const attend_args *a, int first, int last, const attn_row *row, bool half, value_run *runs)
{
    int n = 0;
    size_t row_bytes = (size_t)a->d_v * elem_bytes(half);
    for (int j = 0; j < a->n_spans; j++) {
        const attn_span *s = &a->spans[j];
        int place = (int)(s->index - a->chunk_begin);
        int from = first > place ? first : place, to = last < place + s->n ? last : place + s->n;
        while (from < to) {
            int end = from;
            if (!row) end = to;
            else
                while (end < to && attn_row_sees(row, a->chunk_begin + end)) end++;
            if (end > from) {
                const uint8_t *v = s->block + a->v_offset + (size_t)(s->row + from - place) * row_bytes;
                const uint8_t *ahead = v;
                if (j < a->n_next) ahead = a->next[j].block + a->next_k_offset + (v - s->block - a->v_offset);
                runs[n++] = (value_run){v, ahead, from, end - from};
            }
            from = end > from ? end : from + 1;
        }
    }
    return n;
}

/* Puts a tile of scores where softmax_row looks for them. */
static void place_scores(const attend_args *a, const key_group *g, float *const *p, int n_rows, int n_groups,
                         float tile[4][8][8])
{
    __m256 cap = _mm256_set1_ps(a->softcap);
    for (int r = 0; r < n_rows; r++) {
        for (int v = 0; v < n_groups; v++) {
            float *from = tile[r][v], *to = p[r] + g[v].place;
            if (a->softcap > 0) _mm256_storeu_ps(from, softcap8(_mm256_loadu_ps(from), cap));
            if (g[v].end - g[v].begin == 8) _mm256_storeu_ps(to, _mm256_loadu_ps(from));
            else
                for (int i = g[v].begin; i < g[v].end; i++) to[i] = from[i];
        }
    }
}

/* One dimension of K; the same place of V is fetched meanwhile. Of a pair of groups, which share cache lines or have
 * lines that span two dimensions, one is fetched here and the other at the next dimension. */
INLINE void score_step(const key_group *g, size_t at, ptrdiff_t to_v, const float *const *q, size_t d, int n_rows,
                       int n_groups, bool half, __m256 s[4][8])
{
    for (int v = (int)(d & 1); v < n_groups; v += 2) _mm_prefetch((const char *)(g[v].k + at + to_v), _MM_HINT_T1);
    __m256 x[4];
    for (int r = 0; r < n_rows; r++) x[r] = _mm256_broadcast_ss(q[r] + d);
    for (int v = 0; v < n_groups; v++) {
        __m256 k = load8(g[v].k + at, half);
        for (int r = 0; r < n_rows; r++) s[r][v] = _mm256_fmadd_ps(x[r], k, s[r][v]);
    }
}

INLINE void score_tile(const attend_args *a, const key_group *g, const float *const *q, float *const *p, int n_rows,
                       int n_groups, bool half)
{
    __m256 s[4][8];
    float tile[4][8][8];
    for (int r = 0; r < n_rows; r++) {
        for (int v = 0; v < n_groups; v++) s[r][v] = _mm256_setzero_ps();
    }
    size_t step = (size_t)a->block_tokens * elem_bytes(half);
    ptrdiff_t to_v = (ptrdiff_t)(a->v_offset - a->k_offset);
    for (size_t d = 0, at = 0; d < (size_t)a->d_k; d += 2, at += 2 * step) {
        score_step(g, at, to_v, q, d, n_rows, n_groups, half, s);
        score_step(g, at + step, to_v, q, d + 1, n_rows, n_groups, half, s);
    }
    for (int r = 0; r < n_rows; r++) {
        for (int v = 0; v < n_groups; v++) _mm256_storeu_ps(tile[r][v], s[r][v]);
    }
    place_scores(a, g, p, n_rows, n_groups, tile);
}

INLINE void score_groups(const attend_args *a, const key_group *g, int n, const float *const *q, float *const *p,
                         int n_rows, int n_groups, bool half)
{
    int i = 0;
    for (; i + n_groups <= n; i += n_groups) score_tile(a, g + i, q, p, n_rows, n_groups, half);
    for (; i < n; i++) score_tile(a, g + i, q, p, n_rows, 1, half);
}

INLINE void scores(const attend_args *a, const row_tile *t, const key_group *g, int n, bool half)
{
    int r = 0;
    for (; r + 4 <= t->n; r += 4) score_groups(a, g, n, t->q + r, t->p + r, 4, 2, half);
    switch (t->n - r) {
    case 3: score_groups(a, g, n, t->q + r, t->p + r, 3, 4, half); break;
    case 2: score_groups(a, g, n, t->q + r, t->p + r, 2, 4, half); break;
    case 1: score_groups(a, g, n, t->q + r, t->p + r, 1, 8, half); break;
    default: break;
    }
}

/* p := e^(p - m) over the places that the row sees, 0 in the rest of the vectors that hold them. */
static void softmax_row(const attend_args *a, const row_tile *t, int r)
{
    float *p = t->p[r];
    const attn_row *row = t->row[r];
    int begin = t->lo[r] & ~7, end = (t->hi[r] + 7) & ~7;
    for (int i = begin; i < t->lo[r]; i++) p[i] = -INFINITY;
    for (int i = t->hi[r]; i < end; i++) p[i] = -INFINITY;
    for (int i = t->dense_hi; row->mask && i < t->hi[r]; i++) {
        if (!attn_row_sees(row, a->chunk_begin + i)) p[i] = -INFINITY;
    }
    __m256 top = _mm256_set1_ps(-INFINITY);
    for (int i = begin; i < end; i += 8) top = _mm256_max_ps(top, _mm256_loadu_ps(p + i));
    float lanes[8], m = -INFINITY;
    _mm256_storeu_ps(lanes, top);
    for (int i = 0; i < 8; i++) m = lanes[i] > m ? lanes[i] : m;
    if (m == -INFINITY) {
        memset(p + begin, 0, (size_t)(end - begin) * sizeof(float));
        return;
    }
    __m256 sum = _mm256_setzero_ps(), shift = _mm256_set1_ps(m);
    for (int i = begin; i < end; i += 8) {
        __m256 e = exp8(_mm256_sub_ps(_mm256_loadu_ps(p + i), shift));
        _mm256_storeu_ps(p + i, e);
        sum = _mm256_add_ps(sum, e);
    }
    *t->m[r] = m;
    *t->l[r] = sum8(sum);
}

INLINE void value_tile(const value_run *runs, int n_runs, int d_v, int d, const float *const *p, float *const *o,
                       int n_rows, int n_vecs, bool half)
{
    __m256 s[4][8];
    for (int r = 0; r < n_rows; r++) {
        for (int v = 0; v < n_vecs; v++) s[r][v] = _mm256_loadu_ps(o[r] + d + 8 * v);
    }
    size_t e = elem_bytes(half), step = (size_t)d_v * e;
    for (int j = 0; j < n_runs; j++) {
        const uint8_t *at = runs[j].v + (size_t)d * e;
        const uint8_t *ahead = runs[j].ahead + (size_t)d * e;
        size_t place = (size_t)runs[j].place;
        for (size_t end = place + (size_t)runs[j].n; place < end; place++, at += step, ahead += step) {
            __m256 w[4];
            for (int r = 0; r < n_rows; r++) w[r] = _mm256_broadcast_ss(p[r] + place);
            _mm_prefetch((const char *)ahead, _MM_HINT_T1);
            if (8 * (size_t)n_vecs * e > 64) _mm_prefetch((const char *)(ahead + 64), _MM_HINT_T1);
            for (int v = 0; v < n_vecs; v++) {
                __m256 x = load8(at + 8 * (size_t)v * e, half);
                for (int r = 0; r < n_rows; r++) s[r][v] = _mm256_fmadd_ps(w[r], x, s[r][v]);
            }
        }
    }
    for (int r = 0; r < n_rows; r++) {
        for (int v = 0; v < n_vecs; v++) _mm256_storeu_ps(o[r] + d + 8 * v, s[r][v]);
    }
}

INLINE void value_dims(const value_run *runs, int n_runs, int d_v, const float *const *p, float *const *o, int n_rows,
                       int n_vecs, bool half)
{
    int d = 0;
    for (; d + 8 * n_vecs <= d_v; d += 8 * n_vecs) value_tile(runs, n_runs, d_v, d, p, o, n_rows, n_vecs, half);
    for (; d < d_v; d += 8) value_tile(runs, n_runs, d_v, d, p, o, n_rows, 1, half);
}

/* o += p V for the n rows at p and o, over the runs' tokens. */
INLINE void value_rows(const value_run *runs, int n_runs, int d_v, float *const *p, float *const *o, int n, bool half)
{
    const float *const *w = (const float *const *)p;
    int r = 0;
    for (; r + 4 <= n; r += 4) value_dims(runs, n_runs, d_v, w + r, o + r, 4, 2, half);
    switch (n - r) {
    case 3: value_dims(runs, n_runs, d_v, w + r, o + r, 3, 4, half); break;
    case 2: value_dims(runs, n_runs, d_v, w + r, o + r, 2, 4, half); break;
    case 1: value_dims(runs, n_runs, d_v, w + r, o + r, 1, 8, half); break;
    default: break;
    }
}

INLINE void values_one_row(const attend_args *a, const row_tile *t, int r, int first, int last, bool half)
{
    value_run runs[ATTN_CHUNK];
    if (first >= last) return;
    int n = gather_values(a, first, last, t->row[r], half, runs);
    value_rows(runs, n, a->d_v, t->p + r, t->o + r, 1, half);
}

/* Each row takes its tokens in ascending order: before the common range, there with the other rows, behind it. */
INLINE void values(const attend_args *a, const row_tile *t, bool half)
{
    int lo = t->dense_lo, hi = t->dense_hi;
    if (lo >= hi) {
        for (int r = 0; r < t->n; r++) values_one_row(a, t, r, t->lo[r], t->hi[r], half);
        return;
    }
    for (int r = 0; r < t->n; r++) values_one_row(a, t, r, t->lo[r], lo, half);
    for (int at = lo; at < hi; at += VALUE_BATCH) {
        value_run runs[VALUE_BATCH];
        int n = gather_values(a, at, hi - at < VALUE_BATCH ? hi : at + VALUE_BATCH, NULL, half, runs);
        value_rows(runs, n, a->d_v, t->p, t->o, t->n, half);
    }
    for (int r = 0; r < t->n; r++) values_one_row(a, t, r, hi, t->hi[r], half);
}

INLINE void attend(const attend_args *a, bool half)
{
    row_tile t;
    key_group groups[ATTN_CHUNK];
    assert(a->n_rows >= 1 && a->n_rows <= ATTEND_ROWS);
    assert(a->d_k % 8 == 0 && a->d_v % 8 == 0 && a->block_tokens % 8 == 0);
    gather_rows(a, &t);
    if (!t.n) return;
    for (int r = 0; r < t.n; r++) {
        for (int i = t.first; i < t.last; i++) t.p[r][i] = -INFINITY; /* places that no span holds */
    }
    int n = gather_keys(a, t.first, t.last, half, groups);
    if (!a->announced) fetch_keys(a, groups, n, half);
    scores(a, &t, groups, n, half);
    for (int r = 0; r < t.n; r++) softmax_row(a, &t, r);
    values(a, &t, half);
}

static void attend_f32(const attend_args *a)
{
    attend(a, false);
}

static void attend_f16(const attend_args *a)
{
    attend(a, true);
}

static float exp1(float x)
{
    return _mm256_cvtss_f32(exp8(_mm256_set1_ps(x)));
}

static void merge(float *o, float *m, float *l, const float *o2, float m2, float l2, int d_v)
{
    if (m2 == -INFINITY) return;
    if (*m == -INFINITY) {
        memcpy(o, o2, (size_t)d_v * sizeof(float));
        *m = m2;
        *l = l2;
        return;
    }
    float top = *m > m2 ? *m : m2, x = exp1(*m - top), y = exp1(m2 - top);
    __m256 a = _mm256_set1_ps(x), b = _mm256_set1_ps(y);
    for (int d = 0; d < d_v; d += 8) {
        __m256 sum = _mm256_fmadd_ps(b, _mm256_loadu_ps(o2 + d), _mm256_mul_ps(a, _mm256_loadu_ps(o + d)));
        _mm256_storeu_ps(o + d, sum);
    }
    *l = *l * x + l2 * y;
    *m = top;
}

void attend_fill_avx2(kernels *k)
{
    k->attend_f32 = attend_f32;
    k->attend_f16 = attend_f16;
    k->merge = merge;
}

#endif
