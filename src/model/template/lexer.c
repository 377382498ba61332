#include "model/template/lexer.h"

#include <string.h>

#include "base/utf8.h"
#include "model/template/node.h"
#include "model/template/number.h"
#include "model/template/unicode.h"

int lexer_init(lexer *lx, arena *mem, const char *source, size_t n, status *st)
{
    *lx = (lexer){.line = 1, .line_starting = true, .mem = mem, .st = st};
    char *s = arena_alloc(mem, n + 1, 1);
    if (!s) return status_nomem(st, n + 1);
    for (size_t i = 0; i < n; i++) {
        bool cr = source[i] == '\r';
        if (cr && i + 1 < n && source[i + 1] == '\n') continue;
        s[lx->n++] = cr ? '\n' : source[i];
    }
    if (lx->n && s[lx->n - 1] == '\n') lx->n--;
    lx->s = s;
    return ST_OK;
}

static bool looking_at(const lexer *lx, size_t at, const char *word)
{
    size_t n = strlen(word);
    return at <= lx->n && n <= lx->n - at && memcmp(lx->s + at, word, n) == 0;
}

static size_t skip_space(const lexer *lx, size_t at)
{
    const char *s = lx->s + at;
    size_t left = lx->n - at;
    trim_left(&s, &left);
    return lx->n - left;
}

static void advance(lexer *lx, size_t to)
{
    for (; lx->pos < to; lx->pos++) lx->line += lx->s[lx->pos] == '\n';
}

/* Leaves a tag whose end mark was matched up to `to`. */
static void leave(lexer *lx, size_t to)
{
    advance(lx, to);
    lx->line_starting = to > 0 && lx->s[to - 1] == '\n';
    lx->end = T_END;
}

/* Where the end mark (`%}`, `#}`, or `}}`) at `at` ends, with the white space that goes with it; 0 = not there. */
static size_t match_end(const lexer *lx, size_t at, const char *mark)
{
    bool block = mark[0] != '}';
    char sign = at < lx->n ? lx->s[at] : 0;
    size_t after = sign == '-' || (sign == '+' && block) ? at + 1 : at;
    if (!looking_at(lx, after, mark)) return 0;
    if (after > at && sign == '-') return skip_space(lx, after + 2);
    if (after == at && block && looking_at(lx, after + 2, "\n")) return after + 3;
    return after + 2;
}

/* The tag {%[-+] word %} at `at`: where it ends, or 0. trim: the end mark may also be +%} and eats a newline. */
static size_t match_word_tag(const lexer *lx, size_t at, const char *word, bool trim)
{
    if (!looking_at(lx, at, "{%")) return 0;
    at += 2;
    if (at < lx->n && (lx->s[at] == '-' || lx->s[at] == '+')) at++;
    at = skip_space(lx, at);
    if (!looking_at(lx, at, word)) return 0;
    at = skip_space(lx, at + strlen(word));
    if (trim) return match_end(lx, at, "%}");
    if (looking_at(lx, at, "-%}")) return skip_space(lx, at + 3);
    return looking_at(lx, at, "%}") ? at + 2 : 0;
}

/* The text [from, tag) without what the tag at `tag` strips on its left. */
static value strip_before(const lexer *lx, size_t from, size_t tag, bool line_starting)
{
    const char *s = lx->s + from;
    size_t n = tag - from;
    char sign = tag + 2 < lx->n ? lx->s[tag + 2] : 0;
    if (sign == '-') trim_right(s, &n);
    else if (sign != '+' && lx->s[tag + 1] != '{') {
        size_t line = n;
        while (line > 0 && s[line - 1] != '\n') line--;
        const char *rest = s + line;
        size_t left = n - line;
        trim_left(&rest, &left);
        if (left == 0 && (line > 0 || line_starting)) n = line;
    }
    return value_literal(s, n);
}

static int skip_comment(lexer *lx)
{
    for (size_t at = lx->pos + 2; at < lx->n; at++) {
        size_t end = lx->s[at] == '-' || lx->s[at] == '+' || lx->s[at] == '#' ? match_end(lx, at, "#}") : 0;
        if (!end) continue;
        leave(lx, end);
        return ST_OK;
    }
    return status_set(lx->st, ST_FORMAT, (uint64_t)lx->line, "line %d: a comment {# has no end #}", lx->line);
}

static int lex_raw(lexer *lx, size_t begin, token *t)
{
    int line = lx->line;
    for (size_t at = begin; at < lx->n; at++) {
        size_t end = lx->s[at] == '{' ? match_word_tag(lx, at, "endraw", true) : 0;
        if (!end) continue;
        *t = (token){.kind = T_DATA, .line = line, .lit = strip_before(lx, begin, at, false)};
        leave(lx, end);
        return ST_OK;
    }
    return status_set(lx->st, ST_FORMAT, (uint64_t)line, "line %d: {%% raw %%} has no {%% endraw %%}", line);
}

