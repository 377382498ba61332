#include <math.h>
#include <string.h>

#include "base/half.h"
#include "kernel/attention.h"
#include "kernel/fill.h"

static float load(const uint8_t *base, int64_t i, bool half)
{
    if (half) {
        uint16_t h;
        memcpy(&h, base + 2 * i, 2);
        return half_to_float(h);
    }
    float f;
    memcpy(&f, base + 4 * i, 4);
    return f;
}

/* Scores of row r into s[0..n) in stored order; returns how many it sees. */
static int score_row(const attend_args *a, int r, bool half, float *s)
{
    int n = 0;
    for (int j = 0; j < a->n_spans; j++) {
        const attn_span *span = &a->spans[j];
        for (int t = 0; t < span->n; t++) {
            if (!attn_row_sees(a->rows[r], a->kind, span->index + t)) continue;
            float sum = 0;
            for (int d = 0; d < a->d_k; d++) {
                int64_t at = (int64_t)d * a->block_tokens + span->row + t;
                sum += a->q[r][d] * load(attend_block(a, span) + a->k_offset, at, half);
            }
            s[n++] = a->softcap > 0 ? a->softcap * tanhf(sum / a->softcap) : sum;
        }
    }
    return n;
}

/* o += p V over the tokens that row r sees, in stored order. */
static void add_values(const attend_args *a, int r, bool half, const float *p)
{
    float *o = a->o[r];
    for (int j = 0; j < a->n_spans; j++) {
        const attn_span *span = &a->spans[j];
        for (int t = 0; t < span->n; t++) {
            if (!attn_row_sees(a->rows[r], a->kind, span->index + t)) continue;
            int64_t at = (int64_t)(span->row + t) * a->d_v;
            for (int d = 0; d < a->d_v; d++) o[d] += *p * load(attend_block(a, span) + a->v_offset, at + d, half);
            p++;
        }
    }
}

static void attend(const attend_args *a, bool half)
{
    for (int r = 0; r < a->n_rows; r++) {
        float *p = a->scratch, m = -INFINITY, l = 0;
        memset(a->o[r], 0, (size_t)a->d_v * sizeof(float));
        int n = score_row(a, r, half, p);
        for (int i = 0; i < n; i++) m = fmaxf(m, p[i]);
        if (m != -INFINITY) {
            for (int i = 0; i < n; i++) p[i] = expf(p[i] - m);
            for (int i = 0; i < n; i++) l += p[i];
            add_values(a, r, half, p);
        }
        a->m[r] = m;
        a->l[r] = l;
    }
}

static void attend_f32(const attend_args *a)
{
    attend(a, false);
}

static void attend_f16(const attend_args *a)
{
    attend(a, true);
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
    float top = fmaxf(*m, m2), a = expf(*m - top), b = expf(m2 - top);
    for (int d = 0; d < d_v; d++) o[d] = o[d] * a + o2[d] * b;
    *l = *l * a + l2 * b;
    *m = top;
}

void attend_fill_scalar(kernels *k)
{
    k->attend_f32 = attend_f32;
    k->attend_f16 = attend_f16;
    k->merge = merge;
}
