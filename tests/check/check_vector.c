/* Kernels over rows of floats: near the reference, the bits of the next lower level, and bits that depend on neither
 * the place in the row nor whether it is overwritten. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "check.h"

#define ULP 0x1p-24
#define MAX_N 70
#define BY 0.3f /* what scale multiplies by; softcap by a hundred of it */
#define MAX_ROT 72

typedef struct rows {
    const float *x, *y;
    float *out;
    int64_t n;
    float by;
} rows;

typedef void rows_fn(const kernels *ks, const rows *r);

static void add(const kernels *ks, const rows *r)
{
    ks->add(r->x, r->y, r->n, r->out);
}

static void scale(const kernels *ks, const rows *r)
{
    ks->scale(r->x, r->by, r->n, r->out);
}

static void silu_mul(const kernels *ks, const rows *r)
{
    ks->silu_mul(r->x, r->y, r->n, r->out);
}

static void gelu_mul(const kernels *ks, const rows *r)
{
    ks->gelu_mul(r->x, r->y, r->n, r->out);
}

static void softcap(const kernels *ks, const rows *r)
{
    ks->softcap(r->x, 100 * r->by, r->n, r->out);
}

static void rms_norm(const kernels *ks, const rows *r)
{
    ks->rms_norm(r->x, r->y, 1e-6f, r->n, r->out);
}

/* What each element of a row gives, within relative and absolute of the reference. */
static const struct elementwise {
    const char *name;
    size_t slot;
    rows_fn *fn;
    double relative, absolute;
} elementwise[] = {
    {"add", offsetof(kernels, add), add, 0, 0},
    {"scale", offsetof(kernels, scale), scale, 0, 0},
    /* e^x becomes 0 or infinity where it nears the denormals or the largest float */
    {"silu_mul", offsetof(kernels, silu_mul), silu_mul, 16 * ULP, 1e-34},
    /* the rounding of an exponent up to 87 is a relative error of the result */
    {"gelu_mul", offsetof(kernels, gelu_mul), gelu_mul, 4 * 87 * ULP, 1e-34},
    {"softcap", offsetof(kernels, softcap), softcap, 16 * ULP, 1e-43},
};
#define N_ELEMENTWISE (int)(sizeof elementwise / sizeof elementwise[0])

static float *run(check *c, const kernels *ks, rows_fn *fn, rows r)
{
    r.out = check_floats(c, r.n);
    fn(ks, &r);
    return r.out;
}

static rows make_rows(check *c, int64_t n, values what)
{
    float *x = check_floats(c, n), *y = check_floats(c, n);
    check_fill(c, x, n, what);
    check_fill(c, y, n, ORDINARY);
    return (rows){x, y, NULL, n, BY};
}

static void check_same(check *c, const float *got, const float *want, int64_t n, const char *as)
{
    int64_t at = first_difference(got, want, n);
    if (at >= 0) check_fail(c, "[%lld] %.9g, not %.9g as %s", (long long)at, (double)got[at], (double)want[at], as);
}

static void check_rows(check *c, rows_fn *fn, const rows *r, double relative, double absolute)
{
    const float *got = run(c, c->ks, fn, *r), *want = run(c, c->ref, fn, *r);
    for (int64_t i = 0; i < r->n; i++) {
        if (is_near(got[i], want[i], relative, absolute)) continue;
        check_fail(c, "[%lld] %.9g, reference %.9g, of %.9g and %.9g", (long long)i, (double)got[i], (double)want[i],
                   (double)r->x[i], (double)r->y[i]);
    }
    if (c->below) check_same(c, got, run(c, c->below, fn, *r), r->n, c->below->name);
    rows in_place = *r;
    in_place.x = in_place.out = check_floats(c, r->n);
    memcpy(in_place.out, r->x, (size_t)r->n * sizeof(float));
    fn(c->ks, &in_place);
    check_same(c, in_place.out, got, r->n, "elsewhere");
}

static float *copy(check *c, const float *x, int64_t n)
{
    return memcpy(check_floats(c, n), x, (size_t)n * sizeof *x);
}

static void check_far(check *c, const struct elementwise *e)
{
    const float far[] = {1e20f,  -1e20f,  3.4e38f, -3.4e38f, 86.5f,    -86.5f,    87.5f, -87.5f,
                         88.75f, -88.75f, 0.0f,    -0.0f,    INFINITY, -INFINITY, NAN,   0.625f};
    enum { N = sizeof far / sizeof far[0] };
    const float ones[N] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    check_case(c, "far values");
    rows r = {copy(c, far, N), copy(c, ones, N), NULL, N, BY};
    check_rows(c, e->fn, &r, e->relative, e->absolute);
}

