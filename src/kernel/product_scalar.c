/* The reference products. They say which float operations make one output, in which order; other instruction sets do
 * the same operations, so their results are the same bits. The integer sums are exact, hence free in their order.
 *
 *      strip of 32 inputs, halves h = 0, 1;  i[h] = sum of value(code) * q over the half
 *      one scale per 32 inputs:    t = i[0] * d[0];  t = fma(i[1], d[1], t);  y = fma(t, scale, y);  y = fma(min, s, y)
 *      scales per 16 (n_scales 16): the same, i[h] times the integer scale of the half, scale = the block's d; minima:
 *                                  u = m[0] sum[0] * d[0];  u = fma(m[1] sum[1], d[1], u);  y = fma(-dmin, u, y)
 *      float:                      t = 0;  t = fma(w, x, t) for each of the 32 inputs;  y = y + t
 */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "kernel/fill.h"
#include "kernel/panel.h"

#define QUANTIZE_MIN 0x1p-120f

static void quantize_half(const float *x, int8_t *q, float *d, int16_t *sum)
{
    uint32_t bits = 0; /* of max|x|: as integers, so that a NaN is the largest */
    for (int i = 0; i < 16; i++) {
        uint32_t b = float_bits(x[i]) & 0x7FFFFFFF;
        if (b > bits) bits = b;
    }
    float max = bits_float(bits);
    bool finite = bits < 0x7F800000, some = finite && max >= QUANTIZE_MIN;
    float inverse = some ? 127.0f / max : 0;
    *d = some ? max / 127.0f : finite ? 0 : NAN;
    *sum = 0;
    for (int i = 0; i < 16; i++) {
        q[i] = some ? (int8_t)lrintf(x[i] * inverse) : 0;
        *sum = (int16_t)(*sum + q[i]);
    }
}

static void quantize(const float *x, int64_t k, act_strip *strips, int col, int n_cols)
{
    for (int64_t s = 0; s < k / STRIP; s++) {
        act_strip *a = &strips[s * n_cols + col];
        for (int h = 0; h < 2; h++) quantize_half(x + s * STRIP + 16 * h, a->q + 16 * h, &a->d[h], &a->sum[h]);
        a->s = fmaf(a->d[1], (float)a->sum[1], a->d[0] * (float)a->sum[0]);
    }
}

/* One strip: s is its number in the block. */
static float strip_product(dtype t, const qblock *b, int s, const act_strip *a, float y)
{
    const qtype *q = &qtypes[t];
    int i[2] = {0};
    for (int h = 0; h < 2; h++) {
        for (int k = 16 * h; k < 16 * h + 16; k++) i[h] += qblock_value(t, b->code[STRIP * s + k]) * a->q[k];
        if (q->n_scales == 16) i[h] *= b->scale[2 * s + h];
    }
    float d = qblock_d(t, b->d);
    float sum = fmaf((float)i[1], a->d[1], (float)i[0] * a->d[0]);
    y = fmaf(sum, q->n_scales == 8 ? d * b->scale[s] : d, y);
    if (!q->has_min) return y;
    float dmin = half_to_float(b->dmin);
    if (q->n_scales == 0) return fmaf(dmin, a->s, y);
    if (q->n_scales == 8) return fmaf(-(dmin * b->min[s]), a->s, y);
    float u = fmaf((float)(b->min[2 * s + 1] * a->sum[1]), a->d[1], (float)(b->min[2 * s] * a->sum[0]) * a->d[0]);
    return fmaf(-dmin, u, y);
}

static void product_quantized(dtype t, const void *panels, int n_panels, int64_t k, const act_tile *a, float *y,
                              int64_t y_stride)
{
    int strips = qtypes[t].strips, n = a->n_cols;
    const uint8_t *block = panels;
    for (int p = 0; p < n_panels; p++) {
        for (int c = 0; c < n; c++) memset(y + c * y_stride + p * PANEL_ROWS, 0, PANEL_ROWS * sizeof *y);
        for (int64_t s = 0; s < k / STRIP; s += strips, block += panel_block_bytes(t))
            for (int r = 0; r < PANEL_ROWS; r++) {
                qblock b;
                panel_block(t, block, r, &b);
                for (int c = 0; c < n; c++) {
                    float *out = y + c * y_stride + p * PANEL_ROWS + r;
                    for (int i = 0; i < strips; i++) *out = strip_product(t, &b, i, &a->strips[(s + i) * n + c], *out);
                }
            }
    }
}

/* Up to 32 weights of one row of a panel, from `at` on. */
static void weights(dtype t, const uint8_t *panel, int row, int64_t at, int n, float *w)
{
    if (!dtype_is_quantized(t)) {
        size_t size = dtype_row_bytes(t, 1);
        for (int i = 0; i < n; i++)
            dtype_to_float(t, panel + ((size_t)(at + i) * PANEL_ROWS + (size_t)row) * size, w + i, 1);
        return;
    }
    qblock b;
    float all[256];
    panel_block(t, panel + at / qtype_elems(t) * panel_block_bytes(t), row, &b);
    qblock_to_float(t, &b, all);
    memcpy(w, all + at % qtype_elems(t), (size_t)n * sizeof *w);
}

static void product_float(dtype t, const void *panels, int n_panels, int64_t k, const act_tile *a, float *y,
                          int64_t y_stride)
{
    for (int p = 0; p < n_panels; p++)
        for (int r = 0; r < PANEL_ROWS; r++) {
            const uint8_t *panel = (const uint8_t *)panels + (size_t)p * panel_bytes(t, k);
            float *out = y + p * PANEL_ROWS + r;
            for (int c = 0; c < a->n_cols; c++) out[c * y_stride] = 0;
            for (int64_t at = 0; at < k; at += STRIP) {
                float w[STRIP];
                int n = k - at < STRIP ? (int)(k - at) : STRIP;
                weights(t, panel, r, at, n, w);
                for (int c = 0; c < a->n_cols; c++) {
                    float sum = 0;
                    for (int i = 0; i < n; i++) sum = fmaf(w[i], a->x[c * a->x_stride + at + i], sum);
                    out[c * y_stride] += sum;
                }
            }
        }
}

void product_fill_scalar(kernels *k)
{
    k->panel_bytes = panel_bytes;
    k->pack = panel_pack;
    k->unpack_row = panel_unpack_row;
    k->quantize = quantize;
    for (uint32_t t = 0; t < DTYPE_COUNT; t++) {
        if (!dtype_get(t)) continue;
        k->product[t] = dtype_is_quantized(t) ? product_quantized : product_float;
        k->product_exact[t] = product_float;
    }
}
