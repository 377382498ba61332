/* qblock.h - one block of any quantized type, unpacked: the shape that files and panels both convert to.
 * Internal to src/kernel.
 *
 *      block of a file --qblock_from_file--> qblock --qblock_to_float--> floats          the definition of each type
 *                                              |  ^
 *                             panel_pack       v  |   panel_block
 *                                             panel
 *
 *      weight i = d * scale[i / (n_values / n_scales)] * value(code[i])  -  dmin * min[...]      super-blocks of 256
 *      weight i = d * value(code[i])  +  dmin                                                    blocks of 32
 *
 * Q1 d * scale * value is exact in binary32 for every type; so the one rounding is that of the sum, whatever the order.
 */
#ifndef KVASIR_KERNEL_QBLOCK_H
#define KVASIR_KERNEL_QBLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/inline.h"
#include "kernel/dtype.h"

#define STRIP 32 /* inputs */

typedef struct qtype {
    int bits;     /* of a code */
    int strips;   /* per block: 1 or 8 */
    int n_scales; /* integer scales per block: 0, 8 or 16 */
    bool has_min;
    int offset; /* value = code - offset, for the types without a code book */
} qtype;

/* By type; bits 0 = not a quantized type. Static, so that a constant type folds to constants. */
static const qtype qtypes[DTYPE_COUNT] = {
    [DTYPE_Q4_0] = {4, 1, 0, false, 8},   [DTYPE_Q4_1] = {4, 1, 0, true, 0},    [DTYPE_Q5_0] = {5, 1, 0, false, 16},
    [DTYPE_Q5_1] = {5, 1, 0, true, 0},    [DTYPE_Q8_0] = {8, 1, 0, false, 0},   [DTYPE_Q2_K] = {2, 8, 16, true, 0},
    [DTYPE_Q3_K] = {3, 8, 16, false, 4},  [DTYPE_Q4_K] = {4, 8, 8, true, 0},    [DTYPE_Q5_K] = {5, 8, 8, true, 0},
    [DTYPE_Q6_K] = {6, 8, 16, false, 32}, [DTYPE_IQ4_NL] = {4, 1, 0, false, 0}, [DTYPE_IQ4_XS] = {4, 8, 8, false, 0},
    [DTYPE_MXFP4] = {4, 1, 0, false, 0},
};

typedef struct qblock {
    uint8_t code[256]; /* as stored; Q8_0's are the bytes of its int8 values */
    uint16_t d, dmin;  /* binary16 bits; MXFP4: d is the exponent byte */
    int8_t scale[16];
    uint8_t min[16];
} qblock;

/* Code books of IQ4_NL and IQ4_XS, and of MXFP4 (twice the values of its elements). */
extern const int8_t qcodes_iq4[16], qcodes_mxfp4[16];

static inline bool dtype_is_quantized(dtype t)
{
    return qtypes[t].bits != 0;
}

static inline int qtype_elems(dtype t)
{
    return qtypes[t].strips * STRIP;
}

int qblock_value(dtype t, uint8_t code);
/* What d stands for. */
float qblock_d(dtype t, uint16_t d);
void qblock_from_file(dtype t, const uint8_t *src, qblock *b);
void qblock_to_float(dtype t, const qblock *b, float *out);

#endif