/* Elements have the bits that they have in a longer row, too. */
static void check_elementwise(check *c)
{
    const struct elementwise *e = &elementwise[c->entry->which];
    float x[MAX_N], y[MAX_N], whole[MAX_N];
    for (int what = 0; what < N_VALUES; what++) {
        check_fill(c, x, MAX_N, (values)what);
        check_fill(c, y, MAX_N, ORDINARY);
        e->fn(c->ks, &(rows){x, y, whole, MAX_N, BY});
        for (int64_t n = 1; n <= MAX_N; n++) {
            check_case(c, "n %lld, %s", (long long)n, values_name[what]);
            rows r = make_rows(c, n, (values)what);
            check_rows(c, e->fn, &r, e->relative, e->absolute);
            check_case(c, "first %lld of %d, %s", (long long)n, MAX_N, values_name[what]);
            r = (rows){copy(c, x, n), copy(c, y, n), NULL, n, BY};
            check_same(c, run(c, c->ks, e->fn, r), whole, n, "in a longer row");
        }
    }
    check_far(c, e);
}

static void check_rms_norm(check *c)
{
    for (int what = 0; what < N_VALUES; what++) {
        if (what == VAST) continue; /* whether the squares' sum overflows depends on its precision */
        for (int64_t n = 1; n <= 3000; n += n < MAX_N ? 1 : 977) {
            check_case(c, "n %lld, %s", (long long)n, values_name[what]);
            rows r = make_rows(c, n, (values)what);
            check_rows(c, rms_norm, &r, (8 + (double)n / 32) * ULP, 1e-43);
        }
    }
}

typedef struct turn {
    float *x;
    const float *cos_sin;
    int n_heads, n_rot;
    int64_t stride;
    rope_style style;
} turn;

static turn make_turn(check *c, int n_rot, int n_heads, rope_style style, values what)
{
    turn t = {.n_heads = n_heads, .n_rot = n_rot, .stride = n_rot + n_heads % 3, .style = style};
    int64_t n = (n_heads - 1) * t.stride + n_rot;
    float *cos_sin = check_floats(c, n_rot);
    for (int i = 0; i < n_rot; i += 2) { /* a point of the circle, near enough */
        float s = check_uniform(c);
        cos_sin[i] = sqrtf(1 - s * s);
        cos_sin[i + 1] = s;
    }
    t.cos_sin = cos_sin;
    t.x = check_floats(c, n);
    check_fill(c, t.x, n, what);
    return t;
}

static float *run_rope(check *c, const kernels *ks, const turn *t)
{
    int64_t n = (t->n_heads - 1) * t->stride + t->n_rot;
    float *x = memcpy(check_floats(c, n), t->x, (size_t)n * sizeof(float));
    ks->rope(x, t->n_heads, t->stride, t->n_rot, t->cos_sin, t->style);
    return x;
}

static void check_turn(check *c, const turn *t)
{
    const float *got = run_rope(c, c->ks, t), *want = run_rope(c, c->ref, t);
    int64_t half = t->n_rot / 2, end = (t->n_heads - 1) * t->stride + t->n_rot;
    for (int64_t i = 0; i < end; i++) {
        int64_t at = i % t->stride, apart = at < half ? half : -half; /* to the other of its pair */
        if (t->style == ROPE_PAIRS) apart = at % 2 ? -1 : 1;
        bool turned = at < t->n_rot;
        double size = turned ? fabs((double)t->x[i]) + fabs((double)t->x[i + apart]) : 0;
        if (is_near(got[i], want[i], 0, 4 * ULP * size + (turned ? 1e-44 : 0))) continue;
        check_fail(c, "[%lld] %.9g, reference %.9g", (long long)i, (double)got[i], (double)want[i]);
    }
    if (c->below) check_same(c, got, run_rope(c, c->below, t), end, c->below->name);
}

