/* schedule.h - which rows the next step computes.
 *
 *      the list, by priority, then age    running: a row of its answer, or of its prompt what the step has left
 *                                         waiting: admitted while there are places, blocks and rows
 *
 * H1 Every running answer gets its row in every step; prompts share the rows that remain, in the list's order.
 * H2 Nobody passes a waiting session of its own priority that lacks a place or blocks. One that waits for a prefix that
 *    another, of no lower priority, is computing, or for its leader's logits, is passed: it lacks nothing.
 * H3 Admission looks at the one formula (I1): a session enters when its tokens so far fit, with a block over for each
 *    running one.
 * H4 Out of blocks, the last running session of the list makes room: it waits again, its full blocks stay in the tree
 *    while they can. The first one is never preempted, so it ends; then the next is first. Alone, a session fits:
 *    longer ones were refused. Pins end before anyone fails.
 * H5 A waiting session of higher priority preempts lower ones; equals never do.
 * Threads: the engine's step.
 */
#ifndef KVASIR_ENGINE_SCHEDULE_H
#define KVASIR_ENGINE_SCHEDULE_H

#include "engine/engine.h"

/* Releases pins that are over, then fills the engine's batch; sessions that can't go on fail. */
void schedule_step(engine *e, int64_t now_ns);
/* The session that enters next has a place in the batch, and waits for blocks alone. */
bool schedule_lacks_blocks(const engine *e);

#endif
