#include "cli/options.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/nearest.h"

typedef struct given {
    const option_spec *option;
    const char *text; /* NULL for a flag that was negated */
} given;

struct args {
    const command *cmd;
    given *given; /* in the order of the command line */
    int n_given;
    const char **positional;
    int n_positional;
};

static const option_spec help_option = {
    .name = "help",
    .letter = 'h',
    .kind = OPTION_FLAG,
    .help = "show this text",
};
static const option_spec no_options = {.name = NULL};

const option_spec *command_option(const command *c, int i)
{
    const option_spec *o = c->options ? c->options : &no_options;
    for (; o->name; o++, i--)
        if (i == 0) return o;
    return i == 0 ? &help_option : NULL;
}

/* Whether a name is these words; second may be NULL. */
static bool is_name(const char *name, const char *first, const char *second)
{
    size_t n = strlen(first);
    if (strncmp(name, first, n) != 0) return false;
    return second ? name[n] == ' ' && strcmp(name + n + 1, second) == 0 : !name[n];
}

const command *command_find(const char *first, const char *second, int *n_words)
{
    for (*n_words = first ? second ? 2 : 1 : 0; *n_words; --*n_words, second = NULL)
        for (int i = 0; commands[i]; i++)
            if (is_name(commands[i]->name, first, second)) return commands[i];
    return NULL;
}

int command_unknown(const char *word, status *st)
{
    nearest near;
    nearest_init(&near, word);
    bool is_option = *word == '-';
    for (int i = 0; commands[i] && !is_option; i++) nearest_offer(&near, commands[i]->name);
    size_t n = strlen(word);
    for (int i = 0; commands[i]; i++) /* the first word of a longer name */
        if (strncmp(commands[i]->name, word, n) == 0 && commands[i]->name[n] == ' ') near.best = commands[i]->name;
    if (is_option) {
        nearest_offer(&near, "--help");
        nearest_offer(&near, "--version");
    }
    const char *what = is_option ? "option" : "command";
    if (!near.best) return status_set(st, ST_ARG, STATUS_NO_POS, "there is no %s '%s'", what, word);
    return status_set(st, ST_ARG, STATUS_NO_POS, "there is no %s '%s'; did you mean '%s'?", what, word, near.best);
}

bool option_on_by_default(const option_spec *o)
{
    return o->kind == OPTION_FLAG && o->fallback && strcmp(o->fallback, "on") == 0;
}

static const option_spec *find_name(const command *c, const char *name, size_t n)
{
    const option_spec *o;
    for (int i = 0; (o = command_option(c, i)); i++)
        if (strlen(o->name) == n && memcmp(o->name, name, n) == 0) return o;
    return NULL;
}

static const option_spec *find_letter(const command *c, char letter)
{
    const option_spec *o;
    for (int i = 0; (o = command_option(c, i)); i++)
        if (o->letter == letter) return o;
    return NULL;
}

static bool parse_int(const char *text, int64_t *v)
{
    char *end;
    errno = 0;
    *v = strtoll(text, &end, 10);
    bool starts_well = *text == '-' || (*text >= '0' && *text <= '9');
    return starts_well && end != text && *end == 0 && errno == 0;
}

static bool parse_float(const char *text, double *v)
{
    char *end;
    *v = strtod(text, &end);
    return end != text && *end == 0 && isfinite(*v) && strspn(text, "+-.0123456789eE") == strlen(text);
}

static bool parse_bytes(const char *text, uint64_t *v)
{
    size_t digits = strspn(text, ".0123456789");
    char number[32];
    if (digits == 0 || digits >= sizeof number) return false;
    memcpy(number, text, digits);
    number[digits] = 0;
    double amount;
    if (!parse_float(number, &amount)) return false;
    const char *unit = text + digits;
    static const char letters[] = "KMGT";
    double scale = 1;
    if (*unit && *unit != 'B' && *unit != 'b') {
        const char *letter = memchr(letters, *unit & ~0x20, sizeof letters - 1);
        if (!letter) return false;
        unit++;
        bool decimal = strcasecmp(unit, "B") == 0;
        if (*unit && !decimal && strcasecmp(unit, "iB") != 0) return false;
        for (const char *l = letters; l <= letter; l++) scale *= decimal ? 1000 : 1024;
    } else if (*unit && unit[1]) {
        return false;
    }
    if (amount * scale >= 0x1p64) return false;
    *v = (uint64_t)(amount * scale);
    return true;
}

