/* A body's bytes to a JSON object, and what is wrong with them where they are none. JSON bounds neither numbers nor
 * depth nor keys, jansson does: such a body is valid JSON beyond a limit, and is told so. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/json_limits.h"
#include "serve/request.h"

const char *json_type_name(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return floor(json_real_value(v)) == json_real_value(v) ? "a number" : "a number with a fraction";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    default: return "null";
    }
}

static size_t span_digits(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && s[i] >= '0' && s[i] <= '9') i++;
    return i;
}

/* Length of the number at s as RFC 8259 writes it, 0 when there is none; *whole: it has neither fraction nor exponent. */
static size_t number_length(const char *s, size_t n, bool *whole)
{
    size_t i = n && *s == '-', digits = span_digits(s + i, n - i);
    if (digits == 0 || (digits > 1 && s[i] == '0')) return 0;
    i += digits;
    *whole = true;
    if (i < n && s[i] == '.') {
        digits = span_digits(s + i + 1, n - i - 1);
        if (digits == 0) return 0;
        i += 1 + digits;
        *whole = false;
    }
    if (i < n && (s[i] | 0x20) == 'e') {
        size_t sign = i + 1 < n && (s[i + 1] == '+' || s[i + 1] == '-');
        digits = span_digits(s + i + 1 + sign, n - i - 1 - sign);
        if (digits == 0) return 0;
        i += 1 + sign + digits;
        *whole = false;
    }
    return i;
}

/* Whole numbers beyond 64 bits as the nearest double, numbers beyond a double as the largest: any range that a field
 * has still refuses them. word: scratch. */
static void add_number(strbuf *out, strbuf *word, const char *s, size_t n, bool whole)
{
    strbuf_clear(word);
    strbuf_add(word, s, n);
    double x = strtod(strbuf_cstr(word), NULL);
    if (isinf(x)) strbuf_printf(out, "%.17g", x > 0 ? DBL_MAX : -DBL_MAX);
    else if (whole && fabs(x) >= 0x1p63) strbuf_printf(out, "%.17g", x);
    else strbuf_add(out, s, n);
    out->failed |= word->failed;
}

/* The text with the numbers that jansson can't hold brought into its range. */
static void bound_numbers(strbuf *out, const char *s, size_t n)
{
    strbuf word;
    strbuf_init(&word, 0);
    for (size_t i = 0, length; i < n && !out->failed; i += length) {
        bool whole = false;
        length = 1;
        if (s[i] == '"') {
            while (i + length < n && s[i + length] != '"')
                length += s[i + length] == '\\' && i + length + 1 < n ? 2 : 1;
            length += i + length < n;
            strbuf_add(out, s + i, length);
        } else if ((length = number_length(s + i, n - i, &whole)) > 0) {
            add_number(out, &word, s + i, length, whole);
        } else {
            length = 1;
            strbuf_putc(out, s[i]);
        }
    }
    strbuf_deinit(&word);
}

/* jansson's words end with: near '"the key"'. */
static void duplicate(api_error *e, const json_error_t *error)
{
    char key[sizeof error->text] = "";
    const char *near = strstr(error->text, "near '\"");
    if (near) strncat(key, near + 7, strcspn(near + 7, "\""));
    api_error_set(e, 400, "duplicate_key", key,
                  "'%s' is given twice in one object (line %d, column %d); once is enough", key, error->line,
                  error->column);
}

static void explain(api_error *e, const json_error_t *error, size_t n_bytes)
{
    int line = error->line, column = error->column;
    switch (json_error_code(error)) {
    case json_error_out_of_memory: api_error_nomem(e); return;
    case json_error_duplicate_key: duplicate(e, error); return;
    case json_error_invalid_utf8:
        api_error_set(e, 400, "invalid_encoding", NULL, "the body is not UTF-8 (line %d, column %d)", line, column);
        return;
    case json_error_null_byte_in_key:
        api_error_set(e, 400, "unsupported_value", NULL,
                      "a key has a zero character (line %d, column %d), which is not supported", line, column);
        return;
    default: break;
    }
    if (n_bytes == 0) api_error_set(e, 400, "invalid_json", NULL, "the body is empty; a JSON object is expected");
    else if (strncmp(error->text, "invalid Unicode", 15) == 0)
        api_error_set(e, 400, "invalid_encoding", NULL,
                      "a string has half of a surrogate pair, which is no character (line %d, column %d): %s", line,
                      column, error->text);
    else
        api_error_set(e, 400, "invalid_json", NULL, "the body is not valid JSON (line %d, column %d): %s", line, column,
                      error->text);
}

json_t *request_object(const char *text, size_t n_bytes, api_error *e)
{
    const size_t flags = JSON_ALLOW_NUL | JSON_DECODE_ANY | JSON_REJECT_DUPLICATES;
    json_error_t error;
    if (n_bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) { /* a byte order mark says nothing of UTF-8 */
        text += 3;
        n_bytes -= 3;
    }
    if (json_check_limits(text, n_bytes, e)) return NULL;
    json_t *v = json_loadb(text, n_bytes, flags, &error);
    if (!v && json_error_code(&error) == json_error_numeric_overflow) {
        strbuf bounded;
        strbuf_init(&bounded, 0);
        bound_numbers(&bounded, text, n_bytes);
        if (!bounded.failed) v = json_loadb(strbuf_cstr(&bounded), bounded.n_bytes, flags, &error);
        bool no_memory = bounded.failed;
        strbuf_deinit(&bounded);
        if (no_memory) {
            api_error_nomem(e);
            return NULL;
        }
    }
    if (!v) explain(e, &error, n_bytes);
    else if (!json_is_object(v)) {
        api_error_set(e, 400, "invalid_type", NULL, "the body must be a JSON object; got %s", json_type_name(v));
        json_decref(v);
        v = NULL;
    }
    return v;
}
