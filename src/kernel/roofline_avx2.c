#include "kernel/roofline.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define CHAINS 10 /* enough to hide the latency of an instruction, few enough for the registers */

int64_t roofline_int8_rounds_avx2(int64_t n, int64_t *macs)
{
    __m256i acc[CHAINS], w = _mm256_set1_epi8(3), ones = _mm256_set1_epi16(1), a = _mm256_set1_epi8(5);
    for (int i = 0; i < CHAINS; i++) acc[i] = _mm256_setzero_si256();
    for (int64_t r = 0; r < n; r++) {
        __asm__ volatile("" : "+x"(a), "+x"(w)); /* new data as far as the compiler knows */
        for (int i = 0; i < CHAINS; i++) {
            __m256i x = a;
            __asm__ volatile("" : "+x"(x));
            acc[i] = _mm256_add_epi32(acc[i], _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), ones));
        }
    }
    __m256i sum = acc[0];
    for (int i = 1; i < CHAINS; i++) sum = _mm256_add_epi32(sum, acc[i]);
    *macs = 32 * CHAINS;
    return _mm256_extract_epi32(sum, 0);
}

int64_t roofline_float_rounds_avx2(int64_t n, int64_t *macs)
{
    __m256 acc[CHAINS], w = _mm256_set1_ps(1e-6f), a = _mm256_set1_ps(0.5f);
    for (int i = 0; i < CHAINS; i++) acc[i] = _mm256_setzero_ps();
    for (int64_t r = 0; r < n; r++) {
        __asm__ volatile("" : "+x"(a), "+x"(w));
        for (int i = 0; i < CHAINS; i++) acc[i] = _mm256_fmadd_ps(w, a, acc[i]);
    }
    __m256 sum = acc[0];
    for (int i = 1; i < CHAINS; i++) sum = _mm256_add_ps(sum, acc[i]);
    *macs = 8 * CHAINS;
    return (int64_t)_mm256_cvtss_f32(sum);
}
#else
int64_t roofline_int8_rounds_avx2(int64_t n, int64_t *macs)
{
    return roofline_int8_rounds(n, macs);
}

int64_t roofline_float_rounds_avx2(int64_t n, int64_t *macs)
{
    return roofline_float_rounds(n, macs);
}
#endif
