/* options.h - from argv to args.
 *
 *      kvasir run MODEL -t2 --json --kv=f16 -- -text
 *                 |     |   |      |           positional: everything after --
 *                 |     |   |      --name=value or --name value
 *                 |     |   flag
 *                 |     letter with its value, attached or apart
 *                 positional, anywhere among the options
 *
 * O1 Values are checked here for kind and range, and the table's defaults asserted: the args_* getters cannot fail.
 * O2 args borrow argv and the command; both outlive them.
 */
#ifndef KVASIR_CLI_OPTIONS_H
#define KVASIR_CLI_OPTIONS_H

#include <stddef.h>

#include "cli/cli.h"

/* argv starts after the command's name. ST_ARG says what is wrong with which option. Free with args_free (NULL is
 * fine). With --help among the options, missing positionals are no error. */
int args_parse(args **out, const command *c, int argc, char *const *argv, status *st);
void args_free(args *a);

/* The i-th option of a command: those of its table, then --help; NULL past the last. */
const option_spec *command_option(const command *c, int i);
/* The command that the words name (NULL where there are no more), by both of them if there is one, else by the first.
 * *n_words: how many words that took. NULL when there is none. */
const command *command_find(const char *first, const char *second, int *n_words);
/* ST_ARG: there is no such command; names the nearest. */
int command_unknown(const char *word, status *st);
/* A flag that --no-NAME turns off. */
bool option_on_by_default(const option_spec *o);

/* Checks a value's text: ST_ARG names the option and what it takes. */
int option_check(const option_spec *o, const char *text, status *st);

#endif
