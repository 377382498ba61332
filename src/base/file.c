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
    case EACCES:
        return status_set(st, ST_IO, STATUS_NO_POS, "%s: no permission to read it; check its mode and owner", path);
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
    else if (!S_ISREG(info.st_mode))
        status_set(st, ST_IO, STATUS_NO_POS, "%s is not a regular file, so it can't be mapped", path);
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

const char *file_shown(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

int file_read(strbuf *b, const char *path, size_t max_bytes, status *st)
{
    bool standard = strcmp(path, "-") == 0;
    const char *shown = file_shown(path);
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return open_error(shown, errno, st);
    char chunk[16384];
    size_t total = 0;
    ssize_t n = 0;
    int rc = ST_OK;
    while (rc == ST_OK && (n = read(fd, chunk, sizeof chunk)) != 0) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            rc = errno == EISDIR ? status_set(st, ST_IO, STATUS_NO_POS, "%s is a directory; name a file in it", shown)
                                 : open_error(shown, errno, st);
        else if ((total += (size_t)n) > max_bytes)
            rc = status_set(st, ST_LIMIT, STATUS_NO_POS, "%s is larger than the %zu bytes allowed here", shown,
                            max_bytes);
        else strbuf_add(b, chunk, (size_t)n);
    }
    if (!standard) close(fd);
    return rc ? rc : strbuf_check(b, st);
}

/* A file of its own beside the target, whose file system it shares, with the mode of what it will replace. */
static void open_temporary(new_file *f, const struct stat *old)
{
    size_t n = strlen(f->target) + 64;
    f->temporary = mem_alloc(n);
    if (!f->temporary) {
        f->error = ENOMEM;
        return;
    }
    for (int i = 0; f->fd < 0 && (i == 0 || (errno == EEXIST && i < 1000)); i++) {
        snprintf(f->temporary, n, "%s.tmp-%ld-%d", f->target, (long)getpid(), i);
        f->fd = open(f->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, old ? 0600 : 0666);
    }
    if (f->fd < 0 || (old && fchmod(f->fd, old->st_mode & 0777))) f->error = errno;
}

int new_file_open(new_file *f, const char *path, status *st)
{
    struct stat info;
    bool exists = stat(path, &info) == 0, in_place = exists && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
    char *real = realpath(path, NULL);
    *f = (new_file){.fd = -1, .path = path, .target = mem_strdup(real ? real : path)};
    free(real); /* realpath's own malloc */
    if (!f->target) return status_nomem(st, strlen(path) + 1);
    if (!in_place) open_temporary(f, exists ? &info : NULL);
    else if ((f->fd = open(path, O_WRONLY | O_CLOEXEC)) < 0) f->error = errno;
    return f->error ? new_file_close(f, false, st) : ST_OK;
}

void new_file_write(new_file *f, const void *data, size_t n_bytes)
{
    for (const char *p = data; n_bytes && !f->error;) {
        ssize_t n = write(f->fd, p, n_bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) f->error = errno;
        else {
            p += n;
            n_bytes -= (size_t)n;
        }
    }
}

int new_file_close(new_file *f, bool keep, status *st)
{
    bool made = f->temporary && f->fd >= 0;
    if (made && keep && !f->error && fsync(f->fd)) f->error = errno;
    if (f->fd >= 0 && close(f->fd) && !f->error) f->error = errno;
    if (made && keep && !f->error && rename(f->temporary, f->target)) f->error = errno;
    if (made && (!keep || f->error)) unlink(f->temporary);
    if (f->error == ENOMEM) status_nomem(st, strlen(f->target));
    else if (f->error) status_set(st, ST_IO, STATUS_NO_POS, "%s can't be written: %s", f->path, strerror(f->error));
    mem_free(f->temporary);
    mem_free(f->target);
    return f->error ? st->code : ST_OK;
}

int file_write_atomic(const char *path, const void *data, size_t n_bytes, status *st)
{
    new_file f;
    if (new_file_open(&f, path, st)) return st->code;
    new_file_write(&f, data, n_bytes);
    return new_file_close(&f, true, st);
}

bool directory_create(const char *path, mode_t mode)
{
    char *part = mem_strdup(path);
    if (!part) {
        errno = ENOMEM;
        return false;
    }
    bool ok = true;
    for (char *slash = part; ok && *slash && (slash = strchr(slash + 1, '/'));) {
        *slash = 0;
        ok = mkdir(part, mode) == 0 || errno == EEXIST;
        *slash = '/';
    }
    struct stat info;
    ok = ok && (mkdir(part, mode) == 0 || errno == EEXIST) && stat(part, &info) == 0;
    if (ok && !S_ISDIR(info.st_mode)) {
        errno = ENOTDIR;
        ok = false;
    }
    int error = errno;
    mem_free(part);
    errno = error;
    return ok;
}
