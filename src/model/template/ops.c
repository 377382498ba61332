#include <math.h>
#include <string.h>

#include "model/template/string_ops.h"
#include "model/template/unicode.h"

int op_undefined(interp *in, value v)
{
    return interp_fail(in, ST_ARG, v.member ? "there is no member '%.*s'" : "'%.*s' is undefined",
                       (int)(v.n < 200 ? v.n : 200), v.s);
}

static int overflow(interp *in)
{
    return interp_fail(in, ST_LIMIT, "the result is beyond a 64-bit integer");
}

static int bad_types(interp *in, int op, value a, value b)
{
    if (a.kind == V_UNDEFINED) return op_undefined(in, a);
    if (b.kind == V_UNDEFINED) return op_undefined(in, b);
    char name[3] = {(char)(op & 0xFF), (char)(op >> 8), 0};
    if (op == OP_IN || op == OP_NOT_IN) memcpy(name, "in", 3);
    return interp_fail(in, ST_ARG, "'%s' does not work between %s and %s", name, value_type(a), value_type(b));
}

static double number(value v)
{
    return v.kind == V_FLOAT ? v.f : (double)value_integer(v);
}

static int integer_power(interp *in, int64_t base, int64_t exponent, value *out)
{
    int64_t result = 1;
    while (exponent > 0) {
        if (exponent & 1 && __builtin_mul_overflow(result, base, &result)) return overflow(in);
        exponent >>= 1;
        if (exponent && __builtin_mul_overflow(base, base, &base)) return overflow(in);
    }
    *out = value_int(result);
    return ST_OK;
}

static int integer_op(interp *in, int op, int64_t a, int64_t b, value *out)
{
    int64_t r = 0;
    bool over = false;
    switch (op) {
    case '+': over = __builtin_add_overflow(a, b, &r); break;
    case '-': over = __builtin_sub_overflow(a, b, &r); break;
    case '*': over = __builtin_mul_overflow(a, b, &r); break;
    default:           /* // and %, which round down */
        if (b == -1) { /* INT64_MIN / -1 would trap */
            over = op != '%' && a == INT64_MIN;
            r = op == '%' || over ? 0 : -a;
        } else {
            int64_t q = a / b, rest = a % b;
            bool down = rest != 0 && (rest < 0) != (b < 0);
            r = op == '%' ? rest + (down ? b : 0) : q - down;
        }
    }
    if (over) return overflow(in);
    *out = value_int(r);
    return ST_OK;
}

static double float_modulo(double a, double b)
{
    double r = fmod(a, b);
    if (r == 0) return copysign(0, b);
    return (r < 0) != (b < 0) ? r + b : r;
}

static int float_op(interp *in, int op, double a, double b, value *out)
{
    double r;
    switch (op) {
    case '+': r = a + b; break;
    case '-': r = a - b; break;
    case '*': r = a * b; break;
    case '/': r = a / b; break;
    case '%': r = float_modulo(a, b); break;
    case OP2('*', '*'):
        r = pow(a, b);
        if (isnan(r) && !isnan(a) && !isnan(b))
            return interp_fail(in, ST_UNSUPPORTED, "complex numbers are not supported");
        if (isinf(r) && isfinite(a) && isfinite(b)) return interp_fail(in, ST_ARG, "the power is out of range");
        break;
    default: /* as Python: from the exact remainder, so that 1 // 0.1 is 9 */
        r = (a - float_modulo(a, b)) / b;
        r = r == 0 ? copysign(0, a / b) : floor(r) + (r - floor(r) > 0.5);
    }
    *out = value_float(r);
    return ST_OK;
}

static int number_op(interp *in, int op, value a, value b, value *out)
{
    bool integers = value_is_integer(a) && value_is_integer(b), power = op == OP2('*', '*');
    if ((op == '/' || op == '%' || op == OP2('/', '/')) && number(b) == 0)
        return interp_fail(in, ST_ARG, "division by zero");
    if (power && number(a) == 0 && number(b) < 0) return interp_fail(in, ST_ARG, "zero to a negative power");
    if (integers && power && value_integer(b) >= 0) return integer_power(in, value_integer(a), value_integer(b), out);
    if (integers && !power && op != '/') return integer_op(in, op, value_integer(a), value_integer(b), out);
    return float_op(in, op, number(a), number(b), out);
}

