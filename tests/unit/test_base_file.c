/* file: mapping, reading, atomic writing, and how each of them fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

static char folder[64], path[128];
static uint64_t bytes_before;

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/kvasir-file-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/data", folder);
    bytes_before = mem_stats().bytes;
    return 0;
}

static int n_entries(void)
{
    DIR *d = opendir(folder);
    int n = 0;
    while (readdir(d)) n++;
    closedir(d);
    return n - 2;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    rmdir(path);
    bool empty = n_entries() == 0;
    rmdir(folder);
    return !empty || mem_stats().bytes != bytes_before;
}

static void put(const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

static void map_fails(int code, const char *words)
{
    status st = STATUS_INIT;
    mapped_file m = {(const uint8_t *)"untouched", 9};
    assert_int_equal(mapped_file_open(&m, path, &st), code);
    assert_int_equal(st.code, code);
    assert_non_null(strstr(st.text, path));
    assert_non_null(strstr(st.text, words));
    assert_int_equal(m.n_bytes, 9);
}

static void read_fails(int code, const char *words, size_t max_bytes)
{
    status st = STATUS_INIT;
    strbuf b;
    strbuf_init(&b, 0);
    assert_int_equal(file_read(&b, path, max_bytes, &st), code);
    assert_int_equal(st.code, code);
    assert_non_null(strstr(st.text, words));
    strbuf_deinit(&b);
}

static void maps_what_is_there(void **state)
{
    (void)state;
    enum { N = 3 * 4096 + 17 };
    static uint8_t data[N];
    for (size_t i = 0; i < N; i++) data[i] = (uint8_t)(i * 31 + i / 256);
    put(data, N);
    status st = STATUS_INIT;
    mapped_file m;
    assert_int_equal(mapped_file_open(&m, path, &st), ST_OK);
    assert_int_equal(m.n_bytes, N);
    assert_memory_equal(m.data, data, N);
    mapped_file_drop(&m, 100, 2 * 4096);
    mapped_file_drop(&m, 0, N);
    mapped_file_drop(&m, N, 0);
    assert_memory_equal(m.data, data, N);
    mapped_file_close(&m);
    assert_null(m.data);
    mapped_file_close(&m);
}

static void an_empty_file_maps_to_nothing(void **state)
{
    (void)state;
    put("", 0);
    status st = STATUS_INIT;
    mapped_file m;
    assert_int_equal(mapped_file_open(&m, path, &st), ST_OK);
    assert_null(m.data);
    assert_int_equal(m.n_bytes, 0);
    mapped_file_close(&m);
}

static void a_missing_file_is_named(void **state)
{
    (void)state;
    map_fails(ST_NOT_FOUND, "no such file");
    read_fails(ST_NOT_FOUND, "no such file", 100);
}

static void a_directory_is_refused(void **state)
{
    (void)state;
    mkdir(path, 0700);
    map_fails(ST_IO, "is a directory");
    read_fails(ST_IO, "is a directory", 100);
}

static void a_pipe_is_refused_without_waiting(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(path, 0600), 0);
    map_fails(ST_IO, "not a regular file");
}

static void a_file_without_permission_is_refused(void **state)
{
    (void)state;
    put("secret", 6);
    chmod(path, 0);
    chmod(folder, 0755);
    bool root = geteuid() == 0;
    if (root) assert_int_equal(seteuid(65534), 0); /* root may read everything */
    map_fails(ST_IO, "no permission");
    read_fails(ST_IO, "no permission", 100);
    if (root) assert_int_equal(seteuid(0), 0);
}

static void reads_up_to_the_limit(void **state)
{
    (void)state;
    static char data[40000];
    memset(data, 'k', sizeof data);
    data[39999] = 'v';
    put(data, sizeof data);
    status st = STATUS_INIT;
    strbuf b;
    strbuf_init(&b, 0);
    strbuf_puts(&b, "before:");
    assert_int_equal(file_read(&b, path, sizeof data, &st), ST_OK);
    assert_int_equal(b.n_bytes, sizeof data + 7);
    assert_memory_equal(b.data, "before:", 7);
    assert_memory_equal(b.data + 7, data, sizeof data);
    strbuf_deinit(&b);
    read_fails(ST_LIMIT, "39999", sizeof data - 1);
    mem_fail_after(2);
    read_fails(ST_NOMEM, "memory", sizeof data);
    mem_fail_after(0);
}

static void reads_standard_input(void **state)
{
    (void)state;
    put("from stdin", 10);
    int saved = dup(STDIN_FILENO), fd = open(path, O_RDONLY);
    dup2(fd, STDIN_FILENO);
    close(fd);
    status st = STATUS_INIT;
    strbuf b;
    strbuf_init(&b, 0);
    int rc = file_read(&b, "-", 100, &st);
    if (saved >= 0) dup2(saved, STDIN_FILENO), close(saved);
    assert_int_equal(rc, ST_OK);
    assert_string_equal(strbuf_cstr(&b), "from stdin");
    strbuf_deinit(&b);
}

static void content_is(const char *want)
{
    status st = STATUS_INIT;
    strbuf b;
    strbuf_init(&b, 0);
    assert_int_equal(file_read(&b, path, 1000, &st), ST_OK);
    assert_string_equal(strbuf_cstr(&b), want);
    strbuf_deinit(&b);
}

static void writes_anew_and_over(void **state)
{
    (void)state;
    status st = STATUS_INIT;
    assert_int_equal(file_write_atomic(path, "one", 3, &st), ST_OK);
    content_is("one");
    assert_int_equal(file_write_atomic(path, "another", 7, &st), ST_OK);
    content_is("another");
    assert_int_equal(file_write_atomic(path, NULL, 0, &st), ST_OK);
    content_is("");
    assert_int_equal(n_entries(), 1);
}

