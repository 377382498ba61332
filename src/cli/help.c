#include "cli/help.h"

#include <stdio.h>
#include <string.h>

#include "cli/options.h"

enum { COLUMNS = 80, OPTION_COLUMN = 28 };

static void pad(strbuf *b, size_t n)
{
    for (; n > 0; n--) strbuf_putc(b, ' ');
}

/* Words of s[0..n) from column `indent` on, the cursor already being at `column`. */
static void add_wrapped(strbuf *b, const char *s, size_t n, size_t indent, size_t column)
{
    bool first = true;
    for (size_t i = 0; i < n;) {
        size_t length = strcspn(s + i, " \n");
        if (length > n - i) length = n - i;
        if (length > 0) {
            if (!first && column + 1 + length > COLUMNS) {
                strbuf_putc(b, '\n');
                pad(b, indent);
                column = indent;
            } else if (!first) {
                strbuf_putc(b, ' ');
                column++;
            }
            strbuf_add(b, s + i, length);
            column += length;
            first = false;
        }
        i += length + 1;
    }
    strbuf_putc(b, '\n');
}

/* Calls for each part of a command's details: a paragraph, a run of example lines, or the blank line between two. */
typedef enum part_kind { PART_PARAGRAPH, PART_LITERAL } part_kind;
typedef void part_fn(strbuf *b, part_kind kind, const char *s, size_t n, bool blank_before);

static void each_part(strbuf *b, const char *details, part_fn *fn)
{
    bool blank = false;
    for (const char *s = details; *s;) {
        if (*s == '\n') {
            blank = true;
            s++;
            continue;
        }
        bool literal = *s == ' ';
        const char *end = s;
        while (*end && *end != '\n' && (*end == ' ') == literal) {
            end += strcspn(end, "\n");
            end += *end == '\n';
        }
        fn(b, literal ? PART_LITERAL : PART_PARAGRAPH, s, (size_t)(end - s), blank);
        blank = false;
        s = end;
    }
}

static void text_part(strbuf *b, part_kind kind, const char *s, size_t n, bool blank_before)
{
    if (blank_before) strbuf_putc(b, '\n');
    if (kind == PART_PARAGRAPH) {
        add_wrapped(b, s, n, 0, 0);
        return;
    }
    strbuf_add(b, s, n);
    if (s[n - 1] != '\n') strbuf_putc(b, '\n');
}

/* "--kv F", "--json", "--[no-]stream". */
static void option_usage(strbuf *b, const option_spec *o)
{
    strbuf_printf(b, option_on_by_default(o) ? "--[no-]%s" : "--%s", o->name);
    if (o->kind != OPTION_FLAG) strbuf_printf(b, " %s", o->arg ? o->arg : "VALUE");
}

/* The help line with what the table knows besides: choices, default, repetition. */
static void option_text(strbuf *b, const option_spec *o)
{
    strbuf_puts(b, o->help ? o->help : "");
    const char *separator = " (";
    if (o->choices) {
        strbuf_puts(b, separator);
        for (const char *c = o->choices; *c; c++) {
            if (*c == '|') strbuf_puts(b, ", ");
            else strbuf_putc(b, *c);
        }
        separator = "; ";
    }
    if (o->fallback) {
        strbuf_printf(b, "%sdefault %s", separator, *o->fallback ? o->fallback : "empty");
        separator = "; ";
    }
    if (o->repeats) {
        strbuf_printf(b, "%smay be repeated", separator);
        separator = "; ";
    }
    if (*separator == ';') strbuf_putc(b, ')');
}

static void add_option(strbuf *b, const option_spec *o)
{
    strbuf text;
    strbuf_init(&text, 0);
    size_t start = b->n_bytes;
    if (o->letter) strbuf_printf(b, "  -%c, ", o->letter);
    else strbuf_puts(b, "      ");
    option_usage(b, o);
    size_t column = b->n_bytes - start;
    if (column + 2 > OPTION_COLUMN) {
        strbuf_putc(b, '\n');
        column = 0;
    }
    pad(b, OPTION_COLUMN - column);
    option_text(&text, o);
    add_wrapped(b, strbuf_cstr(&text), text.n_bytes, OPTION_COLUMN, OPTION_COLUMN);
    b->failed |= text.failed;
    strbuf_deinit(&text);
}

void help_command(strbuf *b, const command *c)
{
    strbuf_printf(b, "usage: kvasir %s [OPTIONS]%s%s\n\n", c->name, c->positional && *c->positional ? " " : "",
                  c->positional ? c->positional : "");
    add_wrapped(b, c->summary, strlen(c->summary), 0, 0);
    if (c->details) {
        strbuf_putc(b, '\n');
        each_part(b, c->details, text_part);
    }
    strbuf_puts(b, "\nOptions:\n");
    const option_spec *o;
    for (int i = 0; (o = command_option(c, i)); i++) add_option(b, o);
}

void help_overview(strbuf *b)
{
    strbuf_puts(b, "usage: kvasir COMMAND [OPTIONS] [ARGUMENTS]\n\n"
                   "Run language models (GGUF files) from a cache that is a database.\n\nCommands:\n");
    for (int i = 0; commands[i]; i++) {
        strbuf_printf(b, "  %-12s ", commands[i]->name);
        add_wrapped(b, commands[i]->summary, strlen(commands[i]->summary), 15, 15);
    }
    strbuf_puts(b, "\n'kvasir help COMMAND' explains a command; 'kvasir help --man' prints the whole manual page.\n");
}

