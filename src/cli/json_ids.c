#include "cli/json_ids.h"

#include <string.h>

json_t *json_parse(const char *text, size_t n_bytes, size_t flags, status *st)
{
    json_error_t e;
    const char *zero = memchr(text, 0, n_bytes); /* jansson passes over one behind a number or a word */
    if (zero) {
        status_set(st, ST_FORMAT, (uint64_t)(zero - text), "byte %td is zero, which no JSON text has", zero - text);
        return NULL;
    }
    json_t *value = json_loadb(text, n_bytes, flags, &e);
    if (!value && *e.text) status_set(st, ST_FORMAT, (uint64_t)e.line, "line %d: %s", e.line, e.text);
    else if (!value)
        status_set(st, ST_NOMEM, STATUS_NO_POS, "out of memory: the JSON text of %zu bytes could not be taken in",
                   n_bytes);
    return value;
}

int json_ids_parse(token_list *out, const char *text, size_t n_bytes, status *st)
{
    json_t *array = json_parse(text, n_bytes, 0, st), *id;
    if (!array) return st->code;
    int rc = json_array_size(array) ? ST_OK : status_set(st, ST_FORMAT, STATUS_NO_POS, "not an array of token ids");
    size_t i;
    json_array_foreach(array, i, id)
    {
        json_int_t v = json_is_integer(id) ? json_integer_value(id) : -1;
        if (v < 0 || v > INT32_MAX) rc = status_set(st, ST_FORMAT, i, "element %zu is not a token id", i);
        else rc = token_list_add(out, (int32_t)v, st);
        if (rc) break;
    }
    json_decref(array);
    return rc;
}
