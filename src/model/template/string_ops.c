#include "model/template/string_ops.h"

#include <string.h>

#include "base/utf8.h"
#include "model/template/unicode.h"

static int map_case(interp *in, value s, uint32_t (*convert)(uint32_t), value *out)
{
    text t = {0};
    if (interp_spend(in, s.n / 8)) return in->code;
    for (size_t i = 0; i < s.n && !in->code;) {
        uint32_t cp;
        size_t n = char_next(s.s + i, s.n - i, &cp);
        bool trusted = value_trusted(s, i, n);
        if (cp == 0xDF && convert == cp_upper) text_bytes(in, &t, "SS", 2, trusted);
        else text_cp(in, &t, convert(cp), trusted);
        i += n;
    }
    return text_done(in, &t, out);
}

int string_upper(interp *in, value s, value *out)
{
    return map_case(in, s, cp_upper, out);
}

int string_lower(interp *in, value s, value *out)
{
    return map_case(in, s, cp_lower, out);
}

int string_capitalize(interp *in, value s, value *out)
{
    value first, rest;
    text t = {0};
    size_t n = char_offset(s.s, s.n, 1);
    if (string_upper(in, value_slice(s, 0, n), &first)) return in->code;
    if (string_lower(in, value_slice(s, n, s.n - n), &rest)) return in->code;
    text_add(in, &t, first);
    text_add(in, &t, rest);
    return text_done(in, &t, out);
}

static bool one_of(value chars, const char *c, size_t n)
{
    uint32_t cp;
    for (size_t i = 0; i < chars.n;) {
        size_t len = char_next(chars.s + i, chars.n - i, &cp);
        if (len == n && memcmp(chars.s + i, c, n) == 0) return true;
        i += len;
    }
    return false;
}

int string_trim(interp *in, value s, value chars, int sides, value *out)
{
    const value whole = s;
    if (chars.kind == V_ABSENT || chars.kind == V_NONE) {
        if (interp_spend_bytes(in, s.n)) return in->code;
        if (sides & TRIM_LEFT) trim_left(&s.s, &s.n);
        if (sides & TRIM_RIGHT) trim_right(s.s, &s.n);
    } else {
        if (chars.kind != V_STRING) return interp_fail(in, ST_ARG, "strip needs a string, not %s", value_type(chars));
        while (sides & TRIM_LEFT && s.n) {
            size_t n = char_offset(s.s, s.n, 1);
            if (interp_spend(in, 1 + chars.n / 8) || !one_of(chars, s.s, n)) break;
            s.s += n;
            s.n -= n;
        }
        while (sides & TRIM_RIGHT && s.n) {
            size_t at = s.n - 1;
            while (at > 0 && s.n - at < 4 && ((unsigned char)s.s[at] & 0xC0) == 0x80) at--;
            if (char_offset(s.s + at, s.n - at, 1) != s.n - at) at = s.n - 1;
            if (interp_spend(in, 1 + chars.n / 8) || !one_of(chars, s.s + at, s.n - at)) break;
            s.n = at;
        }
    }
    *out = value_slice(whole, (size_t)(s.s - whole.s), s.n);
    return in->code;
}

/* The empty string is found before every character and at the end. */
static int replace_empty(interp *in, value s, value new, int64_t count, value *out)
{
    text t = {0};
    for (size_t i = 0; !interp_spend(in, 1);) {
        if (count-- == 0) {
            text_add(in, &t, value_slice(s, i, s.n - i));
            break;
        }
        text_add(in, &t, new);
        if (i == s.n) break;
        size_t n = char_offset(s.s + i, s.n - i, 1);
        text_add(in, &t, value_slice(s, i, n));
        i += n;
    }
    return text_done(in, &t, out);
}

int string_replace(interp *in, value s, value old, value new, int64_t count, value *out)
{
    text t = {0};
    if (old.n == 0) return replace_empty(in, s, new, count, out);
    if (interp_spend_bytes(in, s.n)) return in->code;
    while (count != 0 && !in->code) {
        size_t at = string_find(s, old, false);
        if (at == SIZE_MAX) break;
        interp_spend(in, 1);
        text_add(in, &t, value_slice(s, 0, at));
        text_add(in, &t, new);
        s = value_slice(s, at + old.n, s.n - at - old.n);
        if (count > 0) count--;
    }
    text_add(in, &t, s);
    return text_done(in, &t, out);
}

int string_escape(interp *in, value v, value *out)
{
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    value s;
    text t = {0};
    *out = v;
    if (v.kind == V_STRING && v.markup) return ST_OK;
    if (to_string(in, v, &s) || interp_spend(in, s.n / 8)) return in->code;
    for (size_t i = 0; i < s.n && !in->code; i++) {
        const char *at = s.s[i] ? strchr(from, s.s[i]) : NULL;
        if (at) text_bytes(in, &t, to[at - from], strlen(to[at - from]), value_trusted(s, i, 1));
        else text_add(in, &t, value_slice(s, i, 1));
    }
    text_done(in, &t, out);
    out->markup = true;
    return in->code;
}

int string_join(interp *in, value separator, const list *items, value *out)
{
    text t = {0};
    for (size_t i = 0; i < items->n && !interp_spend(in, 1); i++) {
        if (i) text_add(in, &t, separator);
        text_value(in, &t, items->items[i]);
    }
    return text_done(in, &t, out);
}

static bool is_line_end(uint32_t cp)
{
    return (cp >= 10 && cp <= 13) || (cp >= 28 && cp <= 30) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
}

bool string_next_line(value *s, value *line, size_t *kept)
{
    if (s->n == 0) return false;
    uint32_t cp = 0;
    size_t at = 0, n = 0;
    for (; at < s->n; at += n, n = 0) {
        n = char_next(s->s + at, s->n - at, &cp);
        if (is_line_end(cp)) break;
    }
    *line = value_slice(*s, 0, at);
    if (cp == '\r' && at + 1 < s->n && s->s[at + 1] == '\n') n = 2;
    *kept = at + n;
    *s = value_slice(*s, *kept, s->n - *kept);
    return true;
}

size_t string_find(value s, value needle, bool last)
{
    if (needle.n > s.n) return SIZE_MAX;
    if (needle.n == 0) return last ? s.n : 0;
    if (!last) {
        const char *p = memmem(s.s, s.n, needle.s, needle.n);
        return p ? (size_t)(p - s.s) : SIZE_MAX;
    }
    for (size_t at = s.n - needle.n + 1; at-- > 0;)
        if (s.s[at] == needle.s[0] && memcmp(s.s + at, needle.s, needle.n) == 0) return at;
    return SIZE_MAX;
}
