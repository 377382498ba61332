#include <string.h>

#include "base/utf8.h"
#include "model/template/interp.h"
#include "model/template/number.h"
#include "model/template/unicode.h"

/* Room for n more bytes. */
static bool text_reserve(interp *in, text *t, size_t n)
{
    if (interp_spend_bytes(in, n)) return false;
    if (n > in->limits.max_output_bytes - t->n) {
        interp_fail(in, ST_LIMIT, "the template writes more than %zu bytes", in->limits.max_output_bytes);
        return false;
    }
    if (t->n + n <= t->capacity) return true;
    size_t capacity = t->capacity ? t->capacity * 2 : 64;
    while (capacity < t->n + n) capacity *= 2;
    char *s = interp_alloc(in, capacity, 1);
    uint8_t *mask = s && t->mask ? interp_alloc(in, capacity, 1) : NULL;
    if (in->code) return false;
    if (t->n) memcpy(s, t->s, t->n);
    if (t->n && mask) memcpy(mask, t->mask, t->n);
    t->s = s;
    t->mask = mask;
    t->capacity = capacity;
    return true;
}

void text_add(interp *in, text *t, value v)
{
    if (v.n == 0 || !text_reserve(in, t, v.n)) return;
    if (t->n == 0) t->trusted = v.trusted;
    if (!t->mask && (v.mask || v.trusted != t->trusted)) {
        if (!(t->mask = interp_alloc(in, t->capacity, 1))) return;
        memset(t->mask, t->trusted, t->n);
    }
    memcpy(t->s + t->n, v.s, v.n);
    if (t->mask && v.mask) memcpy(t->mask + t->n, v.mask, v.n);
    else if (t->mask) memset(t->mask + t->n, v.trusted, v.n);
    t->n += v.n;
}

void text_bytes(interp *in, text *t, const char *s, size_t n, bool trusted)
{
    text_add(in, t, trusted ? value_literal(s, n) : value_input(s, n));
}

void text_puts(interp *in, text *t, const char *s)
{
    text_bytes(in, t, s, strlen(s), true);
}

void text_cp(interp *in, text *t, uint32_t cp, bool trusted)
{
    char s[4] = {(char)(cp & 0xFF)};
    bool raw = cp >= 0xDC00 && cp <= 0xDCFF; /* a byte that was not UTF-8 */
    text_bytes(in, t, s, raw ? 1 : (size_t)utf8_encode(cp, s), trusted);
}

int text_done(interp *in, text *t, value *out)
{
    *out = value_literal(t->n ? t->s : "", t->n);
    out->trusted = t->n == 0 || t->trusted;
    out->mask = t->n ? t->mask : NULL;
    return in->code;
}

static void text_int(interp *in, text *t, int64_t i, bool trusted)
{
    char s[24];
    size_t at = sizeof s;
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    do s[--at] = (char)('0' + u % 10);
    while (u /= 10);
    if (i < 0) s[--at] = '-';
    text_bytes(in, t, s + at, sizeof s - at, trusted);
}

static void repr_char(interp *in, text *t, uint32_t cp, char quote, bool trusted)
{
    static const char digits[] = "0123456789abcdef";
    char s[12] = {'\\'};
    if (cp == (uint32_t)quote || cp == '\\') s[1] = (char)cp;
    else if (cp == '\n' || cp == '\r' || cp == '\t') s[1] = cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't';
    else if (cp_is_printable(cp) || (cp >= 0xDC00 && cp <= 0xDCFF)) {
        text_cp(in, t, cp, trusted);
        return;
    } else {
        int n = cp < 0x100 ? 2 : cp < 0x10000 ? 4 : 8;
        s[1] = n == 2 ? 'x' : n == 4 ? 'u' : 'U';
        for (int i = 0; i < n; i++) s[2 + i] = digits[cp >> 4 * (n - 1 - i) & 15];
    }
    text_bytes(in, t, s, strlen(s), trusted);
}

