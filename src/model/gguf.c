#include "model/gguf.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/gguf_internal.h"

/* Takes over `bytes` if they are mapped, also on failure. */
static int parse_part(gguf **out, gguf_part bytes, status *st)
{
    gguf *g = mem_calloc(1, sizeof *g);
    gguf_part *part = mem_alloc(sizeof *part);
    if (!g || !part) {
        if (bytes.mapped) mapped_file_close(&bytes.bytes);
        mem_free(g);
        mem_free(part);
        return status_nomem(st, sizeof *g + sizeof *part);
    }
    *part = bytes;
    g->parts = part;
    g->n_parts = 1;
    if (gguf_read_directory(g, part->bytes.data, part->bytes.n_bytes, st)) return gguf_close(g), st->code;
    *out = g;
    return ST_OK;
}

static int open_part(gguf **out, const char *path, status *st)
{
    gguf_part part = {.mapped = true};
    if (mapped_file_open(&part.bytes, path, st)) return st->code;
    return parse_part(out, part, st) ? status_prefix(st, "%s", path) : ST_OK;
}

/* What a file says about its place in a split; a whole file is part 0 of 1. */
typedef struct split_info {
    uint32_t no, count;
    uint32_t n_tensors; /* of all parts, if has_total */
    bool has_total;
} split_info;

static int read_split(split_info *s, const gguf *g, status *st)
{
    *s = (split_info){.count = 1};
    if (gguf_get_u32(g, "split.no", &s->no, NULL, st) || gguf_get_u32(g, "split.count", &s->count, NULL, st) ||
        gguf_get_u32(g, "split.tensors.count", &s->n_tensors, &s->has_total, st))
        return st->code;
    if (s->count == 0) s->count = 1;
    if (s->count > 99999 || s->no >= s->count)
        return status_set(st, ST_FORMAT, STATUS_NO_POS,
                          "split.no is %u and split.count %u, which can't be: the file is damaged; get it again", s->no,
                          s->count);
    return ST_OK;
}

#define SPLIT_SUFFIX_BYTES 20 /* "-00001-of-00003.gguf" */

static void split_suffix(char out[SPLIT_SUFFIX_BYTES + 1], uint32_t no, uint32_t count)
{
    snprintf(out, SPLIT_SUFFIX_BYTES + 1, "-%05u-of-%05u.gguf", (no + 1) % 100000, count % 100000);
}

/* Length of the path in front of the suffix. Refuses a file whose name does not say which part it is, and one that is
 * not the first. */
static int split_stem(size_t *n_stem, const char *path, const split_info *s, status *st)
{
    char own[SPLIT_SUFFIX_BYTES + 1], first[SPLIT_SUFFIX_BYTES + 1];
    size_t n = strlen(path);
    split_suffix(own, s->no, s->count);
    split_suffix(first, 0, s->count);
    if (n < SPLIT_SUFFIX_BYTES || strcmp(path + n - SPLIT_SUFFIX_BYTES, own) != 0)
        return status_set(st, ST_ARG, STATUS_NO_POS,
                          "%s is part %u of %u of a split model, so its name must end in %s: rename it, with the "
                          "other parts beside it",
                          path, s->no + 1, s->count, own);
    *n_stem = n - SPLIT_SUFFIX_BYTES;
    if (s->no == 0) return ST_OK;
    return status_set(st, ST_ARG, STATUS_NO_POS, "%s is part %u of a split model: name its first part, %.*s%s", path,
                      s->no + 1, (int)*n_stem, path, first);
}

/* Moves the tensors and the mapping of `more` into g. On failure both are as they were. */
static int append_part(gguf *g, gguf *more, status *st)
{
    size_t n_tensors = g->n_tensors + more->n_tensors, n_parts = g->n_parts + 1;
    gguf_tensor *tensors = mem_resize(g->tensors, n_tensors, sizeof *tensors);
    if (!tensors) return status_nomem(st, n_tensors * sizeof *tensors);
    g->tensors = tensors;
    gguf_part *parts = mem_resize(g->parts, n_parts, sizeof *parts);
    if (!parts) return status_nomem(st, n_parts * sizeof *parts);
    g->parts = parts;
    for (size_t i = 0; i < more->n_tensors; i++) {
        g->tensors[g->n_tensors] = more->tensors[i];
        g->tensors[g->n_tensors++].part = (int)g->n_parts;
    }
    g->parts[g->n_parts++] = more->parts[0];
    more->n_parts = 0;
    return ST_OK;
}

