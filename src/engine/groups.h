/* groups.h - which layers of a model share a block table.
 *
 *      Gemma-3, 18 layers:  group 0 = windowed layers 0-4, 6-10, 12-16;  group 1 = global layers 5, 11, 17
 *      most others:         group 0 = all layers
 *
 * Owns: the layer lists. Threads: constant after kv_groups_init.
 */
#ifndef KVASIR_ENGINE_GROUPS_H
#define KVASIR_ENGINE_GROUPS_H

#include "cache/layout.h"
#include "model/arch.h"

typedef struct kv_groups {
    kv_group group[KV_MAX_GROUPS];
    int n;
    int layers[KV_MAX_GROUPS][ARCH_MAX_LAYERS];
    int group_of[ARCH_MAX_LAYERS]; /* by layer of the model */
    int index_of[ARCH_MAX_LAYERS]; /* the layer's number in its group */
} kv_groups;

/* g stays where it is (the groups point into it). */
void kv_groups_init(kv_groups *g, const arch_params *p);

#endif
