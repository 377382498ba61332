#include <string.h>

#include "model/template/builtin.h"
#include "model/template/parser.h"

void node_list_init(node_list *l)
{
    l->first = NULL;
    l->end = &l->first;
}

void node_list_add(node_list *l, node *n)
{
    *l->end = n;
    l->end = &n->next;
}

static node *unary_node(parser *p, node_kind kind, int line, node *a)
{
    node *n = a ? parser_node(p, kind, line) : NULL;
    if (n) n->a = a;
    return n;
}

static node *binary_node(parser *p, node_kind kind, int op, node *a, node *b)
{
    node *n = a && b ? parser_node(p, kind, a->line) : NULL;
    if (!n) return NULL;
    n->op = op;
    n->a = a;
    n->b = b;
    return n;
}

static bool at_tuple_end(const parser *p)
{
    return p->now.kind == T_PRINT_END || p->now.kind == T_BLOCK_END || at_op(p, ')') || at_name(p, "in") ||
           at_name(p, "recursive");
}

node *parse_maybe_tuple(parser *p, bool with_condition)
{
    node_list items;
    node_list_init(&items);
    int line = p->now.line;
    bool tuple = false, comma = true;
    while (comma && !at_tuple_end(p)) {
        node *item = with_condition ? parse_expression(p) : parse_no_condition(p);
        if (!item) return NULL;
        node_list_add(&items, item);
        if (!take_op(p, ',', &comma)) return NULL;
        tuple = tuple || comma;
    }
    if (!tuple) return items.first ? items.first : parser_unexpected(p, "an expression");
    return unary_node(p, N_TUPLE, line, items.first);
}

static node *parse_parenthesis(parser *p)
{
    int line = p->now.line;
    if (parser_advance(p)) return NULL;
    node *n = at_op(p, ')') ? parser_node(p, N_TUPLE, line) : parse_maybe_tuple(p, true);
    return n && expect_op(p, ')') ? n : NULL;
}

static node *parse_list_display(parser *p)
{
    node *n = parser_node(p, N_LIST, p->now.line);
    if (!n || parser_advance(p)) return NULL;
    node_list items;
    node_list_init(&items);
    for (bool comma = true; !at_op(p, ']');) {
        if (!comma) return parser_unexpected(p, "',' or ']'");
        node *item = parse_expression(p);
        if (!item || !take_op(p, ',', &comma)) return NULL;
        node_list_add(&items, item);
    }
    n->a = items.first;
    return parser_advance(p) ? NULL : n;
}

static node *parse_dict_display(parser *p)
{
    node *n = parser_node(p, N_DICT, p->now.line);
    if (!n || parser_advance(p)) return NULL;
    node_list items;
    node_list_init(&items);
    for (bool comma = true; !at_op(p, '}');) {
        if (!comma) return parser_unexpected(p, "',' or '}'");
        node *key = parse_expression(p);
        if (!key || !expect_op(p, ':')) return NULL;
        node *pair = binary_node(p, N_PAIR, 0, key, parse_expression(p));
        if (!pair || !take_op(p, ',', &comma)) return NULL;
        node_list_add(&items, pair);
    }
    n->a = items.first;
    return parser_advance(p) ? NULL : n;
}

/* Neighbouring strings are one. */
static node *parse_literal(parser *p)
{
    node *n = parser_node(p, N_CONST, p->now.line);
    if (!n) return NULL;
    n->lit = p->now.lit;
    if (parser_advance(p)) return NULL;
    while (n->lit.kind == V_STRING && p->now.kind == T_LITERAL && p->now.lit.kind == V_STRING) {
        char *s = arena_alloc(p->mem, n->lit.n + p->now.lit.n + 1, 1);
        if (!s) return parser_fail(p, ST_NOMEM, n->line, "out of memory");
        memcpy(s, n->lit.s, n->lit.n);
        memcpy(s + n->lit.n, p->now.lit.s, p->now.lit.n);
        n->lit = value_literal(s, n->lit.n + p->now.lit.n);
        if (parser_advance(p)) return NULL;
    }
    return n;
}

