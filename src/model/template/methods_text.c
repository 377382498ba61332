#include <string.h>

#include "model/template/string_ops.h"
#include "model/template/unicode.h"

/* Methods of strings, as Python's str has them. */

static int need_string(interp *in, value v, const char *method_name)
{
    if (v.kind == V_STRING) return ST_OK;
    if (v.kind == V_UNDEFINED) return op_undefined(in, v);
    return interp_fail(in, ST_ARG, "%s needs a string, not %s", method_name, value_type(v));
}

static int str_strip(interp *in, value self, const builtin_args *args, value *out)
{
    return string_trim(in, self, args->arg[0], TRIM_LEFT | TRIM_RIGHT, out);
}

static int str_lstrip(interp *in, value self, const builtin_args *args, value *out)
{
    return string_trim(in, self, args->arg[0], TRIM_LEFT, out);
}

static int str_rstrip(interp *in, value self, const builtin_args *args, value *out)
{
    return string_trim(in, self, args->arg[0], TRIM_RIGHT, out);
}

static int str_upper(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    return string_upper(in, self, out);
}

static int str_lower(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    return string_lower(in, self, out);
}

static int str_capitalize(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    return string_capitalize(in, self, out);
}

/* A letter after a letter is lower, any other upper. */
static int str_title(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    text t = {0};
    bool after_letter = false;
    for (size_t i = 0; i < self.n && !interp_spend(in, 1);) {
        uint32_t cp;
        size_t n = char_next(self.s + i, self.n - i, &cp);
        text_cp(in, &t, after_letter ? cp_lower(cp) : cp_upper(cp), value_trusted(self, i, n));
        i += n;
        after_letter = cp_is_alpha(cp);
    }
    return text_done(in, &t, out);
}

/* prefix: one string, or a tuple of them of which one must fit */
static int has_affix(interp *in, value self, value affix, bool at_end, value *out)
{
    list one = {.items = &affix, .n = 1};
    const list *all = affix.kind == V_LIST && affix.list->flavor == LIST_TUPLE ? affix.list : &one;
    *out = value_bool(false);
    for (size_t i = 0; i < all->n && !out->b; i++) {
        value a = all->items[i];
        if (need_string(in, a, at_end ? "endswith" : "startswith") || interp_spend_bytes(in, a.n)) return in->code;
        out->b = a.n <= self.n && memcmp(at_end ? self.s + self.n - a.n : self.s, a.s, a.n) == 0;
    }
    return ST_OK;
}

static int str_startswith(interp *in, value self, const builtin_args *args, value *out)
{
    return has_affix(in, self, args->arg[0], false, out);
}

static int str_endswith(interp *in, value self, const builtin_args *args, value *out)
{
    return has_affix(in, self, args->arg[0], true, out);
}

static int remove_affix(interp *in, value self, value affix, bool at_end, value *out)
{
    value has;
    if (need_string(in, affix, at_end ? "removesuffix" : "removeprefix")) return in->code;
    if (has_affix(in, self, affix, at_end, &has)) return in->code;
    *out = self;
    if (!has.b) return ST_OK;
    *out = value_slice(self, at_end ? 0 : affix.n, self.n - affix.n);
    return ST_OK;
}

static int str_removeprefix(interp *in, value self, const builtin_args *args, value *out)
{
    return remove_affix(in, self, args->arg[0], false, out);
}

static int str_removesuffix(interp *in, value self, const builtin_args *args, value *out)
{
    return remove_affix(in, self, args->arg[0], true, out);
}

static int str_replace(interp *in, value self, const builtin_args *args, value *out)
{
    const value *arg = args->arg;
    int64_t count = -1;
    if (need_string(in, arg[0], "replace") || need_string(in, arg[1], "replace")) return in->code;
    if (arg[2].kind != V_ABSENT && to_integer(in, arg[2], &count)) return in->code;
    value new = arg[1];
    if (self.markup && string_escape(in, new, &new)) return in->code;
    return string_replace(in, self, arg[0], new, count, out);
}

static int find(interp *in, value self, value needle, bool last, bool must, value *out)
{
    if (need_string(in, needle, "find") || interp_spend_bytes(in, self.n)) return in->code;
    if (last && interp_spend_bytes(in, self.n > needle.n ? (self.n - needle.n) / 32 * needle.n : 0)) return in->code;
    size_t at = string_find(self, needle, last);
    if (at == SIZE_MAX && must) return interp_fail(in, ST_ARG, "index: the text is not found");
    *out = value_int(at == SIZE_MAX ? -1 : (int64_t)char_count(self.s, at));
    return ST_OK;
}

static int str_find(interp *in, value self, const builtin_args *args, value *out)
{
    return find(in, self, args->arg[0], false, false, out);
}

static int str_rfind(interp *in, value self, const builtin_args *args, value *out)
{
    return find(in, self, args->arg[0], true, false, out);
}

static int str_index(interp *in, value self, const builtin_args *args, value *out)
{
    return find(in, self, args->arg[0], false, true, out);
}

