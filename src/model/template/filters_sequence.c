#include <string.h>

#include "model/template/string_ops.h"

static int filter_length(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    switch (self.kind) {
    case V_UNDEFINED: *out = value_int(0); return ST_OK;
    case V_MAP: *out = value_int((int64_t)self.map->n); return ST_OK;
    case V_LOOP: *out = value_int((int64_t)self.loop->items->n); return ST_OK;
    case V_LIST:
        if (self.list->flavor == LIST_GENERATOR) break;
        *out = value_int((int64_t)self.list->n);
        return ST_OK;
    case V_STRING: {
        list *chars;
        if (interp_iterate(in, self, &chars)) return in->code;
        *out = value_int((int64_t)chars->n);
        return ST_OK;
    }
    default: break;
    }
    return interp_fail(in, ST_ARG, "a value of type %s has no length", value_type(self));
}

static int filter_default(interp *in, value self, const builtin_args *args, value *out)
{
    (void)in;
    bool replace = self.kind == V_UNDEFINED || (value_truth(args->arg[1]) && !value_truth(self));
    *out = !replace ? self : args->arg[0].kind == V_ABSENT ? value_literal("", 0) : args->arg[0];
    return ST_OK;
}

/* The key of one item: the attribute, if one is asked for, in lower case unless case matters. */
static int item_key(interp *in, value item, value attribute, bool case_matters, value *out)
{
    *out = item;
    if (attribute.kind != V_ABSENT && attribute.kind != V_NONE) {
        if (attribute.kind == V_STRING && memchr(attribute.s, ',', attribute.n))
            return interp_fail(in, ST_UNSUPPORTED, "several attributes in one filter are not supported");
        if (get_path(in, item, attribute, value_of(V_ABSENT), out)) return in->code;
    }
    return out->kind == V_STRING && !case_matters ? string_lower(in, *out, out) : in->code;
}

static int filter_join(interp *in, value self, const builtin_args *args, value *out)
{
    list *items;
    value separator = value_literal("", 0), keys;
    if (args->arg[0].kind != V_ABSENT && to_string(in, args->arg[0], &separator)) return in->code;
    if (interp_iterate(in, self, &items)) return in->code;
    if (args->arg[1].kind != V_ABSENT && args->arg[1].kind != V_NONE) {
        if (interp_list(in, LIST_PLAIN, 0, &keys)) return in->code;
        for (size_t i = 0; i < items->n; i++) {
            value v;
            if (item_key(in, items->items[i], args->arg[1], true, &v) || interp_push(in, keys.list, v)) return in->code;
        }
        items = keys.list;
    }
    return string_join(in, separator, items, out);
}

static int copy_items(interp *in, const list *items, bool backwards, list_flavor flavor, value *out)
{
    if (interp_list(in, flavor, 0, out)) return in->code;
    for (size_t i = 0; i < items->n && !interp_spend(in, 1); i++)
        interp_push(in, out->list, items->items[backwards ? items->n - 1 - i : i]);
    return in->code;
}

static int filter_list(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    list *items;
    return interp_iterate(in, self, &items) ? in->code : copy_items(in, items, false, LIST_PLAIN, out);
}

static int pair(interp *in, value a, value b, value *out)
{
    if (interp_list(in, LIST_TUPLE, 2, out) || interp_push(in, out->list, a)) return in->code;
    return interp_push(in, out->list, b);
}

static int filter_items(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    if (self.kind != V_MAP && self.kind != V_UNDEFINED)
        return interp_fail(in, ST_ARG, "items needs a dict, not %s", value_type(self));
    if (interp_list(in, LIST_GENERATOR, 0, out)) return in->code;
    for (size_t i = 0; self.kind == V_MAP && i < self.map->n; i++) {
        value p;
        if (interp_spend(in, 1) || pair(in, self.map->entries[i].key, self.map->entries[i].val, &p)) return in->code;
        interp_push(in, out->list, p);
    }
    return in->code;
}

typedef struct sorted {
    value key, item;
} sorted;

/* Merges the runs [from, middle) and [middle, to) of a into b; equal keys keep their order. */
static int merge(interp *in, const sorted *a, sorted *b, size_t from, size_t middle, size_t to, bool reverse)
{
    for (size_t i = from, j = middle, k = from; k < to; k++) {
        bool right = i == middle;
        if (i < middle && j < to) {
            value x = reverse ? a[i].key : a[j].key, y = reverse ? a[j].key : a[i].key;
            if (op_less(in, x, y, &right)) return in->code;
        }
        b[k] = right ? a[j++] : a[i++];
    }
    return ST_OK;
}