static node *parse_name(parser *p)
{
    static const struct {
        const char *name;
        value v;
    } constants[] = {
        {"true", {.kind = V_BOOL, .trusted = true, .b = true}},
        {"True", {.kind = V_BOOL, .trusted = true, .b = true}},
        {"false", {.kind = V_BOOL, .trusted = true}},
        {"False", {.kind = V_BOOL, .trusted = true}},
        {"none", {.kind = V_NONE, .trusted = true}},
        {"None", {.kind = V_NONE, .trusted = true}},
    };
    node *n = parser_node(p, N_NAME, p->now.line);
    if (!n) return NULL;
    n->lit = p->now.lit;
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (value_equals_text(p->now.lit, constants[i].name)) {
            n->kind = N_CONST;
            n->lit = constants[i].v;
        }
    if (n->kind == N_NAME && p->macro) {
        if (value_equals_text(n->lit, "varargs") || value_equals_text(n->lit, "kwargs"))
            return parser_fail(p, ST_UNSUPPORTED, n->line, "%.*s in a macro is not supported", (int)n->lit.n, n->lit.s);
        if (value_equals_text(n->lit, "caller")) p->macro->flag = true;
    }
    return parser_advance(p) ? NULL : n;
}

node *parse_primary(parser *p)
{
    if (p->now.kind == T_NAME) return parse_name(p);
    if (p->now.kind == T_LITERAL) return parse_literal(p);
    if (at_op(p, '(')) return parse_parenthesis(p);
    if (at_op(p, '[')) return parse_list_display(p);
    if (at_op(p, '{')) return parse_dict_display(p);
    return parser_unexpected(p, "an expression");
}

/* "(a, b, key=c)"; *ok false on failure. */
static node *parse_arguments(parser *p, bool *ok)
{
    node_list args;
    node_list_init(&args);
    bool comma = true, keywords = false;
    *ok = false;
    if (!expect_op(p, '(')) return NULL;
    while (!at_op(p, ')')) {
        if (!comma) return parser_unexpected(p, "',' or ')'");
        if (at_op(p, '*') || at_op(p, OP2('*', '*')))
            return parser_fail(p, ST_UNSUPPORTED, p->now.line, "unpacking arguments with * is not supported");
        node *arg = parser_node(p, N_ARG, p->now.line);
        if (!arg || parser_peek(p)) return NULL;
        if (p->now.kind == T_NAME && p->ahead.kind == T_OP && p->ahead.op == '=') {
            arg->lit = p->now.lit;
            keywords = true;
            if (parser_advance(p) || parser_advance(p)) return NULL;
        } else if (keywords)
            return parser_fail(p, ST_FORMAT, arg->line, "a positional argument follows a keyword argument");
        arg->a = parse_expression(p);
        if (!arg->a || !take_op(p, ',', &comma)) return NULL;
        node_list_add(&args, arg);
    }
    *ok = !parser_advance(p);
    return args.first;
}

static node *parse_call(parser *p, node *callee)
{
    bool ok;
    node *n = unary_node(p, N_CALL, p->now.line, callee);
    if (!n) return NULL;
    n->b = parse_arguments(p, &ok);
    return ok ? n : NULL;
}

static node *parse_attribute(parser *p, node *object)
{
    int line = p->now.line;
    if (parser_advance(p)) return NULL;
    bool index = p->now.kind == T_LITERAL && p->now.lit.kind == V_INT;
    if (p->now.kind != T_NAME && !index) return parser_unexpected(p, "a name after '.'");
    node *n = unary_node(p, index ? N_ITEM : N_ATTR, line, object);
    if (!n) return NULL;
    n->lit = p->now.lit;
    if (index) {
        n->b = parser_node(p, N_CONST, line);
        if (!n->b) return NULL;
        n->b->lit = p->now.lit;
    }
    return parser_advance(p) ? NULL : n;
}

