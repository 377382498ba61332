#include <math.h>
#include <string.h>

#include "model/template/interp.h"
#include "model/template/number.h"
#include "model/template/unicode.h"

int interp_list(interp *in, list_flavor flavor, size_t capacity, value *out)
{
    if (in->code) return in->code;
    list *l = list_new(&in->mem, flavor, capacity);
    if (!l) return interp_nomem(in, sizeof *l + capacity * sizeof(value));
    *out = value_list(l);
    return ST_OK;
}

int interp_push(interp *in, list *l, value v)
{
    if (in->code) return in->code;
    return list_push(&in->mem, l, v) ? ST_OK : interp_nomem(in, 2 * (l->n + 4) * sizeof v);
}

int interp_map(interp *in, value *out)
{
    map *m = in->code ? NULL : map_new(&in->mem);
    if (!m) return interp_nomem(in, sizeof *m);
    *out = value_map(m);
    return ST_OK;
}

static int characters(interp *in, value s, list **out)
{
    value l = {0};
    s.markup = false; /* as Python walks a string */
    if (interp_spend(in, s.n) || interp_list(in, LIST_PLAIN, 0, &l)) return in->code;
    for (size_t i = 0; i < s.n;) {
        uint32_t cp;
        size_t n = char_next(s.s + i, s.n - i, &cp);
        if (interp_push(in, l.list, value_slice(s, i, n))) return in->code;
        i += n;
    }
    *out = l.list;
    return ST_OK;
}

int interp_iterate(interp *in, value v, list **out)
{
    value l = {0};
    if (v.kind == V_STRING) return characters(in, v, out);
    if (v.kind == V_LIST && v.list->flavor != LIST_GENERATOR) {
        *out = v.list;
        return ST_OK;
    }
    if (v.kind != V_MAP && v.kind != V_UNDEFINED && v.kind != V_LIST)
        return interp_fail(in, ST_ARG, "a value of type %s cannot be walked", value_type(v));
    if (interp_list(in, LIST_PLAIN, 0, &l)) return in->code;
    *out = l.list;
    if (v.kind == V_LIST) { /* a generator gives its items away */
        *l.list = *v.list;
        v.list->n = v.list->capacity = 0;
        v.list->items = NULL;
    }
    for (size_t i = 0; v.kind == V_MAP && i < v.map->n; i++)
        if (interp_push(in, l.list, v.map->entries[i].key)) break;
    return in->code;
}

static int hash_value(interp *in, value v, uint64_t *out)
{
    if (v.kind == V_STRING) {
        *out = hash_text(v.s, v.n);
        return interp_spend_bytes(in, v.n);
    }
    if (v.kind == V_LIST && v.list->flavor == LIST_TUPLE) {
        if (interp_enter(in)) return in->code;
        uint64_t all = 1, one;
        for (size_t i = 0; i < v.list->n && !hash_value(in, v.list->items[i], &one); i++)
            all = (all ^ one) * 0x100000001b3u;
        in->depth--;
        *out = all;
        return interp_spend(in, v.list->n);
    }
    if (v.kind == V_LIST || v.kind == V_MAP) return interp_fail(in, ST_ARG, "a %s cannot be a key", value_type(v));
    if (v.kind == V_FLOAT && !(v.f == floor(v.f) && fabs(v.f) < 9e18)) {
        memcpy(out, &v.f, sizeof *out);
        return ST_OK;
    }
    int64_t i = v.kind == V_FLOAT     ? (int64_t)v.f
                : value_is_integer(v) ? value_integer(v)
                                      : v.kind; /* 1, 1.0 and True are one key */
    *out = (uint64_t)i * 0x9E3779B97F4A7C15u;
    *out ^= *out >> 32;
    return ST_OK;
}

static int find_entry(interp *in, const map *m, value key, uint64_t hash, map_entry **out)
{
    *out = NULL;
    if (key.kind == V_STRING) {
        *out = map_find_text(m, key.s, key.n);
        return ST_OK;
    }
    size_t at = m->index ? hash & (m->index_size - 1) : 0;
    for (;; at = m->index ? (at + 1) & (m->index_size - 1) : at + 1) {
        if (m->index ? !m->index[at] : at >= m->n) return ST_OK;
        map_entry *e = &m->entries[m->index ? m->index[at] - 1 : at];
        bool same = false;
        if (e->hash == hash && op_equal(in, e->key, key, &same)) return in->code;
        if (!same) continue;
        *out = e;
        return ST_OK;
    }
}

int map_get(interp *in, const map *m, value key, map_entry **out)
{
    uint64_t hash = 0;
    return hash_value(in, key, &hash) ? in->code : find_entry(in, m, key, hash, out);
}

int map_put(interp *in, map *m, value key, value v)
{
    uint64_t hash = 0;
    map_entry *e;
    if (hash_value(in, key, &hash) || find_entry(in, m, key, hash, &e)) return in->code;
    if (e) e->val = v;
    else if (!map_append(&in->mem, m, key, hash, v)) return interp_nomem(in, 2 * (m->n + 8) * sizeof *e);
    return in->code;
}

