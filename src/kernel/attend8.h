/* attend8.h - attention over vec8.h: eight tokens of K or eight dimensions of V in a vector; tiles of rows by vectors
 * that fit 32 registers of half the size, or 16 of the whole. Internal to src/kernel. */
#ifndef KVASIR_KERNEL_ATTEND8_H
#define KVASIR_KERNEL_ATTEND8_H

#include <math.h>
#include <string.h>

#include "base/inline.h"
#include "kernel/attend_tile.h"
#include "kernel/math8.h"

#define TILE_VECS 8

INLINE f8 load8(const uint8_t *p, bool half)
{
    return half ? f8_load_half(p) : f8_load((const float *)(const void *)p);
}

INLINE void score_step(const key_group *g, size_t at, const float *const *q, size_t d, int n_rows, int n_groups,
                       bool half, f8 s[TILE_ROWS][TILE_VECS])
{
    f8 k[TILE_VECS];
    for (int v = 0; v < n_groups; v++) k[v] = load8(g[v].k + at, half);
    for (int r = 0; r < n_rows; r++) {
        f8 x = f8_splat(q[r][d]);
        for (int v = 0; v < n_groups; v++) s[r][v] = f8_fma(x, k[v], s[r][v]);
    }
}

INLINE void score_tile(const attend_args *a, const key_group *g, const float *const *q, float *const *p, int n_rows,
                       int n_groups, bool half)
{
    f8 s[TILE_ROWS][TILE_VECS];
    for (int r = 0; r < n_rows; r++) {
        for (int v = 0; v < n_groups; v++) s[r][v] = f8_splat(0);
    }
    size_t step = (size_t)a->block_tokens * (half ? 2 : 4);
    for (size_t d = 0, at = 0; d < (size_t)a->d_k; d++, at += step)
        score_step(g, at, q, d, n_rows, n_groups, half, s);
    for (int v = 0; v < n_groups; v++) {
        int begin = g[v].begin, end = g[v].end;
        for (int r = 0; r < n_rows; r++) {
            if (end - begin == 8) f8_store(p[r] + g[v].place, s[r][v]);
            else f8_store_lanes(p[r] + g[v].place, begin, end, s[r][v]);
        }
    }
}

/* Apart from the tile, whose sums would leave their registers for it. */
static void cap_scores(const attend_args *a, const key_group *g, int n, float *const *p, int n_rows)
{
    for (int i = 0; i < n; i++) {
        int begin = g[i].begin, end = g[i].end;
        for (int r = 0; r < n_rows; r++) {
            float *s = p[r] + g[i].place, lanes[8] = {0};
            memcpy(lanes + begin, s + begin, (size_t)(end - begin) * sizeof *s);
            f8_store_lanes(s, begin, end, softcap8(f8_load(lanes), f8_splat(a->softcap)));
        }
    }
}

INLINE void score_groups(const attend_args *a, const key_group *g, int n, const float *const *q, float *const *p,
                         int n_rows, int n_groups, bool half)
{
    int i = 0;
    for (; i + n_groups <= n; i += n_groups) score_tile(a, g + i, q, p, n_rows, n_groups, half);
    for (; i < n; i++) score_tile(a, g + i, q, p, n_rows, 1, half);
}

INLINE void scores(const attend_args *a, const key_group *g, int n, const float *const *q, float *const *p, int n_rows,
                   bool half)
{
    for (int r = 0; r < n_rows;) {
        int take = tile_rows(n_rows - r);
        switch (take) {
        case 1: score_groups(a, g, n, q + r, p + r, 1, 8, half); break;
        case 2: score_groups(a, g, n, q + r, p + r, 2, 4, half); break;
        case 3: score_groups(a, g, n, q + r, p + r, 3, 2, half); break;
        case 4: score_groups(a, g, n, q + r, p + r, 4, 2, half); break;
        case 5: score_groups(a, g, n, q + r, p + r, 5, 2, half); break;
        default: score_groups(a, g, n, q + r, p + r, 6, 2, half); break;
        }
        r += take;
    }
    if (a->softcap > 0) cap_scores(a, g, n, p, n_rows);
}

static void softmax(float *p, int begin, int end, float *m, float *l)
{
    f8 top = f8_splat(-INFINITY);
    for (int i = begin; i < end; i += 8) top = f8_max_number(f8_load(p + i), top);
    float lanes[8], most = -INFINITY;
    f8_store(lanes, top);
    for (int i = 0; i < 8; i++) most = lanes[i] > most ? lanes[i] : most;
    if (most == -INFINITY) {
        memset(p + begin, 0, (size_t)(end - begin) * sizeof(float));
        return;
    }
    f8 sum = f8_splat(0), shift = f8_splat(most);
    for (int i = begin; i < end; i += 8) {
        f8 e = exp8_falling(f8_sub(f8_load(p + i), shift));
        f8_store(p + i, e);
        sum = f8_add(sum, e);
    }
    *m = most;
    *l = sum8(sum);
}