/* "[i]" or "[from:to:step]", each part optional. */
static node *parse_subscript(parser *p, node *object)
{
    node *n = unary_node(p, N_ITEM, p->now.line, object), *part[3] = {NULL, NULL, NULL};
    if (!n || parser_advance(p)) return NULL;
    int n_colons = 0;
    while (!at_op(p, ']')) {
        if (at_op(p, ':') && n_colons < 2) {
            n_colons++;
            if (parser_advance(p)) return NULL;
        } else if (at_op(p, ',')) {
            return parser_fail(p, ST_UNSUPPORTED, p->now.line, "a tuple as subscript is not supported");
        } else if (part[n_colons]) return parser_unexpected(p, "']'");
        else if (!(part[n_colons] = parse_expression(p))) return NULL;
    }
    if (n_colons == 0 && !part[0]) return parser_unexpected(p, "an expression");
    n->b = part[0];
    if (n_colons) {
        n->kind = N_SLICE;
        n->c = part[1];
        n->d = part[2];
    }
    return parser_advance(p) ? NULL : n;
}

static node *parse_postfix(parser *p, node *n)
{
    while (n) {
        if (at_op(p, '.')) n = parse_attribute(p, n);
        else if (at_op(p, '[')) n = parse_subscript(p, n);
        else if (at_op(p, '(')) n = parse_call(p, n);
        else break;
    }
    return n;
}

static bool dotted_name(parser *p, value *name)
{
    if (!expect_name(p, name)) return false;
    if (!at_op(p, '.')) return true;
    parser_fail(p, ST_UNSUPPORTED, p->now.line, "the dotted name '%.*s.' is not supported", (int)name->n, name->s);
    return false;
}

node *parse_filter(parser *p, node *input)
{
    node *n = unary_node(p, N_FILTER, p->now.line, input);
    if (!n || !dotted_name(p, &n->lit)) return NULL;
    n->fn = filter_find(n->lit.s, n->lit.n);
    if (!n->fn)
        return parser_fail(p, ST_UNSUPPORTED, n->line, "the filter '%.*s' is not supported", (int)n->lit.n, n->lit.s);
    bool ok = true;
    if (at_op(p, '(')) n->b = parse_arguments(p, &ok);
    return ok ? n : NULL;
}

node *parse_filters(parser *p, node *input)
{
    while (input && at_op(p, '|')) input = parser_advance(p) ? NULL : parse_filter(p, input);
    return input;
}

static bool starts_test_argument(const parser *p)
{
    if (p->now.kind == T_LITERAL || at_op(p, '[') || at_op(p, '{')) return true;
    return p->now.kind == T_NAME && !at_name(p, "else") && !at_name(p, "or") && !at_name(p, "and");
}

static node *parse_test(parser *p, node *input)
{
    node *n = unary_node(p, N_TEST, p->now.line, input);
    if (!n || parser_advance(p) || !take_name(p, "not", &n->flag) || !dotted_name(p, &n->lit)) return NULL;
    n->fn = builtin_find(value_tests, n->lit.s, n->lit.n);
    if (!n->fn)
        return parser_fail(p, ST_UNSUPPORTED, n->line, "the test '%.*s' is not supported", (int)n->lit.n, n->lit.s);
    bool ok = true;
    if (at_op(p, '(')) n->b = parse_arguments(p, &ok);
    else if (starts_test_argument(p)) {
        if (at_name(p, "is")) return parser_fail(p, ST_FORMAT, n->line, "tests cannot be chained with 'is'");
        node *arg = parse_primary(p);
        n->b = unary_node(p, N_ARG, n->line, arg ? parse_postfix(p, arg) : NULL);
        ok = n->b != NULL;
    }
    return ok ? n : NULL;
}

static node *parse_after(parser *p, node *n)
{
    while (n) {
        if (at_op(p, '|')) n = parse_filters(p, n);
        else if (at_name(p, "is")) n = parse_test(p, n);
        else if (at_op(p, '(')) n = parse_call(p, n);
        else break;
    }
    return n;
}

static node *parse_unary(parser *p, bool with_filter)
{
    if (!parser_enter(p)) return NULL;
    int line = p->now.line;
    node *n;
    if (at_op(p, '-') || at_op(p, '+')) {
        node_kind kind = at_op(p, '-') ? N_NEG : N_POS;
        n = parser_advance(p) ? NULL : unary_node(p, kind, line, parse_unary(p, false));
    } else n = parse_primary(p);
    n = parse_postfix(p, n);
    if (with_filter) n = parse_after(p, n);
    p->depth--;
    return n;
}