/* Text for roff: backslashes, hyphens and quotes as such, no line that looks like a request. */
static void roff(strbuf *b, const char *s, size_t n)
{
    bool line_start = b->n_bytes == 0 || b->data[b->n_bytes - 1] == '\n';
    for (size_t i = 0; i < n; i++) {
        if (line_start && (s[i] == '.' || s[i] == '\'')) strbuf_puts(b, "\\&");
        switch (s[i]) {
        case '\\': strbuf_puts(b, "\\(rs"); break;
        case '-': strbuf_puts(b, "\\-"); break;
        case '\'': strbuf_puts(b, "\\(aq"); break;
        case '`': strbuf_puts(b, "\\(ga"); break;
        case '^': strbuf_puts(b, "\\(ha"); break;
        case '~': strbuf_puts(b, "\\(ti"); break;
        default: strbuf_putc(b, s[i]);
        }
        line_start = s[i] == '\n';
    }
}

static void roff_line(strbuf *b, const char *s)
{
    roff(b, s, strlen(s));
    strbuf_putc(b, '\n');
}

static void man_part(strbuf *b, part_kind kind, const char *s, size_t n, bool blank_before)
{
    if (blank_before) strbuf_puts(b, ".PP\n");
    if (kind == PART_LITERAL) strbuf_puts(b, ".nf\n");
    roff(b, s, n);
    if (s[n - 1] != '\n') strbuf_putc(b, '\n');
    if (kind == PART_LITERAL) strbuf_puts(b, ".fi\n");
}

static void man_option(strbuf *b, const option_spec *o)
{
    strbuf text;
    strbuf_init(&text, 0);
    if (o->letter) strbuf_printf(&text, "-%c, ", o->letter);
    option_usage(&text, o);
    strbuf_puts(b, ".TP\n.B ");
    roff_line(b, strbuf_cstr(&text));
    strbuf_clear(&text);
    option_text(&text, o);
    roff_line(b, strbuf_cstr(&text));
    b->failed |= text.failed;
    strbuf_deinit(&text);
}

static void man_command(strbuf *b, const command *c)
{
    strbuf_printf(b, ".SS \"kvasir %s\"\n.B kvasir %s\n[OPTIONS]", c->name, c->name);
    if (c->positional && *c->positional) {
        strbuf_putc(b, ' ');
        roff(b, c->positional, strlen(c->positional));
    }
    strbuf_puts(b, "\n.PP\n");
    roff_line(b, c->summary);
    if (c->details) {
        strbuf_puts(b, ".PP\n");
        each_part(b, c->details, man_part);
    }
    const option_spec *o;
    for (int i = 0; (o = command_option(c, i)); i++) man_option(b, o);
}

void help_man(strbuf *b)
{
    strbuf_puts(
        b,
        ".TH KVASIR 1 \"\" \"Kvasir " KVASIR_VERSION "\" \"User Commands\"\n"
        ".SH NAME\nkvasir \\- run language models from a cache that is a database\n"
        ".SH SYNOPSIS\n.B kvasir\n.I COMMAND\n[OPTIONS] [ARGUMENTS]\n"
        ".SH DESCRIPTION\nKvasir runs GGUF models. Models are named by a file\\(aqs path or by their name in the model "
        "directory, where\n.B kvasir pull\nputs them.\n"
        ".PP\nOptions may stand anywhere among the arguments; those after \\-\\- are taken as they are.\n"
        ".SH COMMANDS\n");
    for (int i = 0; commands[i]; i++) man_command(b, commands[i]);
    strbuf_puts(b, ".SH EXIT STATUS\n.TP\n.B 0\nSuccess.\n.TP\n.B 1\nFailure; standard error says why.\n"
                   ".TP\n.B 2\nThe command line made no sense.\n"
                   ".SH ENVIRONMENT\n.TP\n.B KVASIR_MODELS\nThe model directory.\n"
                   ".TP\n.B XDG_DATA_HOME, HOME\nWithout KVASIR_MODELS, models live in $XDG_DATA_HOME/kvasir/models or "
                   "~/.local/share/kvasir/models.\n"
                   ".TP\n.B XDG_STATE_HOME, HOME\nThe lines typed in chat are kept in $XDG_STATE_HOME/kvasir or "
                   "~/.local/state/kvasir.\n"
                   ".TP\n.B HF_TOKEN\nSent to the Hugging Face hub, and to no other host, when a model is pulled.\n"
                   ".TP\n.B HF_ENDPOINT\nAnother address of the hub, https://huggingface.co by default.\n"
                   ".SH FILES\n.TP\n.B ~/.local/share/kvasir/models/NAME.gguf\nA model.\n"
                   ".TP\n.B ~/.local/state/kvasir/chat-history\nLines typed in chat.\n");
}

static const option_spec options[] = {
    {.name = "man", .kind = OPTION_FLAG, .help = "print the manual page of all commands, in roff"},
    {.name = NULL},
};

static int run(const args *a, status *st)
{
    const char *first = args_positional(a, 0), *second = args_positional(a, 1);
    int n_words;
    const command *c = command_find(first, second, &n_words);
    if (first && !c) return command_unknown(first, st), 2;
    if (second && n_words == 1)
        return status_set(st, ST_ARG, STATUS_NO_POS, "'%s' is one argument too many", second), 2;
    strbuf b;
    strbuf_init(&b, 0);
    if (args_flag(a, "man")) help_man(&b);
    else if (c) help_command(&b, c);
    else help_overview(&b);
    int failed = strbuf_check(&b, st);
    if (!failed) fputs(strbuf_cstr(&b), stdout);
    strbuf_deinit(&b);
    return failed ? 1 : 0;
}

const command cmd_help = {
    .name = "help",
    .positional = "[COMMAND...]",
    .max_positional = 2,
    .summary = "Explain Kvasir, or one of its commands",
    .details = "Examples:\n\n  kvasir help pull\n  kvasir help bench serve\n  kvasir help --man | man -l -\n",
    .options = options,
    .run = run,
};
