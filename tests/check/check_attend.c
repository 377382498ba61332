/* One chunk of attention, in blocks whose unused memory is NaN; and the merging of partials. Scores and sums differ
 * from the reference's by rounding: the bounds are multiples of sums of absolute products. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "check.h"
#include "kernel/attention.h"

#define ULP 0x1p-24
#define CHUNK_BEGIN (3 * ATTN_CHUNK)
#define MAX_D 576

typedef enum view { CAUSAL, WINDOW, TREE, N_VIEWS } view;

typedef struct attend_case {
    bool half;
    int n_rows, d_k, d_v, block_tokens;
    int first, n; /* places of the chunk that blocks hold */
    view sees;
    bool holes; /* every third block is missing */
    float softcap;
    values q;
} attend_case;

typedef struct partials {
    float *o, *m, *l; /* [n_rows][d_v], [n_rows], [n_rows] */
} partials;

typedef struct attend_input {
    attend_case is;
    attend_args args;
    attn_span spans[ATTN_CHUNK], next[1];
    attn_row rows[ATTEND_ROWS];
    const attn_row *row[ATTEND_ROWS];
    const float *q[ATTEND_ROWS];
    float *o[ATTEND_ROWS];
    uint64_t masks[ATTEND_ROWS];
} attend_input;

static float element(const uint8_t *base, int64_t at, bool half)
{
    uint16_t h;
    float f;
    memcpy(half ? (void *)&h : (void *)&f, base + at * (half ? 2 : 4), half ? 2 : 4);
    return half ? half_to_float(h) : f;
}

static void put_element(uint8_t *base, int64_t at, bool half, float f)
{
    uint16_t h = float_to_half(f);
    memcpy(base + at * (half ? 2 : 4), half ? (const void *)&h : (const void *)&f, half ? 2 : 4);
}

/* K and V of one token, in [-1, 1). */
static void put_token(check *c, const attend_input *in, uint8_t *block, int row)
{
    const attend_case *is = &in->is;
    for (int d = 0; d < is->d_k; d++)
        put_element(block + in->args.k_offset, (int64_t)d * is->block_tokens + row, is->half, check_uniform(c));
    for (int d = 0; d < is->d_v; d++)
        put_element(block + in->args.v_offset, (int64_t)row * is->d_v + d, is->half, check_uniform(c));
}

/* Blocks from the end of the memory to its start; the first token lies anywhere in a block; spans end at random too. */
static void place_tokens(check *c, attend_input *in)
{
    const attend_case *is = &in->is;
    size_t elem = is->half ? 2 : 4, tokens = (size_t)is->block_tokens;
    in->args.k_offset = 16 * elem;
    in->args.v_offset = in->args.k_offset + tokens * (size_t)is->d_k * elem;
    size_t block_bytes = in->args.v_offset + tokens * (size_t)is->d_v * elem;
    int row = (int)(check_draw(c) % (uint32_t)is->block_tokens), n_blocks = (row + is->n - 1) / is->block_tokens + 1;
    uint8_t *memory = check_array(c, (size_t)n_blocks * block_bytes, 64),
            *block = memory + (size_t)(n_blocks - 1) * block_bytes;
    memset(memory, 0xFF, (size_t)n_blocks * block_bytes);
    in->args.kind = ATTN_EXACT;
    in->args.blocks = memory;
    in->args.block_bytes = block_bytes;
    int n = 0;
    bool fresh = true;
    for (int i = 0, hole = 0; i < is->n; i++, row++) {
        if (row == is->block_tokens) {
            row = 0;
            block -= block_bytes;
            fresh = true;
            hole++;
        }
        put_token(c, in, block, row);
        fresh |= check_draw(c) % 16 == 0;
        if (is->holes && hole % 3 == 1) continue;
        uint32_t number = (uint32_t)((size_t)(block - memory) / block_bytes);
        if (fresh) in->spans[n++] = (attn_span){number, ATTN_EXACT, row, 0, CHUNK_BEGIN + is->first + i};
        in->spans[n - 1].n++;
        fresh = false;
    }
    in->args.spans = in->spans;
    in->args.n_spans = n;
}