static void check_rope(check *c)
{
    for (int what = 0; what < NOT_FINITE; what++) {
        for (int n_rot = 2; n_rot <= MAX_ROT; n_rot += 2) {
            for (int style = ROPE_PAIRS; style <= ROPE_HALVES; style++) {
                int n_heads = 1 + n_rot / 2 % 4;
                check_case(c, "%d of %d heads, style %d, %s", n_rot, n_heads, style, values_name[what]);
                turn t = make_turn(c, n_rot, n_heads, (rope_style)style, (values)what);
                check_turn(c, &t);
            }
        }
    }
}

static void check_half(check *c, float x, uint16_t got)
{
    uint16_t want = float_to_half(x);
    if (isnan(x) ? !isnan(half_to_float(got)) : got != want)
        check_fail(c, "%.9g became %04x, not %04x", (double)x, got, want);
}

static void check_halves(check *c, const float *x, int64_t n)
{
    uint16_t *out = check_array(c, (size_t)n * sizeof *out, sizeof *out);
    c->ks->to_half(x, n, out);
    for (int64_t i = 0; i < n; i++) check_half(c, x[i], out[i]);
}

static void check_to_half(check *c)
{
    for (int what = 0; what < N_VALUES; what++) {
        for (int64_t n = 1; n <= MAX_N; n++) {
            check_case(c, "n %lld, %s", (long long)n, values_name[what]);
            check_halves(c, make_rows(c, n, (values)what).x, n);
        }
    }
    for (uint32_t h = 0; h < 0x10000; h++) { /* every half, those halfway to the next, and what lies beside each */
        uint32_t f = float_bits(half_to_float((uint16_t)h));
        float x[9];
        for (uint32_t i = 0; i < 9; i++) x[i] = bits_float(f + (i < 3 ? i : (i - 3) * 0x800 - 1));
        check_case(c, "around the half %04x", h);
        check_halves(c, copy(c, x, 9), 9);
    }
}

#define TIMED_N 2048

typedef struct timed {
    rows_fn *fn;
    rows r;
    turn t;
    uint16_t *halves;
} timed;

static void call_rows(const kernels *ks, void *arg)
{
    const timed *in = arg;
    in->fn(ks, &in->r);
}

static void call_rope(const kernels *ks, void *arg)
{
    const timed *in = arg;
    ks->rope(in->t.x, in->t.n_heads, in->t.stride, in->t.n_rot, in->t.cos_sin, in->t.style);
}

static void call_to_half(const kernels *ks, void *arg)
{
    const timed *in = arg;
    ks->to_half(in->r.x, in->r.n, in->halves);
}

static void time_rows(check *c, rows_fn *fn)
{
    check_case(c, "timing");
    timed in = {.fn = fn, .r = make_rows(c, TIMED_N, ORDINARY)};
    in.r.out = check_floats(c, TIMED_N);
    check_time(c, "2048", call_rows, &in);
}

static void time_elementwise(check *c)
{
    time_rows(c, elementwise[c->entry->which].fn);
}

static void time_rms_norm(check *c)
{
    time_rows(c, rms_norm);
}

static void time_rope(check *c)
{
    for (int style = ROPE_PAIRS; style <= ROPE_HALVES; style++) {
        check_case(c, "timing");
        timed in = {.t = make_turn(c, 64, 32, (rope_style)style, ORDINARY)};
        check_time(c, style == ROPE_PAIRS ? "32 heads of 64, pairs" : "32 heads of 64, halves", call_rope, &in);
    }
}

static void time_to_half(check *c)
{
    check_case(c, "timing");
    timed in = {.r = make_rows(c, TIMED_N, ORDINARY), .halves = check_array(c, 2 * TIMED_N, 2)};
    check_time(c, "2048", call_to_half, &in);
}

int check_vector_entries(check_entry *e)
{
    const check_entry others[] = {
        {.name = "rms_norm", .slot = offsetof(kernels, rms_norm), .run = check_rms_norm, .time = time_rms_norm},
        {.name = "rope", .slot = offsetof(kernels, rope), .run = check_rope, .time = time_rope},
        {.name = "to_half", .slot = offsetof(kernels, to_half), .run = check_to_half, .time = time_to_half},
    };
    for (int i = 0; i < N_ELEMENTWISE; i++) {
        e[i] =
            (check_entry){.slot = elementwise[i].slot, .which = i, .run = check_elementwise, .time = time_elementwise};
        snprintf(e[i].name, sizeof e[i].name, "%s", elementwise[i].name);
    }
    memcpy(e + N_ELEMENTWISE, others, sizeof others);
    return N_ELEMENTWISE + (int)(sizeof others / sizeof others[0]);
}
