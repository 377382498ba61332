/* The merge loop: a heap of neighbouring pairs. A merge pops one pair and pushes at most two, so n symbols cost O(n log
 * n). */
#include <assert.h>

#include "base/mem.h"
#include "model/tokenizer_internal.h"

static int grow(void **p, size_t *capacity, size_t need, size_t size, status *st)
{
    size_t n = *capacity ? *capacity * 2 : 64;
    if (n < need) n = need;
    void *q = mem_resize(*p, n, size);
    if (!q) return status_nomem(st, n * size);
    *p = q;
    *capacity = n;
    return ST_OK;
}

void merge_window_deinit(merge_window *w)
{
    mem_free(w->symbols);
    mem_free(w->heap);
    *w = (merge_window){0};
}

/* Four children a node: entry i has 4 i + 1 to 4 i + 4. On long runs the heap outgrows the cache, and each level is a
 * miss. */
static int heap_push(merge_window *w, candidate c, status *st)
{
    if (w->n_heap == w->heap_capacity) {
        void *p = w->heap;
        if (grow(&p, &w->heap_capacity, 0, sizeof *w->heap, st)) return st->code;
        w->heap = p;
    }
    size_t i = w->n_heap++;
    for (; i && w->heap[(i - 1) / 4].key > c.key; i = (i - 1) / 4) w->heap[i] = w->heap[(i - 1) / 4];
    w->heap[i] = c;
    return ST_OK;
}

static candidate heap_pop(merge_window *w)
{
    candidate *h = w->heap, first = h[0], last = h[--w->n_heap];
    size_t n = w->n_heap, i = 0;
    for (size_t begin; (begin = 4 * i + 1) < n;) {
        size_t least = begin;
        if (begin + 4 <= n) { /* two rounds without a branch: which child is the least can't be foreseen */
            size_t a = begin + (h[begin + 1].key < h[begin].key), b = begin + 2 + (h[begin + 3].key < h[begin + 2].key);
            least = h[b].key < h[a].key ? b : a;
        } else {
            for (size_t child = begin + 1; child < n; child++)
                if (h[child].key < h[least].key) least = child;
        }
        if (last.key <= h[least].key) break;
        h[i] = h[least];
        i = least;
    }
    h[i] = last;
    return first;
}

static int consider(const merger *m, merge_window *w, int32_t left, status *st)
{
    const symbol *l = &w->symbols[left];
    if (l->next < 0) return ST_OK;
    const symbol *r = &w->symbols[l->next];
    uint32_t order;
    candidate c = {.n = l->n + r->n};
    if (!m->rules->fits(m, l, r, &order, &c.id)) return ST_OK;
    c.key = (uint64_t)order << 32 | (w->base + (uint32_t)left);
    return heap_push(w, c, st);
}

/* One symbol a character, as many as the window takes. */
static int fill(const merger *m, merge_window *w, uint32_t base, size_t begin, size_t size, status *st)
{
    w->n_symbols = w->n_heap = 0;
    w->base = base;
    w->end = begin;
    size_t most = m->n - begin < size ? m->n - begin : size;
    if (w->capacity < most) {
        void *p = w->symbols;
        if (grow(&p, &w->capacity, most, sizeof *w->symbols, st)) return st->code;
        w->symbols = p;
    }
    for (; w->end < m->n && w->n_symbols < size; w->n_symbols++) {
        symbol s = m->rules->read(m, w->end);
        s.prev = (int32_t)w->n_symbols - 1;
        s.next = (int32_t)w->n_symbols + 1;
        w->symbols[w->n_symbols] = s;
        w->end += s.n;
    }
    assert(w->n_symbols > 0);
    w->symbols[w->n_symbols - 1].next = -1;
    w->first_id = w->symbols[0].id;
    return ST_OK;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

int merge_window_run(const merger *m, merge_window *w, uint32_t base, size_t begin, size_t size, status *st)
{
    int rc = fill(m, w, base, begin, size, st);
    for (size_t i = 0; !rc && i + 1 < w->n_symbols; i++) rc = consider(m, w, (int32_t)i, st);
    while (!rc && w->n_heap) {
        candidate c = heap_pop(w);
        int32_t left = (int32_t)((uint32_t)c.key - w->base);
        symbol *l = &w->symbols[left];
        /* Symbols only grow, so the same sum of bytes means that neither has changed. */
        if (l->next < 0 || l->n + w->symbols[l->next].n != c.n) continue;
        symbol *r = &w->symbols[l->next];
        l->time = r->time = later(c.key, later(l->time, r->time));
        l->n = c.n;
        l->id = c.id;
        l->next = r->next;
        r->next = SWALLOWED;
        if (l->next >= 0) w->symbols[l->next].prev = left;
        if (l->prev >= 0) rc = consider(m, w, l->prev, st);
        if (!rc) rc = consider(m, w, left, st);
    }
    return rc;
}
