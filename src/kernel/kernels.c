#include "kernel/kernel.h"

#include <pthread.h>
#include <stdbool.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "kernel/fill.h"

static const char *const names[CPU_LEVELS] = {
    [CPU_AUTO] = "auto",     [CPU_SCALAR] = "scalar", [CPU_AVX2] = "avx2",
    [CPU_AVX512] = "avx512", [CPU_NEON] = "neon",     [CPU_DOTPROD] = "dotprod",
};
static kernels tables[CPU_LEVELS];
static const kernels *best;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Fills the level's table over a copy of the best one so far, and makes it the best. */
static kernels *next_table(cpu_level level)
{
    kernels *k = &tables[level];
    if (best) *k = *best;
    k->name = names[level];
    best = k;
    return k;
}

#if defined(__x86_64__)
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

static void fill_others(void)
{
    if (!cpu_has_avx2()) return;
    kernels *k = next_table(CPU_AVX2);
    product_fill_avx2(k);
    vector_fill_avx2(k);
    attend_fill_avx2(k);
    if (!cpu_has_avx512()) return;
    k = next_table(CPU_AVX512);
    product_fill_avx512(k);
    vector_fill_avx512(k);
    attend_fill_avx512(k);
}
#elif defined(__aarch64__)
static void fill_others(void)
{
    kernels *k = next_table(CPU_NEON); /* every such processor has it */
    product_fill_neon(k);
    vector_fill_neon(k);
    attend_fill_neon(k);
    if (!(getauxval(AT_HWCAP) & HWCAP_ASIMDDP)) return;
    k = next_table(CPU_DOTPROD);
    product_fill_dotprod(k);
}
#else
static void fill_others(void)
{
}
#endif

static void fill_tables(void)
{
    kernels *k = next_table(CPU_SCALAR);
    product_fill_scalar(k);
    vector_fill_scalar(k);
    attend_fill_scalar(k);
    fill_others();
}

const kernels *kernels_get(cpu_level level)
{
    pthread_once(&once, fill_tables);
    if (level == CPU_AUTO) return best;
    return tables[level].name ? &tables[level] : NULL;
}

const char *cpu_level_name(cpu_level level)
{
    return names[level];
}
