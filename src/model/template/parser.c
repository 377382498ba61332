#include "model/template/parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/template/builtin.h"

#define SOURCE_MAX_BYTES ((size_t)1 << 20)
#define TREE_MAX_BYTES ((size_t)256 << 20)

node *parser_fail(parser *p, int code, int line, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    status_set(p->st, code, (uint64_t)line, "line %d: %s", line, text);
    return NULL;
}

node *parser_unexpected(parser *p, const char *wanted)
{
    const token *t = &p->now;
    char op[3] = {(char)(t->op & 0xFF), (char)(t->op >> 8), 0};
    static const char *const names[] = {"the end of the template", "text", "'{{'", "'}}'", "'{%'", "'%}'"};
    if (t->kind == T_OP) return parser_fail(p, ST_FORMAT, t->line, "expected %s, found '%s'", wanted, op);
    if (t->kind == T_NAME)
        return parser_fail(p, ST_FORMAT, t->line, "expected %s, found '%.*s'", wanted,
                           (int)(t->lit.n < 100 ? t->lit.n : 100), t->lit.s);
    const char *what = t->kind == T_LITERAL ? t->lit.kind == V_STRING ? "a string" : "a number" : names[t->kind];
    return parser_fail(p, ST_FORMAT, t->line, "expected %s, found %s", wanted, what);
}

node *parser_node(parser *p, node_kind kind, int line)
{
    node *n = arena_alloc(p->mem, sizeof *n, _Alignof(node));
    if (!n) return parser_fail(p, ST_NOMEM, line, "out of memory");
    n->kind = kind;
    n->line = line;
    return n;
}

int parser_advance(parser *p)
{
    if (p->has_ahead) {
        p->now = p->ahead;
        p->has_ahead = false;
        return ST_OK;
    }
    return lexer_next(&p->lx, &p->now);
}

int parser_peek(parser *p)
{
    if (p->has_ahead) return ST_OK;
    if (lexer_next(&p->lx, &p->ahead)) return p->st->code;
    p->has_ahead = true;
    return ST_OK;
}

bool parser_enter(parser *p)
{
    if (++p->depth <= PARSE_DEPTH_MAX) return true;
    parser_fail(p, ST_LIMIT, p->now.line, "the template nests deeper than %d levels", PARSE_DEPTH_MAX);
    return false;
}

bool at_op(const parser *p, int op)
{
    return p->now.kind == T_OP && p->now.op == op;
}

bool at_name(const parser *p, const char *name)
{
    return p->now.kind == T_NAME && value_equals_text(p->now.lit, name);
}

bool take_op(parser *p, int op, bool *taken)
{
    *taken = at_op(p, op);
    return !*taken || !parser_advance(p);
}

bool take_name(parser *p, const char *name, bool *taken)
{
    *taken = at_name(p, name);
    return !*taken || !parser_advance(p);
}

bool expect_op(parser *p, int op)
{
    char wanted[4] = {'\'', (char)op, '\'', 0};
    bool taken;
    if (!take_op(p, op, &taken)) return false;
    if (!taken) parser_unexpected(p, wanted);
    return taken;
}

bool expect_name(parser *p, value *name)
{
    if (p->now.kind != T_NAME) {
        parser_unexpected(p, "a name");
        return false;
    }
    *name = p->now.lit;
    return !parser_advance(p);
}

static bool end_tag(parser *p)
{
    if (p->now.kind == T_BLOCK_END) return !parser_advance(p);
    parser_unexpected(p, "'%}'");
    return false;
}

static bool parse_body(parser *p, const char *const *ends, node **body);

/* After a tag's head: "%}", the body, and "{% end %}". */
static bool parse_block(parser *p, const char *end, node **body)
{
    const char *const ends[] = {end, NULL};
    return end_tag(p) && parse_body(p, ends, body) && !parser_advance(p) && end_tag(p);
}

