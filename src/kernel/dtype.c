#include "kernel/dtype.h"

#include <assert.h>

static const dtype_info infos[DTYPE_COUNT] = {
    [DTYPE_F32] = {"F32", 1, 4},       [DTYPE_F16] = {"F16", 1, 2},         [DTYPE_BF16] = {"BF16", 1, 2},
    [DTYPE_Q4_0] = {"Q4_0", 32, 18},   [DTYPE_Q4_1] = {"Q4_1", 32, 20},     [DTYPE_Q5_0] = {"Q5_0", 32, 22},
    [DTYPE_Q5_1] = {"Q5_1", 32, 24},   [DTYPE_Q8_0] = {"Q8_0", 32, 34},     [DTYPE_Q2_K] = {"Q2_K", 256, 84},
    [DTYPE_Q3_K] = {"Q3_K", 256, 110}, [DTYPE_Q4_K] = {"Q4_K", 256, 144},   [DTYPE_Q5_K] = {"Q5_K", 256, 176},
    [DTYPE_Q6_K] = {"Q6_K", 256, 210}, [DTYPE_IQ4_NL] = {"IQ4_NL", 32, 18}, [DTYPE_IQ4_XS] = {"IQ4_XS", 256, 136},
    [DTYPE_MXFP4] = {"MXFP4", 32, 17},
};

/* Ids that the format has beside those above; withdrawn ones (Q4_2, Q4_3, the *_4_4 family) stay assigned. */
static const char *const other_names[] = {
    [4] = "Q4_2",      [5] = "Q4_3",   [9] = "Q8_1",   [15] = "Q8_K",       [16] = "IQ2_XXS",    [17] = "IQ2_XS",
    [18] = "IQ3_XXS",  [19] = "IQ1_S", [21] = "IQ3_S", [22] = "IQ2_S",      [24] = "I8",         [25] = "I16",
    [26] = "I32",      [27] = "I64",   [28] = "F64",   [29] = "IQ1_M",      [31] = "Q4_0_4_4",   [32] = "Q4_0_4_8",
    [33] = "Q4_0_8_8", [34] = "TQ1_0", [35] = "TQ2_0", [36] = "IQ4_NL_4_4", [37] = "IQ4_NL_4_8", [38] = "IQ4_NL_8_8",
    [40] = "NVFP4",    [41] = "Q1_0",
};

const dtype_info *dtype_get(uint32_t id)
{
    return id < DTYPE_COUNT && infos[id].name ? &infos[id] : NULL;
}

const char *dtype_name(uint32_t id)
{
    const dtype_info *info = dtype_get(id);
    if (info) return info->name;
    return id < sizeof other_names / sizeof other_names[0] ? other_names[id] : NULL;
}

size_t dtype_row_bytes(dtype t, int64_t n)
{
    const dtype_info *info = dtype_get(t);
    assert(info && n >= 0 && n % info->block_elems == 0);
    return (size_t)(n / info->block_elems) * (size_t)info->block_bytes;
}
