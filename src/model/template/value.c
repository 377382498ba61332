#include "model/template/value.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

#define INDEX_FROM 9 /* fewer entries are found faster by looking at each */

bool value_equals_text(value v, const char *s)
{
    return v.kind == V_STRING && v.n == strlen(s) && memcmp(v.s, s, v.n) == 0;
}

bool value_truth(value v)
{
    switch (v.kind) {
    case V_BOOL: return v.b;
    case V_INT: return v.i != 0;
    case V_FLOAT: return v.f != 0;
    case V_STRING: return v.n > 0;
    case V_LIST: return v.list->n > 0 || v.list->flavor == LIST_GENERATOR;
    case V_MAP: return v.map->n > 0;
    case V_NAMESPACE:
    case V_MACRO:
    case V_FUNCTION:
    case V_LOOP: return true;
    default: return false;
    }
}

const char *value_type(value v)
{
    static const char *const lists[] = {"list", "tuple", "generator", "dict view", "range"};
    switch (v.kind) {
    case V_NONE: return "NoneType";
    case V_BOOL: return "bool";
    case V_INT: return "int";
    case V_FLOAT: return "float";
    case V_STRING: return "str";
    case V_LIST: return lists[v.list->flavor];
    case V_MAP: return "dict";
    case V_NAMESPACE: return "namespace";
    case V_MACRO: return "macro";
    case V_FUNCTION: return "function";
    case V_LOOP: return "loop";
    default: return "Undefined";
    }
}

list *list_new(arena *a, list_flavor flavor, size_t capacity)
{
    list *l = arena_alloc(a, sizeof *l, _Alignof(list));
    if (!l) return NULL;
    l->flavor = (uint8_t)flavor;
    l->capacity = capacity;
    if (capacity && !(l->items = arena_array(a, capacity, sizeof(value)))) return NULL;
    return l;
}

bool list_push(arena *a, list *l, value v)
{
    if (l->n == l->capacity) {
        size_t capacity = l->capacity ? l->capacity * 2 : 4;
        value *items = arena_array(a, capacity, sizeof *items);
        if (!items) return false;
        if (l->n) memcpy(items, l->items, l->n * sizeof *items);
        l->items = items;
        l->capacity = capacity;
    }
    l->items[l->n++] = v;
    return true;
}

map *map_new(arena *a)
{
    return arena_alloc(a, sizeof(map), _Alignof(map));
}

uint64_t hash_text(const char *s, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)s[i]) * 0x100000001b3u;
    return h ^ h >> 32;
}

static void index_add(map *m, size_t entry)
{
    size_t at = m->entries[entry].hash & (m->index_size - 1);
    while (m->index[at]) at = (at + 1) & (m->index_size - 1);
    m->index[at] = (uint32_t)entry + 1;
}

static void index_rebuild(map *m)
{
    if (!m->index) return;
    memset(m->index, 0, m->index_size * sizeof *m->index);
    for (size_t i = 0; i < m->n; i++) index_add(m, i);
}

map_entry *map_find_text(const map *m, const char *s, size_t n)
{
    uint64_t h = hash_text(s, n);
    size_t step = m->index ? h & (m->index_size - 1) : 0;
    for (;; step = m->index ? (step + 1) & (m->index_size - 1) : step + 1) {
        if (m->index ? !m->index[step] : step >= m->n) return NULL;
        map_entry *e = &m->entries[m->index ? m->index[step] - 1 : step];
        if (e->hash == h && e->key.kind == V_STRING && e->key.n == n && memcmp(e->key.s, s, n) == 0) return e;
    }
}