static int str_rindex(interp *in, value self, const builtin_args *args, value *out)
{
    return find(in, self, args->arg[0], true, true, out);
}

static int str_count(interp *in, value self, const builtin_args *args, value *out)
{
    value needle = args->arg[0];
    int64_t n = 0;
    if (need_string(in, needle, "count") || interp_spend(in, self.n / 8)) return in->code;
    if (needle.n == 0) n = (int64_t)char_count(self.s, self.n) + 1;
    for (size_t at; needle.n && (at = string_find(self, needle, false)) != SIZE_MAX; n++)
        self = value_slice(self, at + needle.n, self.n - at - needle.n);
    *out = value_int(n);
    return ST_OK;
}

static int str_join(interp *in, value self, const builtin_args *args, value *out)
{
    list *items;
    if (interp_iterate(in, args->arg[0], &items)) return in->code;
    for (size_t i = 0; i < items->n; i++)
        if (interp_spend(in, 1) || need_string(in, items->items[i], "join")) return in->code;
    return string_join(in, self, items, out);
}

static int str_splitlines(interp *in, value self, const builtin_args *args, value *out)
{
    bool keep = value_truth(args->arg[0]);
    value line;
    size_t kept;
    if (interp_spend(in, self.n / 8) || interp_list(in, LIST_PLAIN, 0, out)) return in->code;
    while (!in->code && string_next_line(&self, &line, &kept)) {
        if (keep) line.n = kept;
        interp_push(in, out->list, line);
    }
    return in->code;
}

static void reverse_items(list *l)
{
    for (size_t i = 0; i < l->n / 2; i++) {
        value swap = l->items[i];
        l->items[i] = l->items[l->n - 1 - i];
        l->items[l->n - 1 - i] = swap;
    }
}

/* Runs of white space separate; those at the ends count for nothing. */
static int split_blanks(interp *in, value s, int64_t limit, bool from_right, list *to)
{
    for (;;) {
        if (interp_spend(in, 1)) return in->code;
        if (string_trim(in, s, value_of(V_ABSENT), from_right ? TRIM_RIGHT : TRIM_LEFT, &s)) return in->code;
        if (s.n == 0) return ST_OK;
        size_t at = from_right ? s.n : 0;
        if (limit-- == 0) return interp_push(in, to, s);
        for (uint32_t cp; from_right ? at > 0 : at < s.n;) {
            size_t from = from_right ? at - 1 : at;
            while (from_right && from > 0 && ((unsigned char)s.s[from] & 0xC0) == 0x80) from--;
            size_t n = char_next(s.s + from, s.n - from, &cp);
            if (cp_is_space(cp)) break;
            at = from_right ? from : from + n;
        }
        value word = from_right ? value_slice(s, at, s.n - at) : value_slice(s, 0, at);
        s = from_right ? value_slice(s, 0, at) : value_slice(s, at, s.n - at);
        if (interp_push(in, to, word)) return in->code;
    }
}

static int split_by(interp *in, value s, value separator, int64_t limit, bool from_right, list *to)
{
    while (!interp_spend(in, 1)) {
        size_t at = limit-- == 0 ? SIZE_MAX : string_find(s, separator, from_right);
        if (at == SIZE_MAX) return interp_push(in, to, s);
        value before = value_slice(s, 0, at), after = value_slice(s, at + separator.n, s.n - at - separator.n);
        if (interp_push(in, to, from_right ? after : before)) return in->code;
        s = from_right ? before : after;
    }
    return in->code;
}

static int split(interp *in, value self, const builtin_args *args, bool from_right, value *out)
{
    value separator = args->arg[0];
    int64_t limit = -1;
    if (args->arg[1].kind != V_ABSENT && to_integer(in, args->arg[1], &limit)) return in->code;
    if (interp_spend(in, self.n / 8) || interp_list(in, LIST_PLAIN, 0, out)) return in->code;
    if (separator.kind == V_ABSENT || separator.kind == V_NONE) split_blanks(in, self, limit, from_right, out->list);
    else {
        if (need_string(in, separator, "split")) return in->code;
        if (separator.n == 0) return interp_fail(in, ST_ARG, "split by an empty string");
        if (from_right && interp_spend_bytes(in, self.n / 32 * separator.n)) return in->code;
        split_by(in, self, separator, limit, from_right, out->list);
    }
    if (from_right) reverse_items(out->list);
    return in->code;
}

static int str_split(interp *in, value self, const builtin_args *args, value *out)
{
    return split(in, self, args, false, out);
}

static int str_rsplit(interp *in, value self, const builtin_args *args, value *out)
{
    return split(in, self, args, true, out);
}

