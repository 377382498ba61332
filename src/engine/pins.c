#include "engine/engine_state.h"

static void drop(engine *e, int i)
{
    kv_seq_free(e->pins[i].seq);
    e->pins[i] = e->pins[--e->n_pins];
}

void engine_unpin(engine *e, int64_t now_ns)
{
    for (int i = e->n_pins - 1; i >= 0; i--)
        if (e->pins[i].until_ns <= now_ns) drop(e, i);
}

int64_t engine_expire_pins(engine *e)
{
    int64_t next = 0;
    engine_unpin(e, e->clock());
    for (int i = 0; i < e->n_pins; i++)
        if (!next || e->pins[i].until_ns < next) next = e->pins[i].until_ns;
    return next;
}

int engine_pin(engine *e, uint64_t salt, const int32_t *ids, size_t n, double seconds, int64_t *n_pinned, status *st)
{
    if (e->n_pins == MAX_PINS)
        return status_set(st, ST_LIMIT, STATUS_NO_POS, "all %d pins are in use; let some run out", MAX_PINS);
    if (!(seconds > 0 && seconds <= MAX_SECONDS))
        return status_set(st, ST_ARG, STATUS_NO_POS, "a pin of %g seconds can't be; more than 0 and at most %d",
                          seconds, MAX_SECONDS);
    int64_t b = kv_cache_block_tokens(e->cache), full = kv_cache_match(e->cache, salt, ids, (int64_t)n, NULL) / b * b;
    pin p = {.until_ns = e->clock() + (int64_t)(seconds * 1e9)};
    *n_pinned = 0;
    if (full == 0) return ST_OK;
    if (kv_seq_new(&p.seq, e->cache, st)) return st->code;
    *n_pinned = kv_seq_match(p.seq, salt, ids, full, 0);
    e->pins[e->n_pins++] = p;
    return ST_OK;
}
