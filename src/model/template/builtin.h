/* builtin.h - tables of what templates may call: filters, tests, global functions, methods.
 *
 * An entry names its parameters; arguments are bound by position and keyword before fn runs, absent ones are V_ABSENT:
 *
 *      {"indent", "width first blank", 0, filter_indent}        {{ text | indent(2, blank=true) }}
 *                                                    arg[0] = 2, arg[1] = absent, arg[2] = true
 *
 * params NULL: fn takes any arguments and looks at `all`. Tables end with a NULL name.
 * Threads: constant.
 */
#ifndef KVASIR_MODEL_TEMPLATE_BUILTIN_H
#define KVASIR_MODEL_TEMPLATE_BUILTIN_H

#include "model/template/value.h"

struct interp;

typedef struct keyword {
    value name, val;
} keyword;

/* A call's arguments as written. */
typedef struct call_args {
    value *pos;
    keyword *kw;
    size_t n_pos, n_kw;
} call_args;

#define PARAMS_MAX 5

typedef struct builtin_args {
    value arg[PARAMS_MAX];
    const call_args *all;
} builtin_args;

typedef int builtin_fn(struct interp *in, value self, const builtin_args *args, value *out);

typedef struct builtin {
    const char *name;
    const char *params; /* separated by blanks */
    int n_required;
    builtin_fn *fn;
} builtin;

/* NULL when there is none of that name. */
const builtin *builtin_find(const builtin *table, const char *name, size_t n);

extern const builtin filters_text[], filters_sequence[], value_tests[], global_functions[];
extern const builtin text_methods[], list_methods[], map_methods[], loop_methods[];

const builtin *filter_find(const char *name, size_t n);

/* Methods that Python has and this subset lacks: reading one is an error, never "undefined". */
int method_missing(struct interp *in, value self, const builtin_args *args, value *out);
/* One that would change the value: refused, as by jinja2's immutable sandbox. */
int method_changes(struct interp *in, value self, const builtin_args *args, value *out);

#endif
