#include "cache/evict.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

/* All alike, so that the longest unused goes first. */
static double rank_lru(const evict_entry *e, double depth, double age)
{
    (void)e, (void)depth, (void)age;
    return 0;
}

static double rank_lfu(const evict_entry *e, double depth, double age)
{
    (void)depth, (void)age;
    return e->hits;
}

/* The time of its first use, when it was made. */
static double rank_fifo(const evict_entry *e, double depth, double age)
{
    (void)depth, (void)age;
    return e->rank > 0 ? e->rank : (double)e->used;
}

/* On probation until the first hit, protected from then on. */
static double rank_slru(const evict_entry *e, double depth, double age)
{
    (void)depth, (void)age;
    return e->hits > 0;
}

static double rank_priority(const evict_entry *e, double depth, double age)
{
    (void)depth, (void)age;
    return e->priority == EVICT_NO_PRIORITY ? 0 : e->priority;
}

/* Where attention over the tokens before costs as much as a token's matrix products: 4,000 tokens in a model of 135
 * million parameters, 30,000 in one of 8 billion. */
#define EVEN_DEPTH 8192.0

/* GreedyDual-Size-Frequency: blocks are of one size, so that seconds saved per byte are the seconds to compute a block,
 * times how often; age makes what was worth much long ago give way in the end. */
static double rank_cost(const evict_entry *e, double depth, double age)
{
    return age + (e->hits + 1.0) * (1 + depth / EVEN_DEPTH);
}

static const evict_policy policies[] = {
    {"lru", "the longest unused first", rank_lru},
    {"lfu", "the least often hit first", rank_lfu},
    {"fifo", "the oldest first", rank_fifo},
    {"slru", "what was never hit first, then the longest unused", rank_slru},
    {"priority", "the lowest priority of its requests first", rank_priority},
    {"cost", "the least time to compute it again, by hits and age, first", rank_cost},
};

const evict_policy *evict_policy_at(int i)
{
    return i >= 0 && i < (int)(sizeof policies / sizeof policies[0]) ? &policies[i] : NULL;
}

const evict_policy *evict_policy_get(const char *name)
{
    const evict_policy *p = NULL;
    for (int i = 0; (p = evict_policy_at(i)) != NULL && strcmp(p->name, name) != 0; i++) {}
    return p;
}

bool evict_before(const evict_entry *a, const evict_entry *b)
{
    return a->rank < b->rank || (a->rank == b->rank && a->used < b->used);
}

int evict_reserve(evict_order *o, uint64_t n, status *st)
{
    if (n <= o->capacity) return ST_OK;
    uint64_t capacity = n + o->capacity / 4;
    if (capacity >= EVICT_OUTSIDE)
        return status_set(st, ST_LIMIT, STATUS_NO_POS, "the tree can't have more than %u nodes", EVICT_OUTSIDE);
    evict_entry **heap = mem_resize(o->heap, capacity, sizeof *heap);
    if (!heap) return status_nomem(st, capacity * sizeof *heap);
    o->heap = heap;
    o->capacity = (uint32_t)capacity;
    return ST_OK;
}

void evict_free(evict_order *o)
{
    mem_free(o->heap);
}

void evict_use(evict_order *o, evict_entry *e, double depth, bool hit)
{
    assert(e->place == EVICT_OUTSIDE);
    e->used = ++o->clock;
    if (hit && e->hits < UINT32_MAX) e->hits++;
    e->rank = o->policy->rank(e, depth, o->age);
}

static void put(evict_order *o, uint32_t place, evict_entry *e)
{
    o->heap[place] = e;
    e->place = place;
}

static void rise(evict_order *o, uint32_t place, evict_entry *e)
{
    while (place > 0 && evict_before(e, o->heap[(place - 1) / 2])) {
        put(o, place, o->heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    put(o, place, e);
}

static void sink(evict_order *o, uint32_t place, evict_entry *e)
{
    for (uint32_t child; (child = 2 * place + 1) < o->n; place = child) {
        if (child + 1 < o->n && evict_before(o->heap[child + 1], o->heap[child])) child++;
        if (!evict_before(o->heap[child], e)) break;
        put(o, place, o->heap[child]);
    }
    put(o, place, e);
}

void evict_enter(evict_order *o, evict_entry *e)
{
    assert(e->place == EVICT_OUTSIDE && o->n < o->capacity);
    rise(o, o->n++, e);
}

void evict_leave(evict_order *o, evict_entry *e)
{
    uint32_t place = e->place;
    assert(place < o->n && o->heap[place] == e);
    e->place = EVICT_OUTSIDE;
    evict_entry *last = o->heap[--o->n];
    if (last == e) return;
    if (place > 0 && evict_before(last, o->heap[(place - 1) / 2])) rise(o, place, last);
    else sink(o, place, last);
}

evict_entry *evict_choose(evict_order *o)
{
    if (o->n == 0) return NULL;
    if (o->heap[0]->rank > o->age) o->age = o->heap[0]->rank;
    return o->heap[0];
}
