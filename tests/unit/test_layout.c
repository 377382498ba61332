#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "cache/layout.h"

static int numbers[128];

static kv_group group_of(kv_layout l, int n_layers)
{
    return (kv_group){.layout = l, .layers = numbers, .n_layers = n_layers};
}

static const kv_layout LLAMA_70B = {.kind = KV_GQA, .n_kv_heads = 8, .d_k = 128, .d_v = 128};

static void test_llama_3_70b(void **state)
{
    (void)state;
    const kv_format *f16 = kv_format_get("f16");
    kv_group g = group_of(LLAMA_70B, 80);
    assert_int_equal(kv_row_elems(&g.layout), 2048);
    assert_int_equal(kv_block_bytes(&g, f16, 16), 327680 * 16);
    assert_int_equal(kv_bytes(&g, f16, 16, 128000, 512), UINT64_C(41943040000));
    assert_true(kv_bytes_per_token_layer(&g.layout, f16) * 80 == 327680);
    assert_int_equal(kv_bytes(&g, kv_format_get("f32"), 16, 128000, 512), UINT64_C(83886080000));
}

static void test_deepseek_v3(void **state)
{
    (void)state;
    const kv_format *f16 = kv_format_get("f16");
    kv_layout mla = {.kind = KV_MLA, .d_c = 512, .d_rope = 64},
              mha = {.kind = KV_GQA, .n_kv_heads = 128, .d_k = 128, .d_v = 128};
    double own = kv_bytes_per_token_layer(&mla, f16), full = kv_bytes_per_token_layer(&mha, f16);
    assert_true(own == 1152);
    assert_true(full == 65536);
    assert_true(fabs(full / own - 56.9) < 0.05);
    assert_int_equal(kv_layer_bytes(&mla, f16, 16), 1152 * 16);
}

static void test_other_layouts(void **state)
{
    (void)state;
    kv_layout x = {.kind = KV_X, .d_model = 576}, uneven = {.kind = KV_GQA, .n_kv_heads = 2, .d_k = 192, .d_v = 128};
    assert_int_equal(kv_row_elems(&x), 576);
    assert_int_equal(kv_row_elems(&uneven), 640);
    assert_int_equal(kv_layer_bytes(&x, kv_format_get("f32"), 8), 576 * 8 * 4);
    kv_layout tiny = {.kind = KV_GQA, .n_kv_heads = 1, .d_k = 3, .d_v = 3}; /* 96 bytes begin the next layer at 128 */
    assert_int_equal(kv_layer_bytes(&tiny, kv_format_get("f16"), 8), 128);
}

static void test_fractional_bits(void **state)
{
    (void)state;
    kv_format q4 = {.name = "4.5 bits", .bits = 4.5}, odd = {.name = "2 bits and 32 for 1024", .bits = 2.03125};
    assert_int_equal(kv_run_bytes(&q4, 128, 16), 128 * 16 * 9 / 16);
    assert_int_equal(kv_run_bytes(&q4, 1, 1), 1); /* rounded up */
    assert_int_equal(kv_run_bytes(&odd, 128, 32), 1040);
    assert_int_equal(kv_layer_bytes(&LLAMA_70B, &q4, 16), 2048 * 16 * 9 / 16);
}

/* The definition, walked: appends of at most `step` rows, rows behind the window dropped by whole blocks before each.
 * */
static uint64_t walked_blocks(int window, int b, int64_t n_tokens, int64_t step, int64_t first_step)
{
    uint64_t most = 0;
    for (int64_t len = 0, s = first_step; len < n_tokens; len += s, s = step) {
        if (s > n_tokens - len) s = n_tokens - len;
        int64_t first = window && len >= window ? (len - window + 1) / b : 0;
        uint64_t held = (uint64_t)((len + s + b - 1) / b - first);
        if (held > most) most = held;
    }
    return most;
}

static void test_windows_against_a_walk(void **state)
{
    (void)state;
    static const int windows[] = {0, 1, 2, 7, 8, 9, 31, 32, 33, 100}, blocks[] = {8, 16, 32},
                     steps[] = {1, 2, 7, 8, 15, 64};
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++)
        for (size_t i = 0; i < 3; i++)
            for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
                for (int64_t n = 0; n <= 300; n += n < 70 ? 1 : 23) {
                    kv_layout l = LLAMA_70B;
                    l.window = windows[w];
                    uint64_t bound = kv_blocks(&l, blocks[i], (uint64_t)n, (uint64_t)steps[s]), most = 0;
                    for (int64_t first = 1; first <= steps[s]; first++) {
                        uint64_t held = walked_blocks(windows[w], blocks[i], n, steps[s], first);
                        if (held > most) most = held;
                    }
                    assert_true(most <= bound);
                    bool all_ends = steps[s] == 1 &&
                                    n >= windows[w] + 2 * blocks[i]; /* the window has begun at every row of a block */
                    if (windows[w] == 0 || all_ends) assert_int_equal(most, bound);
                    else assert_true(bound <= most + 1); /* an end of the bound may be out of the walk's reach */
                }
}

static void test_a_window_reaches_its_bound(void **state)
{
    (void)state;
    kv_layout l = LLAMA_70B;
    l.window = 1024;
    assert_int_equal(kv_blocks(&l, 16, 1000000, 1), 65);
    assert_int_equal(walked_blocks(1024, 16, 5000, 1, 1), 65);
    assert_int_equal(kv_blocks(&l, 16, 1000000, 512), 97);
    assert_int_equal(walked_blocks(1024, 16, 5000, 512, 10), 97);
    assert_int_equal(kv_blocks(&l, 16, 100, 512), 7);
    l.window = 1026; /* a sequence that grows, grows by one at least */
    assert_int_equal(kv_blocks(&l, 16, 1000000, 0), 66);
    assert_int_equal(kv_blocks(&l, 16, 1000000, 1), 66);
}

