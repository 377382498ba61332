#include <string.h>

#include "base/mem.h"
#include "kernel/dtype.h"
#include "model/gguf_internal.h"

#define MAX_ARRAY_DEPTH 4
/* The least that an entry takes in the file: what a count is held against before it sizes an allocation. */
#define MIN_KV_BYTES (8 + 1 + 4 + 1)
#define MIN_TENSOR_BYTES (8 + 1 + 4 + 8 + 4 + 8)
/* Tensor data are read in place as floats and halves, so a smaller alignment can't be allowed. */
#define MIN_ALIGNMENT 8

typedef struct cursor {
    const uint8_t *data;
    size_t n_bytes, at; /* at <= n_bytes */
    status *st;
} cursor;

/* The next n bytes, or NULL and a status. */
static const uint8_t *take(cursor *c, uint64_t n, const char *what)
{
    if (n > c->n_bytes - c->at) {
        status_set(c->st, ST_FORMAT, c->at,
                   "the file ends at byte %zu, inside %s (which starts at byte %zu): it is incomplete or damaged; get "
                   "it again",
                   c->n_bytes, what, c->at);
        return NULL;
    }
    const uint8_t *p = c->data + c->at;
    c->at += n;
    return p;
}

static int take_u32(cursor *c, uint32_t *out, const char *what)
{
    const uint8_t *p = take(c, 4, what);
    if (!p) return c->st->code;
    *out = gguf_le32(p);
    return ST_OK;
}

static int take_u64(cursor *c, uint64_t *out, const char *what)
{
    const uint8_t *p = take(c, 8, what);
    if (!p) return c->st->code;
    *out = gguf_le64(p);
    return ST_OK;
}

static int take_str(cursor *c, gguf_str *out, const char *what)
{
    uint64_t n = 0;
    if (take_u64(c, &n, what)) return c->st->code;
    const uint8_t *p = take(c, n, what);
    if (!p) return c->st->code;
    *out = (gguf_str){(const char *)p, (size_t)n};
    return ST_OK;
}

static int take_type(cursor *c, gguf_type *out)
{
    uint32_t id = 0;
    if (take_u32(c, &id, "a metadata type")) return c->st->code;
    if (id >= GGUF_TYPES)
        return status_set(c->st, ST_FORMAT, c->at - 4,
                          "unknown value type %u (known: 0 to %d): the file is damaged, or newer than this program", id,
                          GGUF_TYPES - 1);
    *out = (gguf_type)id;
    return ST_OK;
}

/* Moves past n elements of an array, checking every length inside. */
static int skip_elements(cursor *c, gguf_type type, uint64_t n, int depth)
{
    size_t size = gguf_scalar_bytes(type);
    if (size) {
        uint64_t total;
        if (__builtin_mul_overflow(n, size, &total)) total = UINT64_MAX;
        return take(c, total, "an array") ? ST_OK : c->st->code;
    }
    if (type == GGUF_ARRAY && depth == MAX_ARRAY_DEPTH)
        return status_set(c->st, ST_LIMIT, c->at, "arrays nest more than %d deep", MAX_ARRAY_DEPTH);
    for (uint64_t i = 0; i < n; i++) { /* every round takes 8 bytes or more, so a hostile n ends with the file */
        gguf_str s;
        gguf_type inner = GGUF_U8;
        uint64_t n_inner = 0;
        if (type == GGUF_STRING) {
            if (take_str(c, &s, "an array of strings")) return c->st->code;
        } else if (take_type(c, &inner) || take_u64(c, &n_inner, "an array's length") ||
                   skip_elements(c, inner, n_inner, depth + 1)) {
            return c->st->code;
        }
    }
    return ST_OK;
}

/* The key or the tensor's name that an entry begins with. */
static int take_name(cursor *c, gguf_str *out, const char *what)
{
    if (take_str(c, out, what)) return c->st->code;
    return out->n ? ST_OK : status_set(c->st, ST_FORMAT, c->at, "%s is empty: the file is damaged; get it again", what);
}

