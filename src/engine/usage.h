/* usage.h - what the memory of an engine's cache is doing, in bytes over all groups of layers.
 *
 *      |<------------- taken ------------->|<----------------- nobody's ------------------>|
 *      | used | internal |    reserved     |  external   |   free   |  cached              |
 *        rows   unused     set aside for     too few for   for       kept by the tree,
 *        that   rows of    running sessions  the one that  anybody   for anybody
 *        are    their      that may come to  waits first
 *        seen   blocks     need it
 *
 * US1 The six add up to total_bytes, where no block is in flight.
 * Threads: between steps.
 */
#ifndef KVASIR_ENGINE_USAGE_H
#define KVASIR_ENGINE_USAGE_H

#include "engine/engine.h"

typedef struct engine_usage {
    uint64_t total_bytes;
    uint64_t used_bytes;
    uint64_t internal_bytes; /* tails, drafts, rows behind a window */
    uint64_t reserved_bytes; /* engine_config.reserve */
    uint64_t external_bytes; /* free, while a session with a place in the batch waits for blocks */
    uint64_t free_bytes, cached_bytes;
} engine_usage;

engine_usage engine_get_usage(const engine *e);

#endif
