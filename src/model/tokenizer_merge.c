/* The merge loop: a heap of neighbouring pairs. A merge pops one pair and pushes at most two, so n symbols cost O(n log
 * n). */
#include <assert.h>

#include "base/mem.h"
#include "model/tokenizer_internal.h"

int merger_reserve(merger *m, size_t n, status *st)
{
    m->n_symbols = m->n_heap = 0;
    if (n <= m->symbol_capacity) return ST_OK;
    size_t capacity = n < 64 ? 64 : n;
    symbol *p = mem_resize(m->symbols, capacity, sizeof *p);
    if (!p) return status_nomem(st, capacity * sizeof *p);
    m->symbols = p;
    m->symbol_capacity = capacity;
    return ST_OK;
}

void merger_deinit(merger *m)
{
    mem_free(m->symbols);
    mem_free(m->heap);
    *m = (merger){.t = m->t};
}

/* Four children a node: entry i has 4 i + 1 to 4 i + 4. On long runs the heap outgrows the cache, and each level is a
 * miss. */
static int heap_push(merger *m, candidate c, status *st)
{
    if (m->n_heap == m->heap_capacity) {
        size_t capacity = m->heap_capacity ? m->heap_capacity * 2 : 64;
        candidate *p = mem_resize(m->heap, capacity, sizeof *p);
        if (!p) return status_nomem(st, capacity * sizeof *p);
        m->heap = p;
        m->heap_capacity = capacity;
    }
    size_t i = m->n_heap++;
    for (; i && m->heap[(i - 1) / 4].key > c.key; i = (i - 1) / 4) m->heap[i] = m->heap[(i - 1) / 4];
    m->heap[i] = c;
    return ST_OK;
}

static candidate heap_pop(merger *m)
{
    candidate *h = m->heap, first = h[0], last = h[--m->n_heap];
    size_t n = m->n_heap, i = 0;
    for (size_t begin; (begin = 4 * i + 1) < n;) {
        size_t least = begin, end = begin + 4 < n ? begin + 4 : n;
        for (size_t child = begin + 1; child < end; child++)
            if (h[child].key < h[least].key) least = child;
        if (last.key <= h[least].key) break;
        h[i] = h[least];
        i = least;
    }
    h[i] = last;
    return first;
}

static int consider(merger *m, merge_fn *fits, int32_t left, status *st)
{
    const symbol *l = &m->symbols[left];
    if (l->next < 0) return ST_OK;
    const symbol *r = &m->symbols[l->next];
    uint32_t order;
    candidate c = {.n = l->n + r->n};
    if (!fits(m, l, r, &order, &c.id)) return ST_OK;
    c.key = (uint64_t)order << 32 | (uint32_t)left;
    return heap_push(m, c, st);
}

int merger_run(merger *m, merge_fn *fits, status *st)
{
    assert(m->n_symbols > 0);
    m->symbols[m->n_symbols - 1].next = -1;
    int rc = ST_OK;
    for (size_t i = 0; !rc && i + 1 < m->n_symbols; i++) rc = consider(m, fits, (int32_t)i, st);
    while (!rc && m->n_heap) {
        candidate c = heap_pop(m);
        int32_t left = (int32_t)(uint32_t)c.key;
        symbol *l = &m->symbols[left];
        /* Symbols only grow, so the same sum of bytes means that neither has changed. */
        if (l->n == 0 || l->next < 0 || l->n + m->symbols[l->next].n != c.n) continue;
        symbol *r = &m->symbols[l->next];
        l->n = c.n;
        l->id = c.id;
        l->next = r->next;
        r->n = 0;
        if (l->next >= 0) m->symbols[l->next].prev = left;
        if (l->prev >= 0) rc = consider(m, fits, l->prev, st);
        if (!rc) rc = consider(m, fits, left, st);
    }
    return rc;
}