static int repeat_text(interp *in, value s, int64_t times, value *out)
{
    text t = {0};
    if (s.n == 0) times = 0;
    for (; times > 0 && !in->code; times--) {
        if (interp_spend(in, 1)) break;
        text_add(in, &t, s);
    }
    return text_done(in, &t, out);
}

static int join_lists(interp *in, const list *a, int64_t times, const list *b, value *out)
{
    if (interp_list(in, a->flavor, 0, out)) return in->code;
    for (; times > 0 && a->n && !in->code; times--)
        for (size_t i = 0; i < a->n && !interp_spend(in, 1); i++) interp_push(in, out->list, a->items[i]);
    for (size_t i = 0; b && i < b->n && !interp_spend(in, 1); i++) interp_push(in, out->list, b->items[i]);
    return in->code;
}

static bool is_concrete_list(value v)
{
    return v.kind == V_LIST && (v.list->flavor == LIST_PLAIN || v.list->flavor == LIST_TUPLE);
}

static int sequence_op(interp *in, int op, value a, value b, value *out)
{
    text t = {0};
    bool safe = (a.kind == V_STRING && a.markup) || (b.kind == V_STRING && b.markup);
    if (op == '%' && a.kind == V_STRING && a.markup)
        return interp_fail(in, ST_UNSUPPORTED, "'%%' behind text marked safe is not supported");
    if (op == '%' && a.kind == V_STRING) {
        call_args args = {.pos = &b, .n_pos = 1};
        if (b.kind == V_LIST && b.list->flavor == LIST_TUPLE)
            args = (call_args){.pos = b.list->items, .n_pos = b.list->n};
        return string_percent(in, a, &args, out);
    }
    if (op == '+' && a.kind == V_STRING && b.kind == V_STRING) {
        /* Text that is safe stays so: what is added to it is escaped. */
        if (safe && (string_escape(in, a, &a) || string_escape(in, b, &b))) return in->code;
        text_add(in, &t, a);
        text_add(in, &t, b);
        text_done(in, &t, out);
        out->markup = safe;
        return in->code;
    }
    if (op == '+' && is_concrete_list(a) && is_concrete_list(b) && a.list->flavor == b.list->flavor)
        return join_lists(in, a.list, 1, b.list, out);
    if (op == '*' && value_is_integer(a)) { /* 3 * x is x * 3 */
        value swap = a;
        a = b;
        b = swap;
    }
    if (op == '*' && value_is_integer(b) && a.kind == V_STRING) {
        repeat_text(in, a, value_integer(b), out);
        out->markup = safe;
        return in->code;
    }
    if (op == '*' && value_is_integer(b) && is_concrete_list(a))
        return join_lists(in, a.list, value_integer(b), NULL, out);
    return bad_types(in, op, a, b);
}

int op_binary(interp *in, int op, value a, value b, value *out)
{
    if (value_is_number(a) && value_is_number(b)) {
        int code = number_op(in, op, a, b, out);
        out->trusted = a.trusted && b.trusted;
        return code;
    }
    return sequence_op(in, op, a, b, out);
}

static int equal_lists(interp *in, const list *a, const list *b, bool *out)
{
    *out = a->n == b->n && a->flavor == b->flavor;
    if (a->flavor == LIST_GENERATOR) *out = a == b;
    for (size_t i = 0; *out && i < a->n; i++)
        if (op_equal(in, a->items[i], b->items[i], out)) return in->code;
    return ST_OK;
}

static int equal_maps(interp *in, const map *a, const map *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++) {
        map_entry *e;
        if (map_get(in, b, a->entries[i].key, &e)) return in->code;
        *out = e != NULL;
        if (e && op_equal(in, a->entries[i].val, e->val, out)) return in->code;
    }
    return ST_OK;
}

static bool equal_numbers(value a, value b)
{
    if (value_is_integer(a) && value_is_integer(b)) return value_integer(a) == value_integer(b);
    long double x = a.kind == V_FLOAT ? (long double)a.f : (long double)value_integer(a);
    return x == (b.kind == V_FLOAT ? (long double)b.f : (long double)value_integer(b));
}

