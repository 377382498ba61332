/* interp.h - the state of one render, and what its parts call of each other.
 *
 * Owns: the arena of every value, text and variable that the render makes.
 *
 *      interp.c  statements, scopes, loops          eval.c   expressions        call.c  arguments, macros, functions
 *      ops.c     + - * == < in . [] [:]             text.c   text of a value    json*.c tojson, from_json
 *      filters_*.c, tests.c, methods_*.c, globals.c, format.c                   tables of what may be called
 *
 *      scope (for body) -> scope (macro call) -> scope (template) -> the caller's map -> global functions
 *        i, loop              its parameters       set, macro
 *
 * IP1 After a failure in->st is filled, in->code is its code, and every function returns at once with that code;
 *    `*out` then holds nothing of use.
 * IP2 Whatever takes time pays first: interp_spend for steps, text_* and interp_spend_bytes for bytes.
 * IP3 Whatever recurses over values or calls enters and leaves, so that the C stack is bounded.
 * IP4 A name is looked up when it is used; a macro sees the scope in which it was defined, as it is at that time.
 * Threads: one render is one thread's; the tmpl and the input are only read.
 */
#ifndef KVASIR_MODEL_TEMPLATE_INTERP_H
#define KVASIR_MODEL_TEMPLATE_INTERP_H

#include "model/template/builtin.h"
#include "model/template/node.h"

typedef struct variable {
    value name, val;
    struct variable *next;
} variable;

typedef struct scope {
    struct scope *parent;
    variable *vars;
    bool captured; /* a macro was defined here: the scope outlives its block */
} scope;

typedef struct macro {
    const node *def;
    scope *scope;
} macro;

typedef struct method {
    const builtin *fn;
    value self; /* V_ABSENT for a global function */
} method;

typedef struct loop {
    list *items;
    size_t at;
    value last_changed;
    bool has_changed;
} loop;

#define INTERP_NESTED_MAX 1500 /* levels of statements and expressions; each takes under 1 KiB of C stack */

/* Text under construction. */
typedef struct text {
    char *s;
    uint8_t *mask; /* [capacity] as a value's; NULL while all bytes are alike */
    size_t n, capacity;
    bool trusted; /* all of them, without a mask */
} text;

typedef struct interp {
    arena mem;
    const map *root;
    tmpl_limits limits;
    uint64_t steps_left;
    int depth;  /* macro calls and values within values */
    int nested; /* statements and expressions within each other, as they sit on the C stack */
    int line;
    int code;
    status *st;
    text *out;  /* where statements write */
    value hole; /* the text that a filter block or block set works on */
    scope *scope;
    variable *spare; /* variables of scopes that ended */
} interp;

/* Failure: "line N: ..." unless it is the template's own raise_exception. All return the code. */
int interp_fail(interp *in, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int interp_nomem(interp *in, size_t n_bytes);
int interp_spend(interp *in, uint64_t steps);
int interp_spend_bytes(interp *in, size_t n_bytes);
int interp_enter(interp *in);                              /* pairs with in->depth-- */
void *interp_alloc(interp *in, size_t count, size_t size); /* NULL after a failure */

/* Statements (interp.c). */
int exec_body(interp *in, const node *body);
int exec_capture(interp *in, const node *body, value *out); /* what the body writes, as a string */
int scope_push(interp *in, scope **saved);
void scope_pop(interp *in, scope *saved);
int scope_set(interp *in, value name, value v);

/* Expressions (eval.c, call.c). */
int eval_node(interp *in, const node *n, value *out);
int eval_arguments(interp *in, const node *args, call_args *out);
int call_value(interp *in, value callee, const call_args *args, value *out);
int call_builtin(interp *in, const builtin *fn, value self, const call_args *args, value *out);
int make_macro(interp *in, const node *def, value *out);

/* Operations (ops.c). */
int op_binary(interp *in, int op, value a, value b, value *out);
int op_compare(interp *in, int op, value a, value b, bool *out);
int op_equal(interp *in, value a, value b, bool *out);
int op_less(interp *in, value a, value b, bool *out);
int op_contains(interp *in, value container, value item, bool *out);
int op_undefined(interp *in, value v); /* fails: v is used though it is undefined */

/* Members (member.c). A method or member that is not there is undefined. */
int get_attribute(interp *in, value object, value name, value *out);
int get_item(interp *in, value object, value key, value *out);
/* path: "a.b.0" or an integer; fallback, unless absent or none, stands in for each step that finds nothing */
int get_path(interp *in, value object, value path, value fallback, value *out);
int get_slice(interp *in, value object, const value part[3], value *out);
int map_get(interp *in, const map *m, value key, map_entry **out); /* NULL entry: not there */
int map_put(interp *in, map *m, value key, value v);
int map_fill(interp *in, const call_args *all, map *to); /* positional dicts, then keywords, into the map */

/* Sequences. interp_iterate gives the items of anything that can be walked; the list is only read, and not kept. */
int interp_iterate(interp *in, value v, list **out);
int interp_list(interp *in, list_flavor flavor, size_t capacity, value *out);
int interp_push(interp *in, list *l, value v);
int interp_map(interp *in, value *out);

/* Text (text.c, json.c, json_parse.c). After a failure text_* do nothing; text_done returns the code. */
void text_add(interp *in, text *t, value s);
void text_puts(interp *in, text *t, const char *s); /* the interpreter's own words: trusted */
void text_bytes(interp *in, text *t, const char *s, size_t n, bool trusted);
void text_cp(interp *in, text *t, uint32_t cp, bool trusted);
void text_value(interp *in, text *t, value v); /* as str() */
void text_repr(interp *in, text *t, value v);
int text_done(interp *in, text *t, value *out);
int to_string(interp *in, value v, value *out);
int string_json(interp *in, value v, const value arg[PARAMS_MAX], value *out);
int json_value(interp *in, value s, value *out);

/* Numbers from arguments. */
int to_integer(interp *in, value v, int64_t *out);
int to_number(interp *in, value v, double *out);

/* "%d %s" % (...) and "{} {x}".format(...) (format.c). */
int string_percent(interp *in, value format, const call_args *args, value *out);
int string_braces(interp *in, value format, const call_args *args, value *out);

#endif
