/* Cascade: sequences that share blocks as the branches of a tree do. The plan puts them into common tiles; bits are
 * those without it, with any number of threads, and of each sequence alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attention_draw.h"
#include "base/half.h"
#include "base/mem.h"
#include "kernel/attention_plan.h"

#define MAX_BRANCHES 48
#define BRANCH_ROWS 24
#define BRANCH_BLOCKS 200

/* A sequence whose first `fork` positions are its parent's: whole blocks are shared, what is left of one is a copy. */
typedef struct branch {
    int parent; /* an earlier branch; -1 = none */
    int fork, n_ctx;
    int n_rows; /* its last positions are this step's queries */
    bool tree;  /* of drafts: each sees the prefix, itself and some of those before it */
    uint8_t *blocks[BRANCH_BLOCKS];
    uint64_t masks[BRANCH_ROWS];
} branch;

typedef struct family {
    int n_heads, n_kv_heads, d, block_tokens, window;
    bool half;
    uint64_t identity;
    int n;
    branch b[MAX_BRANCHES];
    uint8_t *memory;
    size_t n_bytes, n_used;
    float *q; /* [n_rows of all][n_heads][d] */
    int n_rows;
} family;

static size_t head_bytes(const family *f)
{
    return (size_t)f->block_tokens * 2 * (size_t)f->d * (f->half ? 2 : 4);
}

/* Which branch wrote the position that branch i holds. */
static int writer(const family *f, int i, int position)
{
    while (f->b[i].parent >= 0 && position < f->b[i].fork) i = f->b[i].parent;
    return i;
}

static float element(const family *f, int i, int position, int kv_head, int d, bool value)
{
    int64_t at = ((int64_t)position * f->n_kv_heads + kv_head) * f->d + d;
    return draw(f->identity * 1000 + (uint64_t)writer(f, i, position), value, at);
}

static void put(const family *f, uint8_t *to, int64_t at, float x)
{
    uint16_t h = float_to_half(x);
    if (f->half) memcpy(to + 2 * at, &h, 2);
    else memcpy(to + 4 * at, &x, 4);
}

static void put_position(const family *f, int i, int position)
{
    int row = position % f->block_tokens;
    for (int h = 0; h < f->n_kv_heads; h++) {
        uint8_t *to = f->b[i].blocks[position / f->block_tokens] + (size_t)h * head_bytes(f);
        for (int d = 0; d < f->d; d++) {
            put(f, to, (int64_t)d * f->block_tokens + row, element(f, i, position, h, d, false));
            put(f, to, ((int64_t)f->block_tokens + row) * f->d + d, element(f, i, position, h, d, true));
        }
    }
}

static void fill_branch(family *f, int i)
{
    branch *b = &f->b[i];
    int shared = b->parent >= 0 ? b->fork / f->block_tokens : 0, n = (b->n_ctx - 1) / f->block_tokens + 1;
    assert_true(n <= BRANCH_BLOCKS && b->n_rows <= BRANCH_ROWS && b->n_rows <= b->n_ctx);
    for (int k = 0; k < n; k++) {
        if (k < shared) b->blocks[k] = f->b[b->parent].blocks[k];
        else {
            f->n_used += head_bytes(f) * (size_t)f->n_kv_heads;
            assert_true(f->n_used <= f->n_bytes);
            b->blocks[k] = f->memory + f->n_bytes - f->n_used;
        }
    }
    for (int position = shared * f->block_tokens; position < b->n_ctx; position++) put_position(f, i, position);
    for (int r = 0; r < b->n_rows; r++)
        b->masks[r] = (mix(f->identity + 77 + (uint64_t)(i * 100 + r)) & (((uint64_t)1 << r) - 1)) | (uint64_t)1 << r;
}

