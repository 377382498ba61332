#include <stdio.h>
#include <string.h>

#include "model/template/interp.h"
#include "model/template/number.h"
#include "model/template/unicode.h"

/* Python's two ways to fill in a string, as far as chat templates go. */

typedef struct directive {
    bool left, zero, plus, blank;
    int width, precision; /* precision -1: none */
    char type;
} directive;

static int read_count(value f, size_t *at)
{
    int n = 0;
    for (; *at < f.n && f.s[*at] >= '0' && f.s[*at] <= '9'; ++*at)
        if (n < 10000) n = n * 10 + (f.s[*at] - '0');
    return n;
}

static directive read_directive(value f, size_t *at)
{
    directive d = {.precision = -1};
    for (; *at < f.n && f.s[*at] && strchr("-0+ ", f.s[*at]); ++*at) {
        d.left = d.left || f.s[*at] == '-';
        d.zero = d.zero || f.s[*at] == '0';
        d.plus = d.plus || f.s[*at] == '+';
        d.blank = d.blank || f.s[*at] == ' ';
    }
    d.width = read_count(f, at);
    if (*at < f.n && f.s[*at] == '.') {
        ++*at;
        d.precision = read_count(f, at);
    }
    d.type = *at < f.n ? f.s[*at] : 0;
    return d;
}

static void pad(interp *in, text *t, int n, const char *with)
{
    for (; n > 0 && !in->code; n--) text_puts(in, t, with);
}

/* The sign stands before the zeros that fill the width. */
static void put_padded(interp *in, text *t, const directive *d, value s, bool is_number)
{
    int fill = d->width - (int)char_count(s.s, s.n < 20000 ? s.n : 20000);
    bool zeros = d->zero && is_number && !d->left;
    if (!d->left && !zeros) pad(in, t, fill, " ");
    if (zeros && s.n && strchr("+- ", s.s[0])) {
        text_add(in, t, value_slice(s, 0, 1));
        s = value_slice(s, 1, s.n - 1);
    }
    if (zeros) pad(in, t, fill, "0");
    text_add(in, t, s);
    if (d->left) pad(in, t, fill, " ");
}

static int put_integer(interp *in, text *t, const directive *d, value v)
{
    char s[32];
    int64_t i;
    if (v.kind == V_FLOAT && v.f > -9e18 && v.f < 9e18) {
        v.i = (int64_t)v.f;
        v.kind = V_INT;
    }
    if (d->precision >= 0) return interp_fail(in, ST_UNSUPPORTED, "a precision for integers is not supported");
    if (to_integer(in, v, &i)) return in->code;
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    const char *sign = i < 0 ? "-" : d->plus ? "+" : d->blank ? " " : "";
    const char *format = d->type == 'x' ? "%s%llx" : d->type == 'X' ? "%s%llX" : d->type == 'o' ? "%s%llo" : "%s%llu";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    int n = snprintf(s, sizeof s, format, sign, (unsigned long long)u);
#pragma GCC diagnostic pop
    put_padded(in, t, d, v.trusted ? value_literal(s, (size_t)n) : value_input(s, (size_t)n), true);
    return in->code;
}

static int put_float(interp *in, text *t, const directive *d, value v)
{
    char s[420];
    double f;
    if (to_number(in, v, &f)) return in->code;
    int precision = d->precision < 0 ? 6 : d->precision;
    if (precision > 60) return interp_fail(in, ST_UNSUPPORTED, "a precision over 60 is not supported");
    int n = snprintf(s, sizeof s, "%s%.*f", f >= 0 && d->plus ? "+" : f >= 0 && d->blank ? " " : "", precision, f);
    for (int i = 0; i < n; i++)
        if (s[i] == ',') s[i] = '.'; /* some locales' decimal point */
    put_padded(in, t, d, v.trusted ? value_literal(s, (size_t)n) : value_input(s, (size_t)n), true);
    return in->code;
}

static int put_text(interp *in, text *t, const directive *d, value v)
{
    text made = {0};
    value s;
    if (d->type == 'r') text_repr(in, &made, v);
    else text_value(in, &made, v);
    if (text_done(in, &made, &s)) return in->code;
    if (d->precision >= 0) s.n = char_offset(s.s, s.n, (size_t)d->precision);
    put_padded(in, t, d, s, false);
    return in->code;
}

int string_percent(interp *in, value format, const call_args *args, value *out)
{
    text t = {0};
    size_t next = 0;
    for (size_t i = 0; i < format.n && !interp_spend(in, 1); i++) {
        if (format.s[i] != '%') {
            text_add(in, &t, value_slice(format, i, 1));
            continue;
        }
        i++;
        directive d = read_directive(format, &i);
        if (d.type == '%') {
            text_add(in, &t, value_slice(format, i, 1));
            continue;
        }
        if (!d.type || !strchr("srdiuxXofF", d.type))
            return interp_fail(in, ST_UNSUPPORTED, "the format '%%%c' is not supported", d.type ? d.type : ' ');
        if (next >= args->n_pos) return interp_fail(in, ST_ARG, "not enough values for the format");
        value v = args->pos[next++];
        int code = strchr("sr", d.type)   ? put_text(in, &t, &d, v)
                   : strchr("fF", d.type) ? put_float(in, &t, &d, v)
                                          : put_integer(in, &t, &d, v);
        if (code) return code;
    }
    bool mapping = args->n_pos == 1 && (args->pos[0].kind == V_MAP || args->pos[0].kind == V_LIST);
    if (next < args->n_pos && !mapping) return interp_fail(in, ST_ARG, "too many values for the format");
    return text_done(in, &t, out);
}

/* The value of the field {name}, {0} or {}. */
static int find_field(interp *in, value name, const call_args *args, size_t *next, value *out)
{
    int64_t i = (int64_t)*next;
    if (name.n == 0) ++*next;
    else if (number_parse_int(name.s, name.n, 10, &i) != ST_OK) {
        for (size_t k = 0; k < args->n_kw; k++)
            if (args->kw[k].name.n == name.n && memcmp(args->kw[k].name.s, name.s, name.n) == 0) {
                *out = args->kw[k].val;
                return ST_OK;
            }
        i = -1;
    }
    if (i < 0 || (uint64_t)i >= args->n_pos) return interp_fail(in, ST_ARG, "format: a field has no value");
    *out = args->pos[i];
    return ST_OK;
}

static int put_field(interp *in, text *t, value name, const call_args *args, size_t *next)
{
    value v;
    for (size_t i = 0; i < name.n; i++)
        if (strchr(".[:!{", name.s[i]))
            return interp_fail(in, ST_UNSUPPORTED, "format: only plain fields like {} and {name} are supported");
    if (find_field(in, name, args, next, &v)) return in->code;
    text_value(in, t, v);
    return in->code;
}

int string_braces(interp *in, value format, const call_args *args, value *out)
{
    text t = {0};
    size_t next = 0;
    for (size_t i = 0; i < format.n && !interp_spend(in, 1); i++) {
        char c = format.s[i];
        bool doubled = i + 1 < format.n && format.s[i + 1] == c;
        if ((c != '{' && c != '}') || doubled) {
            text_add(in, &t, value_slice(format, i, 1));
            i += c == '{' || c == '}';
            continue;
        }
        const char *end = c == '{' ? memchr(format.s + i, '}', format.n - i) : NULL;
        if (!end) return interp_fail(in, ST_ARG, "format: a single '%c'", c);
        size_t n = (size_t)(end - format.s) - i - 1;
        if (put_field(in, &t, value_slice(format, i + 1, n), args, &next)) return in->code;
        i += n + 1;
    }
    return text_done(in, &t, out);
}
