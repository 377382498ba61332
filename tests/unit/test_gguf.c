#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"
#include "gguf_build.h"
#include "gguf_check.h"
#include "gguf_walk.h"
#include "kernel/dtype.h"
#include "model/gguf_internal.h"

#define N_TINY_KVS 19
#define N_TINY_TENSORS 5

static const struct {
    const char *name;
    int n_dims;
    uint64_t dims[4];
    uint32_t type;
    uint64_t offset, n_bytes;
} tiny_tensors[N_TINY_TENSORS] = {
    {"token_embd.weight", 2, {32, 3}, DTYPE_Q8_0, 0, 102},        {"output_norm.weight", 1, {5}, DTYPE_F32, 128, 20},
    {"blk.0.attn_q.weight", 4, {2, 3, 2, 1}, DTYPE_F16, 160, 24}, {"exotic", 2, {256, 2}, 16 /* IQ2_XXS */, 192, 0},
    {"shares output_norm", 1, {4}, DTYPE_F32, 128, 16},
};

static void put_tiny_kvs(strbuf *b)
{
    put_kv_str(b, "general.architecture", "tiny");
    put_kv_uint(b, "u8", GGUF_U8, 200, 1);
    put_kv_uint(b, "i8", GGUF_I8, (uint8_t)-3, 1);
    put_kv_uint(b, "u16", GGUF_U16, 50000, 2);
    put_kv_uint(b, "i16", GGUF_I16, (uint16_t)-300, 2);
    put_kv_uint(b, "u32", GGUF_U32, 4000000000, 4);
    put_kv_uint(b, "i32", GGUF_I32, 70000, 4);
    put_kv_uint(b, "f32", GGUF_F32, 0x3FC00000, 4); /* 1.5 */
    put_kv_uint(b, "yes", GGUF_BOOL, 1, 1);
    put_kv_str(b, "text", "caf\xC3\xA9");
    put_kv_uint(b, "u64", GGUF_U64, (uint64_t)1 << 40, 8);
    put_kv_uint(b, "i64", GGUF_I64, (uint64_t)-5, 8);
    put_kv_uint(b, "f64", GGUF_F64, 0xC004000000000000, 8); /* -2.5 */
    put_key(b, "numbers", GGUF_ARRAY);
    put_array(b, GGUF_I16, 3);
    put_uint(b, 1, 2), put_uint(b, (uint16_t)-2, 2), put_uint(b, 3, 2);
    put_key(b, "words", GGUF_ARRAY);
    put_array(b, GGUF_STRING, 3);
    put_str(b, "a"), put_str(b, ""), put_str(b, "bc");
    put_key(b, "nested", GGUF_ARRAY);
    put_array(b, GGUF_ARRAY, 2);
    put_array(b, GGUF_U8, 2), put_uint(b, 0x0201, 2);
    put_array(b, GGUF_STRING, 1), put_str(b, "inner");
    put_key(b, "empty", GGUF_ARRAY);
    put_array(b, GGUF_F32, 0);
    put_kv_str(b, "blank", "");
    put_kv_uint(b, "general.alignment", GGUF_U32, 32, 4);
}

/* A valid file with metadata of every type; returns the length of its header. Data bytes count up from 0. */
static size_t put_tiny(strbuf *b, uint32_t version)
{
    strbuf_init(b, 0);
    put_header(b, version, N_TINY_TENSORS, N_TINY_KVS);
    put_tiny_kvs(b);
    for (int i = 0; i < N_TINY_TENSORS; i++)
        put_tensor(b, tiny_tensors[i].name, tiny_tensors[i].n_dims, tiny_tensors[i].dims, tiny_tensors[i].type,
                   tiny_tensors[i].offset);
    size_t header = b->n_bytes;
    put_padding(b, 32);
    for (int i = 0; i < 192; i++) strbuf_putc(b, (char)i);
    return header;
}

static gguf *parse_ok(const strbuf *b)
{
    gguf *g = NULL;
    status st = STATUS_INIT;
    if (gguf_parse(&g, (const uint8_t *)b->data, b->n_bytes, &st)) fail_msg("%s", st.text);
    return g;
}

static int parse(gguf **out, const void *source, status *st)
{
    const strbuf *b = source;
    return gguf_parse(out, (const uint8_t *)b->data, b->n_bytes, st);
}

/* The bytes must be refused with this code and a text that holds `words`. */
static void parse_fails(strbuf *b, int code, const char *words)
{
    gguf_refused(parse, b, code, words);
    strbuf_deinit(b);
}

