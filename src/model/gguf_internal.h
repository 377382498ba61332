/* gguf_internal.h - what the gguf_*.c files share; nobody else includes it (the unit test does).
 *
 *      gguf.c            open, close, split files, look-up
 *      gguf_directory.c  the reader of one file's header
 *      gguf_index.c      names -> entries
 *      gguf_value.c      typed reads of metadata
 */
#ifndef KVASIR_MODEL_GGUF_INTERNAL_H
#define KVASIR_MODEL_GGUF_INTERNAL_H

#include "base/file.h"
#include "model/gguf.h"

/* Open addressing over entries that start with their name (a gguf_str); at most half of the slots are in use. */
typedef struct gguf_index {
    uint32_t *slots; /* entry number + 1; 0 = free */
    size_t mask;
} gguf_index;

typedef struct gguf_part {
    mapped_file bytes;
    bool mapped; /* false: the caller's memory */
} gguf_part;

struct gguf {
    uint32_t version;
    gguf_kv *kvs; /* of the first part */
    size_t n_kvs;
    gguf_tensor *tensors; /* of all parts, in file order */
    size_t n_tensors;
    gguf_index keys, names;
    gguf_part *parts;
    size_t n_parts;
};

/* Most entries of one directory: far beyond any model, and far below what a slot can number. */
#define GGUF_MAX_ENTRIES ((size_t)1 << 24)

uint64_t gguf_hash(const char *name, size_t n);
/* entries: n structs of `stride` bytes. A name that occurs twice is ST_FORMAT; `what` ("tensor") is for its text. */
int gguf_index_build(gguf_index *x, const void *entries, size_t stride, size_t n, const char *what, status *st);
void gguf_index_deinit(gguf_index *x);
/* The entry, or NULL. */
const void *gguf_index_find(const gguf_index *x, const void *entries, size_t stride, const char *name, size_t n);

/* Reads the header of a file of n_bytes at data into g (version, kvs, tensors, both indexes). On failure what it
 * allocated stays in g, for gguf_close. */
int gguf_read_directory(gguf *g, const uint8_t *data, size_t n_bytes, status *st);

/* Size of a scalar, 0 for strings and arrays. */
size_t gguf_scalar_bytes(gguf_type t);

static inline uint32_t gguf_le32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t gguf_le64(const uint8_t *p)
{
    return gguf_le32(p) | (uint64_t)gguf_le32(p + 4) << 32;
}

/* A name for a message: "%.*s" with the first 80 bytes. */
static inline int gguf_shown(gguf_str s)
{
    return s.n < 80 ? (int)s.n : 80;
}

#endif
