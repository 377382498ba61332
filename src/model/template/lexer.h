/* lexer.h - template source to tokens, with Jinja's rules for white space around tags.
 *
 *      "Hi {{ name }}!\n{% if x %}\n"
 *      -> DATA "Hi "  PRINT_BEGIN NAME PRINT_END  DATA "!\n"  BLOCK_BEGIN NAME NAME BLOCK_END
 *
 * LX1 The source is normalized first: \r\n and \r become \n; one \n at the very end goes.
 * LX2 Settings are fixed: trim_blocks (the \n after a block goes) and lstrip_blocks (blanks between a line's start and
 *    a block go). A `-` inside a tag strips all white space on its side, a `+` keeps it.
 * LX3 Inside brackets the end marks are operators like any other, so {{ {'a': {'b': 1}} }} is one expression.
 * Threads: one at a time.
 */
#ifndef KVASIR_MODEL_TEMPLATE_LEXER_H
#define KVASIR_MODEL_TEMPLATE_LEXER_H

#include "base/arena.h"
#include "base/status.h"
#include "model/template/value.h"

typedef enum token_kind {
    T_END,
    T_DATA,
    T_PRINT_BEGIN,
    T_PRINT_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_LITERAL,
    T_OP,
} token_kind;

typedef struct token {
    token_kind kind;
    int line;
    int op;    /* T_OP: see OP2 in node.h */
    value lit; /* T_DATA, T_NAME: text; T_LITERAL: string, int or float */
} token;

#define BRACKETS_MAX 200

typedef struct lexer {
    const char *s;
    size_t n, pos;
    int line;
    token_kind end; /* what ends the tag that we are in; T_END in data */
    bool line_starting;
    int n_brackets;
    char brackets[BRACKETS_MAX];
    arena *mem;
    status *st;
} lexer;

int lexer_init(lexer *lx, arena *mem, const char *source, size_t n, status *st);
int lexer_next(lexer *lx, token *t);

#endif
