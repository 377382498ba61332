#include <math.h>
#include <string.h>

#include "model/template/number.h"
#include "model/template/string_ops.h"
#include "model/template/unicode.h"

/* Filters from one value to one value: text and numbers. A value that is not text is taken as str() prints it. */

/* What jinja2 does with a text's own methods stays marked safe. */
static int as_marked(const interp *in, value self, value *out)
{
    out->markup = self.kind == V_STRING && self.markup;
    return in->code;
}

static int filter_trim(interp *in, value self, const builtin_args *args, value *out)
{
    value s;
    if (to_string(in, self, &s) || string_trim(in, s, args->arg[0], TRIM_LEFT | TRIM_RIGHT, out)) return in->code;
    return as_marked(in, self, out);
}

static int filter_upper(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    value s;
    if (to_string(in, self, &s) || string_upper(in, s, out)) return in->code;
    return as_marked(in, self, out);
}

static int filter_lower(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    value s;
    if (to_string(in, self, &s) || string_lower(in, s, out)) return in->code;
    return as_marked(in, self, out);
}

static int filter_capitalize(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    value s;
    if (to_string(in, self, &s) || string_capitalize(in, s, out)) return in->code;
    return as_marked(in, self, out);
}

static int filter_title(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    value s;
    text t = {0};
    bool start = true;
    if (to_string(in, self, &s)) return in->code;
    for (size_t i = 0; i < s.n && !in->code;) {
        uint32_t cp;
        size_t n = char_next(s.s + i, s.n - i, &cp);
        text_cp(in, &t, start ? cp_upper(cp) : cp_lower(cp), value_trusted(s, i, n));
        i += n;
        start = cp_is_space(cp) || (cp < 0x80 && cp && strchr("-({[<", (int)cp));
        interp_spend(in, 1);
    }
    return text_done(in, &t, out);
}

static int filter_replace(interp *in, value self, const builtin_args *args, value *out)
{
    value s, old, new;
    int64_t count = -1;
    if (to_string(in, self, &s) || to_string(in, args->arg[0], &old) || to_string(in, args->arg[1], &new))
        return in->code;
    if (args->arg[2].kind != V_ABSENT && args->arg[2].kind != V_NONE && to_integer(in, args->arg[2], &count))
        return in->code;
    return string_replace(in, s, old, new, count, out);
}

static int filter_indent(interp *in, value self, const builtin_args *args, value *out)
{
    const value *arg = args->arg;
    text t = {0}, pad = {0};
    int64_t width = 4;
    if (self.kind == V_UNDEFINED) return op_undefined(in, self);
    if (self.kind != V_STRING) return interp_fail(in, ST_ARG, "indent needs a string, not %s", value_type(self));
    if (arg[0].kind == V_STRING) text_add(in, &pad, arg[0]);
    else if (arg[0].kind != V_ABSENT && to_integer(in, arg[0], &width)) return in->code;
    for (int64_t i = 0; arg[0].kind != V_STRING && i < width && !interp_spend(in, 1); i++) text_puts(in, &pad, " ");
    bool blank = value_truth(arg[2]), first = true, more = true;
    value indentation, whole = self;
    if (text_done(in, &pad, &indentation)) return in->code;
    if (value_truth(arg[1])) text_add(in, &t, indentation);
    interp_spend(in, self.n / 8);
    while (more && !in->code) { /* a line end at the very end is followed by one empty line */
        value line = value_literal("", 0);
        size_t kept = 0;
        more = string_next_line(&self, &line, &kept) && kept > line.n;
        if (!first) text_puts(in, &t, "\n");
        if (!first && (blank || line.n)) text_add(in, &t, indentation);
        text_add(in, &t, line);
        first = false;
        interp_spend(in, 1);
    }
    return text_done(in, &t, out) ? in->code : as_marked(in, whole, out);
}

static int filter_escape(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    return string_escape(in, self, out);
}

static int filter_safe(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    if (to_string(in, self, out)) return in->code;
    out->markup = true;
    return ST_OK;
}

static int filter_string(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    *out = self;
    return self.kind == V_STRING ? ST_OK : to_string(in, self, out);
}

static int filter_wordcount(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    value s;
    int64_t words = 0;
    bool inside = false;
    if (to_string(in, self, &s) || interp_spend(in, s.n / 8)) return in->code;
    for (size_t i = 0; i < s.n;) {
        uint32_t cp;
        i += char_next(s.s + i, s.n - i, &cp);
        words += cp_is_word(cp) && !inside;
        inside = cp_is_word(cp);
    }
    *out = value_int(words);
    return ST_OK;
}

static int filter_tojson(interp *in, value self, const builtin_args *args, value *out)
{
    return string_json(in, self, args->arg, out);
}

static int filter_from_json(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    return json_value(in, self, out);
}

static int filter_format(interp *in, value self, const builtin_args *args, value *out)
{
    value s;
    if (args->all->n_kw) return interp_fail(in, ST_UNSUPPORTED, "format with named arguments is not supported");
    return to_string(in, self, &s) ? in->code : string_percent(in, s, args->all, out);
}

static int truncated(interp *in, double f, value *out)
{
    if (!(fabs(f) < 0x1p63)) return interp_fail(in, ST_LIMIT, "the number is beyond a 64-bit integer");
    *out = value_int((int64_t)f);
    return ST_OK;
}

