/* json_data.h - jansson values as template input, for tests. */
#ifndef KVASIR_TESTS_TOOLS_JSON_DATA_H
#define KVASIR_TESTS_TOOLS_JSON_DATA_H

#include <jansson.h>

#include "model/template/template.h"

static inline tmpl_value *json_data(tmpl_data *d, json_t *j)
{
    const char *key;
    size_t i;
    json_t *item;
    tmpl_value *v;
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        v = tmpl_map(d);
        json_object_foreach(j, key, item) tmpl_map_set(d, v, key, json_data(d, item));
        return v;
    case JSON_ARRAY:
        v = tmpl_list(d);
        json_array_foreach(j, i, item) tmpl_list_add(d, v, json_data(d, item));
        return v;
    case JSON_STRING: return tmpl_string(d, json_string_value(j), json_string_length(j));
    case JSON_INTEGER: return tmpl_int(d, json_integer_value(j));
    case JSON_REAL: return tmpl_float(d, json_real_value(j));
    case JSON_NULL: return tmpl_none(d);
    default: return tmpl_bool(d, json_is_true(j));
    }
}

#endif
