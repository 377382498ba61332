#include <string.h>

#include "model/template/interp.h"

const builtin *builtin_find(const builtin *table, const char *name, size_t n)
{
    for (; table->name; table++)
        if (strlen(table->name) == n && memcmp(table->name, name, n) == 0) return table;
    return NULL;
}

const builtin *filter_find(const char *name, size_t n)
{
    const builtin *fn = builtin_find(filters_text, name, n);
    return fn ? fn : builtin_find(filters_sequence, name, n);
}

int eval_arguments(interp *in, const node *args, call_args *out)
{
    *out = (call_args){0};
    for (const node *a = args; a; a = a->next) a->lit.n ? out->n_kw++ : out->n_pos++;
    if (out->n_pos && !(out->pos = interp_alloc(in, out->n_pos, sizeof *out->pos))) return in->code;
    if (out->n_kw && !(out->kw = interp_alloc(in, out->n_kw, sizeof *out->kw))) return in->code;
    size_t pos = 0, kw = 0;
    for (const node *a = args; a; a = a->next) {
        value v;
        if (eval_node(in, a->a, &v)) return in->code;
        if (a->lit.n == 0) {
            out->pos[pos++] = v;
            continue;
        }
        for (size_t i = 0; i < kw; i++)
            if (out->kw[i].name.n == a->lit.n && memcmp(out->kw[i].name.s, a->lit.s, a->lit.n) == 0)
                return interp_fail(in, ST_ARG, "the argument '%.*s' is given twice", (int)a->lit.n, a->lit.s);
        out->kw[kw++] = (keyword){a->lit, v};
        if (interp_spend(in, kw / 16)) return in->code;
    }
    return ST_OK;
}

/* Index of a parameter in "width first blank", -1 when there is none of that name. */
static int param_index(const char *params, value name)
{
    for (int i = 0; *params; i++) {
        size_t n = strcspn(params, " ");
        if (n == name.n && memcmp(params, name.s, n) == 0) return i;
        params += n + (params[n] == ' ');
    }
    return -1;
}

static size_t param_count(const char *params)
{
    size_t n = *params != 0;
    for (; *params; params++) n += *params == ' ';
    return n;
}

static int bind(interp *in, const builtin *fn, const call_args *all, builtin_args *out)
{
    for (int i = 0; i < PARAMS_MAX; i++) out->arg[i] = value_of(V_ABSENT);
    out->all = all;
    if (!fn->params) return ST_OK;
    size_t n_params = param_count(fn->params);
    if (all->n_pos > n_params)
        return interp_fail(in, ST_ARG, "%s takes at most %zu arguments, not %zu", fn->name, n_params, all->n_pos);
    if (all->n_pos) memcpy(out->arg, all->pos, all->n_pos * sizeof(value));
    for (size_t k = 0; k < all->n_kw; k++) {
        value name = all->kw[k].name;
        int i = param_index(fn->params, name);
        if (i < 0) return interp_fail(in, ST_ARG, "%s has no argument '%.*s'", fn->name, (int)name.n, name.s);
        if (out->arg[i].kind != V_ABSENT)
            return interp_fail(in, ST_ARG, "%s: the argument '%.*s' is given twice", fn->name, (int)name.n, name.s);
        out->arg[i] = all->kw[k].val;
    }
    for (int i = 0; i < fn->n_required; i++)
        if (out->arg[i].kind == V_ABSENT)
            return interp_fail(in, ST_ARG, "%s needs %d arguments", fn->name, fn->n_required);
    return ST_OK;
}

int call_builtin(interp *in, const builtin *fn, value self, const call_args *args, value *out)
{
    builtin_args bound;
    if (interp_spend(in, 1) || bind(in, fn, args, &bound)) return in->code;
    return fn->fn(in, self, &bound, out);
}

int method_missing(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    (void)out;
    return interp_fail(in, ST_UNSUPPORTED, "this function of %s is not supported", value_type(self));
}

int method_changes(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    (void)out;
    return interp_fail(in, ST_ARG, "a template can't change a %s, as in Hugging Face's sandbox", value_type(self));
}