static int merge_sort(interp *in, sorted **items, size_t n, bool reverse)
{
    sorted *a = *items, *b = interp_alloc(in, n + 1, sizeof *b);
    for (size_t run = 1; b && run < n; run *= 2) {
        for (size_t from = 0; from < n; from += 2 * run) {
            size_t middle = from + run < n ? from + run : n, to = middle + run < n ? middle + run : n;
            if (merge(in, a, b, from, middle, to, reverse)) return in->code;
        }
        sorted *swap = a;
        a = b;
        b = swap;
    }
    *items = a;
    return in->code;
}

static int sort_list(interp *in, const list *items, value attribute, bool case_matters, bool reverse, value *out)
{
    sorted *s = interp_alloc(in, items->n + 1, sizeof *s);
    if (!s || interp_list(in, LIST_PLAIN, 0, out)) return in->code;
    for (size_t i = 0; i < items->n; i++) {
        s[i].item = items->items[i];
        if (interp_spend(in, 1) || item_key(in, s[i].item, attribute, case_matters, &s[i].key)) return in->code;
    }
    if (merge_sort(in, &s, items->n, reverse)) return in->code;
    for (size_t i = 0; i < items->n; i++) interp_push(in, out->list, s[i].item);
    return in->code;
}

static int filter_sort(interp *in, value self, const builtin_args *args, value *out)
{
    list *items;
    if (interp_iterate(in, self, &items)) return in->code;
    return sort_list(in, items, args->arg[2], value_truth(args->arg[1]), value_truth(args->arg[0]), out);
}

static int filter_dictsort(interp *in, value self, const builtin_args *args, value *out)
{
    value pairs;
    const value by = args->arg[1];
    bool by_value = value_equals_text(by, "value");
    if (self.kind != V_MAP) return interp_fail(in, ST_ARG, "dictsort needs a dict, not %s", value_type(self));
    if (by.kind != V_ABSENT && !by_value && !value_equals_text(by, "key"))
        return interp_fail(in, ST_ARG, "dictsort sorts by key or by value");
    const builtin_args none = {.arg = {{0}}};
    if (filter_items(in, self, &none, &pairs)) return in->code;
    return sort_list(in, pairs.list, value_int(by_value), value_truth(args->arg[0]), value_truth(args->arg[2]), out);
}

static int no_item(const char *what, value *out)
{
    *out = (value){.kind = V_UNDEFINED, .s = what, .n = strlen(what)};
    return ST_OK;
}

static int filter_first(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    bool generator = self.kind == V_LIST && self.list->flavor == LIST_GENERATOR;
    list *items = generator ? self.list : NULL;
    if (!generator && interp_iterate(in, self, &items)) return in->code;
    if (items->n == 0) return no_item("first of an empty sequence", out);
    *out = items->items[0];
    if (generator) { /* one item is taken, the others remain */
        items->items++;
        items->n--;
        items->capacity--;
    }
    return ST_OK;
}

static int filter_last(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    list *items;
    if (self.kind == V_LIST && self.list->flavor == LIST_GENERATOR)
        return interp_fail(in, ST_ARG, "last does not work on a generator; put `| list` before it");
    if (interp_iterate(in, self, &items)) return in->code;
    if (items->n == 0) return no_item("last of an empty sequence", out);
    *out = items->items[items->n - 1];
    if (self.kind == V_STRING) out->markup = self.markup; /* jinja2 indexes here, and walks for the first */
    return ST_OK;
}

static int filter_reverse(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    list *items;
    value chars;
    bool generator = self.kind == V_LIST && self.list->flavor == LIST_GENERATOR;
    if (interp_iterate(in, self, &items)) return in->code;
    if (self.kind != V_STRING) return copy_items(in, items, true, generator ? LIST_PLAIN : LIST_GENERATOR, out);
    if (copy_items(in, items, true, LIST_PLAIN, &chars)) return in->code;
    string_join(in, value_literal("", 0), chars.list, out);
    out->markup = self.markup;
    return in->code;
}

