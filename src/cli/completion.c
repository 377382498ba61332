#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "fetch/model_dir.h"

/* What the word after an option, or a command's arguments, may be. */
typedef struct completes {
    bool models, files, commands, catalogue;
    char words[256]; /* with a blank between two */
} completes;

static void add_word(completes *c, const char *s, size_t n)
{
    size_t used = strlen(c->words);
    if (used + n + 2 < sizeof c->words)
        snprintf(c->words + used, sizeof c->words - used, "%s%.*s", used ? " " : "", (int)n, s);
}

static void add_kind(completes *c, const char *s, size_t n)
{
    static const struct {
        const char *word;
        bool models, files, commands, catalogue;
    } kinds[] = {
        {"MODEL", true, true, false, false},   {"NAME", true, false, false, false},
        {"FILE", false, true, false, false},   {"COMMAND", false, false, true, false},
        {"SOURCE", false, false, false, true},
    };
    if (islower((unsigned char)*s)) add_word(c, s, n);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strlen(kinds[i].word) != n || memcmp(kinds[i].word, s, n) != 0) continue;
        c->models |= kinds[i].models;
        c->files |= kinds[i].files;
        c->commands |= kinds[i].commands;
        c->catalogue |= kinds[i].catalogue;
    }
}

/* "MODEL [FILE]", "bash|zsh": the union of what its words name. */
static completes of_positional(const command *cmd)
{
    completes c = {.models = false};
    for (const char *s = cmd->positional ? cmd->positional : ""; *s;) {
        size_t n = strcspn(s, " |[].");
        if (n > 0) add_kind(&c, s, n);
        s += n + (s[n] != 0);
    }
    return c;
}

static completes of_option(const option_spec *o)
{
    completes c = {.files = o->kind == OPTION_FILE};
    if (o->kind == OPTION_CHOICE)
        for (const char *s = o->choices; *s; s += *s == '|') {
            size_t n = strcspn(s, "|");
            add_word(&c, s, n);
            s += n;
        }
    else if (o->arg && strcmp(o->arg, "MODEL") == 0) c.models = c.files = true;
    return c;
}

/* The length of the first word of the i-th command's name; its second word, NULL where there is none. */
static int first_length(int i)
{
    return (int)strcspn(commands[i]->name, " ");
}

static const char *second_word(int i)
{
    const char *blank = strchr(commands[i]->name, ' ');
    return blank ? blank + 1 : NULL;
}

/* Whether the i-th command is the first of those that begin with its first word. */
static bool opens_word(int i)
{
    for (int k = 0; k < i; k++)
        if (first_length(k) == first_length(i) &&
            strncmp(commands[k]->name, commands[i]->name, (size_t)first_length(i)) == 0)
            return false;
    return true;
}

/* The words that are known now: choices, commands, catalogue names. */
static void put_words(strbuf *b, const completes *c)
{
    const char *blank = *c->words ? " " : "";
    strbuf_puts(b, c->words);
    for (int i = 0; c->commands && commands[i]; i++) {
        if (!opens_word(i)) continue;
        strbuf_printf(b, "%s%.*s", blank, first_length(i), commands[i]->name);
        blank = " ";
    }
    for (const catalogue_entry *e = catalogue; c->catalogue && e->name; e++, blank = " ")
        strbuf_printf(b, "%s%s", blank, e->name);
}

static bool has_words(const completes *c)
{
    return *c->words || c->commands || c->catalogue;
}

/* Names of models come from `kvasir ls --names` when a word is completed, and are compared, never evaluated. */
static const char bash_head[] =
    "# bash completion for kvasir\n"
    "_kvasir_offer() { # the lines of stdin that begin with the word\n"
    "    local line\n"
    "    while IFS= read -r line; do\n"
    "        [[ $line == \"$cur\"* ]] && COMPREPLY+=(\"$line\")\n"
    "    done\n"
    "}\n"
    "_kvasir_words() { _kvasir_offer < <(printf '%s\\n' \"$@\"); }\n"
    "_kvasir_models() { compopt -o filenames 2>/dev/null; _kvasir_offer < <(command kvasir ls --names 2>/dev/null); }\n"
    "_kvasir_files() { compopt -o filenames 2>/dev/null; _kvasir_offer < <(compgen -f -- \"$cur\"); }\n"
    "_kvasir() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} cmd=${COMP_WORDS[1]}\n"
    "    COMPREPLY=()\n"
    "    if [[ $cur == = ]]; then cur=; # --name=value comes as three words\n"
    "    elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n";

