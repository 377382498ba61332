#include <string.h>

#include "base/mem.h"
#include "model/gguf_internal.h"

/* In a table at most half full honest names never come near this; one made to collide would take quadratic time. */
#define MAX_PROBES 1024

uint64_t gguf_hash(const char *name, size_t n)
{
    uint64_t h = 0xCBF29CE484222325; /* FNV-1a, then a mix, since the table uses the low bits */
    for (size_t i = 0; i < n; i++) h = (h ^ (uint8_t)name[i]) * 0x100000001B3;
    h = (h ^ h >> 32) * 0x9E3779B97F4A7C15;
    return h ^ h >> 29;
}

static const gguf_str *name_at(const void *entries, size_t stride, size_t i)
{
    return (const void *)((const char *)entries + i * stride);
}

static bool same(const gguf_str *s, const char *name, size_t n)
{
    return s->n == n && memcmp(s->data, name, n) == 0;
}

/* The slot that holds the name, or the free one where it would go; NULL after MAX_PROBES. */
static uint32_t *slot_of(const gguf_index *x, const void *entries, size_t stride, const char *name, size_t n)
{
    size_t at = gguf_hash(name, n);
    for (int probe = 0; probe < MAX_PROBES; probe++, at++) {
        uint32_t *slot = &x->slots[at & x->mask];
        if (!*slot || same(name_at(entries, stride, *slot - 1), name, n)) return slot;
    }
    return NULL;
}

int gguf_index_build(gguf_index *x, const void *entries, size_t stride, size_t n, const char *what, status *st)
{
    size_t size = 8;
    while (size < n * 2) size *= 2;
    gguf_index made = {mem_calloc(size, sizeof *made.slots), size - 1};
    if (!made.slots) return status_nomem(st, size * sizeof *made.slots);
    for (size_t i = 0; i < n; i++) {
        const gguf_str *s = name_at(entries, stride, i);
        uint32_t *slot = slot_of(&made, entries, stride, s->data, s->n);
        if (!slot || *slot) {
            mem_free(made.slots);
            return slot ? status_set(st, ST_FORMAT, STATUS_NO_POS,
                                     "%s '%.*s' occurs twice: the file is damaged; get it again", what, gguf_shown(*s),
                                     s->data)
                        : status_set(st, ST_FORMAT, STATUS_NO_POS,
                                     "the %s names were made to collide; get the file from a source "
                                     "that you trust",
                                     what);
        }
        *slot = (uint32_t)i + 1;
    }
    gguf_index_deinit(x);
    *x = made;
    return ST_OK;
}

void gguf_index_deinit(gguf_index *x)
{
    mem_free(x->slots);
    *x = (gguf_index){0};
}

const void *gguf_index_find(const gguf_index *x, const void *entries, size_t stride, const char *name, size_t n)
{
    const uint32_t *slot = slot_of(x, entries, stride, name, n);
    return slot && *slot ? name_at(entries, stride, *slot - 1) : NULL;
}