static int filter_unique(interp *in, value self, const builtin_args *args, value *out)
{
    list *items;
    value seen;
    if (interp_iterate(in, self, &items) || interp_map(in, &seen) || interp_list(in, LIST_GENERATOR, 0, out))
        return in->code;
    for (size_t i = 0; i < items->n; i++) {
        value key;
        map_entry *e;
        if (item_key(in, items->items[i], args->arg[1], value_truth(args->arg[0]), &key)) return in->code;
        if (map_get(in, seen.map, key, &e)) return in->code;
        if (!e && (map_put(in, seen.map, key, key) || interp_push(in, out->list, items->items[i]))) return in->code;
    }
    return ST_OK;
}

static int extreme(interp *in, value self, const builtin_args *args, bool want_max, value *out)
{
    list *items;
    value best = {0};
    if (interp_iterate(in, self, &items)) return in->code;
    if (items->n == 0) return no_item("extreme of an empty sequence", out);
    for (size_t i = 0; i < items->n; i++) {
        value key;
        bool better = i == 0;
        if (item_key(in, items->items[i], args->arg[1], value_truth(args->arg[0]), &key)) return in->code;
        if (i && op_less(in, want_max ? best : key, want_max ? key : best, &better)) return in->code;
        if (!better) continue;
        best = key;
        *out = items->items[i];
    }
    return ST_OK;
}

static int filter_min(interp *in, value self, const builtin_args *args, value *out)
{
    return extreme(in, self, args, false, out);
}

static int filter_max(interp *in, value self, const builtin_args *args, value *out)
{
    return extreme(in, self, args, true, out);
}

static int filter_sum(interp *in, value self, const builtin_args *args, value *out)
{
    list *items;
    if (interp_iterate(in, self, &items)) return in->code;
    *out = args->arg[1].kind == V_ABSENT ? value_int(0) : args->arg[1];
    if (out->kind == V_STRING) return interp_fail(in, ST_ARG, "sum cannot add strings; use join");
    for (size_t i = 0; i < items->n; i++) {
        value v;
        if (item_key(in, items->items[i], args->arg[0], true, &v) || op_binary(in, '+', *out, v, out)) return in->code;
    }
    return ST_OK;
}

/* The filter or test that a call names in its argument `at`, and the arguments behind it. */
static int named_function(interp *in, const call_args *all, size_t at, bool test, const builtin **fn, call_args *rest)
{
    if (all->pos[at].kind != V_STRING) return interp_fail(in, ST_ARG, "expected the name of a filter or test");
    value name = all->pos[at];
    *fn = test ? builtin_find(value_tests, name.s, name.n) : filter_find(name.s, name.n);
    if (!*fn)
        return interp_fail(in, ST_UNSUPPORTED, "the %s '%.*s' is not supported", test ? "test" : "filter", (int)name.n,
                           name.s);
    *rest = (call_args){all->pos + at + 1, all->kw, all->n_pos - at - 1, all->n_kw};
    return ST_OK;
}

/* What map, select and their kin walk: nothing where the value is false (none, an empty text), as in jinja2. */
static int walk(interp *in, value self, list **items)
{
    value empty;
    if (value_truth(self)) return interp_iterate(in, self, items);
    if (interp_list(in, LIST_PLAIN, 0, &empty)) return in->code;
    *items = empty.list;
    return ST_OK;
}

static int map_attribute(interp *in, const list *items, const call_args *all, list *to)
{
    value path = value_of(V_ABSENT), fallback = value_of(V_ABSENT);
    for (size_t k = 0; k < all->n_kw; k++) {
        if (value_equals_text(all->kw[k].name, "attribute")) path = all->kw[k].val;
        else if (value_equals_text(all->kw[k].name, "default")) fallback = all->kw[k].val;
        else return interp_fail(in, ST_ARG, "map has no argument '%.*s'", (int)all->kw[k].name.n, all->kw[k].name.s);
    }
    for (size_t i = 0; i < items->n; i++) {
        value v;
        if (interp_spend(in, 1) || get_path(in, items->items[i], path, fallback, &v)) return in->code;
        if (interp_push(in, to, v)) return in->code;
    }
    return ST_OK;
}