static void assert_str(gguf_str s, const char *expected)
{
    assert_int_equal(s.n, strlen(expected));
    assert_memory_equal(s.data, expected, s.n);
}

static void test_lists_what_the_file_holds(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        strbuf b;
        size_t header = put_tiny(&b, version), begin = (header + 31) / 32 * 32;
        gguf *g = parse_ok(&b);
        assert_int_equal(gguf_version(g), version);
        assert_int_equal(gguf_file_bytes(g), b.n_bytes);
        assert_int_equal(gguf_part_count(g), 1);
        assert_int_equal(gguf_kv_count(g), N_TINY_KVS);
        assert_int_equal(gguf_tensor_count(g), N_TINY_TENSORS);
        for (int i = 0; i < N_TINY_TENSORS; i++) {
            const gguf_tensor *t = gguf_tensor_at(g, (size_t)i);
            assert_str(t->name, tiny_tensors[i].name);
            assert_ptr_equal(gguf_find_tensor(g, tiny_tensors[i].name), t);
            assert_int_equal(t->n_dims, tiny_tensors[i].n_dims);
            for (int d = 0; d < 4; d++) assert_int_equal(t->dims[d], d < t->n_dims ? tiny_tensors[i].dims[d] : 1);
            assert_int_equal(t->type, tiny_tensors[i].type);
            assert_int_equal(t->n_bytes, tiny_tensors[i].n_bytes);
            assert_int_equal(t->file_offset, begin + tiny_tensors[i].offset);
            assert_int_equal(t->part, 0);
            if (t->type == 16) assert_null(t->data);
            else assert_int_equal(t->data[0], tiny_tensors[i].offset);
        }
        assert_null(gguf_find_tensor(g, "token_embd"));
        assert_null(gguf_find(g, "no such key"));
        assert_null(gguf_kv_at(g, N_TINY_KVS));
        assert_null(gguf_tensor_at(g, N_TINY_TENSORS));
        for (size_t i = 0; i < N_TINY_KVS; i++) {
            char key[32];
            snprintf(key, sizeof key, "%.*s", (int)gguf_kv_at(g, i)->key.n, gguf_kv_at(g, i)->key.data);
            assert_ptr_equal(gguf_find(g, key), gguf_kv_at(g, i));
        }
        gguf_close(g);
        strbuf_deinit(&b);
    }
}

static void test_arrays(void **state)
{
    (void)state;
    strbuf b;
    put_tiny(&b, 3);
    gguf *g = parse_ok(&b);
    const gguf_kv *numbers = gguf_find(g, "numbers"), *words = gguf_find(g, "words"), *nested = gguf_find(g, "nested");
    assert_int_equal(numbers->type, GGUF_ARRAY);
    assert_int_equal(numbers->elem_type, GGUF_I16);
    assert_int_equal(numbers->n, 3);
    assert_true(gguf_array_number(numbers, 0) == 1 && gguf_array_number(numbers, 1) == -2 &&
                gguf_array_number(numbers, 2) == 3);
    const char *const expected[] = {"a", "", "bc"};
    const uint8_t *at = NULL;
    gguf_str s;
    for (int i = 0; i < 3; i++) {
        assert_true(gguf_next_str(words, &at, &s));
        assert_str(s, expected[i]);
    }
    assert_false(gguf_next_str(words, &at, &s));
    assert_false(gguf_is_number(words));
    assert_int_equal(nested->elem_type, GGUF_ARRAY);
    assert_int_equal(nested->n, 2);
    assert_int_equal(nested->value_bytes, 12 + 2 + 12 + 8 + 5);
    assert_false(gguf_is_number(nested));
    at = NULL;
    assert_false(gguf_next_str(numbers, &at, &s));
    assert_int_equal(gguf_find(g, "empty")->n, 0);
    /* a scalar is an array of one */
    at = NULL;
    assert_true(gguf_array_number(gguf_find(g, "i64"), 0) == -5);
    assert_true(gguf_array_integer(gguf_find(g, "i64"), 0) == (uint64_t)-5 &&
                gguf_array_integer(numbers, 1) == (uint64_t)-2);
    assert_true(gguf_array_integer(gguf_find(g, "u32"), 0) == 4000000000);
    assert_true(gguf_array_number(gguf_find(g, "f64"), 0) == -2.5);
    assert_true(gguf_array_number(gguf_find(g, "yes"), 0) == 1);
    assert_true(gguf_next_str(gguf_find(g, "text"), &at, &s));
    assert_str(s, "caf\xC3\xA9");
    assert_false(gguf_next_str(gguf_find(g, "text"), &at, &s));
    gguf_close(g);
    strbuf_deinit(&b);
}