static int read_value(cursor *c, gguf_kv *kv)
{
    if (take_type(c, &kv->type)) return c->st->code;
    bool array = kv->type == GGUF_ARRAY;
    kv->elem_type = kv->type;
    kv->n = 1;
    if (array && (take_type(c, &kv->elem_type) || take_u64(c, &kv->n, "an array's length"))) return c->st->code;
    kv->value = c->data + c->at;
    int rc = skip_elements(c, kv->elem_type, kv->n, array);
    kv->value_bytes = (size_t)(c->data + c->at - kv->value);
    return rc;
}

static int read_kv(cursor *c, gguf_kv *kv)
{
    if (take_name(c, &kv->key, "a metadata key")) return c->st->code;
    if (read_value(c, kv)) return status_prefix(c->st, "metadata key '%.*s'", gguf_shown(kv->key), kv->key.data);
    return ST_OK;
}

/* Fills dims; *n_elems is their product. */
static int read_dims(cursor *c, gguf_tensor *t, int64_t *n_elems)
{
    uint32_t n_dims = 0;
    if (take_u32(c, &n_dims, "a tensor's number of dimensions")) return c->st->code;
    if (n_dims < 1 || n_dims > GGUF_MAX_DIMS)
        return status_set(c->st, ST_FORMAT, c->at - 4, "%u dimensions; 1 to %d are possible", n_dims, GGUF_MAX_DIMS);
    t->n_dims = (int)n_dims;
    *n_elems = 1;
    for (int i = 0; i < GGUF_MAX_DIMS; i++) {
        uint64_t n = 1;
        if (i < t->n_dims && take_u64(c, &n, "a tensor's dimensions")) return c->st->code;
        if (n == 0 || __builtin_mul_overflow(*n_elems, n, n_elems))
            return status_set(c->st, ST_FORMAT, c->at - 8, "dimension %d is %llu, which can't be", i,
                              (unsigned long long)n);
        t->dims[i] = (int64_t)n;
    }
    return ST_OK;
}

static int tensor_bytes(const cursor *c, gguf_tensor *t, int64_t n_elems)
{
    const dtype_info *info = dtype_get(t->type);
    if (!info) return ST_OK;
    if (t->dims[0] % info->block_elems)
        return status_set(c->st, ST_FORMAT, c->at, "rows of %lld elements, but %s comes in blocks of %d",
                          (long long)t->dims[0], info->name, info->block_elems);
    if (__builtin_mul_overflow((size_t)(n_elems / info->block_elems), (size_t)info->block_bytes, &t->n_bytes))
        return status_set(c->st, ST_FORMAT, c->at, "larger than memory can be");
    return ST_OK;
}

/* file_offset counts from the start of the data section until place_tensor moves it. */
static int read_shape(cursor *c, gguf_tensor *t, size_t alignment)
{
    int64_t n_elems = 0;
    uint64_t offset = 0;
    if (read_dims(c, t, &n_elems) || take_u32(c, &t->type, "a tensor's type") || tensor_bytes(c, t, n_elems) ||
        take_u64(c, &offset, "a tensor's offset"))
        return c->st->code;
    if (offset % alignment)
        return status_set(c->st, ST_FORMAT, c->at - 8, "its offset %llu is not a multiple of the alignment %zu",
                          (unsigned long long)offset, alignment);
    t->file_offset = offset;
    return ST_OK;
}

static int read_tensor(cursor *c, gguf_tensor *t, size_t alignment)
{
    if (take_name(c, &t->name, "a tensor's name")) return c->st->code;
    if (read_shape(c, t, alignment)) return status_prefix(c->st, "tensor '%.*s'", gguf_shown(t->name), t->name.data);
    return ST_OK;
}

static int place_tensor(const cursor *c, gguf_tensor *t, size_t data_begin)
{
    size_t end;
    if (__builtin_add_overflow(t->file_offset, data_begin, &t->file_offset) ||
        __builtin_add_overflow(t->file_offset, t->n_bytes, &end))
        end = SIZE_MAX;
    if (end > c->n_bytes)
        return status_set(c->st, ST_FORMAT, c->n_bytes,
                          "the file ends at byte %zu, but tensor '%.*s' needs %zu: the download is "
                          "incomplete; pull it again",
                          c->n_bytes, gguf_shown(t->name), t->name.data, end);
    if (dtype_get(t->type)) t->data = c->data + t->file_offset;
    return ST_OK;
}

