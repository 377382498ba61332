#include "kernel/fill.h"

#if defined(__x86_64__)

#include "kernel/vector8.h"

static int find_between(const float *x, int n, float least, float below, int32_t *out)
{
    const __m256 from = _mm256_set1_ps(least), to = _mm256_set1_ps(below);
    int found = 0;
    for (int i = 0; i < n; i += 8) {
        __m256 v = load_at(x, i, n);
        __m256 in = _mm256_and_ps(_mm256_cmp_ps(v, from, _CMP_GE_OQ), _mm256_cmp_ps(v, to, _CMP_LT_OQ));
        unsigned bits = (unsigned)_mm256_movemask_ps(in);
        if (n - i < 8) bits &= (1u << (n - i)) - 1;
        for (; bits; bits &= bits - 1) out[found++] = i + __builtin_ctz(bits);
    }
    return found;
}

void vector_fill_avx2(kernels *k)
{
    vector8_fill(k);
    k->find_between = find_between;
}

#endif