static node *parse_power(parser *p)
{
    node *n = parse_unary(p, true);
    while (n && at_op(p, OP2('*', '*')))
        n = parser_advance(p) ? NULL : binary_node(p, N_BINARY, OP2('*', '*'), n, parse_unary(p, true));
    return n;
}

static node *parse_product(parser *p)
{
    node *n = parse_power(p);
    while (n && (at_op(p, '*') || at_op(p, '/') || at_op(p, OP2('/', '/')) || at_op(p, '%'))) {
        int op = p->now.op;
        n = parser_advance(p) ? NULL : binary_node(p, N_BINARY, op, n, parse_power(p));
    }
    return n;
}

static node *parse_concat(parser *p)
{
    node *first = parse_product(p);
    if (!first || !at_op(p, '~')) return first;
    node_list items;
    node_list_init(&items);
    node_list_add(&items, first);
    while (at_op(p, '~')) {
        node *item = parser_advance(p) ? NULL : parse_product(p);
        if (!item) return NULL;
        node_list_add(&items, item);
    }
    return unary_node(p, N_CONCAT, first->line, first);
}

static node *parse_sum(parser *p)
{
    node *n = parse_concat(p);
    while (n && (at_op(p, '+') || at_op(p, '-'))) {
        int op = p->now.op;
        n = parser_advance(p) ? NULL : binary_node(p, N_BINARY, op, n, parse_concat(p));
    }
    return n;
}

/* The comparison at hand: its operator, 0 = none, -1 = failure. Leaves the parser behind it. */
static int take_comparison(parser *p)
{
    static const int ops[] = {OP2('=', '='), OP2('!', '='), OP2('<', '='), OP2('>', '='), '<', '>'};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (at_op(p, ops[i])) return parser_advance(p) ? -1 : ops[i];
    if (at_name(p, "in")) return parser_advance(p) ? -1 : OP_IN;
    if (!at_name(p, "not")) return 0;
    if (parser_peek(p)) return -1;
    if (p->ahead.kind != T_NAME || !value_equals_text(p->ahead.lit, "in")) return 0;
    return parser_advance(p) || parser_advance(p) ? -1 : OP_NOT_IN;
}

static node *parse_compare(parser *p)
{
    node *first = parse_sum(p);
    if (!first) return NULL;
    node_list operands;
    node_list_init(&operands);
    for (;;) {
        int line = p->now.line, op = take_comparison(p);
        if (op < 0) return NULL;
        if (op == 0) break;
        node *operand = unary_node(p, N_OPERAND, line, parse_sum(p));
        if (!operand) return NULL;
        operand->op = op;
        node_list_add(&operands, operand);
    }
    if (!operands.first) return first;
    return binary_node(p, N_COMPARE, 0, first, operands.first);
}

static node *parse_not(parser *p)
{
    if (!at_name(p, "not")) return parse_compare(p);
    int line = p->now.line;
    if (!parser_enter(p) || parser_advance(p)) return NULL;
    node *n = unary_node(p, N_NOT, line, parse_not(p));
    p->depth--;
    return n;
}

static node *parse_and(parser *p)
{
    node *n = parse_not(p);
    while (n && at_name(p, "and")) n = parser_advance(p) ? NULL : binary_node(p, N_AND, 0, n, parse_not(p));
    return n;
}

node *parse_no_condition(parser *p)
{
    node *n = parse_and(p);
    while (n && at_name(p, "or")) n = parser_advance(p) ? NULL : binary_node(p, N_OR, 0, n, parse_and(p));
    return n;
}

node *parse_expression(parser *p)
{
    if (!parser_enter(p)) return NULL;
    node *n = parse_no_condition(p);
    while (n && at_name(p, "if")) {
        node *test = parser_advance(p) ? NULL : parse_no_condition(p);
        n = binary_node(p, N_COND, 0, test, n);
        bool has_else;
        if (!n || !take_name(p, "else", &has_else)) return NULL;
        if (has_else && !(n->c = parse_expression(p))) return NULL;
    }
    p->depth--;
    return n;
}
