#include "model/text_ranges.h"

#include <assert.h>

#include "base/mem.h"

void text_ranges_deinit(text_ranges *r)
{
    mem_free(r->at);
    *r = (text_ranges){0};
}

int text_ranges_add(text_ranges *r, size_t from, size_t to, status *st)
{
    assert(from <= to && (r->n == 0 || r->at[r->n - 1].to <= from));
    if (from == to) return ST_OK;
    if (r->n && r->at[r->n - 1].to == from) {
        r->at[r->n - 1].to = to;
        return ST_OK;
    }
    if (r->n == r->capacity) {
        size_t capacity = r->capacity ? 2 * r->capacity : 16;
        text_range *p = mem_resize(r->at, capacity, sizeof *p);
        if (!p) return status_nomem(st, capacity * sizeof *p);
        r->at = p;
        r->capacity = capacity;
    }
    r->at[r->n++] = (text_range){from, to};
    return ST_OK;
}