int op_equal(interp *in, value a, value b, bool *out)
{
    if (interp_spend(in, 1) || interp_enter(in)) return in->code;
    if (value_is_number(a) && value_is_number(b)) *out = equal_numbers(a, b);
    else if (a.kind != b.kind) *out = false;
    else if (a.kind == V_STRING) {
        interp_spend_bytes(in, a.n < b.n ? a.n : b.n);
        *out = a.n == b.n && memcmp(a.s, b.s, a.n) == 0;
    } else if (a.kind == V_LIST) equal_lists(in, a.list, b.list, out);
    else if (a.kind == V_MAP) equal_maps(in, a.map, b.map, out);
    else if (a.kind == V_NONE || a.kind == V_UNDEFINED) *out = true;
    else *out = a.map == b.map;
    in->depth--;
    return in->code;
}

static int less_lists(interp *in, const list *a, const list *b, bool *out)
{
    size_t n = a->n < b->n ? a->n : b->n;
    for (size_t i = 0; i < n; i++) {
        bool same;
        if (op_equal(in, a->items[i], b->items[i], &same)) return in->code;
        if (!same) return op_less(in, a->items[i], b->items[i], out);
    }
    *out = a->n < b->n;
    return ST_OK;
}

int op_less(interp *in, value a, value b, bool *out)
{
    if (interp_spend(in, 1) || interp_enter(in)) return in->code;
    if (value_is_integer(a) && value_is_integer(b)) *out = value_integer(a) < value_integer(b);
    else if (value_is_number(a) && value_is_number(b)) {
        long double x = a.kind == V_FLOAT ? (long double)a.f : (long double)value_integer(a);
        *out = x < (b.kind == V_FLOAT ? (long double)b.f : (long double)value_integer(b));
    } else if (a.kind == V_STRING && b.kind == V_STRING) {
        size_t n = a.n < b.n ? a.n : b.n;
        interp_spend_bytes(in, n);
        int c = memcmp(a.s, b.s, n);
        *out = c < 0 || (c == 0 && a.n < b.n);
    } else if (is_concrete_list(a) && is_concrete_list(b) && a.list->flavor == b.list->flavor)
        less_lists(in, a.list, b.list, out);
    else bad_types(in, '<', a, b);
    in->depth--;
    return in->code;
}

/* <= and >= are "not greater" except for nan, which compares false with everything */
static int at_most(interp *in, value a, value b, bool *out)
{
    bool greater;
    if (op_less(in, b, a, &greater)) return in->code;
    bool unordered = (a.kind == V_FLOAT && isnan(a.f)) || (b.kind == V_FLOAT && isnan(b.f));
    *out = !greater && !unordered;
    return ST_OK;
}

int op_contains(interp *in, value container, value item, bool *out)
{
    if (container.kind == V_MAP) {
        map_entry *e;
        if (map_get(in, container.map, item, &e)) return in->code;
        *out = e != NULL;
        return ST_OK;
    }
    if (container.kind == V_STRING) {
        if (item.kind != V_STRING) return bad_types(in, OP_IN, item, container);
        if (interp_spend_bytes(in, container.n)) return in->code;
        *out = item.n == 0 || memmem(container.s, container.n, item.s, item.n) != NULL;
        return ST_OK;
    }
    list *items;
    *out = false;
    if (container.kind != V_LIST && container.kind != V_UNDEFINED) return bad_types(in, OP_IN, item, container);
    if (interp_iterate(in, container, &items)) return in->code;
    for (size_t i = 0; i < items->n && !*out; i++)
        if (op_equal(in, items->items[i], item, out)) return in->code;
    return ST_OK;
}

int op_compare(interp *in, int op, value a, value b, bool *out)
{
    int code;
    switch (op) {
    case '<': return op_less(in, a, b, out);
    case '>': return op_less(in, b, a, out);
    case OP2('<', '='): return at_most(in, a, b, out);
    case OP2('>', '='): return at_most(in, b, a, out);
    case OP2('=', '='): return op_equal(in, a, b, out);
    case OP_IN: return op_contains(in, b, a, out);
    case OP_NOT_IN: code = op_contains(in, b, a, out); break;
    default: code = op_equal(in, a, b, out);
    }
    *out = !*out;
    return code;
}