static bool is_choice(const char *choices, const char *text)
{
    size_t n = strlen(text);
    for (const char *c = choices; *c; c += *c == '|') {
        size_t length = strcspn(c, "|");
        if (length == n && memcmp(c, text, n) == 0) return true;
        c += length;
    }
    return false;
}

static int wrong_range(const option_spec *o, const char *text, status *st)
{
    const char *what = o->kind == OPTION_INT ? "a whole number" : "a number";
    if (o->min < o->max)
        return status_set(st, ST_ARG, STATUS_NO_POS, "--%s takes %s from %.15g to %.15g, not '%s'", o->name, what,
                          o->min, o->max, text);
    return status_set(st, ST_ARG, STATUS_NO_POS, "--%s takes %s, not '%s'", o->name, what, text);
}

int option_check(const option_spec *o, const char *text, status *st)
{
    int64_t i = 0;
    double f = 0;
    uint64_t b = 0;
    switch (o->kind) {
    case OPTION_INT:
    case OPTION_FLOAT: {
        bool ok = o->kind == OPTION_INT ? parse_int(text, &i) : parse_float(text, &f);
        double v = o->kind == OPTION_INT ? (double)i : f;
        if (!ok || (o->min < o->max && !(v >= o->min && v <= o->max))) return wrong_range(o, text, st);
        return ST_OK;
    }
    case OPTION_BYTES:
        if (parse_bytes(text, &b)) return ST_OK;
        return status_set(st, ST_ARG, STATUS_NO_POS, "--%s takes a size such as 4096, 512M or 1.5GiB, not '%s'",
                          o->name, text);
    case OPTION_CHOICE:
        if (is_choice(o->choices, text)) return ST_OK;
        return status_set(st, ST_ARG, STATUS_NO_POS, "--%s is one of %s, not '%s'", o->name, o->choices, text);
    case OPTION_FILE:
        if (*text) return ST_OK;
        return status_set(st, ST_ARG, STATUS_NO_POS, "--%s takes a file's name, which is empty here", o->name);
    case OPTION_STRING: /* a text may be empty, a name can't */
        if (*text || strcmp(o->arg, "TEXT") == 0) return ST_OK;
        return status_set(st, ST_ARG, STATUS_NO_POS, "--%s takes %s, which is empty here", o->name, o->arg);
    case OPTION_FLAG: break;
    }
    return ST_OK;
}

typedef struct parser {
    args *a;
    int argc, next; /* argv[next] is the next word */
    char *const *argv;
    status *st;
} parser;

static void add_given(parser *p, const option_spec *o, const char *text)
{
    p->a->given[p->a->n_given++] = (given){o, text};
}

/* A value that was not attached is the next word, unless that is itself one of the options: then it was forgotten. */
static int take_value(parser *p, const option_spec *o, const char *attached)
{
    const char *text = attached;
    if (!text && p->next < p->argc) {
        const char *word = p->argv[p->next];
        bool is_option =
            strncmp(word, "--", 2) == 0 && word[2] && find_name(p->a->cmd, word + 2, strcspn(word + 2, "="));
        if (!is_option) {
            text = word;
            p->next++;
        }
    }
    if (!text)
        return status_set(p->st, ST_ARG, STATUS_NO_POS, "--%s needs a value: --%s %s", o->name, o->name,
                          o->arg ? o->arg : "VALUE");
    if (option_check(o, text, p->st)) return p->st->code;
    add_given(p, o, text);
    return ST_OK;
}

static int unknown_option(const parser *p, const char *name, size_t n)
{
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), name);
    nearest near;
    nearest_init(&near, word);
    const option_spec *o;
    for (int i = 0; (o = command_option(p->a->cmd, i)); i++) nearest_offer(&near, o->name);
    if (!near.best) return status_set(p->st, ST_ARG, STATUS_NO_POS, "there is no option '--%s'", word);
    return status_set(p->st, ST_ARG, STATUS_NO_POS, "there is no option '--%s'; did you mean '--%s'?", word, near.best);
}

static int parse_long(parser *p, const char *word)
{
    size_t n = strcspn(word, "=");
    const char *attached = word[n] ? word + n + 1 : NULL;
    const option_spec *o = find_name(p->a->cmd, word, n);
    bool negated = false;
    if (!o && n > 3 && strncmp(word, "no-", 3) == 0) {
        o = find_name(p->a->cmd, word + 3, n - 3);
        negated = o && option_on_by_default(o);
        if (!negated) o = NULL;
    }
    if (!o) return unknown_option(p, word, n);
    if (o->kind != OPTION_FLAG) return take_value(p, o, attached);
    if (attached)
        return status_set(p->st, ST_ARG, STATUS_NO_POS, "--%.*s takes no value, but was given '%s'", (int)n, word,
                          attached);
    add_given(p, o, negated ? NULL : "on");
    return ST_OK;
}

