/* Rows that see a sequence in three kinds: its first tokens exact, closed segments sealed, the open segment exact. Here
 * sealed blocks are f16 as well, but of other numbers and another size, so that a row that reads the wrong kind shows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention_draw.h"
#include "base/half.h"
#include "kernel/attention.h"

#define D 16
#define N_HEADS 4
#define N_KV_HEADS 2
#define N_CTX 900
#define SEGMENT 128
#define SINKS 4
#define EXACT_BLOCK 16
#define MAX_QUERIES 400
#define ROW (N_HEADS * D)

/* [2] by whether it is sealed. A pool's blocks lie in order, KV head after KV head: K [D][B], V [B][D]. */
typedef struct kinds_store {
    float kv[2][2][N_CTX][N_KV_HEADS][D]; /* sealed, K or V */
    uint16_t *pool[2];
    float q[N_CTX][N_HEADS][D];
} kinds_store;

static int block_of(int sealed)
{
    return sealed ? SEGMENT : EXACT_BLOCK;
}

static uint16_t *element(const kinds_store *t, int sealed, int value, int token, int head, int d)
{
    size_t b = (size_t)block_of(sealed), row = (size_t)token % b, block = (size_t)token / b;
    size_t at =
        (block * N_KV_HEADS + (size_t)head) * 2 * b * D + (value ? b * D + row * D + (size_t)d : (size_t)d * b + row);
    return t->pool[sealed] + at;
}

static kinds_store *make_kinds(void)
{
    kinds_store *t = calloc(1, sizeof *t);
    for (int sealed = 0; sealed < 2; sealed++) {
        size_t n = (size_t)(N_CTX + SEGMENT) * N_KV_HEADS * 2 * D;
        t->pool[sealed] = malloc(n * sizeof **t->pool);
        memset(t->pool[sealed], 0xFF, n * sizeof **t->pool);
        for (int i = 0; i < 2 * N_CTX * N_KV_HEADS * D; i++) {
            int d = i % D, head = i / D % N_KV_HEADS, token = i / D / N_KV_HEADS % N_CTX,
                value = i / D / N_KV_HEADS / N_CTX;
            uint16_t h = float_to_half(draw(5 + (uint64_t)sealed, value, i));
            *element(t, sealed, value, token, head, d) = h;
            t->kv[sealed][value][token][head][d] = half_to_float(h);
        }
    }
    for (int i = 0; i < N_CTX * ROW; i++) t->q[i / ROW][i / D % N_HEADS][i % D] = draw(9, 0, i);
    return t;
}

static void free_kinds(kinds_store *t)
{
    free(t->pool[0]);
    free(t->pool[1]);
    free(t);
}

static attn_row row_at(int position, int window)
{
    int lo = window && position >= window ? position - window + 1 : 0;
    return (attn_row){.lo = lo, .hi = position + 1, .sinks = SINKS, .exact_from = position / SEGMENT * SEGMENT};
}

/* Sinks, the segments that end before `end`, and what is exact from `from` on. */
static int make_spans(attn_span *out, int from, int end)
{
    int n = 0;
    out[n++] = (attn_span){0, ATTN_SINK, 0, SINKS, 0};
    for (int s = 0; (s + 1) * SEGMENT <= end; s++) {
        int skip = s ? 0 : SINKS;
        out[n++] = (attn_span){(uint32_t)s, ATTN_SEALED, skip, SEGMENT - skip, (int64_t)s * SEGMENT + skip};
    }
    for (int b = from / EXACT_BLOCK; b * EXACT_BLOCK < end; b++) {
        int left = end - b * EXACT_BLOCK;
        out[n++] =
            (attn_span){(uint32_t)b, ATTN_EXACT, 0, left < EXACT_BLOCK ? left : EXACT_BLOCK, (int64_t)b * EXACT_BLOCK};
    }
    return n;
}

static attn_source source_of(const kinds_store *t, const kernels *ks, int sealed)
{
    size_t side = (size_t)block_of(sealed) * D * sizeof(uint16_t);
    return (attn_source){.attend = ks->attend_f16,
                         .blocks = (const uint8_t *)t->pool[sealed],
                         .block_bytes = 2 * N_KV_HEADS * side,
                         .block_tokens = block_of(sealed),
                         .v_offset = side,
                         .k_head_stride = 2 * side,
                         .v_head_stride = 2 * side};
}

