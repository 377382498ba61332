/* gguf_build.h - GGUF bytes written by hand, field by field, for tests: right ones and wrong ones. */
#ifndef KVASIR_TESTS_GGUF_BUILD_H
#define KVASIR_TESTS_GGUF_BUILD_H

#include <stdint.h>
#include <string.h>

#include "base/strbuf.h"
#include "model/gguf.h"

static inline void put_uint(strbuf *b, uint64_t v, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++) strbuf_putc(b, (char)(v >> 8 * i));
}

static inline void put_str(strbuf *b, const char *s)
{
    put_uint(b, strlen(s), 8);
    strbuf_puts(b, s);
}

static inline void put_header(strbuf *b, uint32_t version, uint64_t n_tensors, uint64_t n_kvs)
{
    strbuf_puts(b, "GGUF");
    put_uint(b, version, 4);
    put_uint(b, n_tensors, 8);
    put_uint(b, n_kvs, 8);
}

/* Key and type; the value follows. */
static inline void put_key(strbuf *b, const char *key, uint32_t type)
{
    put_str(b, key);
    put_uint(b, type, 4);
}

static inline void put_kv_uint(strbuf *b, const char *key, gguf_type type, uint64_t v, int n_bytes)
{
    put_key(b, key, type);
    put_uint(b, v, n_bytes);
}

static inline void put_kv_str(strbuf *b, const char *key, const char *v)
{
    put_key(b, key, GGUF_STRING);
    put_str(b, v);
}

/* Element type and length of an array; the elements follow. */
static inline void put_array(strbuf *b, uint32_t elem_type, uint64_t n)
{
    put_uint(b, elem_type, 4);
    put_uint(b, n, 8);
}

static inline void put_tensor(strbuf *b, const char *name, int n_dims, const uint64_t *dims, uint32_t type,
                              uint64_t offset)
{
    put_str(b, name);
    put_uint(b, (uint64_t)n_dims, 4);
    for (int i = 0; i < n_dims; i++) put_uint(b, dims[i], 8);
    put_uint(b, type, 4);
    put_uint(b, offset, 8);
}

static inline void put_padding(strbuf *b, size_t alignment)
{
    while (b->n_bytes % alignment) strbuf_putc(b, 0);
}

#endif
