#include "kernel/kernel.h"

#include <pthread.h>
#include <stdbool.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "kernel/fill.h"

static kernels scalar_table, avx2_table, avx512_table;
static bool has_avx2, has_avx512;
static pthread_once_t once = PTHREAD_ONCE_INIT;

void kernels_fill_scalar(kernels *k)
{
    k->name = "scalar";
    product_fill_scalar(k);
    vector_fill_scalar(k);
    attend_fill_scalar(k);
}

#if defined(__x86_64__)
void kernels_fill_avx2(kernels *k)
{
    k->name = "avx2";
    product_fill_avx2(k);
    vector_fill_avx2(k);
    attend_fill_avx2(k);
}

void kernels_fill_avx512(kernels *k)
{
    k->name = "avx512";
    product_fill_avx512(k);
    vector_fill_avx512(k);
    attend_fill_avx512(k);
}

static bool cpu_has_avx2(void)
{
    unsigned a, b, c = 0, d;
    __builtin_cpu_init(); /* its "avx2" also asks the operating system (XGETBV) whether it saves the wide registers */
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __get_cpuid(1, &a, &b, &c, &d) &&
           (c & bit_F16C);
}

static bool cpu_has_avx512(void) /* the same holds for "avx512..." and the still wider ones */
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}
#else
void kernels_fill_avx2(kernels *k)
{
    (void)k;
}

void kernels_fill_avx512(kernels *k)
{
    (void)k;
}

static bool cpu_has_avx2(void)
{
    return false;
}

static bool cpu_has_avx512(void)
{
    return false;
}
#endif

static void fill_tables(void)
{
    kernels_fill_scalar(&scalar_table);
    has_avx2 = cpu_has_avx2();
    if (!has_avx2) return;
    avx2_table = scalar_table;
    kernels_fill_avx2(&avx2_table);
    has_avx512 = cpu_has_avx512();
    if (!has_avx512) return;
    avx512_table = avx2_table;
    kernels_fill_avx512(&avx512_table);
}

const kernels *kernels_get(cpu_level level)
{
    pthread_once(&once, fill_tables);
    switch (level) {
    case CPU_SCALAR: return &scalar_table;
    case CPU_AVX2: return has_avx2 ? &avx2_table : NULL;
    case CPU_AVX512: return has_avx512 ? &avx512_table : NULL;
    default: return has_avx512 ? &avx512_table : has_avx2 ? &avx2_table : &scalar_table;
    }
}
