/* The same arithmetic as vector8.h, lane by lane: the bits are the same. */
#include <math.h>

#include "kernel/fill.h"

#if defined(__x86_64__)

#include "kernel/avx512_math.h"

/* Sixteen elements from i on, zeros behind the n-th. */
static inline __m512 load_at(const float *x, int64_t i, int64_t n)
{
    return n - i >= 16 ? _mm512_loadu_ps(x + i) : _mm512_maskz_loadu_ps(first_lanes16((int)(n - i)), x + i);
}

static inline void store_at(float *x, int64_t i, int64_t n, __m512 v)
{
    if (n - i >= 16) _mm512_storeu_ps(x + i, v);
    else _mm512_mask_storeu_ps(x + i, first_lanes16((int)(n - i)), v);
}

/* Lanes 8h + j of accumulator a sum elements 32i + 16a + 8h + j: four accumulators of eight, and their tree. */
static float sum_of_squares(const float *x, int64_t n)
{
    __m512 s[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (int64_t i = 0; i < n; i += 32) {
        for (int64_t a = 0; a < 2 && i + 16 * a < n; a++) {
            __m512 v = load_at(x, i + 16 * a, n);
            s[a] = _mm512_fmadd_ps(v, v, s[a]);
        }
    }
    __m256 lo = _mm256_add_ps(_mm512_castps512_ps256(s[0]), _mm512_extractf32x8_ps(s[0], 1));
    return sum8(_mm256_add_ps(lo, _mm256_add_ps(_mm512_castps512_ps256(s[1]), _mm512_extractf32x8_ps(s[1], 1))));
}

static void rms_norm(const float *x, const float *weight, float eps, int64_t n, float *out)
{
    __m512 inverse = _mm512_set1_ps(1.0f / sqrtf(sum_of_squares(x, n) / (float)n + eps));
    for (int64_t i = 0; i < n; i += 16)
        store_at(out, i, n, _mm512_mul_ps(_mm512_mul_ps(load_at(x, i, n), inverse), load_at(weight, i, n)));
}

static void add(const float *x, const float *y, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i += 16) store_at(out, i, n, _mm512_add_ps(load_at(x, i, n), load_at(y, i, n)));
}

static void scale(const float *x, float by, int64_t n, float *out)
{
    __m512 b = _mm512_set1_ps(by);
    for (int64_t i = 0; i < n; i += 16) store_at(out, i, n, _mm512_mul_ps(load_at(x, i, n), b));
}

/* x / (1 + e^minus_z) */
static inline __m512 gate16(__m512 x, __m512 minus_z)
{
    return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1.0f), exp16(minus_z)));
}

static void silu_mul(const float *gate, const float *up, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i += 16) {
        __m512 x = load_at(gate, i, n), y = gate16(x, _mm512_xor_ps(x, _mm512_set1_ps(-0.0f)));
        store_at(out, i, n, _mm512_mul_ps(y, load_at(up, i, n)));
    }
}

/* gelu_tanh(x) = x / (1 + e^(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3) */
static void gelu_mul(const float *gate, const float *up, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i += 16) {
        __m512 x = load_at(gate, i, n);
        __m512 u = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_mul_ps(x, x), x), _mm512_set1_ps(0.044715f), x);
        __m512 y = gate16(x, _mm512_mul_ps(u, _mm512_set1_ps(-1.5957691216057308f)));
        store_at(out, i, n, _mm512_mul_ps(y, load_at(up, i, n)));
    }
}

static void softcap(const float *x, float cap, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i += 16) store_at(out, i, n, softcap16(load_at(x, i, n), _mm512_set1_ps(cap)));
}

/* The rows of vector8.h's sums, two vectors in one. */
static double sum_exp_f32(const float *x, int64_t n, float top, float by)
{
    const __m512 largest = _mm512_set1_ps(top), factor = _mm512_set1_ps(by), none = _mm512_set1_ps(-INFINITY);
    __m512d s = _mm512_setzero_pd();
    for (int64_t i = 0; i < n; i += 32) {
        __m512 e[2];
        for (int64_t a = 0; a < 2; a++) {
            int64_t left = n - i - 16 * a;
            __mmask16 in = left >= 16 ? 0xFFFF : first_lanes16(left > 0 ? (int)left : 0);
            __m512 v = _mm512_mask_loadu_ps(none, in, x + i + 16 * a);
            e[a] = exp16_falling(_mm512_mul_ps(_mm512_sub_ps(v, largest), factor));
        }
        __m512 t = _mm512_add_ps(e[0], e[1]);
        __m256 halves = _mm256_add_ps(_mm512_castps512_ps256(t), _mm512_extractf32x8_ps(t, 1));
        s = _mm512_add_pd(s, _mm512_cvtps_pd(halves));
    }
    return sum_d8((d8){_mm512_castpd512_pd256(s), _mm512_extractf64x4_pd(s, 1)});
}

void vector_fill_avx512(kernels *k)
{
    k->rms_norm = rms_norm;
    k->add = add;
    k->scale = scale;
    k->silu_mul = silu_mul;
    k->gelu_mul = gelu_mul;
    k->softcap = softcap;
    k->sum_exp_f32 = sum_exp_f32;
}

#endif
