#include "kernel/panel.h"

#include <assert.h>
#include <string.h>

#define LANE 4 /* bytes of one row in a vector */
#define VECTOR (PANEL_ROWS * LANE)

size_t panel_bytes(dtype t, int64_t k)
{
    if (!dtype_is_quantized(t)) return dtype_row_bytes(t, k) * PANEL_ROWS;
    return (size_t)(k / qtype_elems(t)) * (size_t)panel_block_bytes(t);
}

/* Lanes of one row: `n` vectors' worth of bytes from src to every VECTOR-th place of plane. */
static void put_lanes(const uint8_t *src, int n, uint8_t *plane)
{
    for (int j = 0; j < n; j++) memcpy(plane + j * VECTOR, src + j * LANE, LANE);
}

static void get_lanes(const uint8_t *plane, int n, uint8_t *out)
{
    for (int j = 0; j < n; j++) memcpy(out + j * LANE, plane + j * VECTOR, LANE);
}

static void put_nibbles(const uint8_t *code, uint8_t *plane)
{
    uint8_t packed[16];
    for (int i = 0; i < 16; i++) packed[i] = (uint8_t)((code[i] & 15) | code[16 + i] << 4);
    put_lanes(packed, 4, plane);
}

/* Four neighbouring codes as one number: a lane. */
static inline uint32_t lane_at(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, LANE);
    return v;
}

static void put_pairs(const uint8_t *code, int from, uint8_t *plane)
{
    uint32_t packed[2] = {0};
    for (int i = 0; i < 8; i++) packed[i / 4] |= (lane_at(code + 4 * i) >> from & 0x03030303) << 2 * (i % 4);
    put_lanes((const uint8_t *)packed, 2, plane);
}

static void put_bits(const uint8_t *code, int from, uint8_t *plane)
{
    uint32_t packed = 0;
    for (int i = 0; i < 8; i++) packed |= (lane_at(code + 4 * i) >> from & 0x01010101) << i;
    memcpy(plane, &packed, LANE);
}

/* One row's codes of a strip into its lane of every plane. */
INLINE void put_strip(dtype t, const uint8_t *code, uint8_t *strip)
{
    uint8_t *rest = strip + panel_low_bytes(t);
    switch (qtypes[t].bits) {
    case 8: put_lanes(code, 8, strip); break;
    case 6: put_nibbles(code, strip), put_pairs(code, 4, rest); break;
    case 5: put_nibbles(code, strip), put_bits(code, 4, rest); break;
    case 4: put_nibbles(code, strip); break;
    case 3: put_pairs(code, 0, strip), put_bits(code, 2, rest); break;
    default: put_pairs(code, 0, strip); break;
    }
}

static void get_nibbles(const uint8_t *plane, uint8_t *code)
{
    uint8_t packed[16];
    get_lanes(plane, 4, packed);
    for (int i = 0; i < 16; i++) {
        code[i] = packed[i] & 15;
        code[16 + i] = packed[i] >> 4;
    }
}

static void get_pairs(const uint8_t *plane, int to, uint8_t *code)
{
    uint8_t packed[8];
    get_lanes(plane, 2, packed);
    for (int i = 0; i < STRIP; i++) code[i] |= (uint8_t)((packed[i / 16 * 4 + i % 4] >> i / 4 % 4 * 2 & 3) << to);
}

static void get_bits(const uint8_t *plane, int to, uint8_t *code)
{
    for (int i = 0; i < STRIP; i++) code[i] |= (uint8_t)((plane[i % 4] >> i / 4 & 1) << to);
}

static void get_strip(dtype t, const uint8_t *strip, uint8_t *code)
{
    const uint8_t *rest = strip + panel_low_bytes(t);
    memset(code, 0, STRIP);
    switch (qtypes[t].bits) {
    case 8: get_lanes(strip, 8, code); break;
    case 6: get_nibbles(strip, code), get_pairs(rest, 4, code); break;
    case 5: get_nibbles(strip, code), get_bits(rest, 4, code); break;
    case 4: get_nibbles(strip, code); break;
    case 3: get_pairs(strip, 0, code), get_bits(rest, 2, code); break;
    default: get_pairs(strip, 0, code); break;
    }
}

INLINE void put_block(dtype t, const qblock *b, int row, uint8_t *block)
{
    int n_scales = qtypes[t].n_scales;
    memcpy(block + row * panel_d_bytes(t), &b->d, (size_t)panel_d_bytes(t));
    if (qtypes[t].has_min) memcpy(block + panel_dmin_at(t) + 2 * row, &b->dmin, 2);
    uint8_t *scales = block + panel_scales_at(t) + row, *mins = block + panel_mins_at(t) + row;
    for (int g = 0; g < n_scales; g++) {
        scales[g * PANEL_ROWS] = (uint8_t)(t == DTYPE_Q2_K ? b->scale[g] | b->min[g] << 4 : b->scale[g]);
        if (panel_min_apart(t)) mins[g * PANEL_ROWS] = b->min[g];
    }
    uint8_t *strip = block + panel_strips_at(t) + row * LANE;
    for (int s = 0; s < qtypes[t].strips; s++) put_strip(t, b->code + s * STRIP, strip + s * panel_strip_bytes(t));
}

