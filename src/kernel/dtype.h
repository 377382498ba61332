/* dtype.h - the tensor element types of GGUF that Kvasir computes with.
 *
 * A row of a tensor is a run of blocks; a block encodes block_elems values in block_bytes bytes. Ids are those of the
 * file format. Byte layouts of the blocks: see dequant.c, which holds the scalar definition of each.
 */
#ifndef KVASIR_KERNEL_DTYPE_H
#define KVASIR_KERNEL_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum dtype {
    DTYPE_F32 = 0,
    DTYPE_F16 = 1,
    DTYPE_Q4_0 = 2,
    DTYPE_Q4_1 = 3,
    DTYPE_Q5_0 = 6,
    DTYPE_Q5_1 = 7,
    DTYPE_Q8_0 = 8,
    DTYPE_Q2_K = 10,
    DTYPE_Q3_K = 11,
    DTYPE_Q4_K = 12,
    DTYPE_Q5_K = 13,
    DTYPE_Q6_K = 14,
    DTYPE_IQ4_NL = 20,
    DTYPE_IQ4_XS = 23,
    DTYPE_BF16 = 30,
    DTYPE_MXFP4 = 39,
    DTYPE_COUNT = 40
} dtype;

typedef struct dtype_info {
    const char *name; /* as GGUF tools print it: "Q4_K"; NULL = Kvasir can't compute with this id */
    int block_elems, block_bytes;
} dtype_info;

/* NULL for an id that Kvasir can't compute with (unknown ones included). */
const dtype_info *dtype_get(uint32_t id);
/* A name for any id that GGUF has had ("IQ2_XXS"), for messages; NULL for ids never assigned. */
const char *dtype_name(uint32_t id);
/* Bytes of a row of n elements; n must be a multiple of the type's block_elems. */
size_t dtype_row_bytes(dtype t, int64_t n);
/* Scalar definition of every type: n values (a multiple of block_elems) from `row` to out[n]. */
void dtype_to_float(dtype t, const void *row, float *out, int64_t n);

#endif
