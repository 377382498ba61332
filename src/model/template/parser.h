/* parser.h - tokens to tree, by recursive descent with one token of look-ahead.
 *
 *      statement level: parser.c (tags)          expression level: parser_expr.c (Jinja's precedence, low to high)
 *          if-else | or | and | not | compare, in | + - | ~ | * / // % | ** | unary | postfix . [] () | filter, is
 *
 * PA1 A function returns NULL exactly when p->st is filled.
 * PA2 Depth is bounded (PARSE_DEPTH_MAX), so a hostile source cannot exhaust the stack.
 */
#ifndef KVASIR_MODEL_TEMPLATE_PARSER_H
#define KVASIR_MODEL_TEMPLATE_PARSER_H

#include "model/template/lexer.h"
#include "model/template/node.h"

#define PARSE_DEPTH_MAX 100

typedef struct parser {
    lexer lx;
    token now, ahead; /* ahead is valid while has_ahead */
    bool has_ahead;
    arena *mem;
    status *st;
    int depth;
    int line;    /* of the statement whose head or body we are in */
    int n_loops; /* open for-loops that a break could leave */
    node *macro; /* the macro whose body we are in */
} parser;

int parser_advance(parser *p); /* now = the next token */
int parser_peek(parser *p);    /* fills ahead */
node *parser_fail(parser *p, int code, int line, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
node *parser_unexpected(parser *p, const char *wanted);
node *parser_node(parser *p, node_kind kind, int line);
bool parser_enter(parser *p); /* one level deeper; false with p->st filled when that is too deep */

bool at_op(const parser *p, int op);
bool at_name(const parser *p, const char *name);
bool take_op(parser *p, int op, bool *taken); /* false on failure */
bool take_name(parser *p, const char *name, bool *taken);
bool expect_op(parser *p, int op);
bool expect_name(parser *p, value *name);

node *parse_expression(parser *p);
node *parse_no_condition(parser *p); /* an expression without if-else at its top */
/* Comma-separated expressions are a tuple. */
node *parse_maybe_tuple(parser *p, bool with_condition);
node *parse_primary(parser *p);
node *parse_filters(parser *p, node *input); /* "| f | g(x)" */
node *parse_filter(parser *p, node *input);  /* "f(x)" */

/* Appends to a list of siblings. */
typedef struct node_list {
    node *first, **end;
} node_list;
void node_list_init(node_list *l);
void node_list_add(node_list *l, node *n);

#endif