/* Places what the branches say; memory that no position has is NaN. */
static void fill_family(family *f)
{
    f->n_rows = 0;
    f->n_bytes = f->n_used = 0;
    for (int i = 0; i < f->n; i++) {
        f->n_rows += f->b[i].n_rows;
        f->n_bytes += (size_t)(f->b[i].n_ctx / f->block_tokens + 1) * head_bytes(f) * (size_t)f->n_kv_heads;
    }
    f->memory = malloc(f->n_bytes);
    memset(f->memory, 0xFF, f->n_bytes);
    for (int i = 0; i < f->n; i++) fill_branch(f, i);
    size_t n_q = (size_t)(f->n_rows * f->n_heads * f->d);
    f->q = malloc(n_q * sizeof *f->q);
    for (size_t i = 0; i < n_q; i++) f->q[i] = draw(f->identity, 2, (int64_t)i);
}

static void free_family(family *f)
{
    free(f->memory);
    free(f->q);
}

static attn_row row_of(const family *f, int i, int r)
{
    const branch *b = &f->b[i];
    attn_row row = {.hi = b->tree ? b->n_ctx : b->n_ctx - b->n_rows + r + 1};
    row.lo = f->window && row.hi > f->window ? row.hi - f->window : 0;
    if (b->tree) row.mask = &b->masks[r], row.mask_n = b->n_rows;
    return row;
}

static int spans_of(const family *f, int i, attn_span *spans)
{
    const branch *b = &f->b[i];
    int n = 0, oldest = f->window ? b->n_ctx - b->n_rows + 1 - f->window : 0;
    for (int k = oldest > 0 ? oldest / f->block_tokens : 0; k * f->block_tokens < b->n_ctx; k++) {
        int left = b->n_ctx - k * f->block_tokens;
        int held = left < f->block_tokens ? left : f->block_tokens;
        uint32_t number = (uint32_t)((size_t)(b->blocks[k] - f->memory) / (head_bytes(f) * (size_t)f->n_kv_heads));
        spans[n++] = (attn_span){number, ATTN_EXACT, 0, held, (int64_t)k * f->block_tokens};
    }
    return n;
}

/* Branches [first, first + n), row by row in turn where they have several, so that none has its rows together. */
static void add_branches(const family *f, attn_plan *p, int first, int n, int *row_of_q)
{
    attn_span spans[BRANCH_BLOCKS];
    int n_rows = 0, before = 0;
    for (int i = first; i < first + n; i++) assert_int_equal(attn_plan_seq(p, spans, spans_of(f, i, spans)), i - first);
    for (int r = 0; r < BRANCH_ROWS; r++) {
        before = 0;
        for (int i = 0; i < f->n; before += f->b[i++].n_rows) {
            if (i < first || i >= first + n || r >= f->b[i].n_rows) continue;
            attn_row row = row_of(f, i, r);
            row.seq = i - first;
            attn_plan_row(p, &row);
            row_of_q[n_rows++] = before + r;
        }
    }
}

static int span_count(const family *f)
{
    attn_span spans[BRANCH_BLOCKS];
    int n = 0;
    for (int i = 0; i < f->n; i++) n += spans_of(f, i, spans);
    return n;
}

static attn_plan *new_plan(const family *f, const kernels *ks, int workers)
{
    status st = STATUS_INIT;
    attn_plan *p;
    attn_shape shape = {f->n_heads, f->n_kv_heads, f->d, f->d, f->block_tokens};
    assert_int_equal(attn_plan_new(&p, ks, shape, workers, f->n_rows, f->n, span_count(f), &st), ST_OK);
    return p;
}

