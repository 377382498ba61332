#include "cache/format.h"

#include <string.h>

#include "base/half.h"

/* Elements of either exact format are moved as they are: only their size matters. */
static void copy_k_elems(uint8_t *dst, int dst_row, const uint8_t *src, int src_row, int n, int block_tokens, int d,
                         size_t elem_bytes)
{
    for (int c = 0; c < d; c++) {
        size_t channel = (size_t)c * (size_t)block_tokens;
        memcpy(dst + (channel + (size_t)dst_row) * elem_bytes, src + (channel + (size_t)src_row) * elem_bytes,
               (size_t)n * elem_bytes);
    }
}

static void copy_v_elems(uint8_t *dst, int dst_row, const uint8_t *src, int src_row, int n, int d, size_t elem_bytes)
{
    size_t row_bytes = (size_t)d * elem_bytes;
    memcpy(dst + (size_t)dst_row * row_bytes, src + (size_t)src_row * row_bytes, (size_t)n * row_bytes);
}

static void write_k_f32(const kernels *ks, uint8_t *k, int block_tokens, int row, const float *x, int d)
{
    (void)ks;
    float *at = (float *)(void *)k + row;
    for (int c = 0; c < d; c++) at[(size_t)c * (size_t)block_tokens] = x[c];
}

static void write_v_f32(const kernels *ks, uint8_t *v, int block_tokens, int row, const float *x, int d)
{
    (void)ks, (void)block_tokens;
    memcpy((float *)(void *)v + (size_t)row * (size_t)d, x, (size_t)d * sizeof *x);
}

static void read_k_f32(const uint8_t *k, int block_tokens, int row, float *x, int d)
{
    const float *at = (const float *)(const void *)k + row;
    for (int c = 0; c < d; c++) x[c] = at[(size_t)c * (size_t)block_tokens];
}

static void read_v_f32(const uint8_t *v, int block_tokens, int row, float *x, int d)
{
    (void)block_tokens;
    memcpy(x, (const float *)(const void *)v + (size_t)row * (size_t)d, (size_t)d * sizeof *x);
}

static void copy_k_f32(uint8_t *dst, int dst_row, const uint8_t *src, int src_row, int n, int block_tokens, int d)
{
    copy_k_elems(dst, dst_row, src, src_row, n, block_tokens, d, sizeof(float));
}

static void copy_v_f32(uint8_t *dst, int dst_row, const uint8_t *src, int src_row, int n, int block_tokens, int d)
{
    (void)block_tokens;
    copy_v_elems(dst, dst_row, src, src_row, n, d, sizeof(float));
}

static kv_attend_fn *attend_f32(const kernels *ks)
{
    return ks->attend_f32;
}

#define PIECE 128 /* halves converted at a time: a typical head in one call */

static void write_k_f16(const kernels *ks, uint8_t *k, int block_tokens, int row, const float *x, int d)
{
    uint16_t piece[PIECE], *at = (uint16_t *)(void *)k + row;
    for (int c0 = 0; c0 < d; c0 += PIECE) {
        int n = d - c0 < PIECE ? d - c0 : PIECE;
        ks->to_half(x + c0, n, piece);
        for (int c = 0; c < n; c++, at += block_tokens) *at = piece[c];
    }
}

static void write_v_f16(const kernels *ks, uint8_t *v, int block_tokens, int row, const float *x, int d)
{
    (void)block_tokens;
    ks->to_half(x, d, (uint16_t *)(void *)v + (size_t)row * (size_t)d);
}

static void read_k_f16(const uint8_t *k, int block_tokens, int row, float *x, int d)
{
    const uint16_t *at = (const uint16_t *)(const void *)k + row;
    for (int c = 0; c < d; c++) x[c] = half_to_float(at[(size_t)c * (size_t)block_tokens]);
}

static void read_v_f16(const uint8_t *v, int block_tokens, int row, float *x, int d)
{
    (void)block_tokens;
    const uint16_t *at = (const uint16_t *)(const void *)v + (size_t)row * (size_t)d;
    for (int c = 0; c < d; c++) x[c] = half_to_float(at[c]);
}

static void copy_k_f16(uint8_t *dst, int dst_row, const uint8_t *src, int src_row, int n, int block_tokens, int d)
{
    copy_k_elems(dst, dst_row, src, src_row, n, block_tokens, d, sizeof(uint16_t));
}

static void copy_v_f16(uint8_t *dst, int dst_row, const uint8_t *src, int src_row, int n, int block_tokens, int d)
{
    (void)block_tokens;
    copy_v_elems(dst, dst_row, src, src_row, n, d, sizeof(uint16_t));
}

static kv_attend_fn *attend_f16(const kernels *ks)
{
    return ks->attend_f16;
}

static const kv_format formats[] = {
    {.name = "f16", .bits = 16, .group_tokens = 1, .exact = true, .write_k = write_k_f16, .write_v = write_v_f16,
     .read_k = read_k_f16, .read_v = read_v_f16, .copy_k = copy_k_f16, .copy_v = copy_v_f16, .attend = attend_f16},
    {.name = "f32", .bits = 32, .group_tokens = 1, .exact = true, .write_k = write_k_f32, .write_v = write_v_f32,
     .read_k = read_k_f32, .read_v = read_v_f32, .copy_k = copy_k_f32, .copy_v = copy_v_f32, .attend = attend_f32},
};

const kv_format *kv_format_at(int i)
{
    return i >= 0 && i < (int)(sizeof formats / sizeof *formats) ? &formats[i] : NULL;
}

const kv_format *kv_format_get(const char *name)
{
    const kv_format *f;
    for (int i = 0; (f = kv_format_at(i)) != NULL; i++)
        if (strcmp(f->name, name) == 0) return f;
    return NULL;
}