INLINE void value_token(const uint8_t *v, const float *const *p, size_t place, int n_rows, int n_vecs, bool half,
                        f8 s[TILE_ROWS][TILE_VECS])
{
    f8 x[TILE_VECS];
    for (int i = 0; i < n_vecs; i++) x[i] = load8(v + (half ? 16 : 32) * i, half);
    for (int r = 0; r < n_rows; r++) {
        f8 w = f8_splat(p[r][place]);
        for (int i = 0; i < n_vecs; i++) s[r][i] = f8_fma(w, x[i], s[r][i]);
    }
}

INLINE void value_tile(const value_batch *b, int d, const float *const *p, float *const *o, int n_rows, int n_vecs,
                       bool half)
{
    f8 s[TILE_ROWS][TILE_VECS];
    for (int r = 0; r < n_rows; r++) {
        for (int i = 0; i < n_vecs; i++) s[r][i] = f8_load(o[r] + d + 8 * i);
    }
    size_t e = half ? 2 : 4, step = (size_t)b->d_v * e, at = (size_t)d * e;
    for (int j = 0; j < b->n_runs; j++) {
        const uint8_t *v = b->runs[j].v + at;
        size_t place = (size_t)b->runs[j].place, end = place + (size_t)b->runs[j].n;
        for (; place < end; place++, v += step) value_token(v, p, place, n_rows, n_vecs, half, s);
    }
    for (int r = 0; r < n_rows; r++) {
        for (int i = 0; i < n_vecs; i++) f8_store(o[r] + d + 8 * i, s[r][i]);
    }
}

INLINE void value_dims(const value_batch *b, const float *const *p, float *const *o, int n_rows, int n_vecs, bool half)
{
    int d = 0, d_v = b->d_v, width = 8 * n_vecs;
    for (; d + width <= d_v; d += width) value_tile(b, d, p, o, n_rows, n_vecs, half);
    for (; d < d_v; d += 8) value_tile(b, d, p, o, n_rows, 1, half);
}

INLINE void values(const value_batch *b, const float *const *p, float *const *o, int n_rows, bool half)
{
    for (int r = 0; r < n_rows;) {
        int take = tile_rows(n_rows - r);
        switch (take) {
        case 1: value_dims(b, p + r, o + r, 1, 8, half); break;
        case 2: value_dims(b, p + r, o + r, 2, 4, half); break;
        case 3: value_dims(b, p + r, o + r, 3, 2, half); break;
        case 4: value_dims(b, p + r, o + r, 4, 2, half); break;
        case 5: value_dims(b, p + r, o + r, 5, 2, half); break;
        default: value_dims(b, p + r, o + r, 6, 2, half); break;
        }
        r += take;
    }
}

static void scores_f32(const attend_args *a, const key_group *g, int n, const float *const *q, float *const *p,
                       int n_rows)
{
    scores(a, g, n, q, p, n_rows, false);
}

static void scores_f16(const attend_args *a, const key_group *g, int n, const float *const *q, float *const *p,
                       int n_rows)
{
    scores(a, g, n, q, p, n_rows, true);
}

static void values_f32(const value_batch *b, const float *const *p, float *const *o, int n_rows)
{
    values(b, p, o, n_rows, false);
}

static void values_f16(const value_batch *b, const float *const *p, float *const *o, int n_rows)
{
    values(b, p, o, n_rows, true);
}

static void attend_f32(const attend_args *a)
{
    static const attend_ops ops = {4, 8, scores_f32, softmax, values_f32};
    attend_tile(a, &ops);
}

static void attend_f16(const attend_args *a)
{
    static const attend_ops ops = {2, 8, scores_f16, softmax, values_f16};
    attend_tile(a, &ops);
}

static float exp1(float x)
{
    return f8_first(exp8(f8_splat(x)));
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
    f8 a = f8_splat(x), b = f8_splat(y);
    for (int d = 0; d < d_v; d += 8) {
        f8 sum = f8_fma(b, f8_load(o2 + d), f8_mul(a, f8_load(o + d)));
        f8_store(o + d, sum);
    }
    *l = *l * x + l2 * y;
    *m = top;
}

#endif
