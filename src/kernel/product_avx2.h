/* product_avx2.h - what product_avx2.c registers from its sister files. Internal to src/kernel. */
#ifndef KVASIR_KERNEL_PRODUCT_AVX2_H
#define KVASIR_KERNEL_PRODUCT_AVX2_H

#include "kernel/kernel.h"

void quantize_avx2(const float *x, int64_t k, act_strip *strips, int col, int n_cols);
/* Float activations; weights of any type, turned to float exactly. */
void product_float_avx2(dtype t, const void *panels, int n_panels, int64_t k, const act_tile *a, float *y,
                        int64_t y_stride);

#endif