/* Room for one more entry, and an index at most half full once there is one. */
static bool map_reserve(arena *a, map *m)
{
    if (m->n >= UINT32_MAX / 4) return false;
    if (m->n == m->capacity) {
        size_t capacity = m->capacity ? m->capacity * 2 : 4;
        map_entry *entries = arena_array(a, capacity, sizeof *entries);
        if (!entries) return false;
        if (m->n) memcpy(entries, m->entries, m->n * sizeof *entries);
        m->entries = entries;
        m->capacity = capacity;
    }
    if (m->n + 1 >= INDEX_FROM && (m->n + 1) * 2 > m->index_size) {
        size_t size = m->index_size ? m->index_size * 2 : 32;
        uint32_t *index = arena_array(a, size, sizeof *index);
        if (!index) return false;
        m->index = index;
        m->index_size = size;
        index_rebuild(m);
    }
    return true;
}

bool map_append(arena *a, map *m, value key, uint64_t hash, value v)
{
    if (!map_reserve(a, m)) return false;
    m->entries[m->n++] = (map_entry){key, v, hash};
    if (m->index) index_add(m, m->n - 1);
    return true;
}

bool map_put_text(arena *a, map *m, const char *s, size_t n, value v)
{
    map_entry *e = map_find_text(m, s, n);
    if (!e) return map_append(a, m, value_input(s, n), hash_text(s, n), v);
    e->val = v;
    return true;
}

/* The caller's input. */
struct tmpl_data {
    arena mem;
    bool failed;
};

tmpl_data *tmpl_data_new(void)
{
    tmpl_data *d = mem_calloc(1, sizeof *d);
    if (d) arena_init(&d->mem, 0);
    return d;
}

void tmpl_data_free(tmpl_data *d)
{
    if (!d) return;
    arena_deinit(&d->mem);
    mem_free(d);
}

bool tmpl_data_failed(const tmpl_data *d)
{
    return d->failed;
}

static value *boxed(tmpl_data *d, value v)
{
    v.trusted = false;
    value *p = arena_alloc(&d->mem, sizeof *p, _Alignof(value));
    if (!p) d->failed = true;
    else *p = v;
    return p;
}

tmpl_value *tmpl_none(tmpl_data *d)
{
    return boxed(d, value_of(V_NONE));
}

tmpl_value *tmpl_bool(tmpl_data *d, bool b)
{
    return boxed(d, value_bool(b));
}

tmpl_value *tmpl_int(tmpl_data *d, int64_t i)
{
    return boxed(d, value_int(i));
}

tmpl_value *tmpl_float(tmpl_data *d, double f)
{
    return boxed(d, value_float(f));
}

tmpl_value *tmpl_string(tmpl_data *d, const char *s, size_t n)
{
    char *copy = arena_strndup(&d->mem, s, n);
    if (copy) return boxed(d, value_input(copy, n));
    d->failed = true;
    return NULL;
}

tmpl_value *tmpl_trusted(tmpl_data *d, const char *s, size_t n)
{
    value *v = tmpl_string(d, s, n);
    if (v) v->trusted = true;
    return v;
}

tmpl_value *tmpl_list(tmpl_data *d)
{
    list *l = list_new(&d->mem, LIST_PLAIN, 0);
    if (l) return boxed(d, value_list(l));
    d->failed = true;
    return NULL;
}

tmpl_value *tmpl_map(tmpl_data *d)
{
    map *m = map_new(&d->mem);
    if (m) return boxed(d, value_map(m));
    d->failed = true;
    return NULL;
}

void tmpl_list_add(tmpl_data *d, tmpl_value *l, tmpl_value *item)
{
    if (!l || !item) return;
    assert(l->kind == V_LIST);
    if (!list_push(&d->mem, l->list, *item)) d->failed = true;
}

void tmpl_map_set(tmpl_data *d, tmpl_value *m, const char *key, tmpl_value *item)
{
    if (!m || !item) return;
    assert(m->kind == V_MAP);
    size_t n = strlen(key);
    char *copy = arena_strndup(&d->mem, key, n);
    if (!copy || !map_put_text(&d->mem, m->map, copy, n, *item)) d->failed = true;
}

bool tmpl_map_has(const tmpl_value *m, const char *key)
{
    assert(!m || m->kind == V_MAP);
    return m && map_find_text(m->map, key, strlen(key));
}