static int partition(interp *in, value self, value separator, bool last, value *out)
{
    if (need_string(in, separator, "partition")) return in->code;
    if (separator.n == 0) return interp_fail(in, ST_ARG, "partition by an empty string");
    if (interp_spend_bytes(in, self.n) || (last && interp_spend_bytes(in, self.n / 32 * separator.n))) return in->code;
    size_t at = string_find(self, separator, last);
    value empty = value_literal("", 0), part[3] = {self, empty, empty};
    if (at == SIZE_MAX && last) part[0] = empty, part[2] = self;
    if (at != SIZE_MAX) {
        part[0] = value_slice(self, 0, at);
        part[1] = separator;
        part[2] = value_slice(self, at + separator.n, self.n - at - separator.n);
    }
    if (interp_list(in, LIST_TUPLE, 3, out)) return in->code;
    for (int i = 0; i < 3; i++) interp_push(in, out->list, part[i]);
    return in->code;
}

static int str_partition(interp *in, value self, const builtin_args *args, value *out)
{
    return partition(in, self, args->arg[0], false, out);
}

static int str_rpartition(interp *in, value self, const builtin_args *args, value *out)
{
    return partition(in, self, args->arg[0], true, out);
}

static bool is_digit(uint32_t cp)
{
    return cp >= '0' && cp <= '9';
}

static bool is_alnum(uint32_t cp)
{
    return is_digit(cp) || cp_is_alpha(cp);
}

/* Not empty, and every character passes. */
static int all_characters(interp *in, value s, bool (*pass)(uint32_t), value *out)
{
    if (interp_spend(in, s.n / 8)) return in->code;
    *out = value_bool(s.n > 0);
    for (size_t i = 0; i < s.n && out->b;) {
        uint32_t cp;
        i += char_next(s.s + i, s.n - i, &cp);
        out->b = pass(cp);
    }
    return ST_OK;
}

static int str_isdigit(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    return all_characters(in, self, is_digit, out);
}

static int str_isalpha(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    return all_characters(in, self, cp_is_alpha, out);
}

static int str_isalnum(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    return all_characters(in, self, is_alnum, out);
}

static int str_isspace(interp *in, value self, const builtin_args *args, value *out)
{
    (void)args;
    return all_characters(in, self, cp_is_space, out);
}

static int same_test(interp *in, const char *name, value self, const builtin_args *args, value *out)
{
    return builtin_find(value_tests, name, 5)->fn(in, self, args, out);
}

static int str_isupper(interp *in, value self, const builtin_args *args, value *out)
{
    return same_test(in, "upper", self, args, out);
}

static int str_islower(interp *in, value self, const builtin_args *args, value *out)
{
    return same_test(in, "lower", self, args, out);
}

static int str_format(interp *in, value self, const builtin_args *args, value *out)
{
    return string_braces(in, self, args->all, out);
}

const builtin text_methods[] = {
    {"strip", "chars", 0, str_strip},
    {"lstrip", "chars", 0, str_lstrip},
    {"rstrip", "chars", 0, str_rstrip},
    {"upper", "", 0, str_upper},
    {"lower", "", 0, str_lower},
    {"capitalize", "", 0, str_capitalize},
    {"title", "", 0, str_title},
    {"startswith", "prefix", 1, str_startswith},
    {"endswith", "suffix", 1, str_endswith},
    {"removeprefix", "prefix", 1, str_removeprefix},
    {"removesuffix", "suffix", 1, str_removesuffix},
    {"replace", "old new count", 2, str_replace},
    {"find", "sub", 1, str_find},
    {"rfind", "sub", 1, str_rfind},
    {"index", "sub", 1, str_index},
    {"rindex", "sub", 1, str_rindex},
    {"count", "sub", 1, str_count},
    {"join", "iterable", 1, str_join},
    {"splitlines", "keepends", 0, str_splitlines},
    {"split", "sep maxsplit", 0, str_split},
    {"rsplit", "sep maxsplit", 0, str_rsplit},
    {"partition", "sep", 1, str_partition},
    {"rpartition", "sep", 1, str_rpartition},
    {"isdigit", "", 0, str_isdigit},
    {"isalpha", "", 0, str_isalpha},
    {"isalnum", "", 0, str_isalnum},
    {"isspace", "", 0, str_isspace},
    {"isupper", "", 0, str_isupper},
    {"islower", "", 0, str_islower},
    {"format", NULL, 0, str_format},
    {"casefold", NULL, 0, method_missing},
    {"center", NULL, 0, method_missing},
    {"encode", NULL, 0, method_missing},
    {"expandtabs", NULL, 0, method_missing},
    {"format_map", NULL, 0, method_missing},
    {"isascii", NULL, 0, method_missing},
    {"isdecimal", NULL, 0, method_missing},
    {"isidentifier", NULL, 0, method_missing},
    {"isnumeric", NULL, 0, method_missing},
    {"isprintable", NULL, 0, method_missing},
    {"istitle", NULL, 0, method_missing},
    {"ljust", NULL, 0, method_missing},
    {"maketrans", NULL, 0, method_missing},
    {"rjust", NULL, 0, method_missing},
    {"swapcase", NULL, 0, method_missing},
    {"translate", NULL, 0, method_missing},
    {"zfill", NULL, 0, method_missing},
    {NULL, NULL, 0, NULL},
};
