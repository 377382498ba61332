#include "kernel/fill.h"

#if defined(__aarch64__)

#include "kernel/vector8.h"

void vector_fill_neon(kernels *k)
{
    vector8_fill(k);
}

#endif