static int missing(value name, value *out)
{
    *out = (value){.kind = V_UNDEFINED, .member = true, .s = name.s, .n = name.n};
    if (name.kind != V_STRING) *out = (value){.kind = V_UNDEFINED, .member = true, .s = "[index]", .n = 7};
    return ST_OK;
}

/* A method bound to its object; false when the type has none of that name. */
static bool find_method(interp *in, value object, value name, value *out)
{
    const builtin *table = object.kind == V_STRING                                      ? text_methods
                           : object.kind == V_LIST && object.list->flavor == LIST_PLAIN ? list_methods
                           : object.kind == V_MAP                                       ? map_methods
                           : object.kind == V_LOOP                                      ? loop_methods
                                                                                        : NULL;
    const builtin *fn = table ? builtin_find(table, name.s, name.n) : NULL;
    if (!fn) return false;
    method *m = interp_alloc(in, 1, sizeof *m);
    if (!m) return true;
    *m = (method){fn, object};
    if (fn->fn == method_missing)
        interp_fail(in, ST_UNSUPPORTED, "the method %s of %s is not supported", fn->name, value_type(object));
    else if (object.kind == V_STRING && object.markup &&
             (value_equals_text(name, "join") || value_equals_text(name, "format")))
        interp_fail(in, ST_UNSUPPORTED, "the method %s of text marked safe is not supported", fn->name);
    *out = (value){.kind = V_FUNCTION, .method = m};
    return true;
}

static int loop_attribute(const loop *l, value name, value *out)
{
    int64_t at = (int64_t)l->at, n = (int64_t)l->items->n;
    const struct {
        const char *name;
        value v;
    } plain[] = {
        {"index", value_int(at + 1)},    {"index0", value_int(at)},
        {"revindex", value_int(n - at)}, {"revindex0", value_int(n - at - 1)},
        {"first", value_bool(at == 0)},  {"last", value_bool(at + 1 == n)},
        {"length", value_int(n)},        {"depth", value_int(1)},
        {"depth0", value_int(0)},
    };
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (value_equals_text(name, plain[i].name)) {
            *out = plain[i].v;
            return ST_OK;
        }
    if (value_equals_text(name, "previtem") && at > 0) *out = l->items->items[at - 1];
    else if (value_equals_text(name, "nextitem") && at + 1 < n) *out = l->items->items[at + 1];
    else return missing(name, out);
    return ST_OK;
}

int get_attribute(interp *in, value object, value name, value *out)
{
    if (object.kind == V_UNDEFINED) return op_undefined(in, object);
    if (find_method(in, object, name, out)) return in->code;
    if (object.kind == V_LOOP) return loop_attribute(object.loop, name, out);
    if (object.kind == V_MACRO || object.kind == V_FUNCTION)
        return interp_fail(in, ST_UNSUPPORTED, "a member of a %s is not supported", value_type(object));
    const map_entry *e =
        object.kind == V_MAP || object.kind == V_NAMESPACE ? map_find_text(object.map, name.s, name.n) : NULL;
    if (!e) return missing(name, out);
    *out = e->val;
    return ST_OK;
}

/* Position of index i (negative: from the end) among n; false when out of range. */
static bool resolve_index(int64_t i, size_t n, size_t *out)
{
    if (i < 0) i += (int64_t)n;
    *out = (size_t)i;
    return i >= 0 && i < (int64_t)n;
}

static int get_character(interp *in, value s, int64_t i, value *out)
{
    if (interp_spend_bytes(in, s.n)) return in->code;
    size_t at, count = char_count(s.s, s.n);
    if (!resolve_index(i, count, &at)) return missing(value_int(i), out);
    at = char_offset(s.s, s.n, at);
    uint32_t cp;
    *out = value_slice(s, at, char_next(s.s + at, s.n - at, &cp));
    return ST_OK;
}

int get_item(interp *in, value object, value key, value *out)
{
    size_t at;
    if (object.kind == V_UNDEFINED) return op_undefined(in, object);
    if (object.kind == V_MAP) {
        map_entry *e = NULL;
        bool hashable = key.kind != V_MAP && (key.kind != V_LIST || key.list->flavor == LIST_TUPLE);
        if (hashable && map_get(in, object.map, key, &e)) return in->code;
        if (e) {
            *out = e->val;
            return ST_OK;
        }
    }
    if (value_is_integer(key) && object.kind == V_STRING) return get_character(in, object, value_integer(key), out);
    bool indexable = object.kind == V_LIST && object.list->flavor != LIST_GENERATOR && object.list->flavor != LIST_VIEW;
    if (value_is_integer(key) && indexable && resolve_index(value_integer(key), object.list->n, &at)) {
        *out = object.list->items[at];
        return ST_OK;
    }
    if (key.kind == V_STRING && object.kind != V_MAP) return get_attribute(in, object, key, out);
    if (key.kind == V_STRING && find_method(in, object, key, out)) return in->code;
    return missing(key, out);
}

