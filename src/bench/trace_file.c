#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>

#include "base/file.h"
#include "base/strbuf.h"
#include "bench/trace.h"

#define LINE_BYTES ((size_t)64 << 20) /* its JSON takes about twenty times that */
#define CHUNK_BYTES 65536

/* Lines across chunks. */
typedef struct line_reader {
    trace *trace;
    strbuf line; /* what came of it before this chunk */
    uint64_t number;
} line_reader;

static int end_line(line_reader *r, status *st)
{
    r->number++;
    if (strbuf_check(&r->line, st) || trace_add(r->trace, r->line.data ? r->line.data : "", r->line.n_bytes, st)) {
        status_prefix(st, "line %llu", (unsigned long long)r->number);
        st->pos = r->number;
        return st->code;
    }
    strbuf_clear(&r->line);
    return ST_OK;
}

static int take_chunk(line_reader *r, const char *chunk, size_t n, status *st)
{
    while (n > 0) {
        const char *end = memchr(chunk, '\n', n);
        size_t length = end ? (size_t)(end - chunk) : n;
        strbuf_add(&r->line, chunk, length);
        if ((end || r->line.failed) && end_line(r, st)) return st->code;
        chunk += length + (end != NULL);
        n -= length + (end != NULL);
    }
    return ST_OK;
}

static int read_lines(line_reader *r, gzFile file, status *st)
{
    char chunk[CHUNK_BYTES];
    int n, error = 0;
    errno = 0;
    while ((n = gzread(file, chunk, sizeof chunk)) > 0)
        if (take_chunk(r, chunk, (size_t)n, st)) return st->code;
    const char *text = gzerror(file, &error), *colon = strrchr(text, ':');
    if (error == Z_OK || error == Z_STREAM_END) return r->line.n_bytes ? end_line(r, st) : ST_OK;
    if (error == Z_ERRNO) return status_set(st, ST_IO, STATUS_NO_POS, "it can't be read: %s", strerror(errno));
    if (error == Z_BUF_ERROR) text = "it ends in the middle of the compressed data";
    else if (colon) text = colon + 2; /* the file's name is before it */
    return status_set(st, ST_FORMAT, r->number + 1, "after line %llu: %s", (unsigned long long)r->number, text);
}

int trace_read(trace *t, const char *path, status *st)
{
    errno = 0;
    gzFile file = strcmp(path, "-") == 0 ? gzdopen(dup(STDIN_FILENO), "rb") : gzopen(path, "rb");
    if (!file) {
        int code = errno == ENOENT ? ST_NOT_FOUND : ST_IO;
        return status_set(st, code, STATUS_NO_POS, "%s can't be opened: %s", file_shown(path),
                          errno ? strerror(errno) : "out of memory");
    }
    line_reader r = {.trace = t};
    strbuf_init(&r.line, LINE_BYTES);
    int rc = read_lines(&r, file, st);
    gzclose(file);
    strbuf_deinit(&r.line);
    if (rc) return status_prefix(st, "%s", file_shown(path));
    if (t->n_requests == 0) return status_set(st, ST_FORMAT, STATUS_NO_POS, "%s has no requests", file_shown(path));
    trace_sort(t);
    return ST_OK;
}
