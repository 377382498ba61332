/* vec8_avx2.h - vec8.h for AVX2. */
#ifndef KVASIR_KERNEL_VEC8_AVX2_H
#define KVASIR_KERNEL_VEC8_AVX2_H

#include <immintrin.h>
#include <stdint.h>

typedef __m256 f8;

/* The first n of eight lanes, for masked loads and stores. */
static inline __m256i first_lanes(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline f8 f8_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

static inline f8 f8_load_part(const float *p, int n)
{
    return _mm256_maskload_ps(p, first_lanes(n));
}

static inline f8 f8_load_half(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline void f8_store(float *p, f8 x)
{
    _mm256_storeu_ps(p, x);
}

static inline void f8_store_part(float *p, int n, f8 x)
{
    _mm256_maskstore_ps(p, first_lanes(n), x);
}

/* Lanes begin..end - 1 to p[begin], ... */
static inline void f8_store_lanes(float *p, int begin, int end, f8 x)
{
    _mm256_maskstore_ps(p, _mm256_andnot_si256(first_lanes(begin), first_lanes(end)), x);
}

static inline void f8_store_half(uint16_t *p, f8 x)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

static inline f8 f8_splat(float x)
{
    return _mm256_set1_ps(x);
}

static inline f8 f8_add(f8 a, f8 b)
{
    return _mm256_add_ps(a, b);
}

static inline f8 f8_sub(f8 a, f8 b)
{
    return _mm256_sub_ps(a, b);
}

static inline f8 f8_mul(f8 a, f8 b)
{
    return _mm256_mul_ps(a, b);
}

static inline f8 f8_div(f8 a, f8 b)
{
    return _mm256_div_ps(a, b);
}

static inline f8 f8_fma(f8 a, f8 b, f8 c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline f8 f8_fnma(f8 a, f8 b, f8 c)
{
    return _mm256_fnmadd_ps(a, b, c);
}

static inline f8 f8_min(f8 a, f8 b)
{
    return _mm256_min_ps(a, b);
}

static inline f8 f8_max(f8 a, f8 b)
{
    return _mm256_max_ps(a, b);
}

/* The larger; b where a is NaN. */
static inline f8 f8_max_number(f8 a, f8 b)
{
    return _mm256_max_ps(a, b);
}

static inline f8 f8_neg(f8 x)
{
    return _mm256_xor_ps(x, _mm256_set1_ps(-0.0f));
}

static inline f8 f8_abs(f8 x)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}

/* The positive x with the sign of s. */
static inline f8 f8_with_sign(f8 x, f8 s)
{
    return _mm256_or_ps(x, _mm256_and_ps(_mm256_set1_ps(-0.0f), s));
}

/* To the nearest whole number, halves to the even one. */
static inline f8 f8_round(f8 x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline f8 f8_where_greater(f8 a, f8 b, f8 x, f8 y)
{
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_GT_OQ));
}

/* By 2^(n - 1), then doubled: n may be 128. */
static inline f8 f8_times_pow2(f8 x, f8 n)
{
    __m256i bits = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(126)), 23);
    x = _mm256_mul_ps(x, _mm256_castsi256_ps(bits));
    return _mm256_add_ps(x, x);
}

/* ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)) */
static inline float sum8(f8 x)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}

static inline float f8_first(f8 x)
{
    return _mm256_cvtss_f32(x);
}

static inline f8 f8_evens(f8 a, f8 b)
{
    __m256 mixed = _mm256_shuffle_ps(a, b, 0x88);
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(mixed), 0xD8));
}

static inline f8 f8_odds(f8 a, f8 b)
{
    __m256 mixed = _mm256_shuffle_ps(a, b, 0xDD);
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(mixed), 0xD8));
}

/* Pairs (a, b) turned by pairs (cos, sin): fma(a, c, -(b s)), fma(b, c, a s). */
static inline f8 f8_turn_pairs(f8 x, f8 cos_sin)
{
    __m256 turned = _mm256_mul_ps(_mm256_permute_ps(x, 0xB1), _mm256_movehdup_ps(cos_sin));
    return _mm256_fmaddsub_ps(x, _mm256_moveldup_ps(cos_sin), turned);
}

typedef struct d8 {
    __m256d lo, hi;
} d8;

static inline d8 d8_splat(double x)
{
    return (d8){_mm256_set1_pd(x), _mm256_set1_pd(x)};
}

static inline d8 d8_widen(f8 x)
{
    return (d8){_mm256_cvtps_pd(_mm256_castps256_ps128(x)), _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))};
}

static inline d8 d8_add(d8 a, d8 b)
{
    return (d8){_mm256_add_pd(a.lo, b.lo), _mm256_add_pd(a.hi, b.hi)};
}

static inline d8 d8_sub(d8 a, d8 b)
{
    return (d8){_mm256_sub_pd(a.lo, b.lo), _mm256_sub_pd(a.hi, b.hi)};
}

static inline d8 d8_mul(d8 a, d8 b)
{
    return (d8){_mm256_mul_pd(a.lo, b.lo), _mm256_mul_pd(a.hi, b.hi)};
}

static inline d8 d8_fma(d8 a, d8 b, d8 c)
{
    return (d8){_mm256_fmadd_pd(a.lo, b.lo, c.lo), _mm256_fmadd_pd(a.hi, b.hi, c.hi)};
}

static inline d8 d8_max(d8 a, d8 b)
{
    return (d8){_mm256_max_pd(a.lo, b.lo), _mm256_max_pd(a.hi, b.hi)};
}

static inline __m256d add_exponent(__m256d x, __m256d n)
{
    __m256i k = _mm256_slli_epi64(_mm256_castpd_si256(n), 52);
    return _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(x), k));
}

static inline d8 d8_add_exponent(d8 x, d8 n)
{
    return (d8){add_exponent(x.lo, n.lo), add_exponent(x.hi, n.hi)};
}

/* ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)) */
static inline double sum_d8(d8 x)
{
    __m256d s = _mm256_add_pd(x.lo, x.hi);
    __m128d t = _mm_add_pd(_mm256_castpd256_pd128(s), _mm256_extractf128_pd(s, 1));
    return _mm_cvtsd_f64(_mm_add_sd(t, _mm_unpackhi_pd(t, t)));
}

#endif
