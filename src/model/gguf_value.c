#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "model/gguf_internal.h"

static const struct {
    const char *name;
    size_t n_bytes;
} types[GGUF_TYPES] = {
    [GGUF_U8] = {"u8", 1},         [GGUF_I8] = {"i8", 1},       [GGUF_U16] = {"u16", 2}, [GGUF_I16] = {"i16", 2},
    [GGUF_U32] = {"u32", 4},       [GGUF_I32] = {"i32", 4},     [GGUF_F32] = {"f32", 4}, [GGUF_BOOL] = {"bool", 1},
    [GGUF_STRING] = {"string", 0}, [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8}, [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

size_t gguf_scalar_bytes(gguf_type t)
{
    return types[t].n_bytes;
}

const char *gguf_type_name(gguf_type t)
{
    return types[t].name;
}

static uint64_t load(const uint8_t *p, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) v |= (uint64_t)p[i] << 8 * i;
    return v;
}

static int64_t sign_extend(uint64_t v, size_t n_bytes)
{
    int shift = 64 - 8 * (int)n_bytes;
    return (int64_t)(v << shift) >> shift;
}

static double to_double(gguf_type type, const uint8_t *p)
{
    uint64_t v = load(p, gguf_scalar_bytes(type));
    double d;
    switch (type) {
    case GGUF_F32: return (double)bits_float((uint32_t)v);
    case GGUF_F64: memcpy(&d, &v, 8); return d;
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64: return (double)sign_extend(v, gguf_scalar_bytes(type));
    default: return (double)v;
    }
}

static bool is_signed(gguf_type t)
{
    return t == GGUF_I8 || t == GGUF_I16 || t == GGUF_I32 || t == GGUF_I64;
}

static bool is_integer(gguf_type t)
{
    return is_signed(t) || t == GGUF_U8 || t == GGUF_U16 || t == GGUF_U32 || t == GGUF_U64;
}

static bool is_number(gguf_type t)
{
    return is_integer(t) || t == GGUF_F32 || t == GGUF_F64;
}

static int wrong_type(const gguf_kv *kv, const char *wanted, status *st)
{
    return status_set(st, ST_FORMAT, STATUS_NO_POS,
                      "metadata key '%.*s' is of type %s where %s is needed: the model was converted wrongly",
                      gguf_shown(kv->key), kv->key.data, gguf_type_name(kv->type), wanted);
}

/* The key's entry, or NULL; tells found. */
static const gguf_kv *look_up(const gguf *g, const char *key, bool *found)
{
    const gguf_kv *kv = gguf_find(g, key);
    if (found) *found = kv != NULL;
    return kv;
}

static int get_unsigned(const gguf *g, const char *key, uint64_t max, uint64_t *out, bool *found, status *st)
{
    const gguf_kv *kv = look_up(g, key, found);
    if (!kv) return ST_OK;
    if (!is_integer(kv->type)) return wrong_type(kv, "an integer", st);
    uint64_t v = gguf_array_integer(kv, 0);
    if ((is_signed(kv->type) && (int64_t)v < 0) || v > max)
        return status_set(st, ST_FORMAT, STATUS_NO_POS, "metadata key '%s' is %.0f, outside 0 to %llu", key,
                          to_double(kv->type, kv->value), (unsigned long long)max);
    *out = v;
    return ST_OK;
}

int gguf_get_u64(const gguf *g, const char *key, uint64_t *out, bool *found, status *st)
{
    return get_unsigned(g, key, UINT64_MAX, out, found, st);
}

int gguf_get_u32(const gguf *g, const char *key, uint32_t *out, bool *found, status *st)
{
    uint64_t v = *out;
    if (get_unsigned(g, key, UINT32_MAX, &v, found, st)) return st->code;
    *out = (uint32_t)v;
    return ST_OK;
}

int gguf_get_f32(const gguf *g, const char *key, float *out, bool *found, status *st)
{
    const gguf_kv *kv = look_up(g, key, found);
    if (!kv) return ST_OK;
    if (!is_number(kv->type)) return wrong_type(kv, "a number", st);
    double v = to_double(kv->type, kv->value);
    if (isfinite(v) && fabs(v) > (double)FLT_MAX)
        return status_set(st, ST_FORMAT, STATUS_NO_POS, "metadata key '%s' is %g, too large for a 32-bit float", key,
                          v);
    *out = (float)v;
    return ST_OK;
}

int gguf_get_bool(const gguf *g, const char *key, bool *out, bool *found, status *st)
{
    const gguf_kv *kv = look_up(g, key, found);
    if (!kv) return ST_OK;
    if (kv->type != GGUF_BOOL) return wrong_type(kv, "a bool", st);
    if (*kv->value > 1)
        return status_set(st, ST_FORMAT, STATUS_NO_POS,
                          "metadata key '%s' is a bool with the value %d, neither 0 nor 1", key, *kv->value);
    *out = *kv->value;
    return ST_OK;
}

int gguf_get_str(const gguf *g, const char *key, gguf_str *out, bool *found, status *st)
{
    const gguf_kv *kv = look_up(g, key, found);
    if (!kv) return ST_OK;
    if (kv->type != GGUF_STRING) return wrong_type(kv, "a string", st);
    *out = (gguf_str){(const char *)kv->value + 8, kv->value_bytes - 8};
    return ST_OK;
}

bool gguf_is_number(const gguf_kv *kv)
{
    return is_number(kv->elem_type) || kv->elem_type == GGUF_BOOL;
}

double gguf_array_number(const gguf_kv *kv, uint64_t i)
{
    assert(gguf_is_number(kv) && i < kv->n);
    return to_double(kv->elem_type, kv->value + i * gguf_scalar_bytes(kv->elem_type));
}

uint64_t gguf_array_integer(const gguf_kv *kv, uint64_t i)
{
    assert(is_integer(kv->elem_type) && i < kv->n);
    size_t n = gguf_scalar_bytes(kv->elem_type);
    uint64_t v = load(kv->value + i * n, n);
    return is_signed(kv->elem_type) ? (uint64_t)sign_extend(v, n) : v;
}

bool gguf_next_str(const gguf_kv *kv, const uint8_t **at, gguf_str *out)
{
    const uint8_t *p = *at ? *at : kv->value;
    if (kv->elem_type != GGUF_STRING || p == kv->value + kv->value_bytes) return false;
    *out = (gguf_str){(const char *)p + 8, (size_t)gguf_le64(p)};
    *at = p + 8 + out->n;
    return true;
}