static void make_rows(check *c, attend_input *in)
{
    const attend_case *is = &in->is;
    int64_t begin = CHUNK_BEGIN + is->first, end = begin + is->n;
    for (int r = 0; r < is->n_rows; r++) {
        attn_row *row = &in->rows[r];
        *row = (attn_row){.lo = 0, .hi = end - is->n_rows + r + 1};
        if (is->sees == WINDOW) row->lo = row->hi - 1 - (int64_t)(check_draw(c) % (uint32_t)is->n);
        if (is->sees == TREE) {
            in->masks[r] = check_draw(c) | (uint64_t)1 << r;
            *row =
                (attn_row){.lo = 0, .hi = end + r % 3, .mask = &in->masks[r], .mask_n = 1 + (int)(check_draw(c) % 32)};
        }
        if (check_draw(c) % 16 == 0) row->hi = row->lo; /* sees nothing */
        in->row[r] = row;
    }
}

static attend_input *make_input(check *c, const attend_case *is)
{
    static attend_input one;
    attend_input *in = &one;
    memset(in, 0, sizeof *in);
    in->is = *is;
    place_tokens(c, in);
    make_rows(c, in);
    float *q = check_floats(c, (int64_t)is->n_rows * is->d_k);
    check_fill(c, q, (int64_t)is->n_rows * is->d_k, is->q);
    for (int r = 0; r < is->n_rows; r++) in->q[r] = q + r * is->d_k;
    attend_args *a = &in->args;
    a->q = in->q;
    a->n_rows = is->n_rows;
    a->d_k = is->d_k;
    a->d_v = is->d_v;
    a->block_tokens = is->block_tokens;
    a->softcap = is->softcap;
    a->chunk_begin = CHUNK_BEGIN;
    a->rows = in->row;
    a->o = in->o;
    a->scratch = check_floats(c, (int64_t)is->n_rows * ATTN_CHUNK);
    return in;
}

static partials make_partials(check *c, const attend_case *is)
{
    partials p = {.o = check_floats(c, (int64_t)is->n_rows * is->d_v), .m = check_floats(c, 2 * is->n_rows)};
    p.l = p.m + is->n_rows;
    return p;
}

static partials attend(check *c, const kernels *ks, attend_input *in)
{
    partials p = make_partials(c, &in->is);
    attend_args *a = &in->args;
    for (int r = 0; r < in->is.n_rows; r++) in->o[r] = p.o + r * in->is.d_v;
    a->m = p.m;
    a->l = p.l;
    if (in->is.half) ks->attend_f16(a);
    else ks->attend_f32(a);
    return p;
}

/* What bounds a row's errors: the largest sum of absolute products of a score, and sum p|v| for each dimension of V. */
static double row_sizes(const attend_input *in, int r, double m, double *sizes)
{
    const attend_case *is = &in->is;
    double largest = 0;
    memset(sizes, 0, (size_t)is->d_v * sizeof *sizes);
    for (int j = 0; j < in->args.n_spans; j++) {
        const attn_span *s = &in->spans[j];
        for (int row = s->row; row < s->row + s->n; row++) {
            if (!attn_row_sees(&in->rows[r], in->args.kind, s->index + row - s->row)) continue;
            double score = 0, size = 0;
            for (int d = 0; d < is->d_k; d++) {
                double k = element(attend_block(&in->args, s) + in->args.k_offset, (int64_t)d * is->block_tokens + row, is->half);
                score += in->q[r][d] * k;
                size += fabs(in->q[r][d] * k);
            }
            if (is->softcap > 0) score = is->softcap * tanh(score / is->softcap);
            largest = fmax(largest, size);
            for (int d = 0; d < is->d_v; d++) {
                double v = element(attend_block(&in->args, s) + in->args.v_offset, (int64_t)row * is->d_v + d, is->half);
                sizes[d] += exp(score - m) * fabs(v);
            }
        }
    }
    return largest;
}

static void check_row(check *c, const attend_input *in, int r, const partials *got, const partials *want)
{
    const attend_case *is = &in->is;
    double sizes[MAX_D], m = want->m[r];
    if (m == -INFINITY) {
        bool empty = got->m[r] == -INFINITY && got->l[r] == 0;
        for (int d = 0; d < is->d_v; d++) empty &= got->o[r * is->d_v + d] == 0;
        if (!empty) check_fail(c, "row %d sees nothing, but its partial isn't empty", r);
        return;
    }
    double error = 2 * (is->d_k + 2) * ULP * row_sizes(in, r, m, sizes) + 16 * ULP * (double)is->softcap;
    double relative = expm1(2 * error) + (is->n + 16) * ULP, factor = exp((double)got->m[r] - m);
    if (!(fabs((double)got->m[r] - m) <= error))
        check_fail(c, "row %d: m %.9g, reference %.9g", r, (double)got->m[r], m);
    if (!(fabs(got->l[r] * factor - want->l[r]) <= relative * want->l[r]))
        check_fail(c, "row %d: l %.9g, reference %.9g", r, got->l[r] * factor, (double)want->l[r]);
    for (int d = 0; d < is->d_v; d++) {
        double x = got->o[r * is->d_v + d] * factor, y = want->o[r * is->d_v + d];
        if (!(fabs(x - y) <= relative * sizes[d])) check_fail(c, "row %d, o[%d] %.9g, reference %.9g", r, d, x, y);
    }
}