static void test_typed_reads(void **state)
{
    (void)state;
    strbuf b;
    put_tiny(&b, 3);
    gguf *g = parse_ok(&b);
    status st = STATUS_INIT;
    bool found = true, yes = false;
    uint32_t u = 7;
    uint64_t u64 = 7;
    float f = 7;
    gguf_str s = {"x", 1};
    assert_int_equal(gguf_get_u32(g, "absent", &u, &found, &st), ST_OK);
    assert_true(u == 7 && !found);
    const struct {
        const char *key;
        uint32_t value;
    } good[] = {{"u8", 200}, {"u16", 50000}, {"u32", 4000000000}, {"i32", 70000}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(gguf_get_u32(g, good[i].key, &u, &found, &st), ST_OK);
        assert_true(found && u == good[i].value);
    }
    assert_int_equal(gguf_get_u64(g, "u64", &u64, NULL, &st), ST_OK);
    assert_true(u64 == (uint64_t)1 << 40);
    const struct {
        const char *key;
        float value;
    } floats[] = {{"f32", 1.5f}, {"f64", -2.5f}, {"i8", -3}, {"i16", -300}, {"u8", 200}};
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++) {
        assert_int_equal(gguf_get_f32(g, floats[i].key, &f, &found, &st), ST_OK);
        assert_true(found && f == floats[i].value);
    }
    assert_int_equal(gguf_get_bool(g, "yes", &yes, &found, &st), ST_OK);
    assert_true(yes && found);
    assert_int_equal(gguf_get_str(g, "text", &s, &found, &st), ST_OK);
    assert_str(s, "caf\xC3\xA9");
    assert_int_equal(gguf_get_str(g, "blank", &s, &found, &st), ST_OK);
    assert_int_equal(s.n, 0);
    gguf_close(g);
    strbuf_deinit(&b);
}

static void read_fails(int code, const status *st, const char *key, const char *words)
{
    assert_int_equal(code, ST_FORMAT);
    assert_int_equal(st->code, ST_FORMAT);
    if (!strstr(st->text, key) || !strstr(st->text, words))
        fail_msg("'%s' and '%s' are not in: %s", key, words, st->text);
}

static void test_wrong_reads_name_the_key(void **state)
{
    (void)state;
    strbuf b;
    strbuf_init(&b, 0);
    put_header(&b, 3, 0, 6);
    put_kv_uint(&b, "neg", GGUF_I64, (uint64_t)-5, 8);
    put_kv_uint(&b, "big", GGUF_U64, (uint64_t)1 << 32, 8);
    put_kv_uint(&b, "huge", GGUF_F64, 0x7FE0000000000000, 8); /* 9e307 */
    put_kv_uint(&b, "odd bool", GGUF_BOOL, 2, 1);
    put_kv_str(&b, "text", "12");
    put_kv_uint(&b, "real", GGUF_F32, 0x3F800000, 4);
    gguf *g = parse_ok(&b);
    status st = STATUS_INIT;
    uint32_t u = 7;
    uint64_t u64 = 7;
    float f = 7;
    bool yes = true;
    gguf_str s = {"x", 1};
    read_fails(gguf_get_u32(g, "neg", &u, NULL, &st), &st, "neg", "-5");
    read_fails(gguf_get_u64(g, "neg", &u64, NULL, &st), &st, "neg", "outside");
    read_fails(gguf_get_u32(g, "big", &u, NULL, &st), &st, "big", "4294967296");
    read_fails(gguf_get_u32(g, "text", &u, NULL, &st), &st, "text", "an integer");
    read_fails(gguf_get_u32(g, "real", &u, NULL, &st), &st, "real", "an integer");
    read_fails(gguf_get_f32(g, "huge", &f, NULL, &st), &st, "huge", "too large");
    read_fails(gguf_get_f32(g, "text", &f, NULL, &st), &st, "text", "a number");
    read_fails(gguf_get_bool(g, "odd bool", &yes, NULL, &st), &st, "odd bool", "neither");
    read_fails(gguf_get_bool(g, "big", &yes, NULL, &st), &st, "big", "a bool");
    read_fails(gguf_get_str(g, "big", &s, NULL, &st), &st, "big", "a string");
    assert_true(u == 7 && u64 == 7 && f == 7 && yes && s.n == 1);
    gguf_close(g);
    strbuf_deinit(&b);
}