/* Queries at positions [first, first + n), which this step has stored: out [n][ROW]. */
static void run_rows(const kinds_store *t, const kernels *ks, int first, int n, int window, int workers, unsigned how,
                     float *out)
{
    status st = STATUS_INIT;
    threads *team;
    attn_plan *p;
    attn_span spans[2 * N_CTX / EXACT_BLOCK];
    int n_spans = make_spans(spans, first / SEGMENT * SEGMENT, first + n);
    attn_layer layer = {.scale = 0.25f};
    layer.source[ATTN_SINK] = layer.source[ATTN_EXACT] = source_of(t, ks, 0);
    layer.source[ATTN_SEALED] = source_of(t, ks, 1);
    assert_int_equal(threads_new(&team, workers, &st), ST_OK);
    assert_int_equal(attn_plan_new(&p, ks, (attn_shape){N_HEADS, N_KV_HEADS, D, D, SEGMENT}, workers, n, 1, n_spans,
                                   &st),
                     ST_OK);
    attn_plan_reset(p);
    attn_plan_seq(p, spans, n_spans);
    for (int i = 0; i < n; i++) {
        attn_row row = row_at(first + i, window);
        attn_plan_row(p, &row);
    }
    attn_plan_build(p, workers, how);
    attn_run(p, team, &layer, &t->q[first][0][0], out);
    attn_plan_free(p);
    threads_free(team);
}

/* One head of one row by the definition. */
static void check_row(const kinds_store *t, int position, int window, const float *got)
{
    for (int h = 0; h < N_HEADS; h++) {
        int kv = h / (N_HEADS / N_KV_HEADS);
        double o[D] = {0}, l = 0;
        attn_row row = row_at(position, window);
        for (int k = (int)row.lo; k < row.hi; k++) {
            int sealed = k >= SINKS && k < row.exact_from;
            double score = 0;
            for (int d = 0; d < D; d++) score += 0.25 * t->q[position][h][d] * t->kv[sealed][0][k][kv][d];
            l += exp(score);
            for (int d = 0; d < D; d++) o[d] += exp(score) * t->kv[sealed][1][k][kv][d];
        }
        for (int d = 0; d < D; d++)
            if (!(fabs(got[h * D + d] - o[d] / l) < 1e-5))
                fail_msg("position %d, head %d, %d: %g, not %g", position, h, d, (double)got[h * D + d], o[d] / l);
    }
}

static const cpu_level levels[] = {CPU_SCALAR, CPU_AVX2, CPU_AVX512, CPU_NEON, CPU_DOTPROD};

static void each_index_is_seen_in_its_kind(void **state)
{
    (void)state;
    kinds_store *t = make_kinds();
    float *out = malloc(MAX_QUERIES * ROW * sizeof *out);
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        const kernels *ks = kernels_get(levels[i]);
        for (int window = 0; ks && window <= 300; window += 300) {
            run_rows(t, ks, 0, MAX_QUERIES, window, 2, ATTN_SPLIT | ATTN_CASCADE, out);
            for (int r = 0; r < MAX_QUERIES; r++) check_row(t, r, window, out + r * ROW);
            run_rows(t, ks, 770, 130, window, 2, ATTN_SPLIT | ATTN_CASCADE, out);
            for (int r = 0; r < 130; r++) check_row(t, 770 + r, window, out + r * ROW);
        }
    }
    free(out);
    free_kinds(t);
}

/* A step may seal a segment in its midst, and then has it both ways; a later step has it sealed alone. */
static void steps_change_no_bit(void **state)
{
    (void)state;
    kinds_store *t = make_kinds();
    const kernels *ks = kernels_get(CPU_AUTO);
    float *one = malloc(N_CTX * ROW * sizeof *one), *got = malloc(N_CTX * ROW * sizeof *got);
    for (int i = 0; i < N_CTX; i++) run_rows(t, ks, i, 1, 0, 1, 0, one + i * ROW);
    const int chunks[] = {3, 100, 128, 131, 256, 400};
    for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
        for (int at = 0; at < N_CTX; at += chunks[c]) {
            int n = at + chunks[c] < N_CTX ? chunks[c] : N_CTX - at;
            run_rows(t, ks, at, n, 0, 1 + (int)c % 3, c % 2 ? ATTN_SPLIT | ATTN_CASCADE : 0, got + at * ROW);
        }
        assert_memory_equal(got, one, N_CTX * ROW * sizeof *got);
    }
    free(one);
    free(got);
    free_kinds(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_index_is_seen_in_its_kind),
        cmocka_unit_test(steps_change_no_bit),
    };
    return cmocka_run_group_tests_name("attention_kinds", tests, NULL, NULL);
}