static void bash_action(strbuf *b, const completes *c)
{
    if (has_words(c)) {
        strbuf_puts(b, " _kvasir_words ");
        put_words(b, c);
        strbuf_putc(b, ';');
    }
    if (c->models) strbuf_puts(b, " _kvasir_models;");
    if (c->files) strbuf_puts(b, " _kvasir_files;");
}

static void bash_values(strbuf *b, const command *cmd)
{
    const option_spec *o;
    for (int i = 0; (o = command_option(cmd, i)); i++) {
        if (o->kind == OPTION_FLAG) continue;
        strbuf_printf(b, "    '%s:--%s'", cmd->name, o->name);
        if (o->letter) strbuf_printf(b, "|'%s:-%c'", cmd->name, o->letter);
        strbuf_puts(b, ")");
        completes c = of_option(o);
        bash_action(b, &c);
        strbuf_puts(b, " return ;;\n");
    }
}

static void put_option_names(strbuf *b, const command *cmd)
{
    const option_spec *o;
    for (int i = 0; (o = command_option(cmd, i)); i++) {
        strbuf_printf(b, " --%s", o->name);
        if (option_on_by_default(o)) strbuf_printf(b, " --no-%s", o->name);
        if (o->letter) strbuf_printf(b, " -%c", o->letter);
    }
}

/* Names of two words: the second one is offered after the first, here or after help; from the third word on they are
 * the command. */
static void bash_second_words(strbuf *b)
{
    strbuf_puts(b, "    if (( COMP_CWORD == 2 )) || [[ $cmd == help && COMP_CWORD -eq 3 ]]; then case $prev in\n");
    for (int i = 0; commands[i]; i++)
        if (second_word(i))
            strbuf_printf(b, "    %.*s) _kvasir_words %s ;;\n", first_length(i), commands[i]->name, second_word(i));
    strbuf_puts(b, "    esac; fi\n    if [[ $cmd == help ]] && (( COMP_CWORD > 2 )); then return; fi\n"
                   "    if (( COMP_CWORD > 2 )); then case \"$cmd ${COMP_WORDS[2]}\" in\n");
    for (int i = 0; commands[i]; i++)
        if (second_word(i)) strbuf_printf(b, "    '%s') cmd='%s' ;;\n", commands[i]->name, commands[i]->name);
    strbuf_puts(b, "    esac; fi\n");
}

static void bash_script(strbuf *b)
{
    completes all = {.commands = true};
    strbuf_puts(b, bash_head);
    strbuf_puts(b, "    if (( COMP_CWORD == 1 )); then _kvasir_words ");
    put_words(b, &all);
    strbuf_puts(b, " --help --version; return; fi\n");
    bash_second_words(b);
    strbuf_puts(b, "    case \"$cmd:$prev\" in\n");
    for (int i = 0; commands[i]; i++) bash_values(b, commands[i]);
    strbuf_puts(b, "    esac\n    case \"$cmd:$cur\" in\n");
    for (int i = 0; commands[i]; i++) {
        strbuf_printf(b, "    '%s:-'*) _kvasir_words", commands[i]->name);
        put_option_names(b, commands[i]);
        completes c = of_positional(commands[i]);
        strbuf_printf(b, " ;;\n    '%s:'*)", commands[i]->name);
        bash_action(b, &c);
        strbuf_puts(b, " : ;;\n");
    }
    strbuf_puts(b, "    esac\n}\ncomplete -F _kvasir kvasir\n");
}

/* s inside single quotes, with the characters that _arguments reads escaped. */
static void zsh_text(strbuf *b, const char *s)
{
    for (; *s; s++) {
        if (*s == '\'') strbuf_puts(b, "'\\''");
        else if (strchr("[]:\\", *s)) strbuf_printf(b, "\\%c", *s);
        else strbuf_putc(b, *s);
    }
}

static void zsh_action(strbuf *b, const completes *c)
{
    if (has_words(c)) {
        strbuf_puts(b, "(");
        put_words(b, c);
        strbuf_puts(b, ")");
    } else if (c->models && c->files) strbuf_puts(b, "_kvasir_models_and_files");
    else if (c->models) strbuf_puts(b, "_kvasir_models");
    else if (c->files) strbuf_puts(b, "_files");
    else strbuf_puts(b, " ");
}