static void test_refuses_what_is_not_gguf(void **state)
{
    (void)state;
    const struct {
        const char *bytes;
        size_t n;
        int code;
        const char *words;
    } cases[] = {
        {"", 0, ST_FORMAT, "empty"},
        {"GG", 2, ST_FORMAT, "not a GGUF"},
        {"<!doctype html>", 15, ST_FORMAT, "not a GGUF"},
        {"GGUF", 4, ST_FORMAT, "ends at byte 4"},
        {"GGUF\1\0\0\0", 8, ST_UNSUPPORTED, "version 1"},
        {"GGUF\4\0\0\0", 8, ST_UNSUPPORTED, "version 4"},
        {"GGUF\0\0\0\0", 8, ST_UNSUPPORTED, "version 0"},
        {"GGUF\0\0\0\3", 8, ST_UNSUPPORTED, "big-endian"},
        {"GGUF\3\0\0\0", 8, ST_FORMAT, "ends at byte 8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        strbuf b;
        strbuf_init(&b, 0);
        strbuf_add(&b, cases[i].bytes, cases[i].n);
        parse_fails(&b, cases[i].code, cases[i].words);
    }
}

static strbuf *begin(strbuf *b, uint64_t n_tensors, uint64_t n_kvs)
{
    strbuf_init(b, 0);
    put_header(b, 3, n_tensors, n_kvs);
    return b;
}

static void test_refuses_bad_metadata(void **state)
{
    (void)state;
    strbuf b;
    parse_fails(begin(&b, 0, UINT64_MAX), ST_FORMAT, "18446744073709551615 metadata entries");
    parse_fails(begin(&b, 0, 1000), ST_FORMAT, "1000 metadata entries, more than a file of 24 bytes can hold");
    parse_fails(begin(&b, 1000, 0), ST_FORMAT, "1000 tensors, more than a file of 24 bytes can hold");
    parse_fails(begin(&b, UINT64_MAX / 2, 0), ST_FORMAT, "tensors");
    put_kv_uint(begin(&b, 0, 2), "twice", GGUF_U8, 1, 1), put_kv_uint(&b, "twice", GGUF_U8, 2, 1);
    parse_fails(&b, ST_FORMAT, "'twice' occurs twice");
    put_kv_uint(begin(&b, 0, 1), "", GGUF_U32, 1, 4);
    parse_fails(&b, ST_FORMAT, "key is empty");
    put_kv_uint(begin(&b, 0, 1), "odd", (gguf_type)GGUF_TYPES, 1, 4);
    parse_fails(&b, ST_FORMAT, "'odd': unknown value type 13");
    put_key(begin(&b, 0, 1), "overflow", GGUF_ARRAY), put_array(&b, GGUF_U64, UINT64_MAX / 8 + 2);
    parse_fails(&b, ST_FORMAT, "inside an array");
    put_key(begin(&b, 0, 1), "many strings", GGUF_ARRAY), put_array(&b, GGUF_STRING, UINT64_MAX);
    parse_fails(&b, ST_FORMAT, "inside an array of strings");
    put_key(begin(&b, 0, 1), "long", GGUF_STRING), put_uint(&b, UINT64_MAX, 8);
    parse_fails(&b, ST_FORMAT, "incomplete or damaged");
    put_key(begin(&b, 0, 1), "deep", GGUF_ARRAY);
    for (int depth = 0; depth < 1000; depth++) put_array(&b, GGUF_ARRAY, 1);
    parse_fails(&b, ST_LIMIT, "'deep': arrays nest more than 4 deep");
}

static void test_refuses_bad_alignment(void **state)
{
    (void)state;
    const uint32_t bad[] = {0, 1, 4, 24, 33, 0xFFFFFFFF};
    strbuf b;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put_kv_uint(begin(&b, 0, 1), "general.alignment", GGUF_U32, bad[i], 4);
        parse_fails(&b, ST_FORMAT, "power of two");
    }
    put_kv_str(begin(&b, 0, 1), "general.alignment", "32");
    parse_fails(&b, ST_FORMAT, "an integer");
    put_kv_uint(begin(&b, 1, 1), "general.alignment", GGUF_U32, 0x80000000, 4);
    put_tensor(&b, "far", 1, (uint64_t[]){1}, DTYPE_F32, 0);
    parse_fails(&b, ST_FORMAT, "needs 2147483652");
}

