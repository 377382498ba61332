#include "kernel/fill.h"

#if defined(__aarch64__)

#include "kernel/attend8.h"

void attend_fill_neon(kernels *k)
{
    k->attend_f32 = attend_f32;
    k->attend_f16 = attend_f16;
    k->merge = merge;
}

#endif
