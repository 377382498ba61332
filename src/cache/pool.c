#include "cache/pool.h"

#include <assert.h>

#include "base/mem.h"

#define BLOCK_ALIGN 64

typedef struct block_info {
    uint32_t refs;
    uint32_t free_slot; /* where it stands in free_stack, while FREE */
    block_state state;
    bool kept;
    block_location location;
} block_info;

struct pool {
    uint64_t block_bytes;
    uint8_t *bytes;       /* [n_blocks][block_bytes] */
    block_info *blocks;   /* [n_blocks] */
    block_id *free_stack; /* the last freed block is taken first: its bytes may still be in a processor cache */
    pool_counts counts;
};

size_t pool_block_overhead(void)
{
    return sizeof(block_info) + sizeof(block_id);
}

static const block_location HERE = {BLOCK_ON_RAM, BLOCK_READY};

static uint32_t *counter(pool_counts *c, block_state s)
{
    switch (s) {
    case BLOCK_FREE: return &c->free;
    case BLOCK_IN_USE: return &c->in_use;
    case BLOCK_CACHED: return &c->cached;
    case BLOCK_IN_FLIGHT: break;
    }
    return &c->in_flight;
}

static block_info *info(const pool *p, block_id id)
{
    assert(id < p->counts.total);
    return &p->blocks[id];
}

static void enter(pool *p, block_id id, block_state to)
{
    block_info *b = info(p, id);
    --*counter(&p->counts, b->state);
    if (to == BLOCK_FREE) {
        b->free_slot = p->counts.free;
        p->free_stack[p->counts.free] = id;
    }
    ++*counter(&p->counts, to);
    b->state = to;
}

int pool_new(pool **out, uint64_t block_bytes, uint32_t n_blocks, status *st)
{
    assert(block_bytes && block_bytes % BLOCK_ALIGN == 0 && n_blocks && n_blocks < BLOCK_NONE);
    uint64_t n_bytes;
    if (__builtin_mul_overflow(block_bytes, (uint64_t)n_blocks, &n_bytes)) return status_nomem(st, UINT64_MAX);
    pool *p = mem_calloc(1, sizeof *p);
    if (!p) return status_nomem(st, sizeof *p);
    *p = (pool){.block_bytes = block_bytes, .counts = {.total = n_blocks, .free = n_blocks}};
    p->blocks = mem_calloc(n_blocks, sizeof *p->blocks);
    p->free_stack = mem_array(n_blocks, sizeof *p->free_stack);
    p->bytes = mem_pages_alloc(n_bytes);
    if (!p->blocks || !p->free_stack || !p->bytes) {
        pool_free(p);
        return status_nomem(st, n_bytes);
    }
    for (uint32_t slot = 0; slot < n_blocks; slot++) { /* block 0 on top */
        block_id id = n_blocks - 1 - slot;
        p->free_stack[slot] = id;
        p->blocks[id] = (block_info){.free_slot = slot, .state = BLOCK_FREE, .location = HERE};
    }
    *out = p;
    return ST_OK;
}

void pool_free(pool *p)
{
    if (!p) return;
    mem_pages_free(p->bytes, p->block_bytes * p->counts.total);
    mem_free(p->free_stack);
    mem_free(p->blocks);
    mem_free(p);
}

uint64_t pool_block_bytes(const pool *p)
{
    return p->block_bytes;
}

uint8_t *pool_block(const pool *p, block_id id)
{
    assert(id < p->counts.total);
    return p->bytes + p->block_bytes * id;
}

block_id pool_take(pool *p)
{
    if (p->counts.free == 0) return BLOCK_NONE;
    block_id id = p->free_stack[p->counts.free - 1];
    assert(info(p, id)->state == BLOCK_FREE && info(p, id)->refs == 0);
    enter(p, id, BLOCK_IN_USE);
    info(p, id)->refs = 1;
    return id;
}

void pool_ref(pool *p, block_id id)
{
    block_info *b = info(p, id);
    assert(b->state != BLOCK_FREE && b->refs < UINT32_MAX);
    b->refs++;
    if (b->state == BLOCK_CACHED) enter(p, id, BLOCK_IN_USE);
}

