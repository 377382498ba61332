/* Tails go through masked vectors, so that an element's bits don't depend on where in the array it lies. Only tails: some
 * processors take a dozen cycles for a masked store. */
#include <math.h>

#include "kernel/fill.h"

#if defined(__x86_64__)

#include "kernel/avx2_math.h"

/* Eight elements from i on, zeros behind the n-th. */
static inline __m256 load_at(const float *x, int64_t i, int64_t n)
{
    return n - i >= 8 ? _mm256_loadu_ps(x + i) : _mm256_maskload_ps(x + i, first_lanes((int)(n - i)));
}

static inline void store_at(float *x, int64_t i, int64_t n, __m256 v)
{
    if (n - i >= 8) _mm256_storeu_ps(x + i, v);
    else _mm256_maskstore_ps(x + i, first_lanes((int)(n - i)), v);
}

/* Lane j of accumulator a sums elements 32i + 8a + j; then one tree. */
static float sum_of_squares(const float *x, int64_t n)
{
    __m256 s[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        for (int a = 0; a < 4; a++) {
            __m256 v = _mm256_loadu_ps(x + i + 8 * a);
            s[a] = _mm256_fmadd_ps(v, v, s[a]);
        }
    }
    for (int a = 0; i < n; i += 8, a++) {
        __m256 v = load_at(x, i, n);
        s[a] = _mm256_fmadd_ps(v, v, s[a]);
    }
    return sum8(_mm256_add_ps(_mm256_add_ps(s[0], s[1]), _mm256_add_ps(s[2], s[3])));
}

static void rms_norm(const float *x, const float *weight, float eps, int64_t n, float *out)
{
    __m256 inverse = _mm256_set1_ps(1.0f / sqrtf(sum_of_squares(x, n) / (float)n + eps));
    for (int64_t i = 0; i < n; i += 8) {
        __m256 v = _mm256_mul_ps(load_at(x, i, n), inverse);
        store_at(out, i, n, _mm256_mul_ps(v, load_at(weight, i, n)));
    }
}

static void add(const float *x, const float *y, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i += 8) {
        store_at(out, i, n, _mm256_add_ps(load_at(x, i, n), load_at(y, i, n)));
    }
}

static void scale(const float *x, float by, int64_t n, float *out)
{
    __m256 b = _mm256_set1_ps(by);
    for (int64_t i = 0; i < n; i += 8) {
        store_at(out, i, n, _mm256_mul_ps(load_at(x, i, n), b));
    }
}

/* x / (1 + e^minus_z) */
static inline __m256 gate8(__m256 x, __m256 minus_z)
{
    return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0f), exp8(minus_z)));
}

static void silu_mul(const float *gate, const float *up, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i += 8) {
        __m256 x = load_at(gate, i, n);
        __m256 y = gate8(x, _mm256_xor_ps(x, _mm256_set1_ps(-0.0f)));
        store_at(out, i, n, _mm256_mul_ps(y, load_at(up, i, n)));
    }
}

/* gelu_tanh(x) = x / (1 + e^(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3) */
static void gelu_mul(const float *gate, const float *up, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i += 8) {
        __m256 x = load_at(gate, i, n);
        __m256 u = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_mul_ps(x, x), x), _mm256_set1_ps(0.044715f), x);
        __m256 y = gate8(x, _mm256_mul_ps(u, _mm256_set1_ps(-1.5957691216057308f)));
        store_at(out, i, n, _mm256_mul_ps(y, load_at(up, i, n)));
    }
}

static void softcap(const float *x, float cap, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i += 8) {
        store_at(out, i, n, softcap8(load_at(x, i, n), _mm256_set1_ps(cap)));
    }
}

/* Both styles compute a' = fma(a, c, -(b s)), b' = fma(b, c, a s). */
static void rope_pairs(float *x, int n_rot, const float *cos_sin)
{
    for (int i = 0; i < n_rot; i += 8) {
        __m256 v = load_at(x, i, n_rot), cs = load_at(cos_sin, i, n_rot);
        __m256 turned = _mm256_mul_ps(_mm256_permute_ps(v, 0xB1), _mm256_movehdup_ps(cs));
        store_at(x, i, n_rot, _mm256_fmaddsub_ps(v, _mm256_moveldup_ps(cs), turned));
    }
}

static void rope_halves(float *x, int n_rot, const float *cos_sin)
{
    int half = n_rot / 2;
    for (int i = 0; i < half; i += 8) {
        __m256 lo = load_at(cos_sin, 2 * i, n_rot);
        __m256 hi = _mm256_setzero_ps();
        if (i + 4 < half) hi = load_at(cos_sin, 2 * i + 8, n_rot);
        const __m256i order = _mm256_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7);
        __m256 c = _mm256_permutevar8x32_ps(_mm256_shuffle_ps(lo, hi, 0x88), order);
        __m256 s = _mm256_permutevar8x32_ps(_mm256_shuffle_ps(lo, hi, 0xDD), order);
        __m256 a = load_at(x, i, half), b = load_at(x + half, i, half);
        store_at(x, i, half, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
        store_at(x + half, i, half, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
    }
}

static void rope(float *x, int n_heads, int64_t head_stride, int n_rot, const float *cos_sin, rope_style style)
{
    for (int h = 0; h < n_heads; h++, x += head_stride) {
        if (style == ROPE_PAIRS) rope_pairs(x, n_rot, cos_sin);
        else rope_halves(x, n_rot, cos_sin);
    }
}

static void to_half(const float *x, int64_t n, uint16_t *out)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        _mm_storeu_si128((__m128i *)(out + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
    }
    for (; i < n; i++) out[i] = _cvtss_sh(x[i], _MM_FROUND_TO_NEAREST_INT);
}

void vector_fill_avx2(kernels *k)
{
    k->rms_norm = rms_norm;
    k->add = add;
    k->scale = scale;
    k->silu_mul = silu_mul;
    k->gelu_mul = gelu_mul;
    k->softcap = softcap;
    k->rope = rope;
    k->to_half = to_half;
}

#endif