static int open_next_part(gguf *g, const char *path, const split_info *whole, status *st)
{
    gguf *part;
    split_info s;
    uint32_t no = (uint32_t)g->n_parts;
    if (open_part(&part, path, st))
        return st->code != ST_NOT_FOUND ? st->code
                                        : status_set(st, ST_NOT_FOUND, STATUS_NO_POS,
                                                     "part %u of %u is missing: %s; put every part in the "
                                                     "same folder",
                                                     no + 1, whole->count, path);
    if (read_split(&s, part, st)) status_prefix(st, "%s", path);
    else if (s.no != no || s.count != whole->count)
        status_set(st, ST_FORMAT, STATUS_NO_POS,
                   "%s calls itself part %u of %u, but part %u of %u belongs here: get that file again", path, s.no + 1,
                   s.count, no + 1, whole->count);
    else if (append_part(g, part, st) == ST_OK) {
        gguf_close(part);
        return ST_OK;
    }
    gguf_close(part);
    return st->code;
}

static int open_other_parts(gguf *g, const char *path, const split_info *s, status *st)
{
    size_t n_stem = 0;
    if (split_stem(&n_stem, path, s, st)) return st->code;
    char *name = mem_strdup(path);
    if (!name) return status_nomem(st, strlen(path) + 1);
    int rc = ST_OK;
    for (uint32_t no = 1; rc == ST_OK && no < s->count; no++) {
        split_suffix(name + n_stem, no, s->count);
        rc = open_next_part(g, name, s, st);
    }
    mem_free(name);
    if (rc) return rc;
    if (s->has_total && g->n_tensors != s->n_tensors)
        return status_set(st, ST_FORMAT, STATUS_NO_POS,
                          "%s: the %u parts hold %zu tensors, but %u are announced: get the parts again", path,
                          s->count, g->n_tensors, s->n_tensors);
    return gguf_index_build(&g->names, g->tensors, sizeof *g->tensors, g->n_tensors, "tensor", st)
               ? status_prefix(st, "%s", path)
               : ST_OK;
}

int gguf_open(gguf **out, const char *path, status *st)
{
    gguf *g;
    split_info s;
    if (open_part(&g, path, st)) return st->code;
    int rc = read_split(&s, g, st);
    if (rc) status_prefix(st, "%s", path);
    else if (s.count > 1) rc = open_other_parts(g, path, &s, st);
    if (rc) return gguf_close(g), rc;
    *out = g;
    return ST_OK;
}

int gguf_parse(gguf **out, const uint8_t *data, size_t n_bytes, status *st)
{
    return parse_part(out, (gguf_part){{data, n_bytes}, false}, st);
}

void gguf_close(gguf *g)
{
    if (!g) return;
    for (size_t i = 0; i < g->n_parts; i++)
        if (g->parts[i].mapped) mapped_file_close(&g->parts[i].bytes);
    gguf_index_deinit(&g->keys);
    gguf_index_deinit(&g->names);
    mem_free(g->parts);
    mem_free(g->tensors);
    mem_free(g->kvs);
    mem_free(g);
}

uint32_t gguf_version(const gguf *g)
{
    return g->version;
}

size_t gguf_file_bytes(const gguf *g)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n_parts; i++) n += g->parts[i].bytes.n_bytes;
    return n;
}

size_t gguf_part_count(const gguf *g)
{
    return g->n_parts;
}

size_t gguf_kv_count(const gguf *g)
{
    return g->n_kvs;
}

const gguf_kv *gguf_kv_at(const gguf *g, size_t i)
{
    return i < g->n_kvs ? &g->kvs[i] : NULL;
}

const gguf_kv *gguf_find(const gguf *g, const char *key)
{
    return gguf_index_find(&g->keys, g->kvs, sizeof *g->kvs, key, strlen(key));
}

size_t gguf_tensor_count(const gguf *g)
{
    return g->n_tensors;
}

const gguf_tensor *gguf_tensor_at(const gguf *g, size_t i)
{
    return i < g->n_tensors ? &g->tensors[i] : NULL;
}

const gguf_tensor *gguf_find_tensor(const gguf *g, const char *name)
{
    return gguf_index_find(&g->names, g->tensors, sizeof *g->tensors, name, strlen(name));
}

void gguf_drop(const gguf *g, const gguf_tensor *t, size_t offset, size_t n_bytes)
{
    assert(offset <= t->n_bytes && n_bytes <= t->n_bytes - offset);
    const gguf_part *part = &g->parts[t->part];
    if (part->mapped && t->data) mapped_file_drop(&part->bytes, t->file_offset + offset, n_bytes);
}
