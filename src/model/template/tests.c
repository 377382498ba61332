#include "model/template/interp.h"
#include "model/template/string_ops.h"
#include "model/template/unicode.h"

/* What may follow `is`. */

static int answer(value *out, bool b)
{
    *out = value_bool(b);
    return ST_OK;
}

static int test_defined(interp *in, value self, const builtin_args *args, value *out)
{
    (void)in;
    (void)args;
    return answer(out, self.kind != V_UNDEFINED);
}

static int test_undefined(interp *in, value self, const builtin_args *args, value *out)
{
    (void)in;
    (void)args;
    return answer(out, self.kind == V_UNDEFINED);
}

static int test_none(interp *in, value self, const builtin_args *args, value *out)
{
    (void)in;
    (void)args;
    return answer(out, self.kind == V_NONE);
}

static int test_string(interp *in, value self, const builtin_args *args, value *out)
{
    (void)in;
    (void)args;
    return answer(out, self.kind == V_STRING);
}

static int test_mapping(interp *in, value self, const builtin_args *args, value *out)
{
    (void)in;
    (void)args;
    return answer(out, self.kind == V_MAP);
}

static int test_iterable(interp *in, value self, const builtin_args *args, value *out)
{
    (void)in;
    (void)args;
    return answer(out, self.kind == V_STRING || self.kind == V_LIST || self.kind == V_MAP || self.kind == V_UNDEFINED ||
                           self.kind == V_LOOP);
}

static int test_sequence(interp *in, value self, const builtin_args *args, value *out)
{
    (void)in;
    (void)args;
    bool indexed = self.kind == V_LIST && self.list->flavor != LIST_GENERATOR && self.list->flavor != LIST_VIEW;
    return answer(out, indexed || self.kind == V_STRING || self.kind == V_MAP || self.kind == V_UNDEFINED);
}

static int test_number(interp *in, value self, const builtin_args *args, value *out)
{
    (void)in;
    (void)args;
    return answer(out, value_is_number(self));
}

static int test_integer(interp *in, value self, const builtin_args *args, value *out)
{
    (void)in;
    (void)args;
    return answer(out, self.kind == V_INT);
}

static int test_float(interp *in, value self, const builtin_args *args, value *out)
{
    (void)in;
    (void)args;
    return answer(out, self.kind == V_FLOAT);
}

static int test_boolean(interp *in, value self, const builtin_args *args, value *out)
{
    (void)in;
    (void)args;
    return answer(out, self.kind == V_BOOL);
}

static int test_true(interp *in, value self, const builtin_args *args, value *out)
{
    (void)in;
    (void)args;
    return answer(out, self.kind == V_BOOL && self.b);
}

static int test_false(interp *in, value self, const builtin_args *args, value *out)
{
    (void)in;
    (void)args;
    return answer(out, self.kind == V_BOOL && !self.b);
}

static int test_callable(interp *in, value self, const builtin_args *args, value *out)
{
    (void)in;
    (void)args;
    return answer(out,
                  self.kind == V_MACRO || self.kind == V_FUNCTION || self.kind == V_LOOP || self.kind == V_UNDEFINED);
}

static int test_escaped(interp *in, value self, const builtin_args *args, value *out)
{
    (void)in;
    (void)args;
    return answer(out, self.kind == V_STRING && self.markup);
}

/* self % divisor == rest */
static int remainder_is(interp *in, value self, value divisor, int64_t rest, value *out)
{
    value r;
    bool same;
    if (self.kind == V_STRING) return interp_fail(in, ST_ARG, "this test needs a number, not str");
    if (op_binary(in, '%', self, divisor, &r) || op_equal(in, r, value_int(rest), &same)) return in->code;
    return answer(out, same);
}

static int test_odd(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    return remainder_is(in, self, value_int(2), 1, out);
}

static int test_even(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    return remainder_is(in, self, value_int(2), 0, out);
}

static int test_divisibleby(interp *in, value self, const builtin_args *args, value *out)
{
    return remainder_is(in, self, args->arg[0], 0, out);
}