static void check_chunk(check *c, const attend_case *is)
{
    check_case(c, "%d rows, d_k %d, d_v %d, places %d..%d in blocks of %d%s, view %d, softcap %g, q %s", is->n_rows,
               is->d_k, is->d_v, is->first, is->first + is->n, is->block_tokens, is->holes ? " with holes" : "",
               is->sees, (double)is->softcap, values_name[is->q]);
    attend_input *in = make_input(c, is);
    partials got = attend(c, c->ks, in), want = attend(c, c->ref, in);
    for (int r = 0; r < is->n_rows; r++) check_row(c, in, r, &got, &want);
    if (!c->below) return;
    partials below = attend(c, c->below, in);
    if (first_difference(got.o, below.o, is->n_rows * is->d_v) >= 0 ||
        first_difference(got.m, below.m, 2 * is->n_rows) >= 0)
        check_fail(c, "other bits than %s", c->below->name);
}

/* Scores that aren't numbers take no part in the maximum: of the first row all, of the others that of one token. */
static void check_not_numbers(check *c)
{
    const attend_case is = {c->entry->which, 5, 64, 64, 16, 0, 100, CAUSAL, false, 0, ORDINARY};
    check_case(c, "scores that aren't numbers");
    attend_input *in = make_input(c, &is);
    float *none = check_floats(c, is.d_k);
    for (int d = 0; d < is.d_k; d++) none[d] = NAN;
    in->q[0] = none;
    for (int r = 0; r < is.n_rows; r++) in->rows[r] = (attn_row){.hi = CHUNK_BEGIN + is.n};
    const attn_span *s = &in->spans[0];
    put_element((uint8_t *)(uintptr_t)attend_block(&in->args, s) + in->args.k_offset, s->row, is.half, NAN);
    partials got = attend(c, c->ks, in), want = attend(c, c->ref, in);
    for (int r = 0; r < is.n_rows; r++) {
        bool empty = want.m[r] == -INFINITY;
        if (empty != (r == 0) || !isnan(want.l[r]) == (r > 0)) check_fail(c, "row %d of the reference", r);
        if (empty ? got.m[r] != want.m[r] || got.l[r] != want.l[r] : !is_near(got.m[r], want.m[r], 1e-4, 0))
            check_fail(c, "row %d: m %g and l %g, reference %g and %g", r, (double)got.m[r], (double)got.l[r],
                       (double)want.m[r], (double)want.l[r]);
        if (!isnan(got.l[r]) != !isnan(want.l[r])) check_fail(c, "row %d: l %g", r, (double)got.l[r]);
    }
}

static void check_attend(check *c)
{
    check_not_numbers(c);
    const int sizes[] = {8, 16, 24, 32, 64, 72, 80, 96, 128, 192, 256, MAX_D};
    const values kinds[] = {ORDINARY, ORDINARY, NEAR_ZERO, LARGE, DENORMAL, EQUAL, ZEROS, SIGNS};
    for (int i = 0; i < 160; i++) {
        attend_case is = {.half = c->entry->which,
                          .n_rows = i % ATTEND_ROWS + 1,
                          .block_tokens = 8 << i % 6,
                          .sees = (view)(i % N_VIEWS)};
        is.d_k = sizes[check_draw(c) % 12];
        is.d_v = check_draw(c) % 2 ? is.d_k : sizes[check_draw(c) % 12];
        is.n = 1 + (int)(check_draw(c) % (i % 4 ? 64 : ATTN_CHUNK));
        is.first = i % 5 ? (int)(check_draw(c) % (uint32_t)(ATTN_CHUNK - is.n + 1)) : 0;
        is.holes = i % 7 == 6;
        is.softcap = i % 4 == 3 ? 0.5f + check_draw(c) % 50 : 0;
        is.q = kinds[i / 4 % 8];
        check_chunk(c, &is);
    }
}

typedef struct merge_input {
    float *o, *o2;
    float m, l, m2, l2;
    int d_v;
} merge_input;

static void call_merge(const kernels *ks, void *arg)
{
    merge_input *in = arg;
    ks->merge(in->o, &in->m, &in->l, in->o2, in->m2, in->l2, in->d_v);
}

