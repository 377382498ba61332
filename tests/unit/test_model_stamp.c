/* The stamp beside a model of the model directory: its fingerprint spares hashing while size and time stay; whatever else
 * the stamp says, a model loads, with the right fingerprint. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/options.h"
#include "cli/runtime.h"
#include "fetch/model_dir.h"
#include "tiny_model.h"

static char dir[64], file[96], stamp[96];

static void put(const char *path, const char *bytes, size_t n)
{
    status st = STATUS_INIT;
    if (file_write_atomic(path, bytes, n, &st)) fail_msg("%s", st.text);
}

static void put_model(int seed)
{
    tiny_config c = tiny_llama();
    strbuf b;
    strbuf_init(&b, 0);
    tiny_gguf(&b, &c);
    strbuf_cstr(&b);
    b.data[b.n_bytes - 1] ^= (char)seed; /* a weight */
    put(file, b.data, b.n_bytes);
    strbuf_deinit(&b);
}

static int open_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/kvasir-test-stamp-XXXXXX");
    if (!mkdtemp(dir)) return -1;
    setenv("KVASIR_MODELS", dir, 1);
    snprintf(file, sizeof file, "%s/tiny.gguf", dir);
    snprintf(stamp, sizeof stamp, "%s/.tiny.stamp", dir);
    put_model(0);
    return 0;
}

static int close_dir(void **state)
{
    (void)state;
    unlink(file);
    unlink(stamp);
    return rmdir(dir);
}

/* Loads as every command does; the fingerprint in hex. */
static void load(char out[SHA256_HEX], const char *name)
{
    static const option_spec options[] = {RUNTIME_OPTIONS, {.name = NULL}};
    static const command c = {.name = "load", .max_positional = 0, .options = options};
    char *argv[] = {"--threads", "1"};
    status st = STATUS_INIT;
    args *a = NULL;
    runtime r;
    if (args_parse(&a, &c, 2, argv, &st) || runtime_open_model(&r, a, name, 0, &st)) fail_msg("%s", st.text);
    for (size_t i = 0; i < 32; i++) snprintf(out + 2 * i, 3, "%02x", r.m->fingerprint[i]);
    runtime_close(&r);
    args_free(a);
}

static void stamp_says(const char *fingerprint)
{
    model_stamp s;
    assert_true(model_stamp_read(&s, dir, "tiny"));
    assert_string_equal(s.fingerprint, fingerprint);
}

/* Puts a fingerprint that is no file's into the stamp; size and time are the file's. */
static void plant(char digit)
{
    model_stamp s;
    status st = STATUS_INIT;
    assert_true(model_stamp_read(&s, dir, "tiny"));
    memset(s.fingerprint, digit, SHA256_HEX - 1);
    assert_int_equal(model_stamp_write(&s, dir, "tiny", &st), ST_OK);
}

static void a_known_fingerprint_is_used_until_the_file_changes(void **state)
{
    (void)state;
    char first[SHA256_HEX], other[SHA256_HEX], planted[SHA256_HEX] = "";
    memset(planted, 'a', SHA256_HEX - 1);
    load(first, "tiny");
    stamp_says(first);
    plant('a');
    load(other, "tiny");
    assert_string_equal(other, planted);
    load(other, file); /* the same file by its path */
    assert_string_equal(other, planted);
    struct timespec times[2] = {{.tv_sec = 1700000000, .tv_nsec = 5}, {.tv_sec = 1700000000, .tv_nsec = 5}};
    for (int i = 0; i < 2; i++) { /* the second time by a nanosecond */
        times[1].tv_nsec++;
        assert_int_equal(utimensat(AT_FDCWD, file, times, 0), 0);
        load(other, "tiny");
        assert_string_equal(other, first);
        stamp_says(first);
        plant('a');
    }
    put_model(1);
    load(other, "tiny");
    assert_string_not_equal(other, first);
    assert_string_not_equal(other, planted);
    stamp_says(other);
}

