#include "kernel/fill.h"

#if defined(__aarch64__)

#include "kernel/product_neon.h"

void product_fill_dotprod(kernels *k)
{
    for (uint32_t t = 0; t < DTYPE_COUNT; t++)
        if (dtype_get(t) && dtype_is_quantized(t)) k->product[t] = product_quantized;
}

#endif