static void make_merge(check *c, merge_input *in, values what)
{
    in->o = check_floats(c, in->d_v);
    in->o2 = check_floats(c, in->d_v);
    check_fill(c, in->o, in->d_v, what);
    check_fill(c, in->o2, in->d_v, ORDINARY);
}

static void check_merged(check *c, merge_input in, values what)
{
    check_case(c, "d_v %d, m %g and %g, %s", in.d_v, (double)in.m, (double)in.m2, values_name[what]);
    make_merge(c, &in, what);
    merge_input got = in, want = in, below = in;
    double top = fmax(in.m, in.m2), a = exp(in.m - top), b = exp(in.m2 - top);
    got.o = memcpy(check_floats(c, in.d_v), in.o, (size_t)in.d_v * sizeof(float));
    want.o = memcpy(check_floats(c, in.d_v), in.o, (size_t)in.d_v * sizeof(float));
    call_merge(c->ks, &got);
    call_merge(c->ref, &want);
    if (got.m != want.m) check_fail(c, "m %g, reference %g", (double)got.m, (double)want.m);
    if (!is_near(got.l, want.l, 8 * ULP, 1e-34)) check_fail(c, "l %.9g, reference %.9g", (double)got.l, (double)want.l);
    for (int d = 0; d < in.d_v; d++) {
        double size = top == -INFINITY ? 0 : a * fabs((double)in.o[d]) + b * fabs((double)in.o2[d]);
        if (is_near(got.o[d], want.o[d], 0, 8 * ULP * size + 1e-34)) continue;
        check_fail(c, "o[%d] %.9g, reference %.9g", d, (double)got.o[d], (double)want.o[d]);
    }
    if (!c->below) return;
    below.o = memcpy(check_floats(c, in.d_v), in.o, (size_t)in.d_v * sizeof(float));
    call_merge(c->below, &below);
    if (first_difference(got.o, below.o, in.d_v) >= 0 || got.l != below.l)
        check_fail(c, "other bits than %s", c->below->name);
}

static void check_merge(check *c)
{
    const float m[] = {-INFINITY, 0, -3.5f, 80, -1000, 1000, 0x1p-130f};
    for (int d_v = 8; d_v <= MAX_D; d_v += 8) {
        for (int i = 0; i < 49; i++) {
            merge_input in = {.m = m[i / 7], .m2 = m[i % 7], .d_v = d_v};
            in.l = in.m == -INFINITY ? 0 : 1 + 100 * fabsf(check_uniform(c));
            in.l2 = in.m2 == -INFINITY ? 0 : 1 + 100 * fabsf(check_uniform(c));
            check_merged(c, in, (values)(i % NOT_FINITE));
        }
    }
}

static void call_attend(const kernels *ks, void *arg)
{
    attend_input *in = arg;
    if (in->is.half) ks->attend_f16(&in->args);
    else ks->attend_f32(&in->args);
}

static void time_attend(check *c)
{
    const int rows[] = {1, 3, 12};
    for (int i = 0; i < 3; i++) {
        char what[40];
        check_case(c, "timing");
        attend_case is = {c->entry->which, rows[i], 64, 64, 16, 0, ATTN_CHUNK, CAUSAL, false, 0, ORDINARY};
        attend_input *in = make_input(c, &is);
        for (int r = 0; r < is.n_rows; r++) in->rows[r] = (attn_row){.hi = CHUNK_BEGIN + ATTN_CHUNK};
        attend(c, c->ref, in);
        snprintf(what, sizeof what, "256 tokens, d 64, %d rows", rows[i]);
        check_time(c, what, call_attend, in);
    }
}

static void time_merge(check *c)
{
    check_case(c, "timing");
    merge_input in = {.m = 1, .l = 2, .m2 = 1, .l2 = 3, .d_v = 128};
    make_merge(c, &in, ORDINARY);
    check_time(c, "d 128", call_merge, &in);
}

int check_attend_entries(check_entry *e)
{
    const check_entry all[] = {
        {.name = "attend_f32",
         .slot = offsetof(kernels, attend_f32),
         .which = false,
         .run = check_attend,
         .time = time_attend},
        {.name = "attend_f16",
         .slot = offsetof(kernels, attend_f16),
         .which = true,
         .run = check_attend,
         .time = time_attend},
        {.name = "merge", .slot = offsetof(kernels, merge), .run = check_merge, .time = time_merge},
    };
    memcpy(e, all, sizeof all);
    return sizeof all / sizeof all[0];
}
