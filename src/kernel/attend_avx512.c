/* Sixteen tokens of K or sixteen dimensions of V in a vector, four vectors by up to six rows in a tile: 24 sums, and
 * conversions from half that cost nothing beside them. Blocks of eight tokens take the AVX2 scores. */
#include <math.h>

#include "kernel/attend_avx2.h"
#include "kernel/attend_tile.h"
#include "kernel/fill.h"

#if defined(__x86_64__)

#include "base/inline.h"
#include "kernel/avx512_math.h"

#define TILE_VECS 4

INLINE __m512 load16(const uint8_t *p, bool half)
{
    return half ? _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)) : _mm512_loadu_ps(p);
}

INLINE __m512 load_lanes(__mmask16 lanes, const uint8_t *p, bool half)
{
    return half ? _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, p)) : _mm512_maskz_loadu_ps(lanes, p);
}

INLINE __mmask16 lanes_of(const key_group *g)
{
    return (__mmask16)(first_lanes16(g->end) & ~first_lanes16(g->begin));
}

INLINE void score_step(const key_group *g, size_t at, const float *const *q, size_t d, int n_rows, int n_groups,
                       bool half, __m512 s[TILE_ROWS][TILE_VECS])
{
    __m512 k[TILE_VECS];
    for (int v = 0; v < n_groups; v++) k[v] = load16(g[v].k + at, half);
    for (int r = 0; r < n_rows; r++) {
        __m512 x = _mm512_set1_ps(q[r][d]);
        for (int v = 0; v < n_groups; v++) s[r][v] = _mm512_fmadd_ps(x, k[v], s[r][v]);
    }
}

INLINE void score_tile(const attend_args *a, const key_group *g, const float *const *q, float *const *p, int n_rows,
                       int n_groups, bool half)
{
    __m512 s[TILE_ROWS][TILE_VECS];
    for (int r = 0; r < n_rows; r++) {
        for (int v = 0; v < n_groups; v++) s[r][v] = _mm512_setzero_ps();
    }
    size_t step = (size_t)a->block_tokens * (half ? 2 : 4);
#pragma GCC unroll 1
    for (size_t d = 0, at = 0; d < (size_t)a->d_k; d++, at += step)
        score_step(g, at, q, d, n_rows, n_groups, half, s);
    for (int v = 0; v < n_groups; v++) {
        __mmask16 lanes = lanes_of(&g[v]);
        for (int r = 0; r < n_rows; r++) _mm512_mask_storeu_ps(p[r] + g[v].place, lanes, s[r][v]);
    }
}

INLINE void score_rows(const attend_args *a, const key_group *g, const float *const *q, float *const *p, int n_rows,
                       int n_groups, bool half)
{
    for (int r = 0; r < n_rows;) {
        int n = tile_rows(n_rows - r);
        switch (n) {
        case 1: score_tile(a, g, q + r, p + r, 1, n_groups, half); break;
        case 2: score_tile(a, g, q + r, p + r, 2, n_groups, half); break;
        case 3: score_tile(a, g, q + r, p + r, 3, n_groups, half); break;
        case 4: score_tile(a, g, q + r, p + r, 4, n_groups, half); break;
        case 5: score_tile(a, g, q + r, p + r, 5, n_groups, half); break;
        default: score_tile(a, g, q + r, p + r, 6, n_groups, half); break;
        }
        r += n;
    }
}

static void cap_scores(const attend_args *a, const key_group *g, int n, float *const *p, int n_rows)
{
    __m512 cap = _mm512_set1_ps(a->softcap);
    for (int i = 0; i < n; i++) {
        __mmask16 lanes = lanes_of(&g[i]);
        for (int r = 0; r < n_rows; r++) {
            float *s = p[r] + g[i].place;
            _mm512_mask_storeu_ps(s, lanes, softcap16(_mm512_maskz_loadu_ps(lanes, s), cap));
        }
    }
}

INLINE void scores(const attend_args *a, const key_group *g, int n, const float *const *q, float *const *p, int n_rows,
                   bool half)
{
    int i = 0;
    for (; i + TILE_VECS <= n; i += TILE_VECS) score_rows(a, g + i, q, p, n_rows, TILE_VECS, half);
    for (; i < n; i++) score_rows(a, g + i, q, p, n_rows, 1, half);
    if (a->softcap > 0) cap_scores(a, g, n, p, n_rows);
}

