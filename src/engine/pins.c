#include <string.h>

#include "engine/engine_state.h"

static void drop(engine *e, int i)
{
    kv_seq_free(e->pins[i].seq);
    memmove(&e->pins[i], &e->pins[i + 1], (size_t)(--e->n_pins - i) * sizeof *e->pins);
}

void engine_unpin(engine *e, int64_t now_ns)
{
    for (int i = e->n_pins - 1; i >= 0; i--)
        if (e->pins[i].until_ns <= now_ns) drop(e, i);
}

/* What a pin alone holds may be less than its blocks, and pins may share some: each is lent, to see. */
int engine_drop_pins(engine *e, pins_enough *enough, const session *s, int n)
{
    bool goes[MAX_PINS] = {false}, suffices = false;
    int n_pins = e->n_pins, n_lent = 0, n_gone = 0;
    while (n_lent < n_pins && !suffices) {
        kv_seq_lend(e->pins[n_lent++].seq);
        suffices = enough(e, s, n);
    }
    for (int i = n_lent - 1; i >= 0; i--) { /* the youngest are spared first */
        kv_seq_take_back(e->pins[i].seq);
        goes[i] = suffices && !enough(e, s, n);
        if (goes[i]) kv_seq_lend(e->pins[i].seq);
    }
    for (int i = n_lent - 1; i >= 0; i--) {
        if (!goes[i]) continue;
        kv_seq_take_back(e->pins[i].seq);
        drop(e, i);
        n_gone++;
    }
    if (suffices && n_gone == 0) { /* enough as it looked, and yet it wasn't */
        drop(e, 0);
        n_gone = 1;
    }
    e->stats.pins_dropped += (uint64_t)n_gone;
    return n_gone;
}

int engine_list_pins(const engine *e, pin_report out[MAX_PINS])
{
    for (int i = 0; i < e->n_pins; i++) out[i] = (pin_report){kv_seq_len(e->pins[i].seq), e->pins[i].until_ns};
    return e->n_pins;
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
