/* gguf_walk.h - reads everything that a parsed GGUF file offers, so that a sanitizer sees any byte out of bounds. */
#ifndef KVASIR_TESTS_GGUF_WALK_H
#define KVASIR_TESTS_GGUF_WALK_H

#include <stdio.h>
#include <string.h>

#include "model/gguf.h"

static inline uint64_t sum_bytes(const void *data, size_t n)
{
    uint64_t sum = n;
    for (size_t i = 0; i < n; i++) sum = sum * 31 + ((const uint8_t *)data)[i];
    return sum;
}

static inline uint64_t walk_typed(const gguf *g, const char *key)
{
    uint32_t u32 = 1;
    uint64_t u64 = 1;
    float f32 = 1;
    bool b = false, found = false;
    gguf_str s = {"", 0};
    status st = STATUS_INIT;
    int rc = gguf_get_u32(g, key, &u32, &found, &st) | gguf_get_u64(g, key, &u64, &found, &st) |
             gguf_get_f32(g, key, &f32, NULL, &st) | gguf_get_bool(g, key, &b, &found, &st) |
             gguf_get_str(g, key, &s, &found, &st);
    return sum_bytes(s.data, s.n) + u32 + u64 + (f32 > 0) + b + found + (unsigned)rc;
}

static inline uint64_t walk_kv(const gguf *g, const gguf_kv *kv)
{
    uint64_t sum =
        sum_bytes(kv->key.data, kv->key.n) + sum_bytes(kv->value, kv->value_bytes) + strlen(gguf_type_name(kv->type));
    gguf_str s;
    const uint8_t *at = NULL;
    while (gguf_next_str(kv, &at, &s)) sum += sum_bytes(s.data, s.n);
    bool integer =
        gguf_is_number(kv) && kv->elem_type != GGUF_F32 && kv->elem_type != GGUF_F64 && kv->elem_type != GGUF_BOOL;
    for (uint64_t i = 0; gguf_is_number(kv) && i < kv->n; i++) {
        sum += gguf_array_number(kv, i) > 0;
        if (integer) sum += gguf_array_integer(kv, i);
    }
    char key[128];
    snprintf(key, sizeof key, "%.*s", kv->key.n < sizeof key ? (int)kv->key.n : (int)sizeof key - 1, kv->key.data);
    return sum + walk_typed(g, key);
}

static inline uint64_t gguf_walk(const gguf *g)
{
    uint64_t sum = gguf_version(g) + gguf_file_bytes(g) + gguf_part_count(g);
    for (size_t i = 0; i < gguf_kv_count(g); i++) sum += walk_kv(g, gguf_kv_at(g, i));
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        sum += sum_bytes(t->name.data, t->name.n) + (t->data ? sum_bytes(t->data, t->n_bytes) : t->n_bytes);
        char name[128];
        snprintf(name, sizeof name, "%.*s", t->name.n < sizeof name ? (int)t->name.n : (int)sizeof name - 1,
                 t->name.data);
        sum += gguf_find_tensor(g, name) == t;
    }
    return sum;
}

#endif