/* The body of something that runs apart from the loops around it. */
static bool parse_detached(parser *p, const char *end, node **body)
{
    int n_loops = p->n_loops;
    p->n_loops = 0;
    bool ok = parse_block(p, end, body);
    p->n_loops = n_loops;
    return ok;
}

static node *parse_if(parser *p, node *n)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    node_list branches;
    node_list_init(&branches);
    bool has_test = true;
    for (;;) {
        node *branch = parser_node(p, N_BRANCH, p->now.line);
        if (!branch || (has_test && !(branch->a = parse_maybe_tuple(p, false)))) return NULL;
        node_list_add(&branches, branch);
        if (!end_tag(p) || !parse_body(p, has_test ? ends : ends + 2, &branch->b)) return NULL;
        bool done = at_name(p, "endif");
        has_test = at_name(p, "elif");
        if (parser_advance(p)) return NULL;
        if (done) break;
    }
    n->kind = N_IF;
    n->a = branches.first;
    return end_tag(p) ? n : NULL;
}

/* A name, namespace member (only in set), or tuple of targets. */
static node *parse_target(parser *p, bool members);

static node *parse_one_target(parser *p, bool members)
{
    static const char *const taken[] = {"true", "false", "none", "True", "False", "None"};
    bool paren;
    if (!take_op(p, '(', &paren)) return NULL;
    if (paren) {
        if (!parser_enter(p)) return NULL;
        node *n = parse_target(p, members);
        p->depth--;
        return n && expect_op(p, ')') ? n : NULL;
    }
    node *n = parser_node(p, N_NAME, p->now.line);
    if (!n || !expect_name(p, &n->lit)) return NULL;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (value_equals_text(n->lit, taken[i]))
            return parser_fail(p, ST_FORMAT, n->line, "cannot assign to '%s'", taken[i]);
    bool dot = false;
    if (members && !take_op(p, '.', &dot)) return NULL;
    if (!dot) return n;
    n->kind = N_MEMBER;
    n->b = parser_node(p, N_CONST, n->line);
    return n->b && expect_name(p, &n->b->lit) ? n : NULL;
}

static node *parse_target(parser *p, bool members)
{
    node_list items;
    node_list_init(&items);
    bool comma = true, tuple = false;
    while (comma && (p->now.kind == T_NAME || at_op(p, '(')) && !at_name(p, "in")) {
        node *item = parse_one_target(p, members);
        if (!item || !take_op(p, ',', &comma)) return NULL;
        tuple = tuple || comma;
        node_list_add(&items, item);
    }
    if (!items.first) return parser_unexpected(p, "a name to assign to");
    if (!tuple) return items.first;
    node *n = parser_node(p, N_TUPLE, items.first->line);
    if (n) n->a = items.first;
    return n;
}

static node *parse_for(parser *p, node *n)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    bool taken;
    n->kind = N_FOR;
    if (!(n->a = parse_target(p, false))) return NULL;
    if (!at_name(p, "in")) return parser_unexpected(p, "'in'");
    if (parser_advance(p) || !(n->b = parse_maybe_tuple(p, false)) || !take_name(p, "if", &taken)) return NULL;
    if (taken && !(n->c = parse_expression(p))) return NULL;
    if (at_name(p, "recursive"))
        return parser_fail(p, ST_UNSUPPORTED, n->line, "a recursive for loop is not supported");
    if (!end_tag(p)) return NULL;
    p->n_loops++;
    bool ok = parse_body(p, ends, &n->d);
    p->n_loops--;
    if (!ok || !take_name(p, "else", &taken)) return NULL;
    if (taken) return parse_block(p, "endfor", &n->e) ? n : NULL;
    return !parser_advance(p) && end_tag(p) ? n : NULL;
}