static void softmax(float *p, int begin, int end, float *m, float *l)
{
    __m512 top = _mm512_set1_ps(-INFINITY);
    for (int i = begin; i < end; i += 16) top = _mm512_max_ps(_mm512_loadu_ps(p + i), top); /* a NaN gives top */
    float most = _mm512_reduce_max_ps(top);
    if (most == -INFINITY) {
        for (int i = begin; i < end; i += 16) _mm512_storeu_ps(p + i, _mm512_setzero_ps());
        return;
    }
    __m512 shift = _mm512_set1_ps(most);
    __m256 sum = _mm256_setzero_ps();
    for (int i = begin; i < end; i += 16) {
        __m512 e = exp16_falling(_mm512_sub_ps(_mm512_loadu_ps(p + i), shift));
        _mm512_storeu_ps(p + i, e);
        sum = _mm256_add_ps(sum, _mm512_castps512_ps256(e));
        sum = _mm256_add_ps(sum, _mm512_extractf32x8_ps(e, 1));
    }
    *m = most;
    *l = sum8(sum);
}

INLINE void value_token(const uint8_t *v, const float *const *p, size_t place, int n_rows, int n_vecs, __mmask16 lanes,
                        bool half, __m512 s[TILE_ROWS][TILE_VECS])
{
    __m512 x[TILE_VECS];
    for (int i = 0; i < n_vecs; i++)
        x[i] = n_vecs == 1 ? load_lanes(lanes, v, half) : load16(v + (half ? 32 : 64) * i, half);
    for (int r = 0; r < n_rows; r++) {
        __m512 w = _mm512_set1_ps(p[r][place]);
        for (int i = 0; i < n_vecs; i++) s[r][i] = _mm512_fmadd_ps(w, x[i], s[r][i]);
    }
}

/* n_vecs vectors of dimensions from d on, or the first `lanes` of one. */
INLINE void value_tile(const value_batch *b, int d, const float *const *p, float *const *o, int n_rows, int n_vecs,
                       __mmask16 lanes, bool half)
{
    __m512 s[TILE_ROWS][TILE_VECS];
    for (int r = 0; r < n_rows; r++) {
        for (int i = 0; i < n_vecs; i++)
            s[r][i] = n_vecs == 1 ? _mm512_maskz_loadu_ps(lanes, o[r] + d) : _mm512_loadu_ps(o[r] + d + 16 * i);
    }
    size_t e = half ? 2 : 4, step = (size_t)b->d_v * e, at = (size_t)d * e;
    for (int j = 0; j < b->n_runs; j++) {
        const uint8_t *v = b->runs[j].v + at;
        size_t place = (size_t)b->runs[j].place, end = place + (size_t)b->runs[j].n;
        for (; place < end; place++, v += step) value_token(v, p, place, n_rows, n_vecs, lanes, half, s);
    }
    for (int r = 0; r < n_rows; r++) {
        if (n_vecs == 1) _mm512_mask_storeu_ps(o[r] + d, lanes, s[r][0]);
        else
            for (int i = 0; i < n_vecs; i++) _mm512_storeu_ps(o[r] + d + 16 * i, s[r][i]);
    }
}

INLINE void value_rows(const value_batch *b, int d, const float *const *p, float *const *o, int n_rows, int n_vecs,
                       __mmask16 lanes, bool half)
{
    for (int r = 0; r < n_rows;) {
        int n = tile_rows(n_rows - r);
        switch (n) {
        case 1: value_tile(b, d, p + r, o + r, 1, n_vecs, lanes, half); break;
        case 2: value_tile(b, d, p + r, o + r, 2, n_vecs, lanes, half); break;
        case 3: value_tile(b, d, p + r, o + r, 3, n_vecs, lanes, half); break;
        case 4: value_tile(b, d, p + r, o + r, 4, n_vecs, lanes, half); break;
        case 5: value_tile(b, d, p + r, o + r, 5, n_vecs, lanes, half); break;
        default: value_tile(b, d, p + r, o + r, 6, n_vecs, lanes, half); break;
        }
        r += n;
    }
}

INLINE void values(const value_batch *b, const float *const *p, float *const *o, int n_rows, bool half)
{
    const int width = 16 * TILE_VECS;
    int d = 0, d_v = b->d_v;
    for (; d + width <= d_v; d += width) value_rows(b, d, p, o, n_rows, TILE_VECS, 0xFFFF, half);
    for (; d < d_v; d += 16) {
        __mmask16 lanes = d_v - d < 16 ? 0xFF : 0xFFFF;
        value_rows(b, d, p, o, n_rows, 1, lanes, half);
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
    static const attend_ops wide = {4, 16, scores_f32, softmax, values_f32};
    static const attend_ops narrow = {4, 8, scores_f32_avx2, softmax, values_f32};
    attend_tile(a, a->block_tokens < 16 ? &narrow : &wide);
}

static void attend_f16(const attend_args *a)
{
    static const attend_ops wide = {2, 16, scores_f16, softmax, values_f16};
    static const attend_ops narrow = {2, 8, scores_f16_avx2, softmax, values_f16};
    attend_tile(a, a->block_tokens < 16 ? &narrow : &wide);
}

void attend_fill_avx512(kernels *k)
{
    k->attend_f32 = attend_f32;
    k->attend_f16 = attend_f16;
}

#endif
