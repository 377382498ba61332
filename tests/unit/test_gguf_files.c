/* gguf_open: real files, whole and split. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "gguf_build.h"
#include "gguf_check.h"
#include "gguf_walk.h"
#include "kernel/dtype.h"

#define N_PARTS 3

static char dir[64];
static char path[N_PARTS][128];

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/kvasir-test-gguf-XXXXXX");
    for (int i = 0; i < N_PARTS; i++) path[i][0] = 0;
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    for (int i = 0; i < N_PARTS; i++)
        if (path[i][0]) unlink(path[i]);
    return rmdir(dir);
}

static void write_file(int slot, const char *name, strbuf *b)
{
    status st = STATUS_INIT;
    snprintf(path[slot], sizeof path[slot], "%s/%s", dir, name);
    if (file_write_atomic(path[slot], b->data ? b->data : "", b->n_bytes, &st)) fail_msg("%s", st.text);
    strbuf_deinit(b);
}

/* What a part says of itself; each holds one tensor of four floats, "t<no>", that begins with the byte no. */
typedef struct part_claim {
    unsigned no, count, n_tensors;
    const char *tensor;
} part_claim;

static void write_part(int slot, const char *name, part_claim claim)
{
    strbuf b;
    strbuf_init(&b, 0);
    put_header(&b, 3, 1, 4);
    put_kv_uint(&b, "split.no", GGUF_U16, claim.no, 2);
    put_kv_uint(&b, "split.count", GGUF_U16, claim.count, 2);
    put_kv_uint(&b, "split.tensors.count", GGUF_I32, claim.n_tensors, 4);
    put_kv_str(&b, "of part", claim.tensor);
    put_tensor(&b, claim.tensor, 1, (uint64_t[]){4}, DTYPE_F32, 0);
    put_padding(&b, 32);
    for (unsigned i = 0; i < 16; i++) strbuf_putc(&b, (char)(claim.no + i));
    write_file(slot, name, &b);
}

static const char *const part_name[N_PARTS] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf",
                                               "m-00003-of-00003.gguf"};
static const char *const tensor_name[N_PARTS] = {"t0", "t1", "t2"};

static void write_parts(void)
{
    for (unsigned i = 0; i < N_PARTS; i++)
        write_part((int)i, part_name[i], (part_claim){i, N_PARTS, N_PARTS, tensor_name[i]});
}

static int open_path(gguf **out, const void *source, status *st)
{
    return gguf_open(out, source, st);
}

static void open_fails(const char *file, int code, const char *words)
{
    status st = gguf_refused(open_path, file, code, words);
    if (!strstr(st.text, dir)) fail_msg("the path is not in: %s", st.text);
}

static void test_split_opens_as_one(void **state)
{
    (void)state;
    write_parts();
    gguf *g = NULL;
    status st = STATUS_INIT;
    if (gguf_open(&g, path[0], &st)) fail_msg("%s", st.text);
    assert_int_equal(gguf_part_count(g), N_PARTS);
    assert_int_equal(gguf_tensor_count(g), N_PARTS);
    for (int i = 0; i < N_PARTS; i++) {
        const gguf_tensor *t = gguf_find_tensor(g, tensor_name[i]);
        assert_ptr_equal(t, gguf_tensor_at(g, (size_t)i));
        assert_int_equal(t->part, i);
        assert_int_equal(t->data[0], i);
        gguf_drop(g, t, 0, t->n_bytes);
        assert_int_equal(t->data[15], i + 15); /* dropped pages come back from the file */
    }
    gguf_str of;
    assert_int_equal(gguf_get_str(g, "of part", &of, NULL, &st), ST_OK); /* metadata are the first part's */
    assert_memory_equal(of.data, "t0", 2);
    struct stat info;
    size_t total = 0;
    for (int i = 0; i < N_PARTS; i++) {
        assert_int_equal(stat(path[i], &info), 0);
        total += (size_t)info.st_size;
    }
    assert_int_equal(gguf_file_bytes(g), total);
    assert_true(gguf_walk(g) != 0);
    gguf_close(g);
}

static void test_later_part_names_the_first(void **state)
{
    (void)state;
    write_parts();
    open_fails(path[1], ST_ARG, "part 2 of a split model: name its first part");
    open_fails(path[2], ST_ARG, "m-00001-of-00003.gguf");
}

