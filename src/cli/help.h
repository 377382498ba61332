/* help.h - the texts that the command table gives: overview, a command's help, the man page. */
#ifndef KVASIR_CLI_HELP_H
#define KVASIR_CLI_HELP_H

#include "base/strbuf.h"
#include "cli/cli.h"

void help_overview(strbuf *b);
void help_command(strbuf *b, const command *c);
void help_man(strbuf *b); /* roff, man macros */

#endif