static void damaged_stamps_are_ignored_and_written_anew(void **state)
{
    (void)state;
    char right[SHA256_HEX], got[SHA256_HEX], whole[512];
    load(right, "tiny");
    status st = STATUS_INIT;
    strbuf b;
    strbuf_init(&b, 0);
    assert_int_equal(file_read(&b, stamp, sizeof whole, &st), ST_OK);
    size_t n = b.n_bytes;
    memcpy(whole, strbuf_cstr(&b), n + 1);
    strbuf_deinit(&b);
    for (size_t cut = 0; cut < n; cut++) { /* its last byte is the line's end */
        put(stamp, whole, cut);
        load(got, "tiny");
        assert_string_equal(got, right);
        stamp_says(right);
    }
    static const char *const bad[] = {"\0\0\0\0", "- - - - -", "not a stamp at all, but a text of some words",
                                      "\xff\xfe"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put(stamp, bad[i], i ? strlen(bad[i]) : 4);
        load(got, "tiny");
        assert_string_equal(got, right);
        stamp_says(right);
    }
}

/* What pull noted stays; of a stamp from before there were fingerprints, too. */
static void what_pull_knows_stays(void **state)
{
    (void)state;
    char right[SHA256_HEX], line[256], sha[SHA256_HEX] = "", origin[SHA256_HEX] = "";
    memset(sha, '1', SHA256_HEX - 1);
    memset(origin, '2', SHA256_HEX - 1);
    struct stat info;
    assert_int_equal(stat(file, &info), 0);
    int n = snprintf(line, sizeof line, "%s %llu %llu.%09llu %s\n", sha, (unsigned long long)info.st_size,
                     (unsigned long long)info.st_mtim.tv_sec, (unsigned long long)info.st_mtim.tv_nsec, origin);
    put(stamp, line, (size_t)n);
    load(right, "tiny");
    model_stamp s;
    assert_true(model_stamp_read(&s, dir, "tiny"));
    assert_string_equal(s.sha256, sha);
    assert_string_equal(s.origin, origin);
    assert_string_equal(s.fingerprint, right);
}

/* The stamp's place is taken by a directory, so that nobody, root included, can write it. */
static void a_directory_that_cannot_be_written_is_no_error(void **state)
{
    (void)state;
    char first[SHA256_HEX], second[SHA256_HEX];
    load(first, "tiny");
    unlink(stamp);
    assert_int_equal(mkdir(stamp, 0777), 0);
    load(second, "tiny");
    assert_string_equal(second, first);
    assert_int_equal(rmdir(stamp), 0); /* and it is empty */
}

static void models_elsewhere_have_none(void **state)
{
    (void)state;
    char inside[SHA256_HEX], outside[SHA256_HEX], sub[80], path[96], its_stamp[96];
    load(inside, "tiny");
    snprintf(sub, sizeof sub, "%s/sub", dir);
    snprintf(path, sizeof path, "%s/tiny.gguf", sub);
    snprintf(its_stamp, sizeof its_stamp, "%s/.tiny.stamp", sub);
    assert_int_equal(mkdir(sub, 0777), 0);
    assert_int_equal(link(file, path), 0);
    plant('b');
    load(outside, path);
    assert_string_equal(outside, inside);
    assert_int_equal(access(its_stamp, F_OK), -1);
    unlink(path);
    rmdir(sub);
    char *in_dir = NULL, *name = NULL;
    static const char *const others[] = {"/.tiny.gguf", "/tiny.GGUF", "/tiny", "/.gguf", "x/tiny.gguf", "/", ""};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(path, sizeof path, "%s%s", dir, others[i]);
        assert_false(model_in_dir(&in_dir, &name, path));
    }
    assert_false(model_in_dir(&in_dir, &name, "tiny.gguf"));
    assert_true(model_in_dir(&in_dir, &name, file));
    assert_string_equal(in_dir, dir);
    assert_string_equal(name, "tiny");
    mem_free(in_dir);
    mem_free(name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_known_fingerprint_is_used_until_the_file_changes, open_dir, close_dir),
        cmocka_unit_test_setup_teardown(damaged_stamps_are_ignored_and_written_anew, open_dir, close_dir),
        cmocka_unit_test_setup_teardown(what_pull_knows_stays, open_dir, close_dir),
        cmocka_unit_test_setup_teardown(a_directory_that_cannot_be_written_is_no_error, open_dir, close_dir),
        cmocka_unit_test_setup_teardown(models_elsewhere_have_none, open_dir, close_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
