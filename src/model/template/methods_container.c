#include <string.h>

#include "model/template/interp.h"

/* Methods of lists, dicts and the loop variable. Those that would change a value fail: chat templates are written for
 * Hugging Face's environment, jinja2's immutable sandbox, which refuses them. */

static int list_index(interp *in, value self, const builtin_args *args, value *out)
{
    bool same;
    for (size_t i = 0; i < self.list->n; i++) {
        if (op_equal(in, self.list->items[i], args->arg[0], &same)) return in->code;
        if (!same) continue;
        *out = value_int((int64_t)i);
        return ST_OK;
    }
    return interp_fail(in, ST_ARG, "index: there is no such item");
}

static int list_count(interp *in, value self, const builtin_args *args, value *out)
{
    int64_t n = 0;
    bool same;
    for (size_t i = 0; i < self.list->n; i++, n += same)
        if (op_equal(in, self.list->items[i], args->arg[0], &same)) return in->code;
    *out = value_int(n);
    return ST_OK;
}

static int list_copy(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    if (interp_list(in, LIST_PLAIN, 0, out)) return in->code;
    for (size_t i = 0; i < self.list->n && !interp_spend(in, 1); i++) interp_push(in, out->list, self.list->items[i]);
    return in->code;
}

enum { KEYS = 1, VALUES = 2 };

static int map_view(interp *in, const map *m, int parts, const char *label, value *out)
{
    if (interp_list(in, LIST_VIEW, m->n, out)) return in->code;
    out->list->label = label;
    for (size_t i = 0; i < m->n && !interp_spend(in, 1); i++) {
        value item = parts == KEYS ? m->entries[i].key : m->entries[i].val;
        if (parts == (KEYS | VALUES)) {
            if (interp_list(in, LIST_TUPLE, 2, &item)) return in->code;
            interp_push(in, item.list, m->entries[i].key);
            interp_push(in, item.list, m->entries[i].val);
        }
        interp_push(in, out->list, item);
    }
    return in->code;
}

static int map_items(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    return map_view(in, self.map, KEYS | VALUES, "dict_items", out);
}

static int map_keys(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    return map_view(in, self.map, KEYS, "dict_keys", out);
}

static int map_values(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    return map_view(in, self.map, VALUES, "dict_values", out);
}

static int map_get_method(interp *in, value self, const builtin_args *args, value *out)
{
    map_entry *e;
    if (map_get(in, self.map, args->arg[0], &e)) return in->code;
    *out = e ? e->val : args->arg[1].kind != V_ABSENT ? args->arg[1] : value_of(V_NONE);
    return ST_OK;
}

static int copy_entries(interp *in, const map *from, map *to)
{
    for (size_t i = 0, n = from->n; i < n; i++)
        if (interp_spend(in, 1) || map_put(in, to, from->entries[i].key, from->entries[i].val)) return in->code;
    return in->code;
}

int map_fill(interp *in, const call_args *all, map *to)
{
    for (size_t i = 0; i < all->n_pos; i++) {
        if (all->pos[i].kind != V_MAP)
            return interp_fail(in, ST_UNSUPPORTED, "a dict from a %s is not supported", value_type(all->pos[i]));
        if (copy_entries(in, all->pos[i].map, to)) return in->code;
    }
    for (size_t k = 0; k < all->n_kw; k++)
        if (map_put(in, to, all->kw[k].name, all->kw[k].val)) return in->code;
    return ST_OK;
}

static int map_copy(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    return interp_map(in, out) ? in->code : copy_entries(in, self.map, out->map);
}

static int loop_cycle(interp *in, value self, const builtin_args *args, value *out)
{
    if (args->all->n_pos == 0) return interp_fail(in, ST_ARG, "cycle needs something to cycle through");
    *out = args->all->pos[self.loop->at % args->all->n_pos];
    return ST_OK;
}

static int loop_changed(interp *in, value self, const builtin_args *args, value *out)
{
    loop *l = self.loop;
    value now;
    bool same = false;
    if (interp_list(in, LIST_TUPLE, args->all->n_pos, &now)) return in->code;
    for (size_t i = 0; i < args->all->n_pos; i++) interp_push(in, now.list, args->all->pos[i]);
    if (l->has_changed && op_equal(in, l->last_changed, now, &same)) return in->code;
    l->has_changed = true;
    l->last_changed = now;
    *out = value_bool(!same);
    return in->code;
}

const builtin list_methods[] = {
    {"index", "value", 1, list_index},    {"count", "value", 1, list_count},  {"copy", "", 0, list_copy},
    {"append", NULL, 0, method_changes},  {"clear", NULL, 0, method_changes}, {"extend", NULL, 0, method_changes},
    {"insert", NULL, 0, method_changes},  {"pop", NULL, 0, method_changes},   {"remove", NULL, 0, method_changes},
    {"reverse", NULL, 0, method_changes}, {"sort", NULL, 0, method_changes},  {NULL, NULL, 0, NULL},
};

const builtin map_methods[] = {
    {"get", "key default", 1, map_get_method},
    {"items", "", 0, map_items},
    {"keys", "", 0, map_keys},
    {"values", "", 0, map_values},
    {"copy", "", 0, map_copy},
    {"fromkeys", NULL, 0, method_missing},
    {"clear", NULL, 0, method_changes},
    {"pop", NULL, 0, method_changes},
    {"popitem", NULL, 0, method_changes},
    {"setdefault", NULL, 0, method_changes},
    {"update", NULL, 0, method_changes},
    {NULL, NULL, 0, NULL},
};

const builtin loop_methods[] = {
    {"cycle", NULL, 0, loop_cycle},
    {"changed", NULL, 0, loop_changed},
    {NULL, NULL, 0, NULL},
};
