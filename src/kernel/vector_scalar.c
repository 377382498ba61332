#include <float.h>
#include <math.h>

#include "base/half.h"
#include "kernel/fill.h"

static void rms_norm(const float *x, const float *weight, float eps, int64_t n, float *out)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    float inverse = 1.0f / sqrtf((float)(sum / (double)n) + eps);
    for (int64_t i = 0; i < n; i++) out[i] = x[i] * inverse * weight[i];
}

static void add(const float *x, const float *y, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = x[i] + y[i];
}

static void scale(const float *x, float by, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = x[i] * by;
}

static void silu_mul(const float *gate, const float *up, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

/* gelu_tanh(x) = x / 2 (1 + tanh(u)) = x / (1 + e^(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3).
 * The second form cancels nothing for negative x. */
static void gelu_mul(const float *gate, const float *up, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) {
        float x = gate[i];
        float minus_2u = -1.5957691216057308f * (x + 0.044715f * x * x * x);
        out[i] = x / (1.0f + expf(minus_2u)) * up[i];
    }
}

static void softcap(const float *x, float cap, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = cap * tanhf(x[i] / cap);
}

static void rope(float *x, int n_heads, int64_t head_stride, int n_rot, const float *cos_sin, rope_style style)
{
    int half = n_rot / 2;
    int step = style == ROPE_PAIRS ? 2 : 1, apart = style == ROPE_PAIRS ? 1 : half;
    for (int h = 0; h < n_heads; h++, x += head_stride) {
        for (int i = 0; i < half; i++) {
            float *a = x + (int64_t)i * step, *b = a + apart;
            float c = cos_sin[2 * i], s = cos_sin[2 * i + 1], a0 = *a;
            *a = a0 * c - *b * s;
            *b = *b * c + a0 * s;
        }
    }
}

static void to_half(const float *x, int64_t n, uint16_t *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = float_to_half(x[i]);
}

static bool span_max(const float *x, int64_t n, float *largest)
{
    bool finite = true;
    for (int64_t begin = 0; begin < n; begin += SPAN) {
        float most = x[begin];
        for (int64_t i = begin; i < n && i < begin + SPAN; i++) {
            if (x[i] > most) most = x[i];
            finite &= fabsf(x[i]) <= FLT_MAX;
        }
        *largest++ = most;
    }
    return finite;
}

static double sum_exp(const float *x, int64_t n, float top, double by)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += exp(((double)x[i] - top) * by);
    return sum;
}

static double sum_exp_f32(const float *x, int64_t n, float top, float by)
{
    return sum_exp(x, n, top, by);
}

static int find_between(const float *x, int n, float least, float below, int32_t *out)
{
    int found = 0;
    for (int i = 0; i < n; i++)
        if (x[i] >= least && x[i] < below) out[found++] = i;
    return found;
}

void vector_fill_scalar(kernels *k)
{
    k->rms_norm = rms_norm;
    k->add = add;
    k->scale = scale;
    k->silu_mul = silu_mul;
    k->gelu_mul = gelu_mul;
    k->softcap = softcap;
    k->rope = rope;
    k->to_half = to_half;
    k->span_max = span_max;
    k->sum_exp = sum_exp;
    k->sum_exp_f32 = sum_exp_f32;
    k->find_between = find_between;
}
