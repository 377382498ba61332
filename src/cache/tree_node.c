#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "cache/tree_impl.h"

static size_t run_bytes(const kv_tree *t, size_t cap)
{
    return cap * (size_t)(t->block_tokens + t->n_slots) * sizeof(int32_t);
}

static uint32_t next_random(kv_tree *t) /* splitmix64 */
{
    uint64_t x = t->random += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(x >> 32);
}

int node_new(kv_tree *t, kv_node **out, uint32_t cap, status *st)
{
    if (evict_reserve(&t->order, t->counts.nodes + 1, st)) return st->code;
    kv_node *n = mem_alloc(sizeof *n);
    int32_t *run = cap ? mem_alloc(run_bytes(t, cap)) : NULL;
    if (!n || (cap && !run)) {
        mem_free(n);
        mem_free(run);
        return status_nomem(st, sizeof *n + run_bytes(t, cap));
    }
    *n = (kv_node){.evict = EVICT_ENTRY_INIT, .run = run, .cap = cap, .height = next_random(t)};
    t->counts.nodes++;
    t->counts.bytes += sizeof *n + run_bytes(t, cap);
    *out = n;
    return ST_OK;
}

void node_free(kv_tree *t, kv_node *n)
{
    if (!n) return;
    t->counts.nodes--;
    t->counts.bytes -= sizeof *n + run_bytes(t, n->cap);
    if (n->cap) mem_free(n->run);
    mem_free(n);
}

/* Copies k blocks of a run, from block `at` of src on, counted from the beginning of its memory, to the front of dst,
 * which may be the same memory. */
static void copy_blocks(const kv_tree *t, int32_t *dst, size_t dst_cap, const int32_t *src, size_t src_cap, size_t at,
                        size_t k)
{
    size_t b = (size_t)t->block_tokens;
    memmove(dst, src + at * b, k * b * sizeof *dst);
    for (size_t slot = 0; slot < (size_t)t->n_slots; slot++)
        memmove(dst + dst_cap * (b + slot), src + src_cap * (b + slot) + at, k * sizeof *dst);
}

int node_reserve(kv_tree *t, kv_node *n, uint32_t more, status *st)
{
    size_t need = (size_t)n->n + more, cap = (size_t)n->n + n->n / 2;
    if (n->start + need <= n->cap) return ST_OK;
    if (cap < need) cap = need;
    int32_t *run = mem_alloc(run_bytes(t, cap));
    if (!run) return status_nomem(st, run_bytes(t, cap));
    copy_blocks(t, run, cap, n->run, n->cap, n->start, n->n);
    t->counts.bytes += run_bytes(t, cap) - run_bytes(t, n->cap);
    mem_free(n->run);
    n->run = run;
    n->start = 0;
    n->cap = (uint32_t)cap;
    return ST_OK;
}

/* Cuts the spare off where it is the larger part. Memory that can't be given back stays as it is. */
static void trim(kv_tree *t, kv_node *n)
{
    if (n->start < n->n) return;
    copy_blocks(t, n->run, n->n, n->run, n->cap, n->start, n->n);
    t->counts.bytes -= run_bytes(t, n->cap) - run_bytes(t, n->n);
    n->start = 0;
    n->cap = n->n;
    int32_t *run = mem_resize(n->run, 1, run_bytes(t, n->n));
    if (run) n->run = run;
}

static void reside(tree_slot *s, kv_node *n, uint32_t i, block_id id)
{
    if (!s->residents || id == BLOCK_NONE) return;
    s->residents[id].node = n;
    s->residents[id].index = n->first + i;
}

void node_keep(kv_tree *t, kv_node *n, int slot, uint32_t i, block_id id)
{
    tree_slot *s = &t->slots[slot];
    node_ids(t, n, slot)[i] = id;
    if (id == BLOCK_NONE) return;
    pool_keep(s->pool, id);
    reside(s, n, i, id);
}

void node_append(kv_tree *t, kv_node *n, const int32_t *ids, block_id *const *blocks, int64_t at, uint32_t n_blocks)
{
    size_t b = (size_t)t->block_tokens;
    assert(n->start + n->n + n_blocks <= n->cap);
    memcpy(n->run + (n->start + n->n) * b, ids, n_blocks * b * sizeof *ids);
    for (int slot = 0; slot < t->n_slots; slot++)
        for (uint32_t i = 0; i < n_blocks; i++) node_keep(t, n, slot, n->n + i, blocks[slot][at + i]);
    n->n += n_blocks;
    t->counts.blocks += n_blocks;
    t->counts.inserted += n_blocks;
}

void node_split(kv_tree *t, kv_node *lower, kv_node *upper, uint32_t k)
{
    assert(k > 0 && k < lower->n && upper->cap >= k);
    copy_blocks(t, upper->run, upper->cap, lower->run, lower->cap, lower->start, k);
    upper->first = lower->first;
    upper->n = k;
    upper->parent = lower->parent;
    for (int slot = 0; slot < t->n_slots; slot++)
        for (uint32_t i = 0; i < k; i++) reside(&t->slots[slot], upper, i, node_ids(t, upper, slot)[i]);
    order_replace(t, &lower->parent->children, lower, upper);
    upper->children = lower;
    upper->n_children = 1;
    upper->evict = lower->evict;
    upper->evict.place = EVICT_OUTSIDE;
    lower->parent = upper;
    lower->left = lower->right = NULL;
    lower->first += k;
    lower->start += k;
    lower->n -= k;
    trim(t, lower);
}

void node_settle(kv_tree *t, kv_node *n)
{
    bool candidate = n->parent && !n->children && !n->locks, inside = n->evict.place != EVICT_OUTSIDE;
    if (candidate && !inside) evict_enter(&t->order, &n->evict);
    else if (!candidate && inside) evict_leave(&t->order, &n->evict);
}

void node_remove(kv_tree *t, kv_node *n)
{
    kv_node *parent = n->parent;
    assert(n->n == 0 && !n->children && !n->locks);
    if (n->evict.place != EVICT_OUTSIDE) evict_leave(&t->order, &n->evict);
    order_remove(t, parent ? &parent->children : &t->roots, n);
    node_free(t, n);
    if (!parent) return;
    parent->n_children--;
    if (!parent->parent && !parent->children && !parent->locks) node_remove(t, parent);
    else node_settle(t, parent);
}
