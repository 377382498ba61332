#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

static int open_error(const char *path, int error, status *st)
{
    switch (error) {
    case ENOENT: return status_set(st, ST_NOT_FOUND, STATUS_NO_POS, "%s: no such file; check the path", path);
    case EACCES: return status_set(st, ST_IO, STATUS_NO_POS, "%s: no permission to read it; check its mode and owner", path);
    default: return status_set(st, ST_IO, STATUS_NO_POS, "%s: %s", path, strerror(error));
    }
}

int mapped_file_open(mapped_file *m, const char *path, status *st)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return open_error(path, errno, st);
    struct stat info;
    void *p = NULL;
    if (fstat(fd, &info) != 0) open_error(path, errno, st);
    else if (S_ISDIR(info.st_mode)) status_set(st, ST_IO, STATUS_NO_POS, "%s is a directory; name a file in it", path);
    else if (!S_ISREG(info.st_mode)) status_set(st, ST_IO, STATUS_NO_POS, "%s is not a regular file, so it can't be mapped", path);
    else if (info.st_size > 0 &&
             (p = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0)) == MAP_FAILED)
        status_set(st, ST_IO, STATUS_NO_POS, "%s can't be mapped: %s", path, strerror(errno));
    else {
        close(fd);
        *m = (mapped_file){p, (size_t)info.st_size};
        return ST_OK;
    }
    close(fd);
    return st->code;
}

void mapped_file_close(mapped_file *m)
{
    if (m->data) munmap((void *)(uintptr_t)m->data, m->n_bytes);
    *m = (mapped_file){0};
}

void mapped_file_drop(const mapped_file *m, size_t offset, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t begin = (offset + page - 1) / page * page, end = (offset + n) / page * page;
    if (end > begin && end <= m->n_bytes) madvise((void *)(uintptr_t)(m->data + begin), end - begin, MADV_DONTNEED);
}

int file_read(strbuf *b, const char *path, size_t max_bytes, status *st)
{
    bool standard = strcmp(path, "-") == 0;
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return open_error(path, errno, st);
    char chunk[16384];
    size_t total = 0;
    ssize_t n = 0;
    int rc = ST_OK;
    while (rc == ST_OK && (n = read(fd, chunk, sizeof chunk)) != 0) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) rc = errno == EISDIR ? status_set(st, ST_IO, STATUS_NO_POS, "%s is a directory; name a file in it", path)
                                        : open_error(path, errno, st);
        else if ((total += (size_t)n) > max_bytes)
            rc = status_set(st, ST_LIMIT, STATUS_NO_POS, "%s is larger than the %zu bytes allowed here", path, max_bytes);
        else strbuf_add(b, chunk, (size_t)n);
    }
    if (!standard) close(fd);
    return rc ? rc : strbuf_check(b, st);
}

static int write_all(int fd, const char *data, size_t n)
{
    while (n) {
        ssize_t m = write(fd, data, n);
        if (m < 0 && errno == EINTR) continue;
        if (m < 0) return -1;
        data += m;
        n -= (size_t)m;
    }
    return 0;
}

int file_write_atomic(const char *path, const void *data, size_t n_bytes, status *st)
{
    strbuf tmp;
    strbuf_init(&tmp, 0);
    strbuf_printf(&tmp, "%s.tmp-XXXXXX", path);
    if (strbuf_check(&tmp, st)) return strbuf_deinit(&tmp), st->code;
    int fd = mkostemp(tmp.data, O_CLOEXEC), error = 0;
    if (fd < 0) error = errno;
    else {
        if (fchmod(fd, 0644) || write_all(fd, data, n_bytes) || fsync(fd)) error = errno;
        if (close(fd) && !error) error = errno;
        if (!error && rename(tmp.data, path)) error = errno;
        if (error) unlink(tmp.data);
    }
    strbuf_deinit(&tmp);
    return error ? status_set(st, ST_IO, STATUS_NO_POS, "%s can't be written: %s", path, strerror(error)) : ST_OK;
}
