/* panel.h - the bytes of a weight panel: eight rows of a matrix, interleaved; one layout for every instruction set.
 * Internal to src/kernel.
 *
 *      quantized: [block 0][block 1]...          float: input 0 of rows 0..7, input 1 of rows 0..7, ...
 *      block:     d[8] dmin[8] scale[n_scales][8] min[n_scales][8]  strip 0 .. strip n - 1
 *      strip:     codes of 32 inputs x 8 rows in planes, each a run of 32-byte vectors; lane r of a vector is row r's
 *
 *      byte b of a lane of vector j, half h: input 16 h + 4 j + b of the strip; j = 0..3, h = 0, 1
 *      nibbles  (128 B)   vector j: codes (or their low 4 bits) of half 0 in the low nibble, of half 1 in the high one
 *      pairs    ( 64 B)   vector h: two bits of j = 0 lowest, ..., j = 3 highest
 *      bits     ( 32 B)   one vector: bit j + 4 h
 *      bytes    (256 B)   vector 4 h + j
 *
 *      2 bits: pairs.  3: pairs, bits.  4: nibbles.  5: nibbles, bits.  6: nibbles, pairs.  8: bytes.
 *
 * So four activations broadcast to all lanes meet four codes of each of eight rows in one instruction; no sum crosses
 * lanes. A panel takes the file's bytes, apart from the 6-bit scales of the K types, which are widened to bytes.
 */
#ifndef KVASIR_KERNEL_PANEL_H
#define KVASIR_KERNEL_PANEL_H

#include "kernel/kernel.h"
#include "kernel/qblock.h"

#define PLANE_NIBBLES 128
#define PLANE_PAIRS 64
#define PLANE_BITS 32
#define PLANE_BYTES 256

/* Bytes of one row's d. */
static inline int panel_d_bytes(dtype t)
{
    return t == DTYPE_MXFP4 ? 1 : 2;
}

static inline int panel_dmin_at(dtype t)
{
    return PANEL_ROWS * panel_d_bytes(t);
}

static inline int panel_scales_at(dtype t)
{
    return panel_dmin_at(t) + (qtypes[t].has_min ? 2 * PANEL_ROWS : 0);
}

/* Q2_K keeps its 4-bit minimums in the upper nibbles of its scales. */
static inline bool panel_min_apart(dtype t)
{
    return qtypes[t].has_min && qtypes[t].bits != 2;
}

static inline int panel_mins_at(dtype t)
{
    return panel_scales_at(t) + qtypes[t].n_scales * PANEL_ROWS;
}

static inline int panel_strips_at(dtype t)
{
    return panel_mins_at(t) + (panel_min_apart(t) ? qtypes[t].n_scales * PANEL_ROWS : 0);
}

/* Bytes of the plane with the low bits of a strip's codes; the plane with the rest follows it. */
static inline int panel_low_bytes(dtype t)
{
    int bits = qtypes[t].bits;
    return bits == 8 ? PLANE_BYTES : bits >= 4 ? PLANE_NIBBLES : PLANE_PAIRS;
}

static inline int panel_strip_bytes(dtype t)
{
    int bits = qtypes[t].bits;
    return panel_low_bytes(t) + (bits == 6 ? PLANE_PAIRS : bits == 3 || bits == 5 ? PLANE_BITS : 0);
}

static inline int panel_block_bytes(dtype t)
{
    return panel_strips_at(t) + qtypes[t].strips * panel_strip_bytes(t);
}

/* Every quantized type, for the switches that make the type a constant. */
#define STRIP_TYPES(X) \
    X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q8_0) X(Q2_K) X(Q3_K) \
    X(Q4_K) X(Q5_K) X(Q6_K) X(IQ4_NL) X(IQ4_XS) X(MXFP4)

/* A strip's weights: input by row. */
typedef float strip_floats[STRIP][PANEL_ROWS];

size_t panel_bytes(dtype t, int64_t k);
void panel_pack(dtype t, const void *rows, int n_rows, int64_t k, void *panel);
void panel_unpack_row(dtype t, const void *panel, int row, int64_t k, float *out);
/* One row of a panel's block. */
void panel_block(dtype t, const uint8_t *block, int row, qblock *b);

#endif