int make_macro(interp *in, const node *def, value *out)
{
    macro *m = interp_alloc(in, 1, sizeof *m);
    if (!m) return in->code;
    m->def = def;
    m->scope = in->scope;
    for (scope *s = in->scope; s && !s->captured; s = s->parent) s->captured = true;
    *out = (value){.kind = V_MACRO, .macro = m};
    return ST_OK;
}

static bool same_name(value a, value b)
{
    return a.n == b.n && memcmp(a.s, b.s, a.n) == 0;
}

static bool has_param(const node *def, value name)
{
    for (const node *p = def->a; p; p = p->next)
        if (same_name(p->lit, name)) return true;
    return false;
}

static int check_macro_arguments(interp *in, const node *def, const call_args *args)
{
    size_t n_params = 0;
    const value caller = value_literal("caller", 6);
    for (const node *p = def->a; p; p = p->next) n_params++;
    if (interp_spend(in, n_params * (args->n_kw + 1) / 8)) return in->code;
    if (args->n_pos > n_params)
        return interp_fail(in, ST_ARG, "the macro '%.*s' takes at most %zu arguments, not %zu", (int)def->lit.n,
                           def->lit.s, n_params, args->n_pos);
    size_t i = 0;
    for (const node *p = def->a; p && i < args->n_pos; p = p->next, i++)
        for (size_t k = 0; k < args->n_kw; k++)
            if (same_name(p->lit, args->kw[k].name))
                return interp_fail(in, ST_ARG, "the macro '%.*s' got '%.*s' twice", (int)def->lit.n, def->lit.s,
                                   (int)p->lit.n, p->lit.s);
    for (size_t k = 0; k < args->n_kw; k++) {
        value name = args->kw[k].name;
        if (has_param(def, name) || (def->flag && same_name(name, caller))) continue;
        return interp_fail(in, ST_ARG, "the macro '%.*s' has no argument '%.*s'", (int)def->lit.n, def->lit.s,
                           (int)name.n, name.s);
    }
    return ST_OK;
}

static const value *keyword_find(const call_args *args, value name)
{
    for (size_t k = 0; k < args->n_kw; k++)
        if (same_name(args->kw[k].name, name)) return &args->kw[k].val;
    return NULL;
}

/* In the macro's new scope; a default may use the parameters before it. */
static int bind_parameters(interp *in, const node *def, const call_args *args)
{
    size_t i = 0;
    const value caller = value_literal("caller", 6);
    if (def->flag) {
        const value *given = keyword_find(args, caller);
        value none = {.kind = V_UNDEFINED, .s = caller.s, .n = caller.n};
        if (scope_set(in, caller, given ? *given : none)) return in->code;
    }
    for (const node *p = def->a; p; p = p->next, i++) {
        const value *given = i < args->n_pos ? &args->pos[i] : keyword_find(args, p->lit);
        value v = {.kind = V_UNDEFINED, .s = p->lit.s, .n = p->lit.n};
        if (given) v = *given;
        else if (p->a && eval_node(in, p->a, &v)) return in->code;
        if (scope_set(in, p->lit, v)) return in->code;
    }
    return ST_OK;
}

static int call_macro(interp *in, const macro *m, const call_args *args, value *out)
{
    scope *from = in->scope, *saved;
    if (check_macro_arguments(in, m->def, args) || interp_enter(in)) return in->code;
    in->scope = m->scope;
    if (!scope_push(in, &saved)) {
        if (!bind_parameters(in, m->def, args)) exec_capture(in, m->def->b, out);
        scope_pop(in, saved);
    }
    in->scope = from;
    in->depth--;
    return in->code;
}

int call_value(interp *in, value callee, const call_args *args, value *out)
{
    if (callee.kind == V_MACRO) return call_macro(in, callee.macro, args, out);
    if (callee.kind == V_FUNCTION) {
        value self = callee.method->self;
        if (call_builtin(in, callee.method->fn, self, args, out)) return in->code;
        if (self.kind == V_STRING && self.markup && out->kind == V_STRING) out->markup = true;
        return ST_OK;
    }
    if (callee.kind == V_UNDEFINED) return op_undefined(in, callee);
    if (callee.kind == V_LOOP) return interp_fail(in, ST_UNSUPPORTED, "a recursive for loop is not supported");
    return interp_fail(in, ST_ARG, "a value of type %s cannot be called", value_type(callee));
}