static node *parse_set(parser *p, node *n)
{
    bool assign;
    n->kind = N_SET;
    if (!(n->a = parse_target(p, true)) || !take_op(p, '=', &assign)) return NULL;
    if (assign) return (n->b = parse_maybe_tuple(p, true)) && end_tag(p) ? n : NULL;
    n->kind = N_SET_BLOCK;
    node *hole = parser_node(p, N_HOLE, n->line);
    n->b = parse_filters(p, hole);
    return n->b && parse_detached(p, "endset", &n->c) ? n : NULL;
}

static node *parse_with(parser *p, node *n)
{
    node_list params;
    node_list_init(&params);
    n->kind = N_WITH;
    for (bool comma = true; p->now.kind != T_BLOCK_END;) {
        if (!comma) return parser_unexpected(p, "',' or '%}'");
        node *param = parser_node(p, N_PARAM, p->now.line);
        if (!param || !expect_name(p, &param->lit) || !expect_op(p, '=') || !(param->a = parse_expression(p)))
            return NULL;
        if (!take_op(p, ',', &comma)) return NULL;
        node_list_add(&params, param);
    }
    n->a = params.first;
    return parse_block(p, "endwith", &n->b) ? n : NULL;
}

/* "(a, b=default)" */
static bool parse_parameters(parser *p, node *macro)
{
    node_list params;
    node_list_init(&params);
    if (!expect_op(p, '(')) return false;
    bool defaults = false, comma = true, assign;
    while (!at_op(p, ')')) {
        node *param = comma ? parser_node(p, N_PARAM, p->now.line) : parser_unexpected(p, "',' or ')'");
        if (!param || !expect_name(p, &param->lit) || !take_op(p, '=', &assign)) return false;
        if (assign && !(param->a = parse_expression(p))) return false;
        if (defaults && !assign) {
            parser_fail(p, ST_FORMAT, param->line, "a parameter without default follows one with a default");
            return false;
        }
        defaults = assign;
        node_list_add(&params, param);
        if (!take_op(p, ',', &comma)) return false;
    }
    macro->a = params.first;
    return !parser_advance(p);
}

static node *parse_macro(parser *p, node *n)
{
    n->kind = N_MACRO;
    if (!expect_name(p, &n->lit)) return NULL;
    node *outer = p->macro;
    p->macro = n;
    bool ok = parse_parameters(p, n) && parse_detached(p, "endmacro", &n->b);
    p->macro = outer;
    return ok ? n : NULL;
}

static node *parse_call_block(parser *p, node *n)
{
    n->kind = N_CALL_BLOCK;
    node *body = n->b = parser_node(p, N_MACRO, n->line);
    if (!body) return NULL;
    body->lit = value_literal("caller", 6);
    if (at_op(p, '(') && !parse_parameters(p, body)) return NULL;
    if (!(n->a = parse_expression(p))) return NULL;
    if (n->a->kind != N_CALL) return parser_fail(p, ST_FORMAT, n->line, "a call block needs a call");
    return parse_detached(p, "endcall", &body->b) ? n : NULL;
}

static node *parse_filter_block(parser *p, node *n)
{
    n->kind = N_FILTER_BLOCK;
    node *hole = parser_node(p, N_HOLE, n->line), *first = hole ? parse_filter(p, hole) : NULL;
    n->a = parse_filters(p, first);
    return n->a && parse_detached(p, "endfilter", &n->b) ? n : NULL;
}

static node *parse_generation(parser *p, node *n)
{
    n->kind = N_GENERATION;
    return parse_detached(p, "endgeneration", &n->a) ? n : NULL;
}

static node *parse_leave(parser *p, node *n, node_kind kind)
{
    n->kind = kind;
    if (p->n_loops == 0)
        return parser_fail(p, ST_FORMAT, n->line, "'%s' outside of a loop", kind == N_BREAK ? "break" : "continue");
    return end_tag(p) ? n : NULL;
}

