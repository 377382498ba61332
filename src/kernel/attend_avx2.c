#include "kernel/attend_avx2.h"

#include "kernel/fill.h"

#if defined(__x86_64__)

#include "kernel/attend8.h"

void scores_f32_avx2(const attend_args *a, const key_group *g, int n, const float *const *q, float *const *p,
                     int n_rows)
{
    scores_f32(a, g, n, q, p, n_rows);
}

void scores_f16_avx2(const attend_args *a, const key_group *g, int n, const float *const *q, float *const *p,
                     int n_rows)
{
    scores_f16(a, g, n, q, p, n_rows);
}

void attend_fill_avx2(kernels *k)
{
    k->attend_f32 = attend_f32;
    k->attend_f16 = attend_f16;
    k->merge = merge;
}

#endif
