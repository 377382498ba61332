/* phases.h - where the time of steps goes: one clock that is always charging one phase.
 *
 *      phases_start ---- phase_enter(ATTENTION) ---- phase_enter(PRODUCTS) ---- ... ---- phases_stop
 *      [     other     ][        attention         ][       products       ]
 *                          minus what the caller waited for other workers in it, which is charged to waiting
 *
 * PH1 Between start and stop the phases' times add up to the time that went by.
 * PH2 A clock that is off costs a test of a pointer where a phase begins; it is read nowhere.
 * Threads: the caller of the step; it measures that thread's time.
 */
#ifndef KVASIR_ENGINE_PHASES_H
#define KVASIR_ENGINE_PHASES_H

#include <stdint.h>

#include "base/threads.h"

typedef enum phase {
    PHASE_OTHER,       /* plans, embedding, bookkeeping */
    PHASE_PRODUCTS,    /* of the layers, with what is done to their rows on the way: norms, quantization, activations */
    PHASE_ATTENTION,
    PHASE_ELEMENTWISE, /* RoPE, norms of heads, K and V into blocks, the last addition */
    PHASE_HEAD,        /* the last norm and the output product */
    PHASE_SAMPLING,    /* whatever takes the logits */
    PHASE_WAITING,     /* for other workers, at the end of a parallel region */
    PHASE_COUNT
} phase;

/* All zero: off. */
typedef struct phase_clock {
    threads *team; /* NULL = off */
    phase now;
    int64_t since_ns;  /* when `now` began */
    int64_t waited_ns; /* in `now`: the team adds to it */
    int64_t ns[PHASE_COUNT];
} phase_clock;

const char *phase_name(phase p);
void phases_start(phase_clock *c, threads *team); /* from zero, in PHASE_OTHER */
void phases_stop(phase_clock *c);                 /* the times stay */
void phases_switch(phase_clock *c, phase to);     /* of a clock that is on */

static inline void phase_enter(phase_clock *c, phase to)
{
    if (c->team) phases_switch(c, to);
}

#endif
