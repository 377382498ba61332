/* cli.h - the shape of a command: one table feeds parsing, --help, completion and the man page.
 *
 *      commands.c --+--> options.c     argv -> args (kinds and ranges checked once, here)
 *                   +--> help.c        kvasir help, --help, the man page
 *                   +--> completion.c  bash, zsh, fish
 *                   +--> main.c        find, parse, run, report
 *
 * CL1 A command writes its answer to stdout and everything else to stderr.
 * CL2 It returns 0, 1 (it failed) or 2 (the command line made no sense); main prints the status's text for 1 and 2.
 *    A status_code is not an exit status: write `return 1`, not `return st->code`.
 * CL3 An option or command that is not in the table does not exist; what is in the table is documented and completed.
 * CL4 The environment is read in this folder and in src/fetch, nowhere else.
 * Threads: the main thread.
 */
#ifndef KVASIR_CLI_CLI_H
#define KVASIR_CLI_CLI_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum option_kind {
    OPTION_FLAG,  /* with the fallback "on" it also has a --no-NAME */
    OPTION_INT,   /* min..max; any when min >= max */
    OPTION_FLOAT, /* the same; finite */
    OPTION_STRING,
    OPTION_FILE,  /* a string that completes to file names */
    OPTION_BYTES, /* 4096, 512M, 2G, 1.5GiB (powers of 1024 for K M G T with or without iB); 2GB (powers of 1000) */
    OPTION_CHOICE /* one of `choices`, separated by | */
} option_kind;

typedef struct option_spec {
    const char *name; /* "threads" for --threads */
    char letter;      /* 't' for -t, or 0 */
    option_kind kind;
    const char *arg;      /* "N" in the help; NULL for flags; "MODEL" completes to model names and files */
    const char *fallback; /* the default, as text; NULL = unset */
    double min, max;      /* INT and FLOAT */
    const char *choices;
    bool repeats;     /* may be given several times: all values are kept */
    const char *needs;    /* NAME or NAME=VALUE, several separated by |: without one of them this is of no effect */
    const char *excludes; /* options that say something else, separated by | */
    const char *help; /* one line */
} option_spec;

typedef struct args args; /* a parsed command line */

/* All assert that the command has such an option, of that kind. Given twice, the last one counts. */
bool args_given(const args *a, const char *name); /* by the user */
bool args_flag(const args *a, const char *name);
int64_t args_int(const args *a, const char *name);        /* in range; 0 when unset */
double args_float(const args *a, const char *name);       /* in range; 0 when unset */
uint64_t args_bytes(const args *a, const char *name);     /* 0 when unset */
const char *args_string(const args *a, const char *name); /* NULL when unset */
int args_count(const args *a, const char *name);          /* of a repeating option */
const char *args_string_at(const args *a, const char *name, int i);
int args_n_positional(const args *a);
const char *args_positional(const args *a, int i); /* NULL past the last */

typedef struct command {
    const char *name; /* "tokenize"; or two words, "bench serve", also beside a command of the first word alone */
    const char
        *positional; /* "MODEL [TEXT]"; MODEL, FILE and words in lower case (bash|zsh) complete to what they name */
    int min_positional, max_positional; /* max -1 = any number */
    const char *summary;                /* one line for `kvasir help` */
    const char
        *details; /* paragraphs, one blank line apart; lines that start with a space are shown as they are (examples) */
    const option_spec *options; /* ends with a NULL name; every command has --help, and gets it without listing it */
    int (*run)(const args *a, status *st);
} command;

extern const command *const commands[]; /* ends with NULL */

#endif
