#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "fetch/model_dir.h"

int model_stamp_begin(model_stamp *s, const char *path, status *st)
{
    struct stat info;
    if (stat(path, &info) != 0) return status_set(st, ST_IO, STATUS_NO_POS, "%s: %s", path, strerror(errno));
    *s = (model_stamp){.n_bytes = (uint64_t)info.st_size, .modified = info.st_mtim};
    return ST_OK;
}

/* "-" stands for what is not known. */
static bool take_digest(char out[SHA256_HEX], const char *word)
{
    bool known = strcmp(word, "-") != 0;
    if (known && strspn(word, "0123456789abcdef") != SHA256_HEX - 1) return false;
    snprintf(out, SHA256_HEX, "%s", known ? word : "");
    return true;
}

bool model_stamp_read(model_stamp *out, const char *dir, const char *name)
{
    status ignored = STATUS_INIT;
    char *path = NULL, *stamp_path = NULL;
    char sha256[SHA256_HEX], origin[SHA256_HEX], fingerprint[SHA256_HEX] = "-"; /* older stamps lack the last */
    model_stamp s;
    strbuf b;
    strbuf_init(&b, 0);
    uint64_t n_bytes, seconds, nanoseconds;
    bool ok = !model_file(&path, dir, "", name, ".gguf", &ignored) &&
              !model_file(&stamp_path, dir, ".", name, ".stamp", &ignored) && !model_stamp_begin(&s, path, &ignored) &&
              !file_read(&b, stamp_path, 4096, &ignored) &&
              sscanf(strbuf_cstr(&b), "%64s %" SCNu64 " %" SCNu64 ".%" SCNu64 " %64s %64s", sha256, &n_bytes, &seconds,
                     &nanoseconds, origin, fingerprint) >= 5 &&
              n_bytes == s.n_bytes && seconds == (uint64_t)s.modified.tv_sec &&
              nanoseconds == (uint64_t)s.modified.tv_nsec && take_digest(s.sha256, sha256) &&
              take_digest(s.origin, origin) && take_digest(s.fingerprint, fingerprint);
    if (ok) *out = s;
    strbuf_deinit(&b);
    mem_free(path);
    mem_free(stamp_path);
    return ok;
}

static const char *shown(const char *digest)
{
    return *digest ? digest : "-";
}

int model_stamp_write(const model_stamp *s, const char *dir, const char *name, status *st)
{
    char *stamp_path = NULL, text[320];
    if (model_file(&stamp_path, dir, ".", name, ".stamp", st)) return st->code;
    int n =
        snprintf(text, sizeof text, "%s %" PRIu64 " %" PRIu64 ".%09" PRIu64 " %s %s\n", shown(s->sha256), s->n_bytes,
                 (uint64_t)s->modified.tv_sec, (uint64_t)s->modified.tv_nsec, shown(s->origin), shown(s->fingerprint));
    int failed = file_write_atomic(stamp_path, text, (size_t)n, st);
    mem_free(stamp_path);
    return failed;
}