/* Outside tags: a run of text, or the beginning of a tag. */
static int lex_data(lexer *lx, token *t)
{
    for (;;) {
        size_t tag = lx->pos;
        while (tag + 1 < lx->n && !(lx->s[tag] == '{' && strchr("{%#", lx->s[tag + 1]) && lx->s[tag + 1])) tag++;
        if (tag + 1 >= lx->n) tag = lx->n;
        value text = tag < lx->n ? strip_before(lx, lx->pos, tag, lx->line_starting)
                                 : value_literal(lx->s + lx->pos, lx->n - lx->pos);
        *t = (token){.kind = text.n ? T_DATA : T_END, .line = lx->line, .lit = text};
        if (tag > lx->pos) lx->line_starting = false;
        advance(lx, tag);
        if (text.n || tag == lx->n) return ST_OK;
        size_t raw = match_word_tag(lx, tag, "raw", false);
        if (raw) {
            if (lex_raw(lx, raw, t)) return lx->st->code;
            if (t->lit.n) return ST_OK;
        } else if (lx->s[tag + 1] == '#') {
            if (skip_comment(lx)) return lx->st->code;
        } else {
            bool print = lx->s[tag + 1] == '{';
            *t = (token){.kind = print ? T_PRINT_BEGIN : T_BLOCK_BEGIN, .line = lx->line};
            lx->end = print ? T_PRINT_END : T_BLOCK_END;
            bool sign = tag + 2 < lx->n && (lx->s[tag + 2] == '-' || lx->s[tag + 2] == '+');
            advance(lx, tag + 2 + sign);
            return ST_OK;
        }
    }
}

static int bad_escape(lexer *lx)
{
    return status_set(lx->st, ST_FORMAT, (uint64_t)lx->line, "line %d: a malformed escape in a string", lx->line);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* s[*i] is the letter after a backslash; writes what it means to out[0..4], returns its length or -1. */
static int unescape(const char *s, size_t n, size_t *i, char *out)
{
    static const char from[] = "ntr\\'\"abfv", to[] = "\n\t\r\\'\"\a\b\f\v";
    char c = s[*i];
    const char *at = c ? strchr(from, c) : NULL;
    (*i)++;
    if (at) return utf8_encode((uint32_t)to[at - from], out);
    if (c == '\n') return 0;
    uint32_t cp = 0;
    if (c >= '0' && c <= '7') {
        --*i;
        for (int k = 0; k < 3 && *i < n && s[*i] >= '0' && s[*i] <= '7'; k++) cp = cp * 8 + (uint32_t)(s[(*i)++] - '0');
        return utf8_encode(cp, out);
    }
    int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (!digits) {
        out[0] = '\\';
        out[1] = c;
        return c == 'N' ? -1 : 2;
    }
    for (; digits > 0; digits--, ++*i) {
        int d = *i < n ? hex_digit(s[*i]) : -1;
        if (d < 0 || cp > 0x10FFFF) return -1;
        cp = cp * 16 + (uint32_t)d;
    }
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)) return -1;
    return utf8_encode(cp, out);
}

static int lex_string(lexer *lx, token *t)
{
    size_t begin = lx->pos + 1, end = begin;
    char quote = lx->s[lx->pos];
    while (end < lx->n && lx->s[end] != quote) end += lx->s[end] == '\\' ? 2 : 1;
    if (end >= lx->n)
        return status_set(lx->st, ST_FORMAT, (uint64_t)lx->line, "line %d: a string has no end", lx->line);
    const char *s = lx->s + begin;
    size_t n = end - begin, m = 0;
    t->kind = T_LITERAL;
    t->lit = value_literal(s, n);
    if (memchr(s, '\\', n)) {
        char *out = arena_alloc(lx->mem, n + 4, 1);
        if (!out) return status_nomem(lx->st, n);
        for (size_t i = 0; i < n;) {
            if (s[i] != '\\') {
                out[m++] = s[i++];
                continue;
            }
            i++;
            int len = unescape(s, n, &i, out + m);
            if (len < 0) return bad_escape(lx);
            m += (size_t)len;
        }
        t->lit = value_literal(out, m);
    }
    advance(lx, end + 1);
    return ST_OK;
}

static bool is_digit(const lexer *lx, size_t at)
{
    return at < lx->n && lx->s[at] >= '0' && lx->s[at] <= '9';
}

/* Digits with single underscores between them: where they end (== at: none). */
static size_t skip_digits(const lexer *lx, size_t at)
{
    while (is_digit(lx, at)) at += at + 1 < lx->n && lx->s[at + 1] == '_' && is_digit(lx, at + 2) ? 2 : 1;
    return at;
}

