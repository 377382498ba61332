/* evict.h - which unlocked leaf of the radix tree goes first: six policies, each a ranking, behind one order.
 *
 * Owns: a heap of pointers to entries, the clock, the age. Borrows: the entries, which lie in the tree's nodes.
 *
 *                     evict_use: a new rank                       the lowest rank is on top,
 *      entry  ------------------------------------>  entry        of equal ones the longest unused
 *        | evict_enter          ^ evict_leave                                  |
 *        v                      |                                              v
 *      [ heap of what may be evicted: unlocked nodes without children ]   evict_choose
 *
 * EV1 An entry is used only outside the heap, so that ranks in it never change.
 * EV2 No two uses have the same time, so that the order is total, and the same in every run.
 * EV3 use and choose: O(1); enter and leave: O(log n). Only evict_reserve allocates; enter asserts that there is room.
 */
#ifndef KVASIR_CACHE_EVICT_H
#define KVASIR_CACHE_EVICT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct evict_entry {
    double rank;
    uint64_t used;    /* the clock at its last use */
    uint32_t hits;    /* uses by others than its maker */
    int32_t priority; /* EVICT_NO_PRIORITY counts as 0 */
    uint32_t place;   /* in the heap; EVICT_OUTSIDE */
} evict_entry;

#define EVICT_OUTSIDE UINT32_MAX
#define EVICT_NO_PRIORITY INT32_MIN
#define EVICT_ENTRY_INIT {0, 0, 0, EVICT_NO_PRIORITY, EVICT_OUTSIDE}

typedef struct evict_policy {
    const char *name;
    const char *help; /* half a line */
    /* depth: tokens up to the end of the entry's run. age: the highest rank that was ever chosen. */
    double (*rank)(const evict_entry *e, double depth, double age);
} evict_policy;

/* NULL for an unknown name. */
const evict_policy *evict_policy_get(const char *name);
#define EVICT_NAMES "lru|lfu|fifo|slru|priority|cost" /* the choices of an option */
const evict_policy *evict_policy_at(int i); /* NULL past the last: for listings; the first is the default, lru */

typedef struct evict_order {
    const evict_policy *policy;
    evict_entry **heap; /* [n] of [capacity] */
    uint32_t n, capacity;
    uint64_t clock;
    double age;
} evict_order;

int evict_reserve(evict_order *o, uint64_t n, status *st); /* room for n entries; zeroed but for the policy at first */
void evict_free(evict_order *o);

void evict_use(evict_order *o, evict_entry *e, double depth, bool hit);
void evict_enter(evict_order *o, evict_entry *e);
void evict_leave(evict_order *o, evict_entry *e);
/* The entry to be evicted from; it stays in the heap. NULL when it is empty. */
evict_entry *evict_choose(evict_order *o);

bool evict_before(const evict_entry *a, const evict_entry *b); /* for the audit */

#endif