/* -t2, -t 2, and flags in one word: -jv. */
static int parse_letters(parser *p, const char *word)
{
    for (const char *l = word; *l; l++) {
        const option_spec *o = find_letter(p->a->cmd, *l);
        if (!o)
            return status_set(p->st, ST_ARG, STATUS_NO_POS,
                              "there is no option '-%c' (an argument that starts with '-' goes after '--')", *l);
        if (o->kind != OPTION_FLAG) return take_value(p, o, l[1] ? l + 1 : NULL);
        add_given(p, o, "on");
    }
    return ST_OK;
}

static int parse_words(parser *p)
{
    bool only_positional = false;
    while (p->next < p->argc) {
        const char *word = p->argv[p->next++];
        int rc = ST_OK;
        if (only_positional || word[0] != '-' || !word[1]) p->a->positional[p->a->n_positional++] = word;
        else if (strcmp(word, "--") == 0) only_positional = true;
        else if (word[1] == '-') rc = parse_long(p, word + 2);
        else rc = parse_letters(p, word + 1);
        if (rc) return rc;
    }
    return ST_OK;
}

/* The i-th word of "MODEL [TEXT]", without its brackets. */
static void positional_name(char *out, size_t size, const char *positional, int i)
{
    const char *s = positional ? positional : "";
    for (; i > 0 && *s; i--) {
        s += strcspn(s, " ");
        s += strspn(s, " ");
    }
    s += strspn(s, "[");
    snprintf(out, size, "%.*s", (int)strcspn(s, " ].["), s);
}

static int check_positionals(const args *a, status *st)
{
    const command *c = a->cmd;
    if (a->n_positional < c->min_positional) {
        char name[64];
        positional_name(name, sizeof name, c->positional, a->n_positional);
        return status_set(st, ST_ARG, STATUS_NO_POS, "%s is missing: kvasir %s %s", name, c->name,
                          c->positional ? c->positional : "");
    }
    if (c->max_positional >= 0 && a->n_positional > c->max_positional)
        return status_set(st, ST_ARG, STATUS_NO_POS, "'%s' is one argument too many", a->positional[c->max_positional]);
    return ST_OK;
}

/* Whether the option of that name, which has n letters, was given. */
static bool given_too(const args *a, const char *name, size_t n)
{
    for (int i = 0; i < a->n_given; i++)
        if (strlen(a->given[i].option->name) == n && memcmp(a->given[i].option->name, name, n) == 0) return true;
    return false;
}

/* The same of NAME=VALUE, which has n letters and may be without a value. */
static bool said_too(const args *a, const char *words, size_t n)
{
    const char *value = memchr(words, '=', n);
    if (!value) return given_too(a, words, n);
    size_t n_name = (size_t)(value++ - words), n_value = n - n_name - 1;
    for (int i = 0; i < a->n_given; i++) {
        const given *g = &a->given[i];
        if (strlen(g->option->name) == n_name && memcmp(g->option->name, words, n_name) == 0 && g->text &&
            strlen(g->text) == n_value && memcmp(g->text, value, n_value) == 0)
            return true;
    }
    return false;
}

/* One of the options that an option needs was given. */
static int check_needs(const args *a, const option_spec *o, status *st)
{
    char list[128] = "";
    size_t used = 0, n;
    for (const char *one = o->needs; *one; one += n + (one[n] == '|')) {
        n = strcspn(one, "|");
        if (said_too(a, one, n)) return ST_OK;
        int name = (int)strcspn(one, "=|"), value = (int)n - name;
        used += (size_t)snprintf(list + used, sizeof list - used, "%s--%.*s%s%.*s", used ? " or " : "", name, one,
                                 value ? " " : "", value ? value - 1 : 0, one + name + (value > 0));
        assert(used < sizeof list);
    }
    return status_set(st, ST_ARG, STATUS_NO_POS, "--%s is of no effect without %s", o->name, list);
}