static void test_larger_alignment_is_kept(void **state)
{
    (void)state;
    strbuf b;
    put_kv_uint(begin(&b, 2, 1), "general.alignment", GGUF_U32, 64, 4);
    put_tensor(&b, "a", 1, (uint64_t[]){1}, DTYPE_F32, 0);
    put_tensor(&b, "b", 1, (uint64_t[]){1}, DTYPE_F32, 64);
    put_padding(&b, 64);
    size_t data = b.n_bytes;
    for (int i = 0; i < 68; i++) strbuf_putc(&b, (char)i);
    gguf *g = parse_ok(&b);
    assert_int_equal(gguf_find_tensor(g, "a")->file_offset, data);
    assert_int_equal(gguf_find_tensor(g, "b")->data[0], 64);
    gguf_close(g);
    strbuf_deinit(&b);
}

static void one_bad_tensor(int n_dims, const uint64_t *dims, uint32_t type, uint64_t offset, const char *words)
{
    strbuf b;
    put_tensor(begin(&b, 1, 0), "t", n_dims, dims, type, offset);
    put_padding(&b, 32);
    for (int i = 0; i < 64; i++) strbuf_putc(&b, 1);
    parse_fails(&b, ST_FORMAT, words);
}

static void test_refuses_bad_tensors(void **state)
{
    (void)state;
    const uint64_t one = 1, many[5] = {1, 1, 1, 1, 1}, big = (uint64_t)1 << 62;
    one_bad_tensor(0, &one, DTYPE_F32, 0, "0 dimensions");
    one_bad_tensor(5, many, DTYPE_F32, 0, "5 dimensions");
    one_bad_tensor(2, (uint64_t[]){4, 0}, DTYPE_F32, 0, "dimension 1 is 0");
    one_bad_tensor(1, (uint64_t[]){UINT64_MAX}, DTYPE_F32, 0, "dimension 0");
    one_bad_tensor(3, (uint64_t[]){(uint64_t)1 << 31, (uint64_t)1 << 31, 4}, DTYPE_F32, 0, "dimension 2 is 4");
    one_bad_tensor(3, (uint64_t[]){(uint64_t)1 << 31, (uint64_t)1 << 31, 4}, 16, 0,
                   "dimension 2 is 4"); /* also of an unknown type */
    one_bad_tensor(1, &big, DTYPE_F32, 0, "larger than memory");
    one_bad_tensor(2, (uint64_t[]){48, 2}, DTYPE_Q8_0, 0, "rows of 48 elements, but Q8_0 comes in blocks of 32");
    one_bad_tensor(1, &one, DTYPE_F32, 16, "not a multiple of the alignment 32");
    one_bad_tensor(1, &one, DTYPE_F32, UINT64_MAX - 31, "incomplete");
    one_bad_tensor(1, &one, 16, 96, "incomplete");
    one_bad_tensor(2, (uint64_t[]){17, 1}, DTYPE_F32, 0,
                   "ends at byte 160, but tensor 't' needs 164: the download is incomplete");
    strbuf b;
    put_tensor(begin(&b, 1, 0), "", 1, &one, DTYPE_F32, 0);
    strbuf_puts(&b, "padding");
    parse_fails(&b, ST_FORMAT, "name is empty");
    put_tensor(begin(&b, 2, 0), "same", 1, &one, DTYPE_F32, 0), put_tensor(&b, "same", 1, &one, DTYPE_F32, 0);
    put_padding(&b, 32), put_uint(&b, 0, 4);
    parse_fails(&b, ST_FORMAT, "tensor 'same' occurs twice");
}

/* Names chosen so that all start in one slot of the table that holds them: reading must not take quadratic time. */
static void test_refuses_colliding_names(void **state)
{
    (void)state;
    enum { N = 1100, SLOTS = 4096 };
    strbuf b;
    begin(&b, 0, N);
    char key[24];
    for (int i = 0, n = 0; n < N; i++) {
        snprintf(key, sizeof key, "k%d", i);
        if (gguf_hash(key, strlen(key)) % SLOTS != 0) continue;
        put_kv_uint(&b, key, GGUF_U8, 1, 1);
        n++;
    }
    parse_fails(&b, ST_FORMAT, "made to collide");
}

