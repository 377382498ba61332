#include "base/arena.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

#define FIRST_CHUNK ((size_t)4096)
#define LAST_CHUNK ((size_t)1 << 20)

struct arena_chunk {
    struct arena_chunk *next;
    size_t size, used;
    char data[];
};

void arena_init(arena *a, size_t limit_bytes)
{
    *a = (arena){.limit_bytes = limit_bytes};
}

static void free_chunks(struct arena_chunk *c)
{
    while (c) {
        struct arena_chunk *next = c->next;
        mem_free(c);
        c = next;
    }
}

void arena_deinit(arena *a)
{
    free_chunks(a->head);
    a->head = NULL;
    a->used_bytes = 0;
}

void arena_reset(arena *a)
{
    if (a->head) {
        free_chunks(a->head->next);
        a->head->next = NULL;
        a->head->used = 0;
    }
    a->used_bytes = 0;
}

static void *take(struct arena_chunk *c, size_t n, size_t align)
{
    if (!c) return NULL;
    size_t pad = (align - (uintptr_t)(c->data + c->used) % align) % align;
    if (n > c->size - c->used || pad > c->size - c->used - n) return NULL;
    void *p = c->data + c->used + pad;
    c->used += pad + n;
    return memset(p, 0, n);
}

void *arena_alloc(arena *a, size_t n, size_t align)
{
    assert(align && align <= 64 && (align & (align - 1)) == 0);
    if (a->limit_bytes && n > a->limit_bytes - a->used_bytes) return NULL;
    void *p = take(a->head, n, align);
    if (!p) {
        size_t size = a->head ? a->head->size * 2 : FIRST_CHUNK;
        if (size > LAST_CHUNK) size = LAST_CHUNK;
        if (n > SIZE_MAX / 2) return NULL;
        if (size < n + align) size = n + align;
        struct arena_chunk *c = mem_alloc(sizeof *c + size);
        if (!c) return NULL;
        *c = (struct arena_chunk){.next = a->head, .size = size};
        a->head = c;
        p = take(c, n, align);
    }
    a->used_bytes += n;
    return p;
}

void *arena_array(arena *a, size_t count, size_t size)
{
    size_t n;
    return __builtin_mul_overflow(count, size, &n) ? NULL : arena_alloc(a, n, 16);
}

char *arena_strndup(arena *a, const char *s, size_t n)
{
    char *p = arena_alloc(a, n + 1, 1);
    if (p) memcpy(p, s, n);
    return p;
}