/* out [n_rows of all][n_heads][d]: rows of the branches [first, first + n) are written. */
static void run(const family *f, const kernels *ks, int first, int n, int workers, unsigned how, float *out)
{
    status st = STATUS_INIT;
    threads *team;
    int *row_of_q = malloc((size_t)f->n_rows * sizeof *row_of_q);
    size_t row = (size_t)(f->n_heads * f->d);
    float *q = malloc((size_t)f->n_rows * row * sizeof *q), *o = malloc((size_t)f->n_rows * row * sizeof *o);
    attn_layer layer = {.source[ATTN_EXACT] = {.attend = f->half ? ks->attend_f16 : ks->attend_f32,
                                               .blocks = f->memory,
                                               .block_bytes = head_bytes(f) * (size_t)f->n_kv_heads,
                                               .block_tokens = f->block_tokens,
                                               .v_offset = head_bytes(f) / 2,
                                               .k_head_stride = head_bytes(f),
                                               .v_head_stride = head_bytes(f)},
                        .scale = 1.0f / sqrtf((float)f->d)};
    assert_int_equal(threads_new(&team, workers, &st), ST_OK);
    attn_plan *p = new_plan(f, ks, workers);
    attn_plan_reset(p);
    uint64_t calls = mem_stats().calls;
    add_branches(f, p, first, n, row_of_q);
    for (int i = 0; i < p->n_rows; i++) memcpy(q + (size_t)i * row, f->q + (size_t)row_of_q[i] * row, row * sizeof *q);
    attn_plan_build(p, workers, how);
    for (int layers = 0; layers < 2; layers++) {
        memset(o, 0xFF, (size_t)p->n_rows * row * sizeof *o);
        attn_run(p, team, &layer, q, o);
    }
    assert_int_equal(mem_stats().calls, calls);
    for (int i = 0; i < p->n_rows; i++) memcpy(out + (size_t)row_of_q[i] * row, o + (size_t)i * row, row * sizeof *o);
    attn_plan_free(p);
    threads_free(team);
    free(row_of_q);
    free(q);
    free(o);
}

/* One head of a row by its definition. */
static void check_head(const family *f, int i, int r, int head, const float *q, const float *got)
{
    attn_row row = row_of(f, i, r);
    int kv = head / (f->n_heads / f->n_kv_heads);
    double *w = calloc((size_t)row.hi, sizeof *w), top = -INFINITY, sum = 0, want[64] = {0};
    for (int t = 0; t < row.hi; t++) {
        if (!attn_row_sees(&row, ATTN_EXACT, t)) continue;
        for (int d = 0; d < f->d; d++) w[t] += (double)q[d] * element(f, i, t, kv, d, false) / sqrt(f->d);
        top = fmax(top, w[t]);
    }
    for (int t = 0; t < row.hi; t++) {
        if (!attn_row_sees(&row, ATTN_EXACT, t)) continue;
        double p = exp(w[t] - top);
        sum += p;
        for (int d = 0; d < f->d; d++) want[d] += p * element(f, i, t, kv, d, true);
    }
    for (int d = 0; d < f->d; d++)
        if (!(fabs(got[d] - want[d] / sum) <= 1e-5))
            fail_msg("branch %d row %d head %d d %d: got %g, want %g", i, r, head, d, got[d], want[d] / sum);
    free(w);
}

static void check_against_definition(const family *f, const float *out)
{
    int at = 0;
    for (int i = 0; i < f->n; i++) {
        for (int r = 0; r < f->b[i].n_rows; r++, at++) {
            if (r && r < f->b[i].n_rows - 1) continue;
            int head = (i + r) % f->n_heads;
            size_t row = ((size_t)at * (size_t)f->n_heads + (size_t)head) * (size_t)f->d;
            check_head(f, i, r, head, f->q + row, out + row);
        }
    }
}

/* Each branch alone, whole, by one worker: the standard. */
static float *run_alone(const family *f, const kernels *ks)
{
    float *out = malloc((size_t)(f->n_rows * f->n_heads * f->d) * sizeof *out);
    for (int i = 0; i < f->n; i++) run(f, ks, i, 1, 1, 0, out);
    return out;
}

static void check_family(const family *f, const kernels *ks)
{
    size_t n = (size_t)(f->n_rows * f->n_heads * f->d);
    float *want = run_alone(f, ks), *got = malloc(n * sizeof *got);
    check_against_definition(f, want);
    for (int workers = 1; workers <= 4; workers++) {
        for (unsigned how = 0; how <= (ATTN_SPLIT | ATTN_CASCADE); how++) {
            memset(got, 0xFF, n * sizeof *got);
            run(f, ks, 0, f->n, workers, how, got);
            assert_same_bits(got, want, n);
        }
    }
    free(want);
    free(got);
}

static const kernels *level(int i)
{
    const cpu_level levels[] = {CPU_AVX2, CPU_AVX512, CPU_AUTO};
    return kernels_get(levels[i]);
}

