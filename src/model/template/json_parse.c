#include <math.h>
#include <string.h>

#include "model/template/interp.h"
#include "model/template/number.h"
#include "model/template/unicode.h"

/* json.loads: text to values, each of which is trusted as its bytes are. */
typedef struct reader {
    value s;
    size_t at;
} reader;

static int read_value(interp *in, reader *r, value *out);

static int malformed(interp *in, const reader *r)
{
    return interp_fail(in, ST_ARG, "from_json: not JSON at character %zu", char_count(r->s.s, r->at) + 1);
}

static char peek(const reader *r)
{
    return r->at < r->s.n ? r->s.s[r->at] : 0;
}

static void skip_blanks(reader *r)
{
    while (r->at < r->s.n && strchr(" \t\n\r", r->s.s[r->at]) && r->s.s[r->at]) r->at++;
}

/* Skips blanks, and c if it comes next. */
static bool take(reader *r, char c)
{
    skip_blanks(r);
    if (peek(r) != c) return false;
    r->at++;
    return true;
}

/* Four hexadecimal digits at r->at; -1 where there are none. */
static int32_t read_unit(reader *r)
{
    int32_t unit = 0;
    if (r->s.n - r->at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        char c = r->s.s[r->at++], lower = (char)(c | 32);
        int digit = c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
        if (digit < 0) return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

/* Behind a backslash. Half of a surrogate pair becomes U+FFFD. */
static int read_escape(interp *in, reader *r, text *t, bool trusted)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = peek(r);
    const char *known = c ? strchr(from, c) : NULL;
    r->at++;
    if (known) {
        text_bytes(in, t, &to[known - from], 1, trusted);
        return in->code;
    }
    int32_t unit = c == 'u' ? read_unit(r) : -1;
    if (unit < 0) return malformed(in, r);
    if (unit >= 0xD800 && unit < 0xDC00 && r->s.n - r->at >= 6 && memcmp(r->s.s + r->at, "\\u", 2) == 0) {
        reader second = {r->s, r->at + 2};
        int32_t low = read_unit(&second);
        if (low >= 0xDC00 && low < 0xE000) {
            r->at = second.at;
            unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
        }
    }
    text_cp(in, t, unit >= 0xD800 && unit < 0xE000 ? 0xFFFD : (uint32_t)unit, trusted);
    return in->code;
}

static int read_string(interp *in, reader *r, value *out)
{
    text t = {0};
    r->at++;
    while (!interp_spend(in, 1)) {
        size_t from = r->at;
        while (r->at < r->s.n && (unsigned char)r->s.s[r->at] >= 0x20 && r->s.s[r->at] != '"' &&
               r->s.s[r->at] != '\\')
            r->at++;
        text_add(in, &t, value_slice(r->s, from, r->at - from));
        if (r->at == r->s.n || (unsigned char)r->s.s[r->at] < 0x20) return malformed(in, r);
        if (r->s.s[r->at++] == '"') return text_done(in, &t, out);
        if (read_escape(in, r, &t, value_trusted(r->s, r->at - 1, 1))) return in->code;
    }
    return in->code;
}

static size_t digits(const reader *r, size_t at)
{
    while (at < r->s.n && r->s.s[at] >= '0' && r->s.s[at] <= '9') at++;
    return at;
}

static int read_number(interp *in, reader *r, value *out)
{
    size_t from = r->at, whole = from + (peek(r) == '-'), end = digits(r, whole), next;
    bool is_float = false;
    if (end > whole + 1 && r->s.s[whole] == '0') end = whole + 1;
    if (end == whole) return malformed(in, r);
    if (end < r->s.n && r->s.s[end] == '.' && (next = digits(r, end + 1)) > end + 1) {
        is_float = true;
        end = next;
    }
    if (end < r->s.n && (r->s.s[end] | 32) == 'e') {
        size_t sign = end + 1 + (end + 1 < r->s.n && strchr("+-", r->s.s[end + 1]) && r->s.s[end + 1]);
        if ((next = digits(r, sign)) > sign) {
            is_float = true;
            end = next;
        }
    }
    r->at = end;
    *out = is_float ? value_float(0) : value_int(0);
    int code = is_float ? number_parse_float(r->s.s + from, end - from, &out->f)
                        : number_parse_int(r->s.s + from, end - from, 10, &out->i);
    out->trusted = value_trusted(r->s, from, end - from);
    if (code == ST_LIMIT) return interp_fail(in, ST_LIMIT, "from_json: a number is beyond a 64-bit integer");
    return code ? malformed(in, r) : ST_OK;
}

static int read_word(interp *in, reader *r, value *out)
{
    const struct {
        const char *name;
        value v;
    } words[] = {{"null", value_of(V_NONE)},
                 {"true", value_bool(true)},
                 {"false", value_bool(false)},
                 {"NaN", value_float((double)NAN)},
                 {"Infinity", value_float((double)INFINITY)},
                 {"-Infinity", value_float(-(double)INFINITY)}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i].name);
        if (r->s.n - r->at < n || memcmp(r->s.s + r->at, words[i].name, n) != 0) continue;
        *out = words[i].v;
        out->trusted = value_trusted(r->s, r->at, n);
        r->at += n;
        return ST_OK;
    }
    return read_number(in, r, out);
}

static int read_array(interp *in, reader *r, value *out)
{
    if (interp_list(in, LIST_PLAIN, 0, out)) return in->code;
    r->at++;
    if (take(r, ']')) return ST_OK;
    do {
        value item;
        if (read_value(in, r, &item) || interp_push(in, out->list, item)) return in->code;
    } while (take(r, ','));
    return take(r, ']') ? ST_OK : malformed(in, r);
}

static int read_object(interp *in, reader *r, value *out)
{
    if (interp_map(in, out)) return in->code;
    r->at++;
    if (take(r, '}')) return ST_OK;
    do {
        value key, item;
        skip_blanks(r);
        if (peek(r) != '"') return malformed(in, r);
        if (read_string(in, r, &key)) return in->code;
        if (!take(r, ':')) return malformed(in, r);
        if (read_value(in, r, &item) || map_put(in, out->map, key, item)) return in->code;
    } while (take(r, ','));
    return take(r, '}') ? ST_OK : malformed(in, r);
}

static int read_value(interp *in, reader *r, value *out)
{
    skip_blanks(r);
    if (interp_spend(in, 1) || interp_enter(in)) return in->code;
    switch (peek(r)) {
    case '"': read_string(in, r, out); break;
    case '[': read_array(in, r, out); break;
    case '{': read_object(in, r, out); break;
    default: read_word(in, r, out);
    }
    in->depth--;
    return in->code;
}

int json_value(interp *in, value s, value *out)
{
    reader r = {s, 0};
    if (s.kind == V_UNDEFINED) return op_undefined(in, s);
    if (s.kind != V_STRING) return interp_fail(in, ST_ARG, "from_json needs a string, not %s", value_type(s));
    if (interp_spend(in, s.n / 8) || read_value(in, &r, out)) return in->code;
    skip_blanks(&r);
    return r.at == s.n ? ST_OK : malformed(in, &r);
}
