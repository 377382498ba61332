/* evict.h - which unreferenced leaf of the radix tree goes first.
 *
 * To be designed by the author of tree.c: one interface of four functions; lru, lfu, fifo, slru, priority, cost.
 */
#ifndef KVASIR_CACHE_EVICT_H
#define KVASIR_CACHE_EVICT_H

typedef struct evict_policy evict_policy;
/* "lru", "lfu", "fifo", "slru", "priority", "cost"; NULL for an unknown name. */
const evict_policy *evict_policy_get(const char *name);
const evict_policy *evict_policy_at(int i); /* NULL past the last: for listings */

#endif