static void a_failed_write_leaves_the_old_file(void **state)
{
    (void)state;
    static const char large[10000];
    status st = STATUS_INIT;
    put("old", 3);
    struct rlimit limit, small;
    getrlimit(RLIMIT_FSIZE, &limit);
    small = limit;
    small.rlim_cur = 4096;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    int rc = file_write_atomic(path, large, sizeof large, &st);
    setrlimit(RLIMIT_FSIZE, &limit);
    signal(SIGXFSZ, handler);
    assert_int_equal(rc, ST_IO);
    assert_non_null(strstr(st.text, path));
    content_is("old");
    assert_int_equal(n_entries(), 1);
    mem_fail_after(1);
    assert_int_equal(file_write_atomic(path, "new", 3, &st), ST_NOMEM);
    content_is("old");
}

static void a_write_that_has_no_place_leaves_nothing(void **state)
{
    (void)state;
    status st = STATUS_INIT;
    mkdir(path, 0700);
    assert_int_equal(file_write_atomic(path, "x", 1, &st), ST_IO);
    assert_int_equal(n_entries(), 1); /* the directory alone */
    char nowhere[160];
    snprintf(nowhere, sizeof nowhere, "%s/no/such/folder", folder);
    assert_int_equal(file_write_atomic(nowhere, "x", 1, &st), ST_IO);
    assert_non_null(strstr(st.text, nowhere));
}

/* A rename would put a plain file in the place of /dev/stdout. */
static void a_pipe_is_written_and_stays_one(void **state)
{
    (void)state;
    status st = STATUS_INIT;
    struct stat info;
    char read_back[8] = "";
    assert_int_equal(mkfifo(path, 0600), 0);
    int fd = open(path, O_RDONLY | O_NONBLOCK);
    assert_true(fd >= 0);
    assert_int_equal(file_write_atomic(path, "piped", 5, &st), ST_OK);
    assert_int_equal(read(fd, read_back, sizeof read_back), 5);
    assert_string_equal(read_back, "piped");
    assert_int_equal(stat(path, &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
    assert_int_equal(n_entries(), 1);
    close(fd);
}

static void a_link_and_a_mode_stay(void **state)
{
    (void)state;
    status st = STATUS_INIT;
    struct stat info;
    char link_path[160];
    snprintf(link_path, sizeof link_path, "%s/link", folder);
    put("old", 3);
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(symlink("data", link_path), 0);
    assert_int_equal(file_write_atomic(link_path, "new", 3, &st), ST_OK);
    content_is("new");
    assert_int_equal(lstat(link_path, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    unlink(link_path);
    unlink(path);
    mode_t mask = umask(077);
    assert_int_equal(file_write_atomic(path, "mine", 4, &st), ST_OK);
    umask(mask);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
}

static void a_new_file_that_is_not_kept_leaves_nothing(void **state)
{
    (void)state;
    status st = STATUS_INIT;
    new_file a, b; /* two at once don't meet */
    put("old", 3);
    assert_int_equal(new_file_open(&a, path, &st), ST_OK);
    assert_int_equal(new_file_open(&b, path, &st), ST_OK);
    assert_int_equal(n_entries(), 3);
    new_file_write(&a, "half", 4);
    new_file_write(&b, "who", 3);
    new_file_write(&b, "le", 2);
    content_is("old");
    assert_int_equal(new_file_close(&b, true, &st), ST_OK);
    assert_int_equal(new_file_close(&a, false, &st), ST_OK);
    content_is("whole");
    assert_int_equal(n_entries(), 1);
}

static void standard_input_has_its_name(void **state)
{
    (void)state;
    assert_string_equal(file_shown("-"), "standard input");
    assert_string_equal(file_shown(path), path);
}

static void directories_are_made_with_their_parents(void **state)
{
    (void)state;
    char deep[160];
    struct stat info;
    snprintf(deep, sizeof deep, "%s/b c/d", path);
    assert_true(directory_create(deep, 0700) && stat(deep, &info) == 0 && S_ISDIR(info.st_mode));
    assert_int_equal(info.st_mode & 0777, 0700);
    assert_true(directory_create(deep, 0755)); /* there already: its mode stays */
    assert_true(stat(deep, &info) == 0 && (info.st_mode & 0777) == 0700);
    assert_int_equal(rmdir(deep), 0);
    snprintf(deep, sizeof deep, "%s/b c", path);
    assert_int_equal(rmdir(deep), 0);
    assert_int_equal(rmdir(path), 0);
    put("a file", 6);
    assert_false(directory_create(path, 0700));
    assert_int_equal(errno, ENOTDIR);
    assert_false(directory_create(deep, 0700));
    mem_fail_after(1);
    assert_false(directory_create(folder, 0700));
    assert_int_equal(errno, ENOMEM);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(maps_what_is_there),
        TEST(an_empty_file_maps_to_nothing),
        TEST(a_missing_file_is_named),
        TEST(a_directory_is_refused),
        TEST(a_pipe_is_refused_without_waiting),
        TEST(a_file_without_permission_is_refused),
        TEST(reads_up_to_the_limit),
        TEST(reads_standard_input),
        TEST(writes_anew_and_over),
        TEST(a_failed_write_leaves_the_old_file),
        TEST(a_write_that_has_no_place_leaves_nothing),
        TEST(a_pipe_is_written_and_stays_one),
        TEST(a_link_and_a_mode_stay),
        TEST(a_new_file_that_is_not_kept_leaves_nothing),
        TEST(standard_input_has_its_name),
        TEST(directories_are_made_with_their_parents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
