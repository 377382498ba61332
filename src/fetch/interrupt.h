/* interrupt.h - SIGINT, SIGTERM and SIGHUP as a question, for work that must leave its files in order before it dies.
 *
 *      interrupt_catch --> work asks interrupt_pending --> tidy up --> interrupt_die
 *
 * A signal that was ignored at the start (nohup) stays ignored. Threads: the main thread.
 */
#ifndef KVASIR_FETCH_INTERRUPT_H
#define KVASIR_FETCH_INTERRUPT_H

#include <stdbool.h>

#include "base/status.h"

void interrupt_catch(void);
bool interrupt_pending(void);
int interrupt_status(status *st); /* ST_CANCELLED */
/* Dies of the signal that came, as if it had not been caught; returns when none came. */
void interrupt_die(void);

#endif