static int get_step(interp *in, value object, value key, value fallback, value *out)
{
    if (get_item(in, object, key, out)) return in->code;
    if (out->kind == V_UNDEFINED && fallback.kind != V_ABSENT && fallback.kind != V_NONE) *out = fallback;
    return ST_OK;
}

int get_path(interp *in, value object, value path, value fallback, value *out)
{
    if (path.kind == V_INT) return get_step(in, object, path, fallback, out);
    if (path.kind != V_STRING) return interp_fail(in, ST_ARG, "an attribute must be a string or an integer");
    *out = object;
    for (size_t at = 0; at <= path.n;) {
        const char *dot = memchr(path.s + at, '.', path.n - at);
        size_t n = (dot ? (size_t)(dot - path.s) : path.n) - at;
        value key = value_slice(path, at, n);
        int64_t i;
        if (n && strspn(key.s, "0123456789") >= n && number_parse_int(key.s, n, 10, &i) == ST_OK) key = value_int(i);
        if (get_step(in, *out, key, fallback, out)) return in->code;
        at += n + 1;
    }
    return ST_OK;
}

/* Python's slice.indices: start and stop made to fit n. */
static int slice_bounds(interp *in, const value part[3], int64_t n, int64_t *start, int64_t *stop, int64_t *step)
{
    int64_t given[3] = {0, 0, 1};
    for (int i = 0; i < 3; i++) {
        if (part[i].kind == V_NONE) continue;
        if (part[i].kind == V_UNDEFINED) return op_undefined(in, part[i]);
        if (!value_is_integer(part[i]))
            return interp_fail(in, ST_ARG, "slice positions must be integers, not %s", value_type(part[i]));
        given[i] = value_integer(part[i]);
    }
    *step = given[2];
    if (*step == 0) return interp_fail(in, ST_ARG, "a slice step of zero");
    int64_t low = *step < 0 ? -1 : 0, high = *step < 0 ? n - 1 : n;
    for (int i = 0; i < 2; i++) {
        if (given[i] < 0) given[i] += n;
        given[i] = given[i] < low ? low : given[i] > high ? high : given[i];
    }
    *start = part[0].kind == V_NONE ? (*step < 0 ? high : low) : given[0];
    *stop = part[1].kind == V_NONE ? (*step < 0 ? low : high) : given[1];
    if (*step > n) *step = n + 1; /* beyond the end either way, and no overflow when it is added */
    if (*step < -n) *step = -n - 1;
    return ST_OK;
}

static int slice_text(interp *in, value s, const value part[3], value *out)
{
    int64_t start, stop, step;
    if (interp_spend_bytes(in, s.n)) return in->code;
    if (slice_bounds(in, part, (int64_t)char_count(s.s, s.n), &start, &stop, &step)) return in->code;
    if (step == 1) {
        size_t from = char_offset(s.s, s.n, (size_t)start);
        size_t n = stop > start ? char_offset(s.s + from, s.n - from, (size_t)(stop - start)) : 0;
        *out = value_slice(s, from, n);
        return ST_OK;
    }
    list *chars;
    text t = {0};
    if (characters(in, s, &chars)) return in->code;
    for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) text_add(in, &t, chars->items[i]);
    text_done(in, &t, out);
    out->markup = s.markup;
    return in->code;
}

int get_slice(interp *in, value object, const value part[3], value *out)
{
    if (object.kind == V_UNDEFINED) return op_undefined(in, object);
    if (object.kind == V_STRING) return slice_text(in, object, part, out);
    if (object.kind == V_LIST && object.list->flavor == LIST_RANGE)
        return interp_fail(in, ST_UNSUPPORTED, "a slice of a range is not supported; put `| list` behind it");
    if (object.kind != V_LIST || (object.list->flavor != LIST_PLAIN && object.list->flavor != LIST_TUPLE))
        return missing(value_literal("[slice]", 7), out);
    const list *l = object.list;
    int64_t start, stop, step;
    if (slice_bounds(in, part, (int64_t)l->n, &start, &stop, &step)) return in->code;
    if (interp_list(in, l->flavor, 0, out)) return in->code;
    for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step)
        if (interp_spend(in, 1) || interp_push(in, out->list, l->items[i])) return in->code;
    return ST_OK;
}

int to_integer(interp *in, value v, int64_t *out)
{
    if (v.kind == V_UNDEFINED) return op_undefined(in, v);
    if (!value_is_integer(v)) return interp_fail(in, ST_ARG, "expected an integer, not %s", value_type(v));
    *out = value_integer(v);
    return ST_OK;
}

int to_number(interp *in, value v, double *out)
{
    if (v.kind == V_UNDEFINED) return op_undefined(in, v);
    if (!value_is_number(v)) return interp_fail(in, ST_ARG, "expected a number, not %s", value_type(v));
    *out = v.kind == V_FLOAT ? v.f : (double)value_integer(v);
    return ST_OK;
}
