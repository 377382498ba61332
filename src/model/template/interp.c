#include "model/template/interp.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* What a body ended with. */
enum { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };

int interp_fail(interp *in, int code, const char *fmt, ...)
{
    if (in->code) return in->code;
    char message[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    in->code = status_set(in->st, code, (uint64_t)in->line, "line %d: %s", in->line, message);
    return in->code;
}

int interp_nomem(interp *in, size_t n_bytes)
{
    if (in->code) return in->code;
    if (n_bytes > in->mem.limit_bytes - in->mem.used_bytes)
        return interp_fail(in, ST_LIMIT, "the template needs more than its %zu bytes of memory", in->mem.limit_bytes);
    return in->code = status_nomem(in->st, n_bytes);
}

int interp_spend(interp *in, uint64_t steps)
{
    if (in->code) return in->code;
    if (steps > in->steps_left)
        return interp_fail(in, ST_LIMIT, "the template takes more than its %llu steps",
                           (unsigned long long)in->limits.max_steps);
    in->steps_left -= steps;
    return ST_OK;
}

int interp_spend_bytes(interp *in, size_t n_bytes)
{
    return interp_spend(in, n_bytes / 32);
}

int interp_enter(interp *in)
{
    if (in->depth >= in->limits.max_depth)
        return interp_fail(in, ST_LIMIT, "calls or values nest deeper than %d levels", in->limits.max_depth);
    in->depth++;
    return ST_OK;
}

void *interp_alloc(interp *in, size_t count, size_t size)
{
    if (in->code) return NULL;
    void *p = arena_array(&in->mem, count, size);
    size_t n;
    if (!p) interp_nomem(in, __builtin_mul_overflow(count, size, &n) ? SIZE_MAX : n);
    return p;
}

int scope_push(interp *in, scope **saved)
{
    *saved = in->scope;
    scope *s = interp_alloc(in, 1, sizeof *s);
    if (!s) return in->code;
    s->parent = in->scope;
    in->scope = s;
    return ST_OK;
}

/* Forgets the variables of the innermost scope, unless a macro still sees them. */
static void scope_clear(interp *in)
{
    scope *s = in->scope;
    if (s->captured) return;
    while (s->vars) {
        variable *v = s->vars;
        s->vars = v->next;
        v->next = in->spare;
        in->spare = v;
    }
}

void scope_pop(interp *in, scope *saved)
{
    if (in->scope != saved) scope_clear(in);
    in->scope = saved;
}

int scope_set(interp *in, value name, value v)
{
    uint64_t seen = 0;
    for (variable *old = in->scope->vars; old; old = old->next, seen++) {
        if (old->name.n != name.n || memcmp(old->name.s, name.s, name.n) != 0) continue;
        old->val = v;
        return ST_OK;
    }
    if (interp_spend(in, seen / 16)) return in->code;
    variable *new = in->spare;
    if (new) in->spare = new->next;
    else if (!(new = interp_alloc(in, 1, sizeof *new))) return in->code;
    *new = (variable){name, v, in->scope->vars};
    in->scope->vars = new;
    return ST_OK;
}

static int exec_list(interp *in, const node *body, int *flow);

int exec_capture(interp *in, const node *body, value *out)
{
    text *outer = in->out, captured = {0};
    in->out = &captured;
    int flow, code = exec_list(in, body, &flow);
    in->out = outer;
    return code ? code : text_done(in, &captured, out);
}

int exec_body(interp *in, const node *body)
{
    int flow;
    return exec_list(in, body, &flow);
}

/* Runs a body in a scope of its own and catches its text. */
static int capture_in_scope(interp *in, const node *body, value *out)
{
    scope *saved;
    if (scope_push(in, &saved)) return in->code;
    exec_capture(in, body, out);
    scope_pop(in, saved);
    return in->code;
}

/* The text through a chain of filters. */
static int apply_filters(interp *in, const node *filters, value content, value *out)
{
    value saved = in->hole;
    in->hole = content;
    eval_node(in, filters, out);
    in->hole = saved;
    return in->code;
}

static int assign(interp *in, const node *target, value v);

static int assign_member(interp *in, const node *target, value v)
{
    value holder;
    node name = {.kind = N_NAME, .line = target->line, .lit = target->lit};
    if (eval_node(in, &name, &holder)) return in->code;
    if (holder.kind != V_NAMESPACE)
        return interp_fail(in, ST_ARG, "cannot set a member of '%.*s': it is no namespace", (int)target->lit.n,
                           target->lit.s);
    return map_put(in, holder.map, target->b->lit, v);
}

static int assign_tuple(interp *in, const node *target, value v)
{
    list *items;
    if (interp_spend(in, 1) || interp_iterate(in, v, &items)) return in->code;
    size_t n = 0;
    for (const node *t = target->a; t; t = t->next, n++) {
        if (n == items->n) break;
        if (assign(in, t, items->items[n])) return in->code;
    }
    size_t wanted = 0;
    for (const node *t = target->a; t; t = t->next) wanted++;
    if (wanted == items->n) return ST_OK;
    return interp_fail(in, ST_ARG, "cannot unpack %zu values into %zu names", items->n, wanted);
}

static int assign(interp *in, const node *target, value v)
{
    if (target->kind == N_MEMBER) return assign_member(in, target, v);
    if (target->kind == N_TUPLE) return assign_tuple(in, target, v);
    return scope_set(in, target->lit, v);
}

/* The items that pass the loop's own condition. */
static int filter_items(interp *in, const node *n, list **items)
{
    value kept, pass;
    scope *saved;
    if (interp_list(in, LIST_PLAIN, 0, &kept) || scope_push(in, &saved)) return in->code;
    for (size_t i = 0; i < (*items)->n && !in->code; i++) {
        scope_clear(in);
        if (assign(in, n->a, (*items)->items[i]) || eval_node(in, n->c, &pass)) break;
        if (value_truth(pass)) interp_push(in, kept.list, (*items)->items[i]);
    }
    scope_pop(in, saved);
    *items = kept.list;
    return in->code;
}

static int run_loop(interp *in, const node *n, loop *l)
{
    const value loop_name = value_literal("loop", 4);
    for (; l->at < l->items->n; l->at++) {
        scope *saved;
        int flow = FLOW_NEXT;
        if (interp_spend(in, 1) || scope_push(in, &saved)) return in->code;
        if (!scope_set(in, loop_name, (value){.kind = V_LOOP, .loop = l}) && !assign(in, n->a, l->items->items[l->at]))
            exec_list(in, n->d, &flow);
        scope_pop(in, saved);
        if (in->code || flow == FLOW_BREAK) return in->code;
    }
    return ST_OK;
}

static int exec_for(interp *in, const node *n, int *flow)
{
    value over;
    list *items;
    if (eval_node(in, n->b, &over) || interp_iterate(in, over, &items)) return in->code;
    if (n->c && filter_items(in, n, &items)) return in->code;
    if (items->n == 0) return exec_list(in, n->e, flow);
    loop *l = interp_alloc(in, 1, sizeof *l);
    if (!l) return in->code;
    l->items = items;
    return run_loop(in, n, l);
}

static int exec_if(interp *in, const node *n, int *flow)
{
    for (const node *branch = n->a; branch; branch = branch->next) {
        value test = value_bool(true);
        if (branch->a && eval_node(in, branch->a, &test)) return in->code;
        if (value_truth(test)) return exec_list(in, branch->b, flow);
    }
    return ST_OK;
}

static int exec_print(interp *in, const node *n)
{
    value v;
    if (eval_node(in, n->a, &v)) return in->code;
    text_value(in, in->out, v);
    return in->code;
}

static int exec_set(interp *in, const node *n)
{
    value v;
    if (n->kind == N_SET ? eval_node(in, n->b, &v) : capture_in_scope(in, n->c, &v) || apply_filters(in, n->b, v, &v))
        return in->code;
    return assign(in, n->a, v);
}

static int exec_with(interp *in, const node *n, int *flow)
{
    scope *saved, *inner;
    if (scope_push(in, &saved)) return in->code;
    inner = in->scope;
    for (const node *p = n->a; p && !in->code; p = p->next) {
        value v;
        in->scope = saved; /* the values see the outside, not each other */
        int code = eval_node(in, p->a, &v);
        in->scope = inner;
        if (!code) scope_set(in, p->lit, v);
    }
    if (!in->code) exec_list(in, n->b, flow);
    scope_pop(in, saved);
    return in->code;
}

static int exec_call_block(interp *in, const node *n)
{
    value callee, result, caller;
    call_args args;
    if (eval_node(in, n->a->a, &callee) || eval_arguments(in, n->a->b, &args) || make_macro(in, n->b, &caller))
        return in->code;
    keyword *kw = interp_alloc(in, args.n_kw + 1, sizeof *kw);
    if (!kw) return in->code;
    if (args.n_kw) memcpy(kw, args.kw, args.n_kw * sizeof *kw);
    kw[args.n_kw++] = (keyword){value_literal("caller", 6), caller};
    args.kw = kw;
    if (call_value(in, callee, &args, &result)) return in->code;
    text_value(in, in->out, result);
    return in->code;
}

static int exec_filter_block(interp *in, const node *n)
{
    value v;
    if (capture_in_scope(in, n->b, &v) || apply_filters(in, n->a, v, &v)) return in->code;
    text_value(in, in->out, v);
    return in->code;
}

static int exec_generation(interp *in, const node *n)
{
    value v;
    if (capture_in_scope(in, n->a, &v)) return in->code;
    text_add(in, in->out, v);
    return in->code;
}

static int exec_macro(interp *in, const node *n)
{
    value m;
    return make_macro(in, n, &m) ? in->code : scope_set(in, n->lit, m);
}

static int exec(interp *in, const node *n, int *flow)
{
    in->line = n->line;
    if (interp_spend(in, 1)) return in->code;
    switch (n->kind) {
    case N_TEXT: text_add(in, in->out, n->lit); break;
    case N_PRINT: exec_print(in, n); break;
    case N_IF: exec_if(in, n, flow); break;
    case N_FOR: exec_for(in, n, flow); break;
    case N_SET:
    case N_SET_BLOCK: exec_set(in, n); break;
    case N_WITH: exec_with(in, n, flow); break;
    case N_MACRO: exec_macro(in, n); break;
    case N_CALL_BLOCK: exec_call_block(in, n); break;
    case N_FILTER_BLOCK: exec_filter_block(in, n); break;
    case N_GENERATION: exec_generation(in, n); break;
    case N_BREAK: *flow = FLOW_BREAK; break;
    default: *flow = FLOW_CONTINUE; break;
    }
    return in->code;
}

static int exec_list(interp *in, const node *body, int *flow)
{
    *flow = FLOW_NEXT;
    if (in->nested >= INTERP_NESTED_MAX) return interp_fail(in, ST_LIMIT, "statements nest too deep");
    in->nested++;
    for (const node *n = body; n && *flow == FLOW_NEXT && !exec(in, n, flow); n = n->next) {}
    in->nested--;
    return in->code;
}

static tmpl_limits with_defaults(const tmpl_limits *given)
{
    tmpl_limits l = given ? *given : (tmpl_limits){0};
    if (l.max_depth <= 0) l.max_depth = 100;
    if (l.max_steps == 0) l.max_steps = 20000000;
    if (l.max_output_bytes == 0) l.max_output_bytes = (size_t)64 << 20;
    if (l.max_memory_bytes == 0) l.max_memory_bytes = (size_t)256 << 20;
    return l;
}

/* What of v is trusted, as it stands at `base`. */
static int add_ranges(text_ranges *to, value v, size_t base, status *st)
{
    for (size_t i = 0, end; i < v.n; i = end) {
        bool trusted = value_trusted(v, i, 1);
        const uint8_t *p = v.mask ? memchr(v.mask + i, !trusted, v.n - i) : NULL;
        end = p ? (size_t)(p - v.mask) : v.n;
        if (trusted && text_ranges_add(to, base + i, base + end, st)) return st->code;
    }
    return ST_OK;
}

/* Both, or neither. */
static int deliver(value result, strbuf *out, text_ranges *trusted, status *st)
{
    size_t before = out->n_bytes, n_ranges = trusted ? trusted->n : 0;
    size_t last = n_ranges ? trusted->at[n_ranges - 1].to : 0;
    strbuf_add(out, result.s, result.n);
    int code = strbuf_check(out, st);
    if (!code && trusted) code = add_ranges(trusted, result, before, st);
    if (code && out->data) out->data[out->n_bytes = before] = 0;
    if (code && trusted && (trusted->n = n_ranges)) trusted->at[n_ranges - 1].to = last;
    return code;
}

int tmpl_render(const tmpl *t, tmpl_data *d, const tmpl_value *root, const tmpl_limits *limits, strbuf *out,
                text_ranges *trusted, status *st)
{
    if (!root || root->kind != V_MAP || tmpl_data_failed(d)) return status_nomem(st, sizeof(value));
    interp in = {.root = root->map, .limits = with_defaults(limits), .line = 1, .st = st};
    text written = {0};
    value result;
    scope *saved;
    in.out = &written;
    in.steps_left = in.limits.max_steps;
    arena_init(&in.mem, in.limits.max_memory_bytes);
    if (!scope_push(&in, &saved) && !exec_body(&in, t->body) && !text_done(&in, &written, &result))
        in.code = deliver(result, out, trusted, st);
    arena_deinit(&in.mem);
    return in.code;
}
