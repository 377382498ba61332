#include "fetch/part_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "fetch/interrupt.h"
#include "fetch/progress.h"

static const char magic[4] = {'G', 'G', 'U', 'F'};

static int hash_failed(status *st)
{
    return status_set(st, ST_NOMEM, STATUS_NO_POS, "SHA-256 could not be computed: OpenSSL is out of memory");
}

static int hash_start(EVP_MD_CTX *sha, status *st)
{
    return sha && EVP_DigestInit_ex(sha, EVP_sha256(), NULL) == 1 ? ST_OK : hash_failed(st);
}

static int hash_end(EVP_MD_CTX *sha, char out[SHA256_HEX], status *st)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    if (EVP_DigestFinal_ex(sha, digest, NULL) != 1) return hash_failed(st);
    for (int i = 0; i < 32; i++) snprintf(out + 2 * i, 3, "%02x", digest[i]);
    return ST_OK;
}

/* Adds what fd has from its position on; n_bytes counts it. */
static int hash_fd(EVP_MD_CTX *sha, int fd, const char *name, uint64_t *n_bytes, status *st)
{
    enum { CHUNK = 1 << 18 };
    struct stat info;
    char *chunk = mem_alloc(CHUNK);
    if (!chunk) return status_nomem(st, CHUNK);
    progress bar;
    char what[96];
    snprintf(what, sizeof what, "checking %s", name);
    progress_begin(&bar, what, fstat(fd, &info) == 0 ? (uint64_t)info.st_size : 0, "B");
    int rc = ST_OK;
    for (ssize_t n = 0; rc == ST_OK && (n = read(fd, chunk, CHUNK)) != 0;) {
        if (interrupt_pending()) rc = interrupt_status(st);
        else if (n < 0 && errno != EINTR)
            rc = status_set(st, ST_IO, STATUS_NO_POS, "%s can't be read: %s", name, strerror(errno));
        else if (n > 0 && EVP_DigestUpdate(sha, chunk, (size_t)n) != 1) rc = hash_failed(st);
        else if (n > 0) progress_update(&bar, *n_bytes += (uint64_t)n);
    }
    progress_end(&bar);
    mem_free(chunk);
    return rc;
}

int sha256_text(char out[SHA256_HEX], const char *text, status *st)
{
    EVP_MD_CTX *sha = EVP_MD_CTX_new();
    int rc = hash_start(sha, st);
    if (!rc && EVP_DigestUpdate(sha, text, strlen(text)) != 1) rc = hash_failed(st);
    if (!rc) rc = hash_end(sha, out, st);
    EVP_MD_CTX_free(sha);
    return rc;
}

int sha256_file(char out[SHA256_HEX], const char *path, status *st)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return status_set(st, ST_IO, STATUS_NO_POS, "%s can't be read: %s", path, strerror(errno));
    EVP_MD_CTX *sha = EVP_MD_CTX_new();
    uint64_t n_bytes = 0;
    const char *slash = strrchr(path, '/');
    int rc = hash_start(sha, st);
    if (!rc) rc = hash_fd(sha, fd, slash ? slash + 1 : path, &n_bytes, st);
    if (!rc) rc = hash_end(sha, out, st);
    EVP_MD_CTX_free(sha);
    close(fd);
    return rc;
}

