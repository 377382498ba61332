#include "model/rope.h"

#include <math.h>

#include "base/mem.h"

/* The element pair whose wave turns `turns` times within the original context. */
static double yarn_pair(const rope_params *p, int n_rot, double turns)
{
    const double pi = 3.14159265358979323846;
    return n_rot * log(p->original_context / (turns * 2 * pi)) / (2 * log((double)p->base));
}

static void yarn(rope *r, const rope_params *p)
{
    double low = floor(yarn_pair(p, r->n_rot, p->yarn_beta_fast)),
           high = ceil(yarn_pair(p, r->n_rot, p->yarn_beta_slow));
    if (low < 0) low = 0;
    if (high > r->n_rot - 1) high = r->n_rot - 1;
    if (high == low) high += 0.001;
    for (int i = 0; i < r->n_rot / 2; i++) {
        double interpolate = (i - low) / (high - low); /* 0: fast waves keep their angle; 1: slow ones are stretched */
        interpolate = interpolate < 0 ? 0 : interpolate > 1 ? 1 : interpolate;
        r->theta[i] *= 1 - interpolate + interpolate / p->factor;
    }
}

static double longrope_scale(const rope_params *p)
{
    return p->factor > 1 && p->original_context > 1
               ? sqrt(1 + log((double)p->factor) / log((double)p->original_context))
               : 1;
}

/* What cos and sin are multiplied with: as the file says, else as the method does. */
static double angle_scale(const rope_params *p)
{
    if (p->scaling == ROPE_SCALING_LONGROPE && p->attn_factor == 0) return longrope_scale(p);
    double scale = p->attn_factor > 0 ? p->attn_factor : 1;
    if (p->scaling != ROPE_SCALING_YARN) return scale;
    return scale * (p->yarn_attn_factor > 0 ? p->yarn_attn_factor : 0.1 * log((double)p->factor) + 1);
}

int rope_init(rope *r, const rope_params *p, int n_rot, const float *factors, status *st)
{
    double *theta = mem_array((size_t)n_rot / 2, sizeof *theta);
    if (!theta) return status_nomem(st, (uint64_t)n_rot * 4);
    *r = (rope){n_rot, theta, angle_scale(p)};
    for (int i = 0; i < n_rot / 2; i++) {
        theta[i] = pow(p->base, -2.0 * i / n_rot);
        if (factors) theta[i] /= factors[i];
        if (p->scaling == ROPE_SCALING_LINEAR) theta[i] /= p->factor;
    }
    if (p->scaling == ROPE_SCALING_YARN) yarn(r, p);
    return ST_OK;
}

void rope_deinit(rope *r)
{
    mem_free(r->theta);
    r->theta = NULL;
}

void rope_angles(const rope *r, int64_t position, float *out)
{
    for (int i = 0; i < r->n_rot / 2; i++) {
        double angle = (double)position * r->theta[i];
        out[2 * i] = (float)(cos(angle) * r->scale);
        out[2 * i + 1] = (float)(sin(angle) * r->scale);
    }
}