static void repr_string(interp *in, text *t, value v)
{
    bool single = memchr(v.s, '\'', v.n) != NULL, dbl = memchr(v.s, '"', v.n) != NULL;
    char quote = single && !dbl ? '"' : '\'';
    if (interp_spend(in, v.n / 8)) return;
    text_bytes(in, t, &quote, 1, true);
    for (size_t i = 0; i < v.n && !in->code;) {
        uint32_t cp;
        size_t n = char_next(v.s + i, v.n - i, &cp);
        repr_char(in, t, cp, quote, value_trusted(v, i, n));
        i += n;
    }
    text_bytes(in, t, &quote, 1, true);
}

static void repr_items(interp *in, text *t, const list *l)
{
    bool tuple = l->flavor == LIST_TUPLE;
    text_puts(in, t, tuple ? "(" : "[");
    for (size_t i = 0; i < l->n && !in->code; i++) {
        if (i) text_puts(in, t, ", ");
        text_repr(in, t, l->items[i]);
    }
    text_puts(in, t, !tuple ? "]" : l->n == 1 ? ",)" : ")");
}

static void repr_list(interp *in, text *t, const list *l)
{
    if (l->flavor == LIST_GENERATOR) {
        interp_fail(in, ST_UNSUPPORTED, "printing a generator is not supported; put `| list` or `| join` behind it");
        return;
    }
    if (l->label) text_puts(in, t, l->label);
    if (l->flavor == LIST_RANGE) return;
    if (l->flavor == LIST_VIEW) text_puts(in, t, "(");
    repr_items(in, t, l);
    if (l->flavor == LIST_VIEW) text_puts(in, t, ")");
}

static void repr_map(interp *in, text *t, const map *m)
{
    text_puts(in, t, "{");
    for (size_t i = 0; i < m->n && !in->code; i++) {
        if (i) text_puts(in, t, ", ");
        text_repr(in, t, m->entries[i].key);
        text_puts(in, t, ": ");
        text_repr(in, t, m->entries[i].val);
    }
    text_puts(in, t, "}");
}

static void repr_nested(interp *in, text *t, value v)
{
    if (interp_spend(in, 1) || interp_enter(in)) return;
    if (v.kind == V_LIST) repr_list(in, t, v.list);
    else if (v.kind == V_MAP) repr_map(in, t, v.map);
    else interp_fail(in, ST_UNSUPPORTED, "printing a %s is not supported", value_type(v));
    in->depth--;
}

static void text_word(interp *in, text *t, const char *word, bool trusted)
{
    text_bytes(in, t, word, strlen(word), trusted);
}

void text_repr(interp *in, text *t, value v)
{
    char number[FLOAT_TEXT_MAX];
    switch (v.kind) {
    case V_UNDEFINED: text_puts(in, t, "Undefined"); break;
    case V_NONE: text_word(in, t, "None", v.trusted); break;
    case V_BOOL: text_word(in, t, v.b ? "True" : "False", v.trusted); break;
    case V_INT: text_int(in, t, v.i, v.trusted); break;
    case V_FLOAT: text_bytes(in, t, number, float_text(v.f, number), v.trusted); break;
    case V_STRING:
        if (v.markup) text_puts(in, t, "Markup(");
        repr_string(in, t, v);
        if (v.markup) text_puts(in, t, ")");
        break;
    default: repr_nested(in, t, v);
    }
}

void text_value(interp *in, text *t, value v)
{
    if (v.kind == V_STRING) text_add(in, t, v);
    else if (v.kind != V_UNDEFINED) text_repr(in, t, v);
}

int to_string(interp *in, value v, value *out)
{
    text t = {0};
    if (v.kind == V_STRING) {
        *out = v;
        out->markup = false;
        return interp_spend_bytes(in, v.n);
    }
    text_value(in, &t, v);
    return text_done(in, &t, out);
}
