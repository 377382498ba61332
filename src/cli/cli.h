/* cli.h - the shape of a command: one table feeds parsing, --help, completion and the man page.
 *
 * Every command is a `command` with its options; commands.c lists them. A command writes its answer to stdout and everything else to
 * stderr, and returns 0, 1 (it failed; the message is printed by main from the status) or 2 (usage).
 */
#ifndef KVASIR_CLI_CLI_H
#define KVASIR_CLI_CLI_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum option_kind {
    OPTION_FLAG,
    OPTION_INT,    /* min..max */
    OPTION_FLOAT,  /* min..max */
    OPTION_STRING,
    OPTION_FILE,   /* a string that completes to file names */
    OPTION_BYTES,  /* 4096, 512M, 2G, 1.5GiB (powers of 1024 for K M G T with or without iB; GB = 10^9) */
    OPTION_CHOICE  /* one of `choices`, separated by | */
} option_kind;

typedef struct option_spec {
    const char *name;     /* "threads" for --threads */
    char letter;          /* 't' for -t, or 0 */
    option_kind kind;
    const char *arg;      /* "N" in the help; NULL for flags */
    const char *fallback; /* the default, as text; NULL = unset */
    double min, max;      /* INT and FLOAT */
    const char *choices;
    bool repeats;         /* may be given several times: all values are kept */
    const char *help;     /* one line */
} option_spec;

typedef struct args args; /* a parsed command line */

bool args_given(const args *a, const char *name);           /* by the user */
bool args_flag(const args *a, const char *name);
int64_t args_int(const args *a, const char *name);          /* parsed and in range; asserts that the option exists */
double args_float(const args *a, const char *name);
uint64_t args_bytes(const args *a, const char *name);       /* 0 when unset */
const char *args_string(const args *a, const char *name);   /* NULL when unset */
int args_count(const args *a, const char *name);            /* of a repeating option */
const char *args_string_at(const args *a, const char *name, int i);
int args_n_positional(const args *a);
const char *args_positional(const args *a, int i);          /* NULL past the last */

typedef struct command {
    const char *name;      /* "tokenize" */
    const char *positional; /* "MODEL [TEXT]" */
    int min_positional, max_positional; /* max -1 = any number */
    const char *summary;   /* one line for `kvasir help` */
    const char *details;   /* paragraphs for --help and the man page; may hold examples */
    const option_spec *options; /* ends with a NULL name; every command has --help, and gets it without listing it */
    int (*run)(const args *a, status *st);
} command;

extern const command *const commands[]; /* ends with NULL */

/* A path stays a path; otherwise a catalogue or model-directory name. On success out (mem_free) is a file's path.
 * ST_NOT_FOUND says which `kvasir pull` brings it. */
int model_path(char **out, const char *name, status *st);

/* Progress on stderr: a bar with rate and time left on a terminal, nothing elsewhere. */
typedef struct progress {
    const char *what;
    uint64_t total;   /* 0 = unknown */
    const char *unit; /* "B" scales to KiB, MiB...; else printed as it is */
    int64_t start_ns, last_ns;
    bool tty, shown;
} progress;
void progress_begin(progress *p, const char *what, uint64_t total, const char *unit);
void progress_update(progress *p, uint64_t done);
void progress_end(progress *p); /* takes the bar away */

#endif