/* A tree that grows at random: short and long branches, forks inside blocks and chunks, a few drafts and prompts. */
static void grow(family *f, uint64_t seed)
{
    const int heads[][2] = {{6, 2}, {3, 3}, {4, 1}, {17, 1}};
    const int blocks[] = {8, 16, 32, 256};
    uint64_t r = mix(seed + 1);
    *f = (family){.n_heads = heads[r % 4][0],
                  .n_kv_heads = heads[r % 4][1],
                  .d = 8 + 16 * (int)(r >> 8 & 1),
                  .block_tokens = blocks[r >> 16 & 3],
                  .half = r >> 24 & 1,
                  .identity = seed,
                  .n = 2 + (int)((r >> 32 & 0xFF) % 9)};
    if (r >> 60 & 1) f->window = 100 + (int)((r >> 40 & 0xFFFF) % 700);
    for (int i = 0; i < f->n; i++) {
        uint64_t x = mix(seed * 64 + 1000 + (uint64_t)i);
        branch *b = &f->b[i];
        b->parent = i ? (int)(x % (uint64_t)i) : -1;
        b->fork = i ? (int)((x >> 8 & 0xFFFF) % (uint64_t)(f->b[b->parent].n_ctx + 1)) : 0;
        if (x >> 30 & 1) b->fork -= b->fork % ATTN_CHUNK; /* where whole chunks end */
        b->n_rows = x >> 33 & 3 ? 1 + (int)(x >> 35 & 3) : BRANCH_ROWS;
        b->n_ctx = (i ? b->fork : 700) + b->n_rows + (int)((x >> 40 & 0xFFF) % 300);
        if (b->n_ctx > BRANCH_BLOCKS * 8) b->n_ctx = BRANCH_BLOCKS * 8;
        b->tree = (x >> 55 & 3) == 0 && (!f->window || f->window > BRANCH_ROWS);
    }
}

static void test_random_trees(void **state)
{
    (void)state;
    family f;
    int shared = 0, n_trees = getenv("TEST_FULL") ? 400 : 24;
    for (int seed = 0; seed < n_trees; seed++) {
        grow(&f, (uint64_t)seed);
        fill_family(&f);
        const kernels *ks = level(seed % 3);
        if (ks) check_family(&f, ks);
        attn_plan *p = new_plan(&f, kernels_get(CPU_AUTO), 1);
        int *rows = malloc((size_t)f.n_rows * sizeof *rows);
        attn_plan_reset(p);
        add_branches(&f, p, 0, f.n, rows);
        attn_plan_build(p, 1, ATTN_CASCADE);
        shared += p->n_shared_tiles > 0;
        attn_plan_free(p);
        free(rows);
        free_family(&f);
    }
    assert_true(shared > n_trees / 4); /* the trees do share */
}

/* `n` branches of one prefix, of which the first `n_more` share `more` further positions; `own` of their own each. */
static void make_fan(family *f, int n, int prefix, int n_more, int more, int own)
{
    f->n = n;
    for (int i = 0; i < n; i++) {
        bool deep = i < n_more;
        f->b[i] = (branch){.parent = i ? 0 : -1,
                           .fork = i ? prefix + (deep ? more : 0) : 0,
                           .n_rows = 1,
                           .n_ctx = prefix + (deep ? more : 0) + own};
    }
    fill_family(f);
}

/* How often a chunk of K and V is read for one KV head. */
static int count_reads(const family *f, int workers, unsigned how, int *n_shared_tiles)
{
    int *rows = malloc((size_t)f->n_rows * sizeof *rows), reads = 0;
    attn_plan *p = new_plan(f, kernels_get(CPU_AUTO), workers);
    attn_plan_reset(p);
    add_branches(f, p, 0, f->n, rows);
    attn_plan_build(p, workers, how);
    for (int i = 0; i < p->n_items; i++) reads += p->items[i].head_block == 0 ? p->items[i].n_chunks : 0;
    *n_shared_tiles = p->n_shared_tiles;
    attn_plan_free(p);
    free(rows);
    return reads;
}

static const family small = {.n_heads = 6, .n_kv_heads = 2, .d = 8, .block_tokens = 16, .half = true, .identity = 9};