static void test_missing_part(void **state)
{
    (void)state;
    write_parts();
    unlink(path[1]);
    open_fails(path[0], ST_NOT_FOUND, "part 2 of 3 is missing");
}

static void test_renamed_part(void **state)
{
    (void)state;
    write_part(0, "model.gguf", (part_claim){0, 3, 3, "t0"});
    open_fails(path[0], ST_ARG, "must end in -00001-of-00003.gguf");
    write_part(1, "x.gguf", (part_claim){0, 3, 3, "t0"});
    open_fails(path[1], ST_ARG, "must end in -00001-of-00003.gguf");
}

static void test_wrong_parts(void **state)
{
    (void)state;
    write_parts();
    write_part(1, part_name[1], (part_claim){2, 3, 3, "t1"});
    open_fails(path[0], ST_FORMAT, "calls itself part 3 of 3, but part 2 of 3 belongs here");
    write_part(1, part_name[1], (part_claim){1, 4, 3, "t1"});
    open_fails(path[0], ST_FORMAT, "calls itself part 2 of 4");
    write_part(1, part_name[1], (part_claim){7, 3, 3, "t1"});
    open_fails(path[0], ST_FORMAT, "split.no is 7 and split.count 3");
    write_part(1, part_name[1], (part_claim){1, 3, 3, "t0"});
    open_fails(path[0], ST_FORMAT, "tensor 't0' occurs twice");
    write_parts();
    write_part(0, part_name[0], (part_claim){0, 3, 4, "t0"});
    open_fails(path[0], ST_FORMAT, "hold 3 tensors, but 4 are announced");
    write_part(0, part_name[0], (part_claim){3, 3, 3, "t0"});
    open_fails(path[0], ST_FORMAT, "split.no is 3 and split.count 3");
    assert_int_equal(truncate(path[2], 100), 0);
    write_part(0, part_name[0], (part_claim){0, 3, 3, "t0"});
    open_fails(path[0], ST_FORMAT, "ends at byte 100");
}

static void test_one_part_is_a_whole_file(void **state)
{
    (void)state;
    for (unsigned count = 0; count < 2; count++) {
        write_part(0, "plain.gguf", (part_claim){0, count, 1, "t0"});
        gguf *g = NULL;
        status st = STATUS_INIT;
        if (gguf_open(&g, path[0], &st)) fail_msg("%s", st.text);
        assert_int_equal(gguf_part_count(g), 1);
        gguf_close(g);
    }
}

static void test_files_that_cannot_be_read(void **state)
{
    (void)state;
    strbuf b;
    strbuf_init(&b, 0);
    open_fails(dir, ST_IO, "is a directory");
    char missing[128];
    snprintf(missing, sizeof missing, "%s/missing.gguf", dir);
    open_fails(missing, ST_NOT_FOUND, "no such file");
    write_file(0, "empty.gguf", &b);
    open_fails(path[0], ST_FORMAT, "the file is empty");
    write_part(1, "closed.gguf", (part_claim){0, 1, 1, "t0"});
    if (geteuid() != 0) { /* root reads everything */
        assert_int_equal(chmod(path[1], 0), 0);
        open_fails(path[1], ST_IO, "no permission");
    }
    write_part(2, "cut.gguf", (part_claim){0, 1, 1, "t0"});
    struct stat info;
    assert_int_equal(stat(path[2], &info), 0);
    assert_int_equal(truncate(path[2], info.st_size - 1), 0);
    open_fails(path[2], ST_FORMAT, "the download is incomplete");
}

static bool anything_mapped(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    char line[512];
    bool found = false;
    while (fgets(line, sizeof line, maps)) found |= strstr(line, dir) != NULL;
    fclose(maps);
    return found;
}

static void mapped_if_open(int rc)
{
    assert_int_equal(anything_mapped(), rc == ST_OK);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    write_parts();
    assert_true(gguf_fail_each(open_path, path[0], mapped_if_open) > 20);
    assert_false(anything_mapped());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_split_opens_as_one, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_later_part_names_the_first, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_missing_part, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_renamed_part, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_wrong_parts, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_one_part_is_a_whole_file, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_files_that_cannot_be_read, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_every_allocation_may_fail, make_dir, remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
