#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/inspect.h"
#include "kernel/dtype.h"

/* An array of more elements is {"array": type, "n": n, "first": [...]} unless all is asked for. */
#define MAX_WHOLE_ARRAY 64
#define SHOWN_ELEMENTS 8

static json_t *text(gguf_str s)
{
    strbuf b;
    strbuf_init(&b, 0);
    strbuf_utf8(&b, s.data, s.n);
    json_t *j = b.failed ? NULL : json_stringn(strbuf_cstr(&b), b.n_bytes);
    strbuf_deinit(&b);
    return j;
}

static json_t *c_text(const char *s)
{
    return text((gguf_str){s, strlen(s)});
}

static int set_named(json_t *object, gguf_str key, json_t *value)
{
    strbuf b;
    strbuf_init(&b, 0);
    strbuf_utf8(&b, key.data, key.n);
    int rc = b.failed ? -1 : json_object_setn_new(object, strbuf_cstr(&b), b.n_bytes, value);
    if (b.failed) json_decref(value);
    strbuf_deinit(&b);
    return rc;
}

static json_t *real(double v)
{
    return isfinite(v) ? json_real(v) : json_null(); /* JSON has no infinities */
}

/* A u64 beyond the integers of JSON readers (and of jansson) is a string, so that no digit is lost. */
static json_t *large(uint64_t v)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%llu", (unsigned long long)v);
    return json_string(digits);
}

static json_t *number(const gguf_kv *kv, uint64_t i)
{
    char shortest[24];
    double v = gguf_array_number(kv, i);
    switch (kv->elem_type) {
    case GGUF_BOOL: return json_boolean(v != 0);
    case GGUF_F32: return real(strtod(inspect_float((float)v, shortest), NULL));
    case GGUF_F64: return real(v);
    default: return v < 0x1p63 ? json_integer((json_int_t)gguf_array_integer(kv, i)) : large(gguf_array_integer(kv, i));
    }
}

static json_t *elements(const gguf_kv *kv, uint64_t n)
{
    json_t *list = json_array();
    gguf_str s = {"", 0};
    const uint8_t *at = NULL;
    for (uint64_t i = 0; i < n; i++) {
        if (!gguf_is_number(kv)) gguf_next_str(kv, &at, &s);
        if (json_array_append_new(list, gguf_is_number(kv) ? number(kv, i) : text(s))) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *value(const gguf_kv *kv, bool full)
{
    gguf_str s;
    const uint8_t *at = NULL;
    const char *type = gguf_type_name(kv->elem_type);
    if (kv->elem_type == GGUF_ARRAY) return json_pack("{s:s, s:I}", "array", type, "n", (json_int_t)kv->n);
    if (kv->type == GGUF_ARRAY) {
        if (full || kv->n <= MAX_WHOLE_ARRAY) return elements(kv, kv->n);
        return json_pack("{s:s, s:I, s:o}", "array", type, "n", (json_int_t)kv->n, "first",
                         elements(kv, SHOWN_ELEMENTS));
    }
    return gguf_next_str(kv, &at, &s) ? text(s) : number(kv, 0);
}

static json_t *metadata(const gguf *g, bool full)
{
    json_t *object = json_object();
    for (size_t i = 0; i < gguf_kv_count(g); i++) {
        const gguf_kv *kv = gguf_kv_at(g, i);
        if (set_named(object, kv->key, value(kv, full))) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

static json_t *tensor(const gguf_tensor *t)
{
    char type[24];
    json_t *shape = json_array();
    for (int d = 0; d < t->n_dims; d++)
        if (json_array_append_new(shape, json_integer(t->dims[d]))) return json_decref(shape), NULL;
    return json_pack("{s:o, s:o, s:s, s:o}", "name", text(t->name), "shape", shape, "type",
                     inspect_type_name(t->type, type), "bytes",
                     t->data ? json_integer((json_int_t)t->n_bytes) : json_null());
}

static json_t *tensors(const gguf *g)
{
    json_t *list = json_array();
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        if (json_array_append_new(list, tensor(gguf_tensor_at(g, i)))) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *by_type(const inspection *x)
{
    json_t *object = json_object();
    for (uint32_t i = 0; i < INSPECT_TYPES; i++) {
        const type_sum *sum = &x->types[i];
        if (!sum->n_tensors) continue;
        json_t *bytes = dtype_get(i) ? json_integer((json_int_t)sum->n_bytes) : json_null();
        if (json_object_set_new(object, sum->name,
                                json_pack("{s:I, s:o}", "tensors", (json_int_t)sum->n_tensors, "bytes", bytes))) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

static json_t *cache(const inspection *x)
{
    const arch_params *a = &x->arch;
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:I}", "layers", a->n_layers, "heads", a->n_heads, "kv_heads",
                     a->n_kv_heads, "d_k", a->d_k, "d_v", a->d_v, "window", a->window, "windowed_layers", x->n_windowed,
                     "bytes_per_token_f16", (json_int_t)x->kv_bytes_per_token);
}

static json_t *verdict(const inspection *x)
{
    json_t *reasons = json_array();
    for (int i = 0; i < x->n_reasons; i++)
        if (json_array_append_new(reasons, c_text(x->reasons[i]))) return json_decref(reasons), NULL;
    json_t *arch = json_pack("{s:o, s:b}", "name", text(x->architecture), "supported", x->arch_ok);
    json_t *tokenizer =
        json_pack("{s:o, s:o, s:b}", "model", text(x->tokenizer), "pre", text(x->pre), "supported", x->tokenizer_ok);
    json_t *chat =
        json_pack("{s:b, s:b, s:o}", "present", x->has_template, "supported", x->template_ok, "note", c_text(x->note));
    json_t *context = x->arch_ok ? json_integer(x->arch.context_length) : json_null();
    return json_pack("{s:b, s:o, s:o, s:b, s:o, s:o, s:o, s:o}", "supported", x->n_reasons == 0, "reasons", reasons,
                     "architecture", arch, "types_supported", x->types_ok, "tokenizer", tokenizer, "chat_template",
                     chat, "context_length", context, "cache", x->arch_ok ? cache(x) : json_null());
}

static int append(const char *bytes, size_t n, void *out)
{
    strbuf_add(out, bytes, n);
    return 0;
}

int inspection_json(const inspection *x, bool full, strbuf *out, status *st)
{
    json_t *root = json_pack("{s:o, s:i, s:I, s:I, s:o, s:o, s:o, s:o}", "path", c_text(x->path), "version",
                             (int)gguf_version(x->g), "bytes", (json_int_t)gguf_file_bytes(x->g), "parts",
                             (json_int_t)gguf_part_count(x->g), "metadata", metadata(x->g, full), "tensors",
                             tensors(x->g), "by_type", by_type(x), "kvasir", verdict(x));
    /* 15 digits give back the decimals that were put in. */
    int rc = root ? json_dump_callback(root, append, out, JSON_COMPACT | JSON_REAL_PRECISION(15)) : -1;
    json_decref(root);
    strbuf_putc(out, '\n');
    return rc ? status_set(st, ST_NOMEM, STATUS_NO_POS, "out of memory while writing JSON") : strbuf_check(out, st);
}
