/* gguf.h - the directory of a GGUF file: metadata and tensors, bounded before use.
 *
 * Owns: the mapping of the file (or of each part of a split file), the directory. Tensor data stay in the mapping.
 *
 *      magic "GGUF" | version u32 (2, 3) | n_tensors u64 | n_kv u64
 *      n_kv    x  key string | type u32 | value
 *      n_tensors x name string | n_dims u32 | dims u64[n_dims] | type u32 | offset u64
 *      padding to general.alignment (32) | tensor data                 string = length u64, bytes
 *
 * G1 Every count, length, offset and product is checked against the file's size before it is used; nothing is allocated
 *    by a number that the file's size does not bear out.
 * G2 Strings are not NUL-terminated and may hold any bytes; gguf_str carries the length.
 * G3 Tensor names and keys are unique; a duplicate is an error.
 * G4 A tensor's data are aligned to at least 8 bytes in the file, its rows are whole blocks, and the product of its
 *    dimensions fits int64_t.
 * Threads: constant after gguf_open; any number of readers.
 */
#ifndef KVASIR_MODEL_GGUF_H
#define KVASIR_MODEL_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct gguf gguf;

typedef struct gguf_str {
    const char *data;
    size_t n;
} gguf_str;

typedef enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPES
} gguf_type;

typedef struct gguf_kv {
    gguf_str key;
    gguf_type type;
    gguf_type elem_type;  /* of an array */
    uint64_t n;           /* elements of an array; 1 otherwise */
    const uint8_t *value; /* raw little-endian bytes, bounded; for strings: the length field, then the bytes */
    size_t value_bytes;
} gguf_kv;

const char *gguf_type_name(gguf_type t); /* "u32", "string", ... */

#define GGUF_MAX_DIMS 4

typedef struct gguf_tensor {
    gguf_str name;
    int n_dims;
    int64_t dims[GGUF_MAX_DIMS]; /* dims[0] is the row length; unused ones are 1 */
    uint32_t type;               /* an id for dtype_get / dtype_name */
    const uint8_t *data;         /* NULL if the type is unknown to dtype_get */
    size_t n_bytes;              /* 0 if the type is unknown */
    int part;                    /* which file of a split */
    size_t file_offset;          /* of data in that file */
} gguf_tensor;

/* Opens a file; the first part of a split (NAME-00001-of-0000N.gguf) opens the rest beside it, a later part is refused
 * with the first one's name. A tensor of a type that Kvasir can't compute with is listed, with data NULL. Metadata are
 * those of the first part. */
int gguf_open(gguf **out, const char *path, status *st);
/* The same over bytes in memory that outlive the result (tests, fuzzing); of a split file this is one part. */
int gguf_parse(gguf **out, const uint8_t *data, size_t n_bytes, status *st);
void gguf_close(gguf *g);

uint32_t gguf_version(const gguf *g);
size_t gguf_file_bytes(const gguf *g); /* of all parts */
size_t gguf_part_count(const gguf *g); /* 1 unless the file is split */
size_t gguf_kv_count(const gguf *g);
const gguf_kv *gguf_kv_at(const gguf *g, size_t i);
const gguf_kv *gguf_find(const gguf *g, const char *key);
size_t gguf_tensor_count(const gguf *g);
const gguf_tensor *gguf_tensor_at(const gguf *g, size_t i);
const gguf_tensor *gguf_find_tensor(const gguf *g, const char *name);
/* These bytes of the tensor's data won't be read again: their pages leave this process's memory (after repacking). */
void gguf_drop(const gguf *g, const gguf_tensor *t, size_t offset, size_t n_bytes);

/* Typed reads: any integer type serves an integer, any float or integer type a float, when the value fits. found (may
 * be NULL) says whether the key was there; *out keeps its value (the default) when it was not. A wrong type or a value
 * out of range is ST_FORMAT and names the key. */
int gguf_get_u32(const gguf *g, const char *key, uint32_t *out, bool *found, status *st);
int gguf_get_u64(const gguf *g, const char *key, uint64_t *out, bool *found, status *st);
int gguf_get_f32(const gguf *g, const char *key, float *out, bool *found, status *st);
int gguf_get_bool(const gguf *g, const char *key, bool *out, bool *found, status *st);
int gguf_get_str(const gguf *g, const char *key, gguf_str *out, bool *found, status *st);

/* Arrays; a scalar serves as an array of one. Element i < n of a kv of numbers (or bools), or, for strings, a walk:
 *      gguf_str s; const uint8_t *at = NULL; while (gguf_next_str(kv, &at, &s)) ...                              */
bool gguf_is_number(const gguf_kv *kv); /* its elements are numbers or bools: what gguf_array_number may be asked for */
double gguf_array_number(const gguf_kv *kv, uint64_t i);
/* Of integers alone, without rounding: the value modulo 2^64, sign-extended. */
uint64_t gguf_array_integer(const gguf_kv *kv, uint64_t i);
bool gguf_next_str(const gguf_kv *kv, const uint8_t **at, gguf_str *out);

#endif