/* What options say of each other. */
static int check_together(const args *a, status *st)
{
    for (int i = 0; i < a->n_given; i++) {
        const option_spec *o = a->given[i].option;
        if (o->needs && check_needs(a, o, st)) return st->code;
        for (const char *other = o->excludes; other && *other; other += *other == '|') {
            size_t n = strcspn(other, "|");
            if (given_too(a, other, n))
                return status_set(st, ST_ARG, STATUS_NO_POS, "--%s and --%.*s can't go together", o->name, (int)n,
                                  other);
            other += n;
        }
    }
    return ST_OK;
}

static bool defaults_hold(const command *c)
{
    status st = STATUS_INIT;
    const option_spec *o;
    for (int i = 0; (o = command_option(c, i)); i++)
        if (o->fallback && option_check(o, o->fallback, &st)) return false;
    return true;
}

int args_parse(args **out, const command *c, int argc, char *const *argv, status *st)
{
    assert(defaults_hold(c) && "a default that its own option refuses");
    size_t n_given = 0; /* an upper bound: every letter of -abc may be an option */
    for (int i = 0; i < argc; i++)
        if (argv[i][0] == '-') n_given += argv[i][1] == '-' ? 1 : strlen(argv[i]);
    args *a = mem_calloc(1, sizeof *a);
    if (!a) return status_nomem(st, sizeof *a);
    a->cmd = c;
    a->given = mem_calloc(n_given, sizeof *a->given);
    a->positional = mem_calloc((size_t)argc, sizeof *a->positional);
    if (!a->given || !a->positional) {
        args_free(a);
        return status_nomem(st, n_given * sizeof *a->given);
    }
    parser p = {.a = a, .argc = argc, .argv = argv, .st = st};
    if (parse_words(&p) || (!args_flag(a, "help") && (check_together(a, st) || check_positionals(a, st)))) {
        args_free(a);
        return st->code;
    }
    *out = a;
    return ST_OK;
}

void args_free(args *a)
{
    if (!a) return;
    mem_free(a->given);
    mem_free(a->positional);
    mem_free(a);
}

static const option_spec *existing(const args *a, const char *name)
{
    const option_spec *o = find_name(a->cmd, name, strlen(name));
    assert(o && "the command has no such option");
    return o;
}

/* The i-th time that the option was given, from the end with i = -1; NULL when it was not. */
static const given *find_given(const args *a, const option_spec *o, int i)
{
    const given *last = NULL;
    for (int k = 0; k < a->n_given; k++) {
        if (a->given[k].option != o) continue;
        if (i-- == 0) return &a->given[k];
        last = &a->given[k];
    }
    return i < 0 ? last : NULL;
}

static const char *value_text(const args *a, const char *name, option_kind kind)
{
    const option_spec *o = existing(a, name);
    assert(o->kind == kind && "the option is of another kind");
    (void)kind;
    const given *g = find_given(a, o, -1);
    return g ? g->text : o->fallback;
}

bool args_given(const args *a, const char *name)
{
    return find_given(a, existing(a, name), -1) != NULL;
}

bool args_flag(const args *a, const char *name)
{
    const char *text = value_text(a, name, OPTION_FLAG);
    return text && strcmp(text, "on") == 0;
}

int64_t args_int(const args *a, const char *name)
{
    const char *text = value_text(a, name, OPTION_INT);
    int64_t v = 0;
    return text && parse_int(text, &v) ? v : 0;
}

double args_float(const args *a, const char *name)
{
    const char *text = value_text(a, name, OPTION_FLOAT);
    double v = 0;
    return text && parse_float(text, &v) ? v : 0;
}

uint64_t args_bytes(const args *a, const char *name)
{
    const char *text = value_text(a, name, OPTION_BYTES);
    uint64_t v = 0;
    return text && parse_bytes(text, &v) ? v : 0;
}

const char *args_string(const args *a, const char *name)
{
    const option_spec *o = existing(a, name);
    assert(o->kind != OPTION_FLAG);
    const given *g = find_given(a, o, -1);
    return g ? g->text : o->fallback;
}

int args_count(const args *a, const char *name)
{
    const option_spec *o = existing(a, name);
    int n = 0;
    for (int k = 0; k < a->n_given; k++) n += a->given[k].option == o;
    return n;
}

const char *args_string_at(const args *a, const char *name, int i)
{
    assert(i >= 0);
    const given *g = find_given(a, existing(a, name), i);
    return g ? g->text : NULL;
}

int args_n_positional(const args *a)
{
    return a->n_positional;
}

const char *args_positional(const args *a, int i)
{
    return i >= 0 && i < a->n_positional ? a->positional[i] : NULL;
}
