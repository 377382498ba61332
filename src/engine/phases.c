#include "engine/phases.h"

#include "base/clock.h"

const char *phase_name(phase p)
{
    static const char *const names[PHASE_COUNT] = {
        [PHASE_OTHER] = "other", [PHASE_PRODUCTS] = "products", [PHASE_ATTENTION] = "attention",
        [PHASE_ELEMENTWISE] = "elementwise", [PHASE_HEAD] = "head", [PHASE_SAMPLING] = "sampling",
        [PHASE_WAITING] = "waiting"};
    return names[p];
}

void phases_start(phase_clock *c, threads *team)
{
    *c = (phase_clock){.team = team, .now = PHASE_OTHER, .since_ns = clock_ns()};
    threads_time_waits(team, &c->waited_ns);
}

void phases_switch(phase_clock *c, phase to)
{
    int64_t now_ns = clock_ns();
    c->ns[c->now] += now_ns - c->since_ns - c->waited_ns;
    c->ns[PHASE_WAITING] += c->waited_ns;
    c->waited_ns = 0;
    c->since_ns = now_ns;
    c->now = to;
}

void phases_stop(phase_clock *c)
{
    phases_switch(c, PHASE_OTHER);
    threads_time_waits(c->team, NULL);
    c->team = NULL;
}
