#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "fetch/model_dir.h"

bool model_stamp_read(model_stamp *out, const char *dir, const char *name)
{
    status ignored = STATUS_INIT;
    char *path = NULL, *stamp_path = NULL;
    struct stat info;
    strbuf b;
    strbuf_init(&b, 0);
    uint64_t n_bytes, seconds, nanoseconds;
    bool ok = !model_file(&path, dir, "", name, ".gguf", &ignored) &&
              !model_file(&stamp_path, dir, ".", name, ".stamp", &ignored) && stat(path, &info) == 0 &&
              !file_read(&b, stamp_path, 4096, &ignored) &&
              sscanf(strbuf_cstr(&b), "%64[0-9a-f] %" SCNu64 " %" SCNu64 ".%" SCNu64 " %64[0-9a-f]", out->sha256,
                     &n_bytes, &seconds, &nanoseconds, out->origin) == 5 &&
              n_bytes == (uint64_t)info.st_size && seconds == (uint64_t)info.st_mtim.tv_sec &&
              nanoseconds == (uint64_t)info.st_mtim.tv_nsec;
    strbuf_deinit(&b);
    mem_free(path);
    mem_free(stamp_path);
    return ok;
}

int model_stamp_write(const model_stamp *s, const char *dir, const char *name, const char *path, status *st)
{
    struct stat info;
    char *stamp_path = NULL, text[256];
    if (stat(path, &info) != 0) return status_set(st, ST_IO, STATUS_NO_POS, "%s: %s", path, strerror(errno));
    if (model_file(&stamp_path, dir, ".", name, ".stamp", st)) return st->code;
    int n = snprintf(text, sizeof text, "%s %" PRIu64 " %" PRIu64 ".%09" PRIu64 " %s\n", s->sha256,
                     (uint64_t)info.st_size, (uint64_t)info.st_mtim.tv_sec, (uint64_t)info.st_mtim.tv_nsec, s->origin);
    int failed = file_write_atomic(stamp_path, text, (size_t)n, st);
    mem_free(stamp_path);
    return failed;
}
