#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/dtype.h"

/* The format's own numbers: id, name, elements and bytes of a block. */
static const struct {
    uint32_t id;
    const char *name;
    int elems, bytes;
} known[] = {
    {0, "F32", 1, 4},       {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},    {3, "Q4_1", 32, 20},
    {6, "Q5_0", 32, 22},    {7, "Q5_1", 32, 24},      {8, "Q8_0", 32, 34},    {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110}, {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176}, {14, "Q6_K", 256, 210},
    {20, "IQ4_NL", 32, 18}, {23, "IQ4_XS", 256, 136}, {30, "BF16", 1, 2},     {39, "MXFP4", 32, 17},
};
#define N_KNOWN (sizeof known / sizeof known[0])

static void test_known_types(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_KNOWN; i++) {
        const dtype_info *info = dtype_get(known[i].id);
        assert_non_null(info);
        assert_string_equal(info->name, known[i].name);
        assert_string_equal(dtype_name(known[i].id), known[i].name);
        assert_int_equal(info->block_elems, known[i].elems);
        assert_int_equal(info->block_bytes, known[i].bytes);
        assert_int_equal(dtype_row_bytes((dtype)known[i].id, 512), 512 / known[i].elems * known[i].bytes);
        assert_int_equal(dtype_row_bytes((dtype)known[i].id, 0), 0);
    }
}

static void test_other_ids(void **state)
{
    (void)state;
    size_t n_computable = 0, n_named = 0;
    for (uint32_t id = 0; id < 300; id++) {
        n_computable += dtype_get(id) != NULL;
        n_named += dtype_name(id) != NULL;
    }
    assert_int_equal(n_computable, N_KNOWN);
    assert_int_equal(n_named, 42); /* 0 to 41, without a gap */
    assert_null(dtype_get(16));
    assert_string_equal(dtype_name(16), "IQ2_XXS");
    assert_string_equal(dtype_name(31), "Q4_0_4_4");
    assert_null(dtype_get(UINT32_MAX));
    assert_null(dtype_name(UINT32_MAX));
}

static void test_row_bytes_are_wide(void **state)
{
    (void)state;
    assert_int_equal(dtype_row_bytes(DTYPE_F32, (int64_t)1 << 40), (size_t)1 << 42);
    assert_int_equal(dtype_row_bytes(DTYPE_Q4_K, (int64_t)1 << 40), ((size_t)1 << 32) * 144);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_types),
        cmocka_unit_test(test_other_ids),
        cmocka_unit_test(test_row_bytes_are_wide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