static void test_shared_chunks_are_read_once(void **state)
{
    (void)state;
    family f = small;
    int n_shared;
    make_fan(&f, 16, 1024, 4, 512, 20);
    assert_int_equal(count_reads(&f, 1, ATTN_SPLIT, &n_shared), 16 * 4 + 4 * 2 + 16);
    assert_int_equal(n_shared, 0);
    assert_int_equal(count_reads(&f, 1, ATTN_SPLIT | ATTN_CASCADE, &n_shared), 4 + 2 + 16);
    assert_int_equal(n_shared, 2);
    /* for two workers: four tiles of twelve rows (of one KV head), and the four branches' own */
    assert_int_equal(count_reads(&f, 2, ATTN_SPLIT | ATTN_CASCADE, &n_shared), 4 * 4 + 2 + 16);
    assert_int_equal(n_shared, 5);
    check_family(&f, kernels_get(CPU_AUTO));
    free_family(&f);
    make_fan(&f, 3, 512, 0, 0, 300); /* the last chunk of the prefix is whole, the next ones differ */
    assert_int_equal(count_reads(&f, 1, ATTN_CASCADE, &n_shared), 2 + 3 * 2);
    free_family(&f);
    make_fan(&f, 33, 512, 0, 0, 1); /* three tiles of eleven: 48 rows fit one */
    assert_int_equal(count_reads(&f, 1, ATTN_CASCADE, &n_shared), 3 * 2 + 33);
    assert_int_equal(n_shared, 3);
    check_family(&f, kernels_get(CPU_AUTO));
    free_family(&f);
}

static void test_windows_share_what_they_see(void **state)
{
    (void)state;
    family f = small;
    int n_shared;
    f.window = 600;
    make_fan(&f, 5, 1024, 0, 0, 40); /* rows see from 464 on: chunks 1 to 4, whose first blocks are gone */
    assert_int_equal(count_reads(&f, 1, ATTN_CASCADE, &n_shared), 3 + 5);
    check_family(&f, kernels_get(CPU_AUTO));
    free_family(&f);
}

/* Branches that each leave the one before: more sharing than the plan has room for. What has no room goes alone. */
static void test_long_combs(void **state)
{
    (void)state;
    family f = {.n_heads = 1, .n_kv_heads = 1, .d = 8, .block_tokens = 256, .identity = 3, .n = 28};
    int n_shared;
    for (int i = 0; i < f.n; i++)
        f.b[i] = (branch){.parent = i - 1, .fork = 256 * i, .n_rows = 1, .n_ctx = 256 * (i + 1) + 10};
    fill_family(&f);
    int reads = count_reads(&f, 1, ATTN_CASCADE, &n_shared);
    assert_true(n_shared > 4 && reads < count_reads(&f, 1, 0, &n_shared));
    check_family(&f, kernels_get(CPU_AUTO));
    free_family(&f);
}

/* Partials of wide values over many rows: more than the plan's slots. */
static void test_few_slots(void **state)
{
    (void)state;
    family f = {.n_heads = 16, .n_kv_heads = 16, .d = 64, .block_tokens = 256, .identity = 4, .n = 20};
    int n_shared;
    for (int i = 0; i < f.n; i++)
        f.b[i] = (branch){.parent = i ? 0 : -1, .fork = i ? 1024 : 0, .n_rows = 12, .n_ctx = 1036};
    fill_family(&f);
    assert_true(count_reads(&f, 1, ATTN_CASCADE, &n_shared) > 4 * 5 + 20 && n_shared > 0);
    size_t n = (size_t)(f.n_rows * f.n_heads * f.d);
    float *want = run_alone(&f, kernels_get(CPU_AUTO)), *got = malloc(n * sizeof *got);
    run(&f, kernels_get(CPU_AUTO), 0, f.n, 3, ATTN_SPLIT | ATTN_CASCADE, got);
    assert_same_bits(got, want, n);
    free(want);
    free(got);
    free_family(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_trees),
        cmocka_unit_test(test_shared_chunks_are_read_once),
        cmocka_unit_test(test_windows_share_what_they_see),
        cmocka_unit_test(test_long_combs),
        cmocka_unit_test(test_few_slots),
    };
    return cmocka_run_group_tests_name("attention_cascade", tests, NULL, NULL);
}