static int filter_map(interp *in, value self, const builtin_args *args, value *out)
{
    list *items;
    const builtin *fn;
    call_args rest;
    if (walk(in, self, &items) || interp_list(in, LIST_GENERATOR, 0, out)) return in->code;
    if (items->n == 0) return ST_OK;
    if (args->all->n_pos == 0) return map_attribute(in, items, args->all, out->list);
    if (named_function(in, args->all, 0, false, &fn, &rest)) return in->code;
    for (size_t i = 0; i < items->n; i++) {
        value v;
        if (call_builtin(in, fn, items->items[i], &rest, &v) || interp_push(in, out->list, v)) return in->code;
    }
    return ST_OK;
}

/* select, reject: by the item; selectattr, rejectattr: by the attribute that the first argument names. */
static int keep(interp *in, value self, const call_args *all, bool by_attribute, bool wanted, value *out)
{
    list *items;
    const builtin *fn = NULL;
    call_args rest;
    if (by_attribute && all->n_pos == 0) return interp_fail(in, ST_ARG, "selectattr and rejectattr need an attribute");
    if (walk(in, self, &items) || interp_list(in, LIST_GENERATOR, 0, out)) return in->code;
    if (items->n == 0) return ST_OK;
    if (all->n_pos > by_attribute && named_function(in, all, by_attribute, true, &fn, &rest)) return in->code;
    for (size_t i = 0; i < items->n; i++) {
        value v = items->items[i];
        if (interp_spend(in, 1) || (by_attribute && get_path(in, v, all->pos[0], value_of(V_ABSENT), &v)))
            return in->code;
        if (fn && call_builtin(in, fn, v, &rest, &v)) return in->code;
        if (value_truth(v) == wanted && interp_push(in, out->list, items->items[i])) return in->code;
    }
    return in->code;
}

static int filter_select(interp *in, value self, const builtin_args *args, value *out)
{
    return keep(in, self, args->all, false, true, out);
}

static int filter_reject(interp *in, value self, const builtin_args *args, value *out)
{
    return keep(in, self, args->all, false, false, out);
}

static int filter_selectattr(interp *in, value self, const builtin_args *args, value *out)
{
    return keep(in, self, args->all, true, true, out);
}

static int filter_rejectattr(interp *in, value self, const builtin_args *args, value *out)
{
    return keep(in, self, args->all, true, false, out);
}

static int filter_batch(interp *in, value self, const builtin_args *args, value *out)
{
    list *items;
    int64_t width;
    value row = {0};
    if (to_integer(in, args->arg[0], &width) || interp_iterate(in, self, &items)) return in->code;
    if (width < 1) return interp_fail(in, ST_ARG, "batch needs rows of at least one item");
    if (interp_list(in, LIST_GENERATOR, 0, out)) return in->code;
    for (size_t i = 0; i < items->n; i++) {
        bool first = i % (size_t)width == 0;
        if (first && (interp_list(in, LIST_PLAIN, 0, &row) || interp_push(in, out->list, row))) return in->code;
        if (interp_spend(in, 1) || interp_push(in, row.list, items->items[i])) return in->code;
    }
    bool fill = items->n && args->arg[1].kind != V_ABSENT && args->arg[1].kind != V_NONE;
    while (fill && row.list->n < (size_t)width)
        if (interp_spend(in, 1) || interp_push(in, row.list, args->arg[1])) return in->code;
    return ST_OK;
}

const builtin filters_sequence[] = {
    {"length", "", 0, filter_length},
    {"count", "", 0, filter_length},
    {"default", "default_value boolean", 0, filter_default},
    {"d", "default_value boolean", 0, filter_default},
    {"join", "d attribute", 0, filter_join},
    {"list", "", 0, filter_list},
    {"items", "", 0, filter_items},
    {"dictsort", "case_sensitive by reverse", 0, filter_dictsort},
    {"first", "", 0, filter_first},
    {"last", "", 0, filter_last},
    {"reverse", "", 0, filter_reverse},
    {"sort", "reverse case_sensitive attribute", 0, filter_sort},
    {"unique", "case_sensitive attribute", 0, filter_unique},
    {"min", "case_sensitive attribute", 0, filter_min},
    {"max", "case_sensitive attribute", 0, filter_max},
    {"sum", "attribute start", 0, filter_sum},
    {"map", NULL, 0, filter_map},
    {"select", NULL, 0, filter_select},
    {"reject", NULL, 0, filter_reject},
    {"selectattr", NULL, 0, filter_selectattr},
    {"rejectattr", NULL, 0, filter_rejectattr},
    {"batch", "linecount fill_with", 1, filter_batch},
    {NULL, NULL, 0, NULL},
};