static block_state idle_state(const block_info *b)
{
    return b->kept ? BLOCK_CACHED : BLOCK_FREE;
}

void pool_unref(pool *p, block_id id)
{
    block_info *b = info(p, id);
    assert(b->refs > 0 && (b->state == BLOCK_IN_USE || b->state == BLOCK_IN_FLIGHT));
    if (--b->refs == 0 && b->state == BLOCK_IN_USE) enter(p, id, idle_state(b));
}

void pool_keep(pool *p, block_id id)
{
    block_info *b = info(p, id);
    assert(b->state != BLOCK_FREE && !b->kept);
    b->kept = true;
}

void pool_drop(pool *p, block_id id)
{
    block_info *b = info(p, id);
    assert(b->kept);
    b->kept = false;
    if (b->state == BLOCK_CACHED) enter(p, id, BLOCK_FREE);
}

bool pool_kept(const pool *p, block_id id)
{
    return info(p, id)->kept;
}

void pool_begin_move(pool *p, block_id id, block_location where)
{
    block_info *b = info(p, id);
    assert((b->state == BLOCK_IN_USE || b->state == BLOCK_CACHED) && where.ready != BLOCK_READY);
    enter(p, id, BLOCK_IN_FLIGHT);
    b->location = where;
}

void pool_end_move(pool *p, block_id id)
{
    block_info *b = info(p, id);
    assert(b->state == BLOCK_IN_FLIGHT);
    b->location = HERE;
    enter(p, id, b->refs ? BLOCK_IN_USE : idle_state(b));
}

uint32_t pool_refs(const pool *p, block_id id)
{
    return info(p, id)->refs;
}

block_state pool_state(const pool *p, block_id id)
{
    return info(p, id)->state;
}

block_location pool_location(const pool *p, block_id id)
{
    return info(p, id)->location;
}

pool_counts pool_count(const pool *p)
{
    return p->counts;
}

/* What is wrong with one block by itself; NULL when nothing is. */
static const char *block_fault(const pool *p, block_id id)
{
    const block_info *b = &p->blocks[id];
    bool moving = b->location.ready != BLOCK_READY;
    if (moving != (b->state == BLOCK_IN_FLIGHT)) return "its location and its state disagree";
    switch (b->state) {
    case BLOCK_FREE:
        if (b->refs || b->kept) return "it is free and somebody holds it";
        return b->free_slot < p->counts.free && p->free_stack[b->free_slot] == id
                   ? NULL
                   : "it is free and not in the free list";
    case BLOCK_IN_USE: return b->refs ? NULL : "it is in use and has no reference";
    case BLOCK_CACHED: return b->refs || !b->kept ? "it is cached, but in use or not kept" : NULL;
    case BLOCK_IN_FLIGHT: return NULL;
    }
    return "its state is unknown";
}

int pool_audit(const pool *p, const uint32_t *refs, status *st)
{
    pool_counts c = {.total = p->counts.total}, has = p->counts;
    for (block_id id = 0; id < c.total; id++) {
        const char *fault = block_fault(p, id);
        if (fault) return status_set(st, ST_FORMAT, id, "block %u: %s", id, fault);
        if (refs && refs[id] != p->blocks[id].refs)
            return status_set(st, ST_FORMAT, id, "block %u: %u references are counted, %u are held", id,
                              p->blocks[id].refs, refs[id]);
        ++*counter(&c, p->blocks[id].state);
    }
    if (c.free != has.free || c.cached != has.cached || c.in_use != has.in_use || c.in_flight != has.in_flight)
        return status_set(st, ST_FORMAT, STATUS_NO_POS,
                          "free %u, cached %u, in use %u, in flight %u are counted; free %u, cached %u, in use %u, in "
                          "flight %u are there",
                          has.free, has.cached, has.in_use, has.in_flight, c.free, c.cached, c.in_use, c.in_flight);
    return ST_OK;
}