static int make_int(interp *in, value self, const builtin_args *args, value *out)
{
    int64_t base = 10, i;
    double f;
    if (args->arg[1].kind != V_ABSENT && to_integer(in, args->arg[1], &base)) return in->code;
    if (base < 2 || base > 36) return interp_fail(in, ST_ARG, "int: the base must lie between 2 and 36");
    if (self.kind == V_UNDEFINED) return op_undefined(in, self);
    if (value_is_integer(self)) *out = value_int(value_integer(self));
    else if (self.kind == V_FLOAT && !isnan(self.f)) return truncated(in, self.f, out);
    else if (self.kind == V_STRING) {
        if (interp_spend(in, self.n / 8)) return in->code;
        int code = number_parse_int(self.s, self.n, (int)base, &i);
        if (code == ST_LIMIT) return interp_fail(in, ST_LIMIT, "the number is beyond a 64-bit integer");
        if (code == ST_OK) *out = value_int(i);
        else if (number_parse_float(self.s, self.n, &f) == ST_OK && isfinite(f)) return truncated(in, f, out);
        else *out = args->arg[0].kind == V_ABSENT ? value_int(0) : args->arg[0];
    } else *out = args->arg[0].kind == V_ABSENT ? value_int(0) : args->arg[0];
    return ST_OK;
}

static int make_float(interp *in, value self, const builtin_args *args, value *out)
{
    double f;
    if (self.kind == V_UNDEFINED) return op_undefined(in, self);
    if (self.kind == V_STRING && interp_spend(in, self.n / 8)) return in->code;
    if (value_is_number(self)) *out = value_float(self.kind == V_FLOAT ? self.f : (double)value_integer(self));
    else if (self.kind == V_STRING && number_parse_float(self.s, self.n, &f) == ST_OK) *out = value_float(f);
    else *out = args->arg[0].kind == V_ABSENT ? value_float(0) : args->arg[0];
    return ST_OK;
}

static int make_abs(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    double f;
    if (to_number(in, self, &f)) return in->code;
    if (self.kind == V_FLOAT) *out = value_float(fabs(f));
    else if (f < 0) return op_binary(in, '-', value_int(0), self, out);
    else *out = value_int(value_integer(self));
    return ST_OK;
}

static int make_round(interp *in, value self, const builtin_args *args, value *out)
{
    int64_t decimals = 0;
    double f;
    const value how = args->arg[1];
    if (to_number(in, self, &f)) return in->code;
    if (args->arg[0].kind != V_ABSENT && to_integer(in, args->arg[0], &decimals)) return in->code;
    if (decimals < 0 || decimals > 15)
        return interp_fail(in, ST_UNSUPPORTED, "round to %lld decimals is not supported", (long long)decimals);
    bool up = value_equals_text(how, "ceil"), down = value_equals_text(how, "floor");
    if (up || down) {
        double scale = pow(10, (double)decimals);
        *out = value_float((up ? ceil(f * scale) : floor(f * scale)) / scale);
        return ST_OK;
    }
    if (how.kind != V_ABSENT && !value_equals_text(how, "common"))
        return interp_fail(in, ST_ARG, "round: the method must be common, ceil or floor");
    *out = self.kind == V_FLOAT ? value_float(float_round(f, (int)decimals)) : value_int(value_integer(self));
    return ST_OK;
}

/* A number is made of the text, or the number, before it. */
static int filter_int(interp *in, value self, const builtin_args *args, value *out)
{
    if (make_int(in, self, args, out)) return in->code;
    out->trusted = out->trusted && (self.kind == V_STRING ? value_trusted(self, 0, self.n) : self.trusted);
    return ST_OK;
}

static int filter_float(interp *in, value self, const builtin_args *args, value *out)
{
    if (make_float(in, self, args, out)) return in->code;
    out->trusted = out->trusted && (self.kind == V_STRING ? value_trusted(self, 0, self.n) : self.trusted);
    return ST_OK;
}

static int filter_abs(interp *in, value self, const builtin_args *args, value *out)
{
    if (make_abs(in, self, args, out)) return in->code;
    out->trusted = self.trusted;
    return ST_OK;
}

static int filter_round(interp *in, value self, const builtin_args *args, value *out)
{
    if (make_round(in, self, args, out)) return in->code;
    out->trusted = self.trusted;
    return ST_OK;
}

const builtin filters_text[] = {
    {"trim", "chars", 0, filter_trim},
    {"upper", "", 0, filter_upper},
    {"lower", "", 0, filter_lower},
    {"capitalize", "", 0, filter_capitalize},
    {"title", "", 0, filter_title},
    {"replace", "old new count", 2, filter_replace},
    {"indent", "width first blank", 0, filter_indent},
    {"escape", "", 0, filter_escape},
    {"e", "", 0, filter_escape},
    {"safe", "", 0, filter_safe},
    {"string", "", 0, filter_string},
    {"wordcount", "", 0, filter_wordcount},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, filter_tojson},
    {"from_json", "", 0, filter_from_json},
    {"format", NULL, 0, filter_format},
    {"int", "default base", 0, filter_int},
    {"float", "default", 0, filter_float},
    {"abs", "", 0, filter_abs},
    {"round", "precision method", 0, filter_round},
    {NULL, NULL, 0, NULL},
};
