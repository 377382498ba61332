/* value.h - what a template computes with: numbers, text, lists, maps, and things that can be called.
 *
 * Owns: nothing; lists, maps and bytes live in an arena (the caller's tmpl_data, or the render's own).
 *
 *      value (32 bytes, passed by copy)
 *        text -> bytes in the source or an arena, not NUL-terminated; a slice shares them
 *                <|im_start|>user\nhi<|im_end|>     what the template and the input wrote, together
 *                1111111111111111100111111111111    mask: a byte for each, 1 = trusted
 *        list -> list {items[n]}           list, tuple, generator, view, range: one struct, `flavor` tells
 *        map  -> map {entries[n], index}   entries in insertion order; from 9 keys on a hash index finds them
 *
 *      entries  [0] role: user   [1] content: hi   ...
 *      index    [ . 2 . 1 . . ]  slot = hash mod size, linear probing, 0 = free, else entry + 1
 *
 * V1 Copies of a list or map value share their items, as names do in Python.
 * V2 A list or dict is never changed once an expression has given it: templates see values alone.
 * V3 A generator can be walked once: whoever walks it empties it.
 * V4 Trusted is what the template wrote, what the interpreter computes (loop.index, the present time), and input that
 *    the caller vouches for (tmpl_trusted). Every operation keeps it byte by byte: text is only made by value_literal,
 *    value_input and value_slice, or in a `text` (interp.h) of pieces whose origin is said.
 * Threads: a value belongs to one render; input may be read by many.
 */
#ifndef KVASIR_MODEL_TEMPLATE_VALUE_H
#define KVASIR_MODEL_TEMPLATE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/arena.h"
#include "model/template/template.h"

typedef enum value_kind {
    V_ABSENT, /* an argument that was not given; no expression has this value */
    V_UNDEFINED,
    V_NONE,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_STRING,
    V_LIST,
    V_MAP,
    V_NAMESPACE,
    V_MACRO,
    V_FUNCTION, /* a global function, or the method of a value (self set) */
    V_LOOP,
} value_kind;

typedef enum list_flavor { LIST_PLAIN, LIST_TUPLE, LIST_GENERATOR, LIST_VIEW, LIST_RANGE } list_flavor;

struct list;
struct map;
struct macro;
struct loop;
struct method;

typedef struct tmpl_value {
    uint8_t kind;
    bool markup;  /* text that `safe` or `escape` made: the few operations where that matters refuse it */
    bool member;  /* undefined: `s` names a missing member, not a variable */
    bool trusted; /* text without a mask: all of it; other values: the text that they become */
    union {
        bool b;
        int64_t i;
        double f;
        struct {
            const char *s; /* V_STRING; V_UNDEFINED: the name that was not found */
            size_t n;
            const uint8_t *mask; /* V_STRING: [n], 1 = the byte is trusted; NULL = all are as `trusted` says */
        };
        struct list *list;
        struct map *map; /* V_MAP, V_NAMESPACE */
        const struct macro *macro;
        struct loop *loop;
        const struct method *method;
    };
} value;

typedef struct list {
    value *items;
    size_t n, capacity;
    uint8_t flavor;
    const char *label; /* views and ranges: how they print ("dict_keys", "range(0, 3)") */
} list;

typedef struct map_entry {
    value key, val;
    uint64_t hash;
} map_entry;

typedef struct map {
    map_entry *entries;
    uint32_t *index;
    size_t n, capacity, index_size;
} map;

static inline value value_of(value_kind kind)
{
    return (value){.kind = (uint8_t)kind, .trusted = true};
}

static inline value value_bool(bool b)
{
    return (value){.kind = V_BOOL, .trusted = true, .b = b};
}

static inline value value_int(int64_t i)
{
    return (value){.kind = V_INT, .trusted = true, .i = i};
}

static inline value value_float(double f)
{
    return (value){.kind = V_FLOAT, .trusted = true, .f = f};
}

/* The template's own text, or the interpreter's. */
static inline value value_literal(const char *s, size_t n)
{
    return (value){.kind = V_STRING, .trusted = true, .s = s, .n = n};
}

static inline value value_input(const char *s, size_t n)
{
    return (value){.kind = V_STRING, .s = s, .n = n};
}

/* Bytes [at, at + n) of a text. */
static inline value value_slice(value v, size_t at, size_t n)
{
    v.s += at;
    v.n = n;
    if (v.mask) v.mask += at;
    return v;
}

/* Whether all of bytes [at, at + n), n > 0, are trusted. */
static inline bool value_trusted(value v, size_t at, size_t n)
{
    if (!v.mask) return v.trusted;
    return memchr(v.mask + at, 0, n) == NULL;
}

static inline value value_list(list *l)
{
    return (value){.kind = V_LIST, .list = l};
}

static inline value value_map(map *m)
{
    return (value){.kind = V_MAP, .map = m};
}

static inline bool value_is_number(value v)
{
    return v.kind == V_BOOL || v.kind == V_INT || v.kind == V_FLOAT;
}

static inline bool value_is_integer(value v)
{
    return v.kind == V_BOOL || v.kind == V_INT;
}

static inline int64_t value_integer(value v)
{
    return v.kind == V_BOOL ? v.b : v.i;
}

bool value_equals_text(value v, const char *s);
bool value_truth(value v);
const char *value_type(value v); /* Python's name of the type, for messages */

/* All return NULL or false when memory is short. */
list *list_new(arena *a, list_flavor flavor, size_t capacity);
bool list_push(arena *a, list *l, value v);
map *map_new(arena *a);
uint64_t hash_text(const char *s, size_t n);
/* Text keys; other kinds of keys go through ops.h, which can fail and hash any value. */
map_entry *map_find_text(const map *m, const char *s, size_t n);
bool map_put_text(arena *a, map *m, const char *s, size_t n, value v);
/* Adds an entry whose key is known to be new. */
bool map_append(arena *a, map *m, value key, uint64_t hash, value v);

#endif