static void zsh_option(strbuf *b, const option_spec *o)
{
    const char *mark = o->kind == OPTION_FLAG ? "" : "=", *again = o->repeats ? "*" : "";
    strbuf_printf(b, " \\\n            '%s--%s%s[", again, o->name, mark);
    zsh_text(b, o->help);
    strbuf_puts(b, "]");
    completes c = of_option(o);
    strbuf tail;
    strbuf_init(&tail, 0);
    if (o->kind != OPTION_FLAG) {
        strbuf_puts(&tail, ":");
        zsh_text(&tail, o->arg ? o->arg : o->name);
        strbuf_puts(&tail, ":");
        zsh_action(&tail, &c);
    }
    strbuf_printf(b, "%s'", strbuf_cstr(&tail));
    if (option_on_by_default(o)) {
        strbuf_printf(b, " \\\n            '--no-%s[without: ", o->name);
        zsh_text(b, o->help);
        strbuf_puts(b, "]'");
    }
    if (o->letter) {
        strbuf_printf(b, " \\\n            '%s-%c%s[", again, o->letter, o->kind == OPTION_FLAG ? "" : "+");
        zsh_text(b, o->help);
        strbuf_printf(b, "]%s'", strbuf_cstr(&tail));
    }
    b->failed |= tail.failed;
    strbuf_deinit(&tail);
}

/* As bash_second_words. */
static void zsh_second_words(strbuf *b)
{
    strbuf_puts(b, "    if (( CURRENT == 3 )); then case $words[2] in\n");
    for (int i = 0; commands[i]; i++)
        if (second_word(i))
            strbuf_printf(b, "    %.*s) compadd %s ;;\n", first_length(i), commands[i]->name, second_word(i));
    strbuf_puts(b, "    esac; fi\n    cmd=$words[2]\n    if (( CURRENT > 3 )); then case \"$cmd $words[3]\" in\n");
    for (int i = 0; commands[i]; i++)
        if (second_word(i))
            strbuf_printf(b, "    '%s') cmd='%s'; shift words; (( CURRENT-- )) ;;\n", commands[i]->name,
                          commands[i]->name);
    strbuf_puts(b, "    esac; fi\n");
}

static void zsh_script(strbuf *b)
{
    strbuf_puts(b,
                "#compdef kvasir\n"
                "_kvasir_models() { local -a names; names=(${(f)\"$(command kvasir ls --names 2>/dev/null)\"}); "
                "compadd -a names }\n"
                "_kvasir_models_and_files() { _alternative 'models:model:_kvasir_models' 'files:file:_files' }\n"
                "_kvasir() {\n    local cmd\n    if (( CURRENT == 2 )); then\n        local -a all\n        all=(\n");
    for (int i = 0; commands[i]; i++) {
        if (!opens_word(i)) continue;
        strbuf_printf(b, "            '%.*s:", first_length(i), commands[i]->name);
        zsh_text(b, commands[i]->summary);
        strbuf_puts(b, "'\n");
    }
    strbuf_puts(b, "        )\n        _describe command all\n        return\n    fi\n");
    zsh_second_words(b);
    strbuf_puts(b, "    shift words\n    (( CURRENT-- ))\n    case $cmd in\n");
    for (int i = 0; commands[i]; i++) {
        strbuf_printf(b, "    '%s')\n        _arguments", commands[i]->name);
        const option_spec *o;
        for (int k = 0; (o = command_option(commands[i], k)); k++) zsh_option(b, o);
        if (commands[i]->max_positional != 0) {
            completes c = of_positional(commands[i]);
            strbuf_puts(b, " \\\n            '*:argument:");
            zsh_action(b, &c);
            strbuf_puts(b, "'");
        }
        strbuf_puts(b, " ;;\n");
    }
    strbuf_puts(
        b, "    esac\n}\nif [[ $funcstack[1] == _kvasir ]]; then _kvasir \"$@\"; else compdef _kvasir kvasir; fi\n");
}

static void fish_text(strbuf *b, const char *s)
{
    strbuf_putc(b, '\'');
    for (; *s; s++) {
        if (*s == '\'' || *s == '\\') strbuf_putc(b, '\\');
        strbuf_putc(b, *s);
    }
    strbuf_putc(b, '\'');
}

