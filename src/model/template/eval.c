#include <string.h>

#include "model/template/interp.h"

static int lookup(interp *in, value name, value *out)
{
    uint64_t seen = 0;
    for (const scope *s = in->scope; s; s = s->parent, seen++)
        for (const variable *v = s->vars; v; v = v->next, seen++)
            if (v->name.n == name.n && memcmp(v->name.s, name.s, name.n) == 0) {
                *out = v->val;
                return interp_spend(in, seen / 16);
            }
    if (interp_spend(in, seen / 16)) return in->code;
    const map_entry *e = map_find_text(in->root, name.s, name.n);
    const builtin *fn = e ? NULL : builtin_find(global_functions, name.s, name.n);
    if (e) *out = e->val;
    else if (fn) {
        method *m = interp_alloc(in, 1, sizeof *m);
        if (!m) return in->code;
        m->fn = fn;
        *out = (value){.kind = V_FUNCTION, .method = m};
    } else *out = (value){.kind = V_UNDEFINED, .s = name.s, .n = name.n};
    return ST_OK;
}

static int eval_sequence(interp *in, const node *n, value *out)
{
    if (interp_list(in, n->kind == N_TUPLE ? LIST_TUPLE : LIST_PLAIN, 0, out)) return in->code;
    for (const node *item = n->a; item; item = item->next) {
        value v;
        if (eval_node(in, item, &v) || interp_push(in, out->list, v)) return in->code;
    }
    return ST_OK;
}

static int eval_dict(interp *in, const node *n, value *out)
{
    if (interp_map(in, out)) return in->code;
    for (const node *pair = n->a; pair; pair = pair->next) {
        value k, v;
        if (eval_node(in, pair->a, &k) || eval_node(in, pair->b, &v) || map_put(in, out->map, k, v)) return in->code;
    }
    return ST_OK;
}

static int eval_slice(interp *in, const node *n, value *out)
{
    value object, part[3] = {value_of(V_NONE), value_of(V_NONE), value_of(V_NONE)};
    const node *const from[3] = {n->b, n->c, n->d};
    if (eval_node(in, n->a, &object)) return in->code;
    for (int i = 0; i < 3; i++)
        if (from[i] && eval_node(in, from[i], &part[i])) return in->code;
    return get_slice(in, object, part, out);
}

static int eval_call(interp *in, const node *n, value *out)
{
    value callee;
    call_args args;
    if (eval_node(in, n->a, &callee) || eval_arguments(in, n->b, &args)) return in->code;
    in->line = n->line;
    return call_value(in, callee, &args, out);
}

static int eval_filter(interp *in, const node *n, value *out)
{
    value input;
    call_args args;
    if (eval_node(in, n->a, &input) || eval_arguments(in, n->b, &args)) return in->code;
    in->line = n->line;
    return call_builtin(in, n->fn, input, &args, out);
}

static int eval_test(interp *in, const node *n, value *out)
{
    if (eval_filter(in, n, out)) return in->code;
    *out = value_bool(value_truth(*out) != n->flag);
    return ST_OK;
}

static int eval_condition(interp *in, const node *n, value *out)
{
    value test;
    if (eval_node(in, n->a, &test)) return in->code;
    if (value_truth(test)) return eval_node(in, n->b, out);
    if (n->c) return eval_node(in, n->c, out);
    *out = (value){.kind = V_UNDEFINED, .s = "if without else", .n = 15};
    return ST_OK;
}

/* and, or: the value that decided */
static int eval_logic(interp *in, const node *n, value *out)
{
    if (eval_node(in, n->a, out)) return in->code;
    return value_truth(*out) == (n->kind == N_AND) ? eval_node(in, n->b, out) : ST_OK;
}

static int eval_sign(interp *in, const node *n, value *out)
{
    value v;
    if (eval_node(in, n->a, &v)) return in->code;
    if (v.kind == V_UNDEFINED) return op_undefined(in, v);
    if (!value_is_number(v)) return interp_fail(in, ST_ARG, "a sign before a value of type %s", value_type(v));
    if (v.kind == V_FLOAT) *out = value_float(n->kind == N_NEG ? -v.f : v.f);
    else if (n->kind == N_POS) *out = value_int(value_integer(v));
    else return op_binary(in, '-', value_int(0), v, out);
    out->trusted = v.trusted;
    return ST_OK;
}

static int eval_binary(interp *in, const node *n, value *out)
{
    value a, b;
    if (eval_node(in, n->a, &a) || eval_node(in, n->b, &b)) return in->code;
    in->line = n->line;
    return op_binary(in, n->op, a, b, out);
}

static int eval_concat(interp *in, const node *n, value *out)
{
    text t = {0};
    for (const node *item = n->a; item; item = item->next) {
        value v;
        if (eval_node(in, item, &v)) return in->code;
        text_value(in, &t, v);
    }
    return text_done(in, &t, out);
}

/* a < b < c: each operand evaluated once, up to the first that fails */
static int eval_compare(interp *in, const node *n, value *out)
{
    value left, right;
    bool holds = true;
    if (eval_node(in, n->a, &left)) return in->code;
    for (const node *operand = n->b; operand && holds; operand = operand->next) {
        if (eval_node(in, operand->a, &right) || op_compare(in, operand->op, left, right, &holds)) return in->code;
        left = right;
    }
    *out = value_bool(holds);
    return ST_OK;
}

static int eval_attribute(interp *in, const node *n, value *out)
{
    value object;
    if (eval_node(in, n->a, &object)) return in->code;
    in->line = n->line;
    return get_attribute(in, object, n->lit, out);
}

static int eval_item(interp *in, const node *n, value *out)
{
    value object, key;
    if (eval_node(in, n->a, &object) || eval_node(in, n->b, &key)) return in->code;
    in->line = n->line;
    return get_item(in, object, key, out);
}

static int eval_not(interp *in, const node *n, value *out)
{
    if (eval_node(in, n->a, out)) return in->code;
    *out = value_bool(!value_truth(*out));
    return ST_OK;
}

static int eval_kind(interp *in, const node *n, value *out)
{
    switch (n->kind) {
    case N_CONST: *out = n->lit; return ST_OK;
    case N_HOLE: *out = in->hole; return ST_OK;
    case N_NAME: return lookup(in, n->lit, out);
    case N_LIST:
    case N_TUPLE: return eval_sequence(in, n, out);
    case N_DICT: return eval_dict(in, n, out);
    case N_ATTR: return eval_attribute(in, n, out);
    case N_ITEM: return eval_item(in, n, out);
    case N_SLICE: return eval_slice(in, n, out);
    case N_CALL: return eval_call(in, n, out);
    case N_FILTER: return eval_filter(in, n, out);
    case N_TEST: return eval_test(in, n, out);
    case N_NOT: return eval_not(in, n, out);
    case N_AND:
    case N_OR: return eval_logic(in, n, out);
    case N_COND: return eval_condition(in, n, out);
    case N_NEG:
    case N_POS: return eval_sign(in, n, out);
    case N_BINARY: return eval_binary(in, n, out);
    case N_CONCAT: return eval_concat(in, n, out);
    default: return eval_compare(in, n, out);
    }
}

int eval_node(interp *in, const node *n, value *out)
{
    in->line = n->line;
    if (interp_spend(in, 1)) return in->code;
    if (in->nested >= INTERP_NESTED_MAX) return interp_fail(in, ST_LIMIT, "expressions nest too deep");
    in->nested++;
    int code = eval_kind(in, n, out);
    in->nested--;
    return code;
}