static int compare(interp *in, int op, value a, value b, value *out)
{
    bool holds;
    return op_compare(in, op, a, b, &holds) ? in->code : answer(out, holds);
}

static int test_eq(interp *in, value self, const builtin_args *args, value *out)
{
    return compare(in, OP2('=', '='), self, args->arg[0], out);
}

static int test_ne(interp *in, value self, const builtin_args *args, value *out)
{
    return compare(in, OP2('!', '='), self, args->arg[0], out);
}

static int test_lt(interp *in, value self, const builtin_args *args, value *out)
{
    return compare(in, '<', self, args->arg[0], out);
}

static int test_le(interp *in, value self, const builtin_args *args, value *out)
{
    return compare(in, OP2('<', '='), self, args->arg[0], out);
}

static int test_gt(interp *in, value self, const builtin_args *args, value *out)
{
    return compare(in, '>', self, args->arg[0], out);
}

static int test_ge(interp *in, value self, const builtin_args *args, value *out)
{
    return compare(in, OP2('>', '='), self, args->arg[0], out);
}

static int test_in(interp *in, value self, const builtin_args *args, value *out)
{
    return compare(in, OP_IN, self, args->arg[0], out);
}

/* The same object; numbers and strings, which have no identity here, are the same when kind and content are. */
static int test_sameas(interp *in, value self, const builtin_args *args, value *out)
{
    value other = args->arg[0];
    if (self.kind != other.kind) return answer(out, false);
    if (self.kind == V_LIST || self.kind == V_MAP) return answer(out, self.list == other.list);
    return compare(in, OP2('=', '='), self, other, out);
}

/* Has letters, and all of them are of the wanted case. */
static int all_case(interp *in, value self, bool upper, value *out)
{
    value s;
    bool any = false, wrong = false;
    if (to_string(in, self, &s) || interp_spend(in, s.n / 8)) return in->code;
    for (size_t i = 0; i < s.n;) {
        uint32_t cp;
        i += char_next(s.s + i, s.n - i, &cp);
        bool is_upper = cp_lower(cp) != cp, is_lower = cp_upper(cp) != cp || cp == 0xDF;
        any = any || (upper ? is_upper : is_lower);
        wrong = wrong || (upper ? is_lower : is_upper);
    }
    return answer(out, any && !wrong);
}

static int test_upper(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    return all_case(in, self, true, out);
}

static int test_lower(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    return all_case(in, self, false, out);
}

const builtin value_tests[] = {
    {"defined", "", 0, test_defined},    {"undefined", "", 0, test_undefined},
    {"none", "", 0, test_none},          {"string", "", 0, test_string},
    {"mapping", "", 0, test_mapping},    {"iterable", "", 0, test_iterable},
    {"sequence", "", 0, test_sequence},  {"number", "", 0, test_number},
    {"integer", "", 0, test_integer},    {"float", "", 0, test_float},
    {"boolean", "", 0, test_boolean},    {"true", "", 0, test_true},
    {"false", "", 0, test_false},        {"callable", "", 0, test_callable},
    {"escaped", "", 0, test_escaped},    {"odd", "", 0, test_odd},
    {"even", "", 0, test_even},          {"divisibleby", "num", 1, test_divisibleby},
    {"eq", "other", 1, test_eq},         {"equalto", "other", 1, test_eq},
    {"==", "other", 1, test_eq},         {"ne", "other", 1, test_ne},
    {"!=", "other", 1, test_ne},         {"lt", "other", 1, test_lt},
    {"lessthan", "other", 1, test_lt},   {"<", "other", 1, test_lt},
    {"le", "other", 1, test_le},         {"<=", "other", 1, test_le},
    {"gt", "other", 1, test_gt},         {"greaterthan", "other", 1, test_gt},
    {">", "other", 1, test_gt},          {"ge", "other", 1, test_ge},
    {">=", "other", 1, test_ge},         {"in", "seq", 1, test_in},
    {"sameas", "other", 1, test_sameas}, {"upper", "", 0, test_upper},
    {"lower", "", 0, test_lower},        {NULL, NULL, 0, NULL},
};