static void fish_action(strbuf *b, const completes *c)
{
    if (has_words(c)) {
        strbuf_puts(b, " -a '");
        put_words(b, c);
        strbuf_puts(b, "'");
    }
    if (c->models) strbuf_puts(b, " -a '(command kvasir ls --names 2>/dev/null)'");
    if (c->files) strbuf_puts(b, " -F");
}

static void fish_option(strbuf *b, const command *cmd, const option_spec *o)
{
    strbuf_printf(b, "complete -c kvasir -n '__kvasir_is %s' -l %s", cmd->name, o->name);
    if (o->letter) strbuf_printf(b, " -s %c", o->letter);
    if (o->kind != OPTION_FLAG) {
        completes c = of_option(o);
        strbuf_puts(b, c.files ? " -r" : " -x");
        fish_action(b, &c);
    }
    strbuf_puts(b, " -d ");
    fish_text(b, o->help);
    strbuf_putc(b, '\n');
    if (!option_on_by_default(o)) return;
    strbuf_printf(b, "complete -c kvasir -n '__kvasir_is %s' -l no-%s -d 'the contrary of --%s'\n",
                  cmd->name, o->name, o->name);
}

/* Which command the words before the cursor name. */
static void fish_head(strbuf *b)
{
    strbuf_puts(b, "# fish completion for kvasir\n"
                   "function __kvasir_is\n"
                   "    set -l words (commandline -opc)\n"
                   "    set -l cmd \"$words[2]\"\n"
                   "    switch \"$words[2] $words[3]\"\n");
    for (int i = 0; commands[i]; i++)
        if (second_word(i))
            strbuf_printf(b, "        case '%s'\n            set cmd '%s'\n", commands[i]->name, commands[i]->name);
    strbuf_puts(b, "    end\n    test \"$cmd\" = \"$argv\"\nend\ncomplete -c kvasir -f\n");
}

static void fish_name(strbuf *b, int i)
{
    if (opens_word(i)) {
        strbuf_printf(b, "complete -c kvasir -n __fish_use_subcommand -a %.*s -d ", first_length(i), commands[i]->name);
        fish_text(b, commands[i]->summary);
        strbuf_putc(b, '\n');
    }
    if (!second_word(i)) return;
    strbuf_printf(b, "complete -c kvasir -n '__kvasir_is %.*s' -a %s -d ", first_length(i),
                  commands[i]->name, second_word(i));
    fish_text(b, commands[i]->summary);
    strbuf_putc(b, '\n');
}

static void fish_script(strbuf *b)
{
    fish_head(b);
    for (int i = 0; commands[i]; i++) {
        fish_name(b, i);
        const option_spec *o;
        for (int k = 0; (o = command_option(commands[i], k)); k++) fish_option(b, commands[i], o);
        completes c = of_positional(commands[i]);
        if (!has_words(&c) && !c.models && !c.files) continue;
        strbuf_printf(b, "complete -c kvasir -n '__kvasir_is %s'", commands[i]->name);
        fish_action(b, &c);
        strbuf_putc(b, '\n');
    }
}

static int run(const args *a, status *st)
{
    static const struct {
        const char *shell;
        void (*script)(strbuf *b);
    } shells[] = {
        {"bash", bash_script},
        {"zsh", zsh_script},
        {"fish", fish_script},
    };
    const char *shell = args_positional(a, 0);
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++) {
        if (strcmp(shells[i].shell, shell) != 0) continue;
        strbuf b;
        strbuf_init(&b, 0);
        shells[i].script(&b);
        int failed = strbuf_check(&b, st);
        if (!failed) fputs(strbuf_cstr(&b), stdout);
        strbuf_deinit(&b);
        return failed ? 1 : 0;
    }
    status_set(st, ST_ARG, STATUS_NO_POS, "there is no completion for '%s': bash, zsh and fish have one", shell);
    return 2;
}

const command cmd_completion = {
    .name = "completion",
    .positional = "bash|zsh|fish",
    .min_positional = 1,
    .max_positional = 1,
    .summary = "Print a shell's completion script",
    .details = "Examples:\n\n  source <(kvasir completion bash)\n  kvasir completion fish > "
               "~/.config/fish/completions/kvasir.fish\n",
    .run = run,
};