static void test_saturation(void **state)
{
    (void)state;
    const kv_format *f16 = kv_format_get("f16");
    kv_group g = group_of(LLAMA_70B, 80);
    assert_true(kv_bytes(&g, f16, 16, UINT64_MAX, 1) == UINT64_MAX);
    assert_true(kv_bytes(&g, f16, 16, UINT64_C(1000000000000000000), 1) == UINT64_MAX);
    assert_true(kv_blocks(&g.layout, 16, UINT64_MAX, 1) == UINT64_C(1) << 60);
    kv_group windowed = g;
    windowed.layout.window = 4096;
    assert_int_equal(kv_blocks(&windowed.layout, 16, UINT64_MAX, UINT64_MAX), UINT64_C(1) << 60);
    assert_int_equal(kv_bytes(&windowed, f16, 16, UINT64_MAX, 1), 257 * UINT64_C(5242880));
    assert_true(kv_run_bytes(f16, UINT64_MAX, 2) == UINT64_MAX);
}

static void to_half(const float *x, int64_t n, uint16_t *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = float_to_half(x[i]);
}

static void fill(float *x, int d, int row)
{
    for (int c = 0; c < d; c++) x[c] = (float)((row * 37 + c * 11) % 513 - 256) / 8;
}

/* Rows written in any order are read back, lie where format.h says, and touch no neighbour. */
static void check_rows(const kv_format *f, int b, int d)
{
    static _Alignas(64) uint8_t k[256 * 576 * 4], v[256 * 576 * 4];
    static const kernels ks = {.to_half = to_half};
    size_t elem = (size_t)f->bits / 8;
    float x[576], back[576];
    memset(k, 0xEE, sizeof k);
    memset(v, 0xEE, sizeof v);
    for (int i = 0; i < b; i++) {
        int row = (i * 5 + 3) % b;
        fill(x, d, row);
        f->write_k(&ks, k, b, row, x, d);
        f->write_v(&ks, v, b, row, x, d);
    }
    for (int row = 0; row < b; row++) {
        fill(x, d, row);
        f->read_k(k, b, row, back, d);
        assert_memory_equal(back, x, (size_t)d * sizeof *x);
        f->read_v(v, b, row, back, d);
        assert_memory_equal(back, x, (size_t)d * sizeof *x);
        for (int c = 0; c < d; c += 7) /* K by channel, V by token: the same element */
            assert_memory_equal(k + (size_t)(c * b + row) * elem, v + (size_t)(row * d + c) * elem, elem);
    }
    size_t end = (size_t)(b * d) * elem;
    for (size_t i = end; i < end + 64 && i < sizeof k; i++) assert_true(k[i] == 0xEE && v[i] == 0xEE);
}

static void test_rows(void **state)
{
    (void)state;
    const kv_format *f;
    for (int i = 0; (f = kv_format_at(i)) != NULL; i++) {
        assert_ptr_equal(kv_format_get(f->name), f);
        for (int b = 8; b <= 256; b *= 2)
            for (int d = 8; d <= 576; d += d < 64 ? 8 : 128) check_rows(f, b, d);
    }
    assert_null(kv_format_get("f17"));
    assert_null(kv_format_at(-1));
}

static void test_copies(void **state)
{
    (void)state;
    enum { B = 16, D = 24 };
    static const kernels ks = {.to_half = to_half};
    const kv_format *f;
    for (int i = 0; (f = kv_format_at(i)) != NULL; i++) {
        _Alignas(64) uint8_t from[B * D * 4], k[B * D * 4], v[B * D * 4], from_v[B * D * 4];
        float x[D], back[D];
        for (int row = 0; row < B; row++) {
            fill(x, D, row);
            f->write_k(&ks, from, B, row, x, D);
            f->write_v(&ks, from_v, B, row, x, D);
            fill(x, D, 100);
            f->write_k(&ks, k, B, row, x, D);
            f->write_v(&ks, v, B, row, x, D);
        }
        f->copy_k(k, 9, from, 2, 5, B, D);
        f->copy_v(v, 9, from_v, 2, 5, B, D);
        for (int row = 0; row < B; row++) {
            fill(x, D, row >= 9 && row < 14 ? row - 7 : 100);
            f->read_k(k, B, row, back, D);
            assert_memory_equal(back, x, sizeof x);
            f->read_v(v, B, row, back, D);
            assert_memory_equal(back, x, sizeof x);
        }
    }
}

static void attend_one(const attend_args *a)
{
    (void)a;
}
static void attend_two(const attend_args *a)
{
    (void)a;
}

static void test_attend_is_the_formats_own(void **state)
{
    (void)state;
    const kernels ks = {.attend_f16 = attend_one, .attend_f32 = attend_two};
    assert_true(kv_format_get("f16")->attend(&ks) == attend_one);
    assert_true(kv_format_get("f32")->attend(&ks) == attend_two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama_3_70b),
        cmocka_unit_test(test_deepseek_v3),
        cmocka_unit_test(test_other_layouts),
        cmocka_unit_test(test_fractional_bits),
        cmocka_unit_test(test_windows_against_a_walk),
        cmocka_unit_test(test_a_window_reaches_its_bound),
        cmocka_unit_test(test_saturation),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_attend_is_the_formats_own),
    };
    return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}
