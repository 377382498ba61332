#include "kernel/fill.h"

#if defined(__x86_64__)

#include "kernel/vector8.h"

void vector_fill_avx2(kernels *k)
{
    vector8_fill(k);
}

#endif
