/* node.h - the parsed program: one tree of small nodes.
 *
 * Owns (tmpl): the arena that holds the normalized source, every node and every decoded string.
 * Children a..e by kind; lists hang on `next`; [x] = may be NULL:
 *
 *      N_TEXT lit          N_PRINT a=expr               N_IF a=list of N_BRANCH {[a]=test, b=body}
 *      N_FOR a=target b=iterable [c]=test d=body [e]=else
 *      N_SET a=target b=expr                            N_SET_BLOCK a=target [b]=filters over N_HOLE c=body
 *      N_WITH a=list of N_PARAM {lit=name, a=value} b=body
 *      N_MACRO lit=name a=list of N_PARAM {lit=name, [a]=default} b=body flag=the body names caller
 *      N_CALL_BLOCK a=N_CALL b=N_MACRO (what caller() runs)
 *      N_FILTER_BLOCK a=filters over N_HOLE b=body      N_GENERATION a=body        N_BREAK  N_CONTINUE
 *      N_CONST lit         N_NAME lit                   N_LIST, N_TUPLE a=list     N_DICT a=list of N_PAIR {a, b}
 *      N_ATTR a lit=name   N_ITEM a b                   N_SLICE a [b]:[c]:[d]      N_MEMBER lit=namespace b=N_CONST
 *      N_CALL a=callee b=list of N_ARG {[lit]=keyword, a}
 *      N_FILTER a=input fn b=N_ARGs                     N_TEST a=input fn b=N_ARGs flag=negated
 *      N_NOT a  N_AND a b  N_OR a b  N_COND a=test b=then [c]=else   N_NEG a  N_POS a  N_BINARY op a b
 *      N_CONCAT a=list     N_COMPARE a=first b=list of N_OPERAND {op, a}           N_HOLE = the text of the block
 *
 * Threads: constant after parsing.
 */
#ifndef KVASIR_MODEL_TEMPLATE_NODE_H
#define KVASIR_MODEL_TEMPLATE_NODE_H

#include "model/template/value.h"

typedef enum node_kind {
    N_TEXT,
    N_PRINT,
    N_IF,
    N_BRANCH,
    N_FOR,
    N_SET,
    N_SET_BLOCK,
    N_WITH,
    N_MACRO,
    N_PARAM,
    N_CALL_BLOCK,
    N_FILTER_BLOCK,
    N_GENERATION,
    N_BREAK,
    N_CONTINUE,
    N_CONST,
    N_NAME,
    N_LIST,
    N_TUPLE,
    N_DICT,
    N_PAIR,
    N_ATTR,
    N_ITEM,
    N_SLICE,
    N_MEMBER,
    N_CALL,
    N_ARG,
    N_FILTER,
    N_TEST,
    N_NOT,
    N_AND,
    N_OR,
    N_COND,
    N_NEG,
    N_POS,
    N_BINARY,
    N_CONCAT,
    N_COMPARE,
    N_OPERAND,
    N_HOLE,
} node_kind;

/* Operators are their own characters: '+' or OP2('/', '/'). */
#define OP2(a, b) ((a) | (b) << 8)
#define OP_IN OP2('i', 'n')
#define OP_NOT_IN OP2('n', 'i')

typedef struct node {
    node_kind kind;
    int line;
    int op;
    bool flag;
    value lit;
    const struct builtin *fn;
    struct node *a, *b, *c, *d, *e;
    struct node *next;
} node;

struct tmpl {
    arena mem;
    node *body;
};

#endif
