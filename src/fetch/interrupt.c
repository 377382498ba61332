#include "fetch/interrupt.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t pending;

static const int caught[] = {SIGINT, SIGTERM, SIGHUP};

static void on_signal(int number)
{
    pending = number;
}

void interrupt_catch(void)
{
    struct sigaction action = {.sa_handler = on_signal}, old; /* no SA_RESTART: a blocking call returns */
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof caught / sizeof caught[0]; i++)
        if (sigaction(caught[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN) sigaction(caught[i], &action, NULL);
}

bool interrupt_pending(void)
{
    return pending != 0;
}

int interrupt_status(status *st)
{
    return status_set(st, ST_CANCELLED, STATUS_NO_POS, "interrupted");
}

void interrupt_die(void)
{
    if (!pending) return;
    signal(pending, SIG_DFL);
    raise(pending);
}