static void test_many_names(void **state)
{
    (void)state;
    enum { N = 20000 };
    strbuf b;
    begin(&b, 0, N);
    char key[24];
    for (int i = 0; i < N; i++) {
        snprintf(key, sizeof key, "key.%d", i);
        put_kv_uint(&b, key, GGUF_U32, (uint64_t)i, 4);
    }
    gguf *g = parse_ok(&b);
    status st = STATUS_INIT;
    for (uint32_t i = 0, v = 0; i < N; i++) {
        snprintf(key, sizeof key, "key.%u", i);
        assert_int_equal(gguf_get_u32(g, key, &v, NULL, &st), ST_OK);
        assert_int_equal(v, i);
    }
    gguf_close(g);
    strbuf_deinit(&b);
}

/* Parses a private copy of exactly n bytes, so that a sanitizer sees a read past the end; returns the status code. */
static int parse_and_walk(const void *bytes, size_t n)
{
    uint8_t *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, n);
    uint64_t before = mem_stats().bytes;
    gguf *g = NULL;
    status st = STATUS_INIT;
    int rc = gguf_parse(&g, copy, n, &st);
    assert_int_equal(rc, st.code);
    assert_true(rc ? g == NULL && st.text[0] : g != NULL);
    if (g) assert_true(gguf_walk(g) != 0); /* a hash of all that was read */
    gguf_close(g);
    assert_int_equal(mem_stats().bytes, before);
    free(copy);
    return rc;
}

static void test_every_truncation(void **state)
{
    (void)state;
    strbuf b;
    size_t header = put_tiny(&b, 3), begins = (header + 31) / 32 * 32;
    assert_int_equal(parse_and_walk(b.data, b.n_bytes), ST_OK);
    for (size_t n = 0; n < b.n_bytes; n++) {
        int rc = parse_and_walk(b.data, n);
        assert_int_not_equal(rc, ST_OK); /* the unknown tensor begins at the very end, so that every byte counts */
        assert_true(n < begins || rc == ST_FORMAT);
    }
    strbuf_deinit(&b);
}

static void test_hostile_value_at_every_byte(void **state)
{
    (void)state;
    const uint64_t hostile[] = {0,
                                1,
                                2,
                                3,
                                5,
                                8,
                                13,
                                0x7F,
                                0x80,
                                0xFF,
                                0x7FFF,
                                0xFFFF,
                                0x7FFFFFFF,
                                0x80000000,
                                0xFFFFFFFF,
                                0x100000000,
                                0x1FFFFFFFFFFFFFFF,
                                0x2000000000000000,
                                0x7FFFFFFFFFFFFFFF,
                                0x8000000000000000,
                                0xFFFFFFFFFFFFFFE0,
                                0xFFFFFFFFFFFFFFFF};
    const int widths[] = {1, 4, 8};
    strbuf b;
    size_t header = put_tiny(&b, 3);
    unsigned n_ok = 0, n_refused = 0;
    for (size_t at = 0; at < header; at++) {
        for (size_t h = 0; h < sizeof hostile / sizeof hostile[0]; h++) {
            for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++) {
                char saved[8];
                memcpy(saved, b.data + at, 8);
                for (int i = 0; i < widths[w]; i++) b.data[at + (size_t)i] = (char)(hostile[h] >> 8 * i);
                if (parse_and_walk(b.data, b.n_bytes)) n_refused++;
                else n_ok++;
                memcpy(b.data + at, saved, 8);
            }
        }
    }
    assert_true(n_refused > 1000 && n_ok > 1000); /* both ways were taken */
    strbuf_deinit(&b);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    strbuf b;
    put_tiny(&b, 3);
    assert_true(gguf_fail_each(parse, &b, NULL) > 5);
    strbuf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists_what_the_file_holds),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_typed_reads),
        cmocka_unit_test(test_wrong_reads_name_the_key),
        cmocka_unit_test(test_refuses_what_is_not_gguf),
        cmocka_unit_test(test_refuses_bad_metadata),
        cmocka_unit_test(test_refuses_bad_alignment),
        cmocka_unit_test(test_larger_alignment_is_kept),
        cmocka_unit_test(test_refuses_bad_tensors),
        cmocka_unit_test(test_refuses_colliding_names),
        cmocka_unit_test(test_many_names),
        cmocka_unit_test(test_every_truncation),
        cmocka_unit_test(test_hostile_value_at_every_byte),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