static int check_start(cursor *c, uint32_t *version)
{
    if (c->n_bytes == 0)
        return status_set(c->st, ST_FORMAT, 0, "the file is empty: the download failed; pull it again");
    if (c->n_bytes < 4 || memcmp(c->data, "GGUF", 4) != 0)
        return status_set(c->st, ST_FORMAT, 0,
                          "this is not a GGUF file (it does not start with 'GGUF'); name a .gguf model");
    c->at = 4;
    if (take_u32(c, version, "the header")) return c->st->code;
    if (*version == 2 || *version == 3) return ST_OK;
    if (*version && (*version & 0xFFFF) == 0)
        return status_set(c->st, ST_UNSUPPORTED, 4,
                          "this is a big-endian GGUF file; Kvasir reads little-endian ones: get that variant, or "
                          "convert the byte order");
    return status_set(c->st, ST_UNSUPPORTED, 4,
                      "GGUF version %u can't be read (2 and 3 can): convert the model again with a current "
                      "converter",
                      *version);
}

static int check_count(const cursor *c, uint64_t n, size_t min_bytes, const char *what)
{
    if (n <= (c->n_bytes - c->at) / min_bytes && n <= GGUF_MAX_ENTRIES) return ST_OK;
    return status_set(c->st, ST_FORMAT, c->at,
                      "the header claims %llu %s, more than a file of %zu bytes can hold: it is incomplete or "
                      "damaged; get it again",
                      (unsigned long long)n, what, c->n_bytes);
}

static int read_alignment(const gguf *g, size_t *out, status *st)
{
    uint32_t alignment = 32;
    if (gguf_get_u32(g, "general.alignment", &alignment, NULL, st)) return st->code;
    if (alignment < MIN_ALIGNMENT || (alignment & (alignment - 1)) != 0)
        return status_set(st, ST_FORMAT, STATUS_NO_POS,
                          "general.alignment is %u; it must be a power of two of at least %d", alignment,
                          MIN_ALIGNMENT);
    *out = alignment;
    return ST_OK;
}

static int read_kvs(gguf *g, cursor *c, uint64_t n_kvs)
{
    g->kvs = mem_calloc(n_kvs, sizeof *g->kvs);
    if (!g->kvs) return status_nomem(c->st, n_kvs * sizeof *g->kvs);
    for (; g->n_kvs < n_kvs; g->n_kvs++)
        if (read_kv(c, &g->kvs[g->n_kvs])) return c->st->code;
    return gguf_index_build(&g->keys, g->kvs, sizeof *g->kvs, g->n_kvs, "metadata key", c->st);
}

static int read_tensors(gguf *g, cursor *c, uint64_t n_tensors)
{
    size_t alignment = 0;
    if (read_alignment(g, &alignment, c->st)) return c->st->code;
    g->tensors = mem_calloc(n_tensors, sizeof *g->tensors);
    if (!g->tensors) return status_nomem(c->st, n_tensors * sizeof *g->tensors);
    for (; g->n_tensors < n_tensors; g->n_tensors++)
        if (read_tensor(c, &g->tensors[g->n_tensors], alignment)) return c->st->code;
    size_t data_begin = (c->at + alignment - 1) / alignment * alignment;
    for (size_t i = 0; i < g->n_tensors; i++)
        if (place_tensor(c, &g->tensors[i], data_begin)) return c->st->code;
    return gguf_index_build(&g->names, g->tensors, sizeof *g->tensors, g->n_tensors, "tensor", c->st);
}

int gguf_read_directory(gguf *g, const uint8_t *data, size_t n_bytes, status *st)
{
    cursor c = {data, n_bytes, 0, st};
    uint64_t n_tensors = 0, n_kvs = 0;
    if (check_start(&c, &g->version) || take_u64(&c, &n_tensors, "the header") || take_u64(&c, &n_kvs, "the header") ||
        check_count(&c, n_kvs, MIN_KV_BYTES, "metadata entries") ||
        check_count(&c, n_tensors, MIN_TENSOR_BYTES, "tensors") || read_kvs(g, &c, n_kvs) ||
        read_tensors(g, &c, n_tensors))
        return st->code;
    return ST_OK;
}
