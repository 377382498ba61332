/* attend_avx2.h - what AVX-512 takes over of the AVX2 attention. Internal to src/kernel. */
#ifndef KVASIR_KERNEL_ATTEND_AVX2_H
#define KVASIR_KERNEL_ATTEND_AVX2_H

#include "kernel/attend_tile.h"

/* attend_ops.scores for groups of eight tokens. */
void scores_f32_avx2(const attend_args *a, const key_group *g, int n, const float *const *q, float *const *p,
                     int n_rows);
void scores_f16_avx2(const attend_args *a, const key_group *g, int n, const float *const *q, float *const *p,
                     int n_rows);

#endif
