/* Every weight type against values of the gguf package (tools/make_dequant_data.py), and a few worked by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/mem.h"
#include "kernel/dtype.h"

#define DATA "tests/data/dequant.bin"

static void test_reference_values(void **state)
{
    (void)state;
    FILE *f = fopen(DATA, "rb");
    assert_non_null(f);
    uint32_t head[3];
    int n_types = 0;
    while (fread(head, sizeof head, 1, f) == 1) {
        const dtype_info *info = dtype_get(head[0]);
        assert_non_null(info);
        assert_int_equal(dtype_row_bytes((dtype)head[0], head[2]), head[1]);
        uint8_t *raw = mem_alloc(head[1]);
        float *want = mem_array(head[2], sizeof *want), *got = mem_array(head[2], sizeof *got);
        assert_int_equal(fread(raw, 1, head[1], f), head[1]);
        assert_int_equal(fread(want, sizeof *want, head[2], f), head[2]);
        dtype_to_float((dtype)head[0], raw, got, head[2]);
        for (uint32_t i = 0; i < head[2]; i++)
            if (got[i] != want[i])
                fail_msg("%s: value %u is %.9g, not %.9g", info->name, i, (double)got[i], (double)want[i]);
        mem_free(raw);
        mem_free(want);
        mem_free(got);
        n_types++;
    }
    fclose(f);
    assert_int_equal(n_types, 16);
}

static void put_half(uint8_t *p, float f)
{
    uint16_t h = float_to_half(f);
    memcpy(p, &h, 2);
}

static void test_q4_0_by_hand(void **state)
{
    (void)state;
    uint8_t block[18] = {0};
    float w[32];
    put_half(block, 0.5f);
    block[2] = 0xF0; /* first of the low half: code 0; first of the high half: code 15 */
    block[17] = 0x98;
    dtype_to_float(DTYPE_Q4_0, block, w, 32);
    assert_true(w[0] == -4 && w[16] == 3.5f && w[15] == 0 && w[31] == 0.5f && w[1] == -4);
}

static void test_q5_1_by_hand(void **state)
{
    (void)state;
    uint8_t block[24] = {0};
    float w[32];
    put_half(block, 0.25f);
    put_half(block + 2, -1);
    block[4] = 0x02; /* fifth bit of code 1 */
    block[7] = 0x80; /* and of code 31 */
    block[9] = 0x31; /* codes 1 and 17 */
    dtype_to_float(DTYPE_Q5_1, block, w, 32);
    assert_true(w[0] == -1 && w[1] == 17 * 0.25f - 1 && w[17] == 3 * 0.25f - 1 && w[31] == 16 * 0.25f - 1);
}

static void test_q6_k_by_hand(void **state)
{
    (void)state;
    uint8_t block[210] = {0};
    float w[256];
    put_half(block + 208, 2);
    memset(block + 192, 1, 16);
    block[192 + 15] = (uint8_t)-128;
    block[127] = 0xF0;      /* low nibble of code 255 */
    block[128 + 63] = 0xC0; /* its upper bits */
    dtype_to_float(DTYPE_Q6_K, block, w, 256);
    assert_true(w[0] == -64 && w[255] == 31 * -128 * 2 && w[254] == -32 * -128 * 2);
}

static void test_mxfp4_by_hand(void **state)
{
    (void)state;
    uint8_t block[17] = {127, 0xF7};
    float w[32];
    dtype_to_float(DTYPE_MXFP4, block, w, 32);
    assert_true(w[0] == 6 && w[16] == -6 && w[1] == 0);
    block[0] = 0;
    dtype_to_float(DTYPE_MXFP4, block, w, 32);
    assert_true(w[0] == 12 * 0x1p-128f && w[16] == -12 * 0x1p-128f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_values), cmocka_unit_test(test_q4_0_by_hand),
        cmocka_unit_test(test_q5_1_by_hand),     cmocka_unit_test(test_q6_k_by_hand),
        cmocka_unit_test(test_mxfp4_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
