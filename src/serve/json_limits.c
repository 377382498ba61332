#include "serve/json_limits.h"

/* From the first byte of a string to the byte behind its closing quote. */
static size_t skip_string(const char *text, size_t i, size_t n_bytes)
{
    while (i < n_bytes && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
    return i + 1;
}

int json_check_limits(const char *text, size_t n_bytes, api_error *e)
{
    size_t n_values = 0, depth = 0;
    for (size_t i = 0; i < n_bytes;) {
        switch (text[i++]) {
        case '"': i = skip_string(text, i, n_bytes); break;
        case 0:
            return api_error_set(e, 400, "invalid_json", NULL,
                                 "the body is not valid JSON: byte %zu is zero; is the body UTF-8?", i - 1);
        case '[':
        case '{':
            n_values++;
            if (++depth > JSON_MAX_DEPTH)
                return api_error_set(e, 400, "too_deep", NULL, "the body's JSON is nested deeper than %d at byte %zu",
                                     JSON_MAX_DEPTH, i - 1);
            break;
        case ']':
        case '}': depth -= depth > 0; break;
        case ',':
        case ':': n_values++; break;
        default: break;
        }
        if (n_values > JSON_MAX_VALUES)
            return api_error_set(e, 400, "too_many_values", NULL,
                                 "the body's JSON has more than %zu members and elements; send less at once",
                                 JSON_MAX_VALUES);
    }
    return 0;
}
