#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/template/interp.h"
#include "model/template/unicode.h"

/* json.dumps as chat templates see it: no HTML escaping, non-ASCII text kept unless asked otherwise. */
typedef struct writer {
    text t;
    bool ascii, sorted, pretty;
    value indent; /* one level of it */
    value item_sep, key_sep;
} writer;

static void write_value(interp *in, writer *w, value v, int level);

static void new_line(interp *in, writer *w, int level)
{
    if (!w->pretty) return;
    text_puts(in, &w->t, "\n");
    for (int i = 0; i < level; i++) text_add(in, &w->t, w->indent);
}

/* One character and its code point, escaped where JSON wants that. */
static void write_char(interp *in, writer *w, uint32_t cp, value c)
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    const char *at = cp && cp < 0x80 ? strchr(from, (int)cp) : NULL;
    char e[16];
    bool malformed = cp >= 0xDC00 && cp <= 0xDCFF;
    if (at) snprintf(e, sizeof e, "\\%c", to[at - from]);
    else if (cp >= 0x10000 && w->ascii)
        snprintf(e, sizeof e, "\\u%04x\\u%04x", 0xD7C0 + (unsigned)(cp >> 10), 0xDC00 + (unsigned)(cp & 0x3FF));
    else if (cp < 0x20 || (cp > 0x7E && w->ascii && !malformed)) snprintf(e, sizeof e, "\\u%04x", (unsigned)cp);
    else {
        text_add(in, &w->t, c);
        return;
    }
    text_bytes(in, &w->t, e, strlen(e), value_trusted(c, 0, c.n));
}

/* How many bytes at s stand for themselves. */
static size_t plain_run(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && s[i] >= 0x20 && s[i] <= 0x7E && s[i] != '"' && s[i] != '\\') i++;
    return i;
}

static void write_string(interp *in, writer *w, value v)
{
    if (interp_spend(in, v.n / 8)) return;
    text_puts(in, &w->t, "\"");
    for (size_t i = 0; i < v.n && !in->code;) {
        uint32_t cp;
        size_t plain = plain_run(v.s + i, v.n - i);
        text_add(in, &w->t, value_slice(v, i, plain));
        i += plain;
        if (i == v.n) break;
        size_t n = char_next(v.s + i, v.n - i, &cp);
        write_char(in, w, cp, value_slice(v, i, n));
        i += n;
    }
    text_puts(in, &w->t, "\"");
}

static void write_word(interp *in, writer *w, const char *word, value v)
{
    text_bytes(in, &w->t, word, strlen(word), v.trusted);
}

static void write_float(interp *in, writer *w, value v)
{
    if (isnan(v.f)) write_word(in, w, "NaN", v);
    else if (isinf(v.f)) write_word(in, w, v.f < 0 ? "-Infinity" : "Infinity", v);
    else text_repr(in, &w->t, v);
}

static void write_list(interp *in, writer *w, const list *l, int level)
{
    if (l->flavor != LIST_PLAIN && l->flavor != LIST_TUPLE) {
        interp_fail(in, ST_ARG, "tojson: a %s is not JSON", value_type(value_list((list *)(uintptr_t)l)));
        return;
    }
    text_puts(in, &w->t, "[");
    for (size_t i = 0; i < l->n && !in->code; i++) {
        if (i) text_add(in, &w->t, w->item_sep);
        new_line(in, w, level + 1);
        write_value(in, w, l->items[i], level + 1);
    }
    if (l->n) new_line(in, w, level);
    text_puts(in, &w->t, "]");
}

static void write_key(interp *in, writer *w, value key)
{
    if (key.kind == V_STRING) {
        write_string(in, w, key);
        return;
    }
    if (!value_is_number(key) && key.kind != V_NONE) {
        interp_fail(in, ST_ARG, "tojson: a %s cannot be a key", value_type(key));
        return;
    }
    text_puts(in, &w->t, "\"");
    write_value(in, w, key, 0);
    text_puts(in, &w->t, "\"");
}

/* Entry numbers in the order of their keys (insertion sort: maps are small, and each comparison pays). */
static size_t *sorted_order(interp *in, const map *m)
{
    size_t *order = interp_alloc(in, m->n ? m->n : 1, sizeof *order);
    for (size_t i = 0; order && i < m->n; i++) {
        size_t at = i;
        for (bool less = true; at > 0; at--) {
            if (op_less(in, m->entries[i].key, m->entries[order[at - 1]].key, &less)) return NULL;
            if (!less) break;
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    return order;
}

static void write_map(interp *in, writer *w, const map *m, int level)
{
    size_t *order = w->sorted ? sorted_order(in, m) : NULL;
    text_puts(in, &w->t, "{");
    for (size_t i = 0; i < m->n && !in->code; i++) {
        const map_entry *e = &m->entries[order ? order[i] : i];
        if (i) text_add(in, &w->t, w->item_sep);
        new_line(in, w, level + 1);
        write_key(in, w, e->key);
        text_add(in, &w->t, w->key_sep);
        write_value(in, w, e->val, level + 1);
    }
    if (m->n) new_line(in, w, level);
    text_puts(in, &w->t, "}");
}

static void write_value(interp *in, writer *w, value v, int level)
{
    if (interp_spend(in, 1) || interp_enter(in)) return;
    switch (v.kind) {
    case V_NONE: write_word(in, w, "null", v); break;
    case V_BOOL: write_word(in, w, v.b ? "true" : "false", v); break;
    case V_INT: text_repr(in, &w->t, v); break;
    case V_FLOAT: write_float(in, w, v); break;
    case V_STRING: write_string(in, w, v); break;
    case V_LIST: write_list(in, w, v.list, level); break;
    case V_MAP: write_map(in, w, v.map, level); break;
    default: interp_fail(in, ST_ARG, "tojson: a value of type %s is not JSON", value_type(v));
    }
    in->depth--;
}

static int read_indent(interp *in, value v, value *indent)
{
    if (v.kind == V_STRING) {
        *indent = v;
        return ST_OK;
    }
    int64_t width;
    text t = {0};
    if (to_integer(in, v, &width)) return in->code;
    for (int64_t i = 0; i < width && !in->code; i++) text_puts(in, &t, " ");
    return text_done(in, &t, indent);
}

static int read_separators(interp *in, value v, writer *w)
{
    list *pair;
    if (interp_iterate(in, v, &pair)) return in->code;
    if (pair->n != 2 || pair->items[0].kind != V_STRING || pair->items[1].kind != V_STRING)
        return interp_fail(in, ST_ARG, "tojson: separators must be two strings");
    w->item_sep = pair->items[0];
    w->key_sep = pair->items[1];
    return ST_OK;
}

/* arg: ensure_ascii, indent, separators, sort_keys */
int string_json(interp *in, value v, const value arg[PARAMS_MAX], value *out)
{
    writer w = {.ascii = value_truth(arg[0]), .sorted = value_truth(arg[3])};
    w.pretty = arg[1].kind != V_ABSENT && arg[1].kind != V_NONE;
    w.item_sep = w.pretty ? value_literal(",", 1) : value_literal(", ", 2);
    w.key_sep = value_literal(": ", 2);
    if (w.pretty && read_indent(in, arg[1], &w.indent)) return in->code;
    if (arg[2].kind != V_ABSENT && arg[2].kind != V_NONE && read_separators(in, arg[2], &w)) return in->code;
    write_value(in, &w, v, 0);
    return text_done(in, &w.t, out);
}