/* {% print a %} does not exist in chat templates; what remains are the statements below. */
static node *parse_statement(parser *p)
{
    node *n = parser_node(p, N_TEXT, p->now.line);
    value name;
    if (!n || !expect_name(p, &name)) return NULL;
    p->line = n->line;
    if (value_equals_text(name, "if")) return parse_if(p, n);
    if (value_equals_text(name, "for")) return parse_for(p, n);
    if (value_equals_text(name, "set")) return parse_set(p, n);
    if (value_equals_text(name, "with")) return parse_with(p, n);
    if (value_equals_text(name, "macro")) return parse_macro(p, n);
    if (value_equals_text(name, "call")) return parse_call_block(p, n);
    if (value_equals_text(name, "filter")) return parse_filter_block(p, n);
    if (value_equals_text(name, "generation")) return parse_generation(p, n);
    if (value_equals_text(name, "break")) return parse_leave(p, n, N_BREAK);
    if (value_equals_text(name, "continue")) return parse_leave(p, n, N_CONTINUE);
    bool end = (name.n > 3 && memcmp(name.s, "end", 3) == 0) || value_equals_text(name, "else") ||
               value_equals_text(name, "elif");
    if (end) return parser_fail(p, ST_FORMAT, n->line, "unexpected '%.*s'", (int)name.n, name.s);
    return parser_fail(p, ST_UNSUPPORTED, n->line, "the statement '%.*s' is not supported", (int)name.n, name.s);
}

static node *parse_print(parser *p)
{
    node *n = parser_node(p, N_PRINT, p->now.line);
    if (!n || !(n->a = parse_maybe_tuple(p, true))) return NULL;
    if (p->now.kind != T_PRINT_END) return parser_unexpected(p, "'}}'");
    return parser_advance(p) ? NULL : n;
}

/* Text, prints and statements up to a tag whose name is in ends (NULL: up to the end); now = that name. */
static bool parse_body(parser *p, const char *const *ends, node **body)
{
    node_list items;
    node_list_init(&items);
    int line = p->line;
    if (!parser_enter(p)) return false;
    while (p->now.kind != T_END) {
        node *n = NULL;
        if (p->now.kind == T_DATA) {
            n = parser_node(p, N_TEXT, p->now.line);
            if (!n) return false;
            n->lit = p->now.lit;
            if (parser_advance(p)) return false;
        } else {
            bool print = p->now.kind == T_PRINT_BEGIN;
            if (parser_advance(p)) return false;
            for (const char *const *end = ends; !print && end && *end; end++) {
                if (!at_name(p, *end)) continue;
                *body = items.first;
                p->depth--;
                return true;
            }
            if (!(n = print ? parse_print(p) : parse_statement(p))) return false;
            p->line = line;
        }
        node_list_add(&items, n);
    }
    *body = items.first;
    p->depth--;
    if (!ends) return true;
    while (ends[1]) ends++; /* the one that closes stands last */
    parser_fail(p, ST_FORMAT, line, "the block that begins here has no '%s'", ends[0]);
    return false;
}

int tmpl_parse(tmpl **out, const char *source, size_t n_bytes, status *st)
{
    if (n_bytes > SOURCE_MAX_BYTES)
        return status_set(st, ST_LIMIT, STATUS_NO_POS, "the chat template has %zu bytes; at most %zu are allowed",
                          n_bytes, SOURCE_MAX_BYTES);
    tmpl *t = mem_calloc(1, sizeof *t);
    if (!t) return status_nomem(st, sizeof *t);
    arena_init(&t->mem, TREE_MAX_BYTES);
    parser p = {.mem = &t->mem, .st = st};
    if (lexer_init(&p.lx, &t->mem, source, n_bytes, st) || parser_advance(&p) || !parse_body(&p, NULL, &t->body)) {
        tmpl_free(t);
        return st->code;
    }
    *out = t;
    return ST_OK;
}

void tmpl_free(tmpl *t)
{
    if (!t) return;
    arena_deinit(&t->mem);
    mem_free(t);
}