static size_t skip_exponent(const lexer *lx, size_t at)
{
    if (at >= lx->n || (lx->s[at] | 32) != 'e') return at;
    size_t digits = at + 1;
    if (digits < lx->n && (lx->s[digits] == '+' || lx->s[digits] == '-')) digits++;
    size_t end = skip_digits(lx, digits);
    return end > digits ? end : at;
}

static int lex_number(lexer *lx, token *t)
{
    size_t begin = lx->pos, end = skip_digits(lx, begin);
    bool after_dot = begin > 0 && lx->s[begin - 1] == '.', is_float = false;
    char base = end == begin + 1 && lx->s[begin] == '0' && end < lx->n ? (char)(lx->s[end] | 32) : 0;
    if (base == 'x' || base == 'o' || base == 'b') {
        end++;
        while (end < lx->n && (hex_digit(lx->s[end]) >= 0 || lx->s[end] == '_')) end++;
    } else if (!after_dot) {
        size_t whole = end;
        if (end < lx->n && lx->s[end] == '.' && is_digit(lx, end + 1)) end = skip_digits(lx, end + 1);
        end = skip_exponent(lx, end);
        is_float = end > whole;
    }
    t->kind = T_LITERAL;
    int code = is_float ? number_parse_float(lx->s + begin, end - begin, &t->lit.f)
                        : number_parse_int(lx->s + begin, end - begin, 0, &t->lit.i);
    t->lit.kind = is_float ? V_FLOAT : V_INT;
    t->lit.trusted = true;
    if (code == ST_LIMIT)
        return status_set(lx->st, ST_UNSUPPORTED, (uint64_t)lx->line, "line %d: a number beyond 64 bits", lx->line);
    if (code) return status_set(lx->st, ST_FORMAT, (uint64_t)lx->line, "line %d: a malformed number", lx->line);
    advance(lx, end);
    return ST_OK;
}

static bool is_name_byte(char c)
{
    return c == '_' || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || (unsigned char)c >= 0x80;
}

static int lex_bracket(lexer *lx, char c)
{
    static const char open[] = "([{", close[] = ")]}";
    if (strchr(open, c)) {
        if (lx->n_brackets == BRACKETS_MAX)
            return status_set(lx->st, ST_LIMIT, (uint64_t)lx->line, "line %d: brackets nest deeper than %d", lx->line,
                              BRACKETS_MAX);
        lx->brackets[lx->n_brackets++] = close[strchr(open, c) - open];
    } else if (strchr(close, c)) {
        if (lx->n_brackets == 0 || lx->brackets[--lx->n_brackets] != c)
            return status_set(lx->st, ST_FORMAT, (uint64_t)lx->line, "line %d: unexpected '%c'", lx->line, c);
    }
    return ST_OK;
}

static int lex_operator(lexer *lx, token *t)
{
    static const char *const pairs[] = {"//", "**", "==", "!=", ">=", "<="};
    char c = lx->s[lx->pos];
    t->kind = T_OP;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (!looking_at(lx, lx->pos, pairs[i])) continue;
        t->op = OP2(pairs[i][0], pairs[i][1]);
        lx->pos += 2;
        return ST_OK;
    }
    if (!c || !strchr("+-/*%~[](){}<>=.:|,;", c))
        return status_set(lx->st, ST_FORMAT, (uint64_t)lx->line, "line %d: unexpected character '%c'", lx->line, c);
    if (lex_bracket(lx, c)) return lx->st->code;
    t->op = c;
    lx->pos++;
    return ST_OK;
}

int lexer_next(lexer *lx, token *t)
{
    if (lx->end == T_END) return lex_data(lx, t);
    if (lx->n_brackets == 0) { /* the mark itself, before white space: `-%}` takes what follows it */
        advance(lx, skip_space(lx, lx->pos));
        size_t end = match_end(lx, lx->pos, lx->end == T_BLOCK_END ? "%}" : "}}");
        if (end) {
            *t = (token){.kind = lx->end, .line = lx->line};
            leave(lx, end);
            return ST_OK;
        }
    }
    advance(lx, skip_space(lx, lx->pos));
    *t = (token){.kind = T_END, .line = lx->line};
    if (lx->pos >= lx->n) return ST_OK;
    char c = lx->s[lx->pos];
    if (c == '\'' || c == '"') return lex_string(lx, t);
    if (is_digit(lx, lx->pos)) return lex_number(lx, t);
    if (!is_name_byte(c)) return lex_operator(lx, t);
    size_t end = lx->pos;
    while (end < lx->n && is_name_byte(lx->s[end])) end++;
    t->kind = T_NAME;
    t->lit = value_literal(lx->s + lx->pos, end - lx->pos);
    lx->pos = end;
    return ST_OK;
}