void panel_block(dtype t, const uint8_t *block, int row, qblock *b)
{
    int n_scales = qtypes[t].n_scales;
    b->d = 0;
    memcpy(&b->d, block + row * panel_d_bytes(t), (size_t)panel_d_bytes(t));
    if (qtypes[t].has_min) memcpy(&b->dmin, block + panel_dmin_at(t) + 2 * row, 2);
    const uint8_t *scales = block + panel_scales_at(t) + row, *mins = block + panel_mins_at(t) + row;
    for (int g = 0; g < 16 && g < n_scales; g++) {
        b->scale[g] = (int8_t)(t == DTYPE_Q2_K ? scales[g * PANEL_ROWS] & 15 : scales[g * PANEL_ROWS]);
        if (t == DTYPE_Q2_K) b->min[g] = scales[g * PANEL_ROWS] >> 4;
        else if (panel_min_apart(t)) b->min[g] = mins[g * PANEL_ROWS];
    }
    const uint8_t *strip = block + panel_strips_at(t) + row * LANE;
    for (int s = 0; s < qtypes[t].strips; s++) get_strip(t, strip + s * panel_strip_bytes(t), b->code + s * STRIP);
}

INLINE void interleave(size_t size, const uint8_t *rows, int n_rows, int64_t k, uint8_t *panel)
{
    for (int64_t i = 0; i < k; i++)
        for (int r = 0; r < PANEL_ROWS; r++)
            if (r < n_rows)
                memcpy(panel + ((size_t)i * PANEL_ROWS + (size_t)r) * size, rows + ((size_t)(r * k + i)) * size, size);
}

INLINE void pack_blocks(dtype t, const uint8_t *rows, int n_rows, int64_t k, uint8_t *panel)
{
    size_t row_bytes = dtype_row_bytes(t, k), block_bytes = (size_t)dtype_get(t)->block_bytes;
    for (int64_t i = 0; i < k / qtype_elems(t); i++)
        for (int r = 0; r < n_rows; r++) {
            qblock b;
            qblock_from_file(t, rows + (size_t)r * row_bytes + (size_t)i * block_bytes, &b);
            put_block(t, &b, r, panel + i * panel_block_bytes(t));
        }
}

void panel_pack(dtype t, const void *rows, int n_rows, int64_t k, void *panel)
{
    assert(n_rows >= 1 && n_rows <= PANEL_ROWS);
    if (n_rows < PANEL_ROWS) memset(panel, 0, panel_bytes(t, k));
    switch (t) { /* the common types get a copy of the loop with their constants */
    case DTYPE_Q4_0: pack_blocks(DTYPE_Q4_0, rows, n_rows, k, panel); break;
    case DTYPE_Q4_1: pack_blocks(DTYPE_Q4_1, rows, n_rows, k, panel); break;
    case DTYPE_Q5_0: pack_blocks(DTYPE_Q5_0, rows, n_rows, k, panel); break;
    case DTYPE_Q8_0: pack_blocks(DTYPE_Q8_0, rows, n_rows, k, panel); break;
    case DTYPE_Q4_K: pack_blocks(DTYPE_Q4_K, rows, n_rows, k, panel); break;
    case DTYPE_Q5_K: pack_blocks(DTYPE_Q5_K, rows, n_rows, k, panel); break;
    case DTYPE_Q6_K: pack_blocks(DTYPE_Q6_K, rows, n_rows, k, panel); break;
    default:
        if (dtype_is_quantized(t)) pack_blocks(t, rows, n_rows, k, panel);
        else if (t == DTYPE_F32) interleave(4, rows, n_rows, k, panel);
        else interleave(2, rows, n_rows, k, panel);
    }
}

void panel_unpack_row(dtype t, const void *panel, int row, int64_t k, float *out)
{
    if (dtype_is_quantized(t)) {
        for (int64_t i = 0; i < k; i += qtype_elems(t)) {
            qblock b;
            panel_block(t, (const uint8_t *)panel + i / qtype_elems(t) * panel_block_bytes(t), row, &b);
            qblock_to_float(t, &b, out + i);
        }
        return;
    }
    size_t size = dtype_row_bytes(t, 1);
    for (int64_t i = 0; i < k; i++)
        dtype_to_float(t, (const uint8_t *)panel + ((size_t)i * PANEL_ROWS + (size_t)row) * size, out + i, 1);
}