/* Asks again and again: a blocking flock would miss a signal that came just before it. */
static int lock_wait(int fd, const char *name, status *st)
{
    for (bool said = false; flock(fd, LOCK_EX | LOCK_NB) != 0; said = true) {
        if (interrupt_pending()) return interrupt_status(st);
        if (errno != EWOULDBLOCK && errno != EINTR)
            return status_set(st, ST_IO, STATUS_NO_POS, "the download of %s can't be locked: %s", name,
                              strerror(errno));
        if (!said) fprintf(stderr, "another pull of %s is running; waiting for it\n", name);
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    return ST_OK;
}

/* False when another process renamed or removed the part between our open and our lock. */
static bool still_at(int fd, const char *path)
{
    struct stat mine, there;
    return fstat(fd, &mine) == 0 && stat(path, &there) == 0 && mine.st_ino == there.st_ino &&
           mine.st_dev == there.st_dev;
}

int part_open(part_file *p, const char *dir, const char *name, status *st)
{
    *p = (part_file){.dir = dir, .name = name, .fd = -1};
    int rc = model_file(&p->path, dir, ".", name, ".part", st);
    if (!rc) rc = model_file(&p->origin_path, dir, ".", name, ".part.origin", st);
    for (bool locked = false; rc == ST_OK && !locked;) {
        p->fd = open(p->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (p->fd < 0) rc = status_set(st, ST_IO, STATUS_NO_POS, "%s can't be written: %s", p->path, strerror(errno));
        else rc = lock_wait(p->fd, name, st);
        locked = rc == ST_OK && still_at(p->fd, p->path);
        if (p->fd >= 0 && !locked) {
            close(p->fd);
            p->fd = -1;
        }
    }
    if (rc == ST_OK && !(p->sha = EVP_MD_CTX_new())) {
        rc = hash_failed(st);
        close(p->fd);
    }
    if (rc) {
        mem_free(p->path);
        mem_free(p->origin_path);
    }
    return rc;
}

static void remove_part(part_file *p)
{
    unlink(p->origin_path);
    unlink(p->path); /* while the lock is held: nobody else's part has this path now */
}

void part_close(part_file *p, bool keep)
{
    if (!keep && !p->finished) remove_part(p);
    close(p->fd);
    EVP_MD_CTX_free(p->sha);
    mem_free(p->path);
    mem_free(p->origin_path);
}

int part_discard(const char *dir, const char *name, bool *existed, status *st)
{
    part_file p = {.fd = -1};
    int rc = model_file(&p.path, dir, ".", name, ".part", st);
    if (!rc) rc = model_file(&p.origin_path, dir, ".", name, ".part.origin", st);
    if (!rc) p.fd = open(p.path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    *existed = p.fd >= 0;
    if (p.fd >= 0 && flock(p.fd, LOCK_EX | LOCK_NB) != 0)
        rc = status_set(st, ST_LIMIT, STATUS_NO_POS, "%s is being pulled just now; stop that first", name);
    else if (p.fd >= 0 && still_at(p.fd, p.path)) remove_part(&p);
    if (p.fd >= 0) close(p.fd);
    mem_free(p.path);
    mem_free(p.origin_path);
    return rc;
}

bool part_origin_read(const part_file *p, part_origin *o)
{
    status ignored = STATUS_INIT;
    strbuf b;
    strbuf_init(&b, 0);
    bool ok = !file_read(&b, p->origin_path, 4096, &ignored) &&
              sscanf(strbuf_cstr(&b), "%64[0-9a-f]\n%255[^\n]", o->source, o->validator) == 2;
    strbuf_deinit(&b);
    return ok;
}

int part_origin_write(const part_file *p, const part_origin *o, status *st)
{
    char text[sizeof *o + 4];
    int n = snprintf(text, sizeof text, "%s\n%s\n", o->source, o->validator);
    return file_write_atomic(p->origin_path, text, (size_t)n, st);
}

int part_restart(part_file *p, status *st)
{
    p->n_bytes = 0;
    unlink(p->origin_path);
    if (ftruncate(p->fd, 0) != 0 || lseek(p->fd, 0, SEEK_SET) != 0)
        return status_set(st, ST_IO, STATUS_NO_POS, "%s can't be written: %s", p->path, strerror(errno));
    return hash_start(p->sha, st);
}

int part_resume(part_file *p, status *st)
{
    p->n_bytes = 0;
    if (lseek(p->fd, 0, SEEK_SET) != 0)
        return status_set(st, ST_IO, STATUS_NO_POS, "%s can't be read: %s", p->path, strerror(errno));
    if (hash_start(p->sha, st)) return st->code;
    return hash_fd(p->sha, p->fd, p->name, &p->n_bytes, st);
}

static uint64_t free_bytes(const part_file *p)
{
    struct statvfs fs;
    return fstatvfs(p->fd, &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : UINT64_MAX;
}

int part_check_room(const part_file *p, uint64_t n_bytes, status *st)
{
    uint64_t room = free_bytes(p);
    if (room >= n_bytes) return ST_OK;
    char need[BYTES_TEXT], have[BYTES_TEXT];
    return status_set(st, ST_LIMIT, STATUS_NO_POS, "no room for %s: it takes %s more, and the disk of %s has %s free",
                      p->name, bytes_text(need, n_bytes), p->dir, bytes_text(have, room));
}

static int write_failed(const part_file *p, int error, status *st)
{
    char done[BYTES_TEXT], have[BYTES_TEXT];
    bytes_text(done, p->n_bytes);
    if (error == ENOSPC || error == EDQUOT)
        return status_set(st, ST_LIMIT, STATUS_NO_POS,
                          "no room for %s: after %s of it, the disk of %s has %s free (%s)", p->name, done, p->dir,
                          bytes_text(have, free_bytes(p)), strerror(error));
    return status_set(st, ST_IO, STATUS_NO_POS, "%s can't be written after %s: %s", p->path, done, strerror(error));
}

static int check_magic(const part_file *p, const char *data, size_t n, status *st)
{
    for (size_t i = 0; i < n && p->n_bytes + i < sizeof magic; i++)
        if (data[i] != magic[p->n_bytes + i])
            return status_set(st, ST_FORMAT, p->n_bytes + i, "what came for %s is not a GGUF file (%s)", p->name,
                              memchr(data, '<', n < 64 ? n : 64) ? "it looks like a web page; link to the file itself"
                                                                 : "it does not begin with GGUF");
    return ST_OK;
}

int part_write(part_file *p, const void *data, size_t n, status *st)
{
    const char *rest = data;
    if (check_magic(p, rest, n, st)) return st->code;
    while (n > 0) {
        ssize_t m = write(p->fd, rest, n);
        if (m < 0 && errno == EINTR && !interrupt_pending()) continue;
        if (m < 0 && errno == EINTR) return interrupt_status(st);
        if (m < 0) return write_failed(p, errno, st);
        if (EVP_DigestUpdate(p->sha, rest, (size_t)m) != 1) return hash_failed(st);
        p->n_bytes += (uint64_t)m;
        rest += m;
        n -= (size_t)m;
    }
    return ST_OK;
}

static int sync_dir(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int failed = fd < 0 || (fsync(fd) != 0 && errno != EINVAL);
    if (fd >= 0) close(fd);
    return failed;
}

int part_finish(part_file *p, const char *expected, const char *origin, model_stamp *s, status *st)
{
    if (p->n_bytes < sizeof magic)
        return status_set(st, ST_FORMAT, STATUS_NO_POS, "what came for %s is not a GGUF file: it has %d bytes", p->name,
                          (int)p->n_bytes);
    if (model_stamp_begin(s, p->path, st) || hash_end(p->sha, s->sha256, st)) return st->code;
    if (expected && strcmp(expected, s->sha256) != 0)
        return status_set(st, ST_FORMAT, STATUS_NO_POS,
                          "%s has SHA-256 %s instead of %s: damaged, or another file; nothing of it was kept", p->name,
                          s->sha256, expected);
    snprintf(s->origin, sizeof s->origin, "%s", origin);
    char *path = NULL;
    int rc = model_file(&path, p->dir, "", p->name, ".gguf", st);
    if (!rc && fsync(p->fd) != 0) rc = write_failed(p, errno, st);
    if (!rc) rc = model_stamp_write(s, p->dir, p->name, st);
    if (!rc && (rename(p->path, path) != 0 || sync_dir(p->dir)))
        rc = status_set(st, ST_IO, STATUS_NO_POS, "%s can't be written: %s", path, strerror(errno));
    if (!rc) {
        p->finished = true;
        unlink(p->origin_path);
    }
    mem_free(path);
    return rc;
}
