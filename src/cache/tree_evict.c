#include <assert.h>

#include "cache/tree_impl.h"

static void rest_add(tree_slot *s, block_id id, rest_list list)
{
    resident *r = &s->residents[id];
    block_id last = s->rests[list].tail;
    r->prev = last;
    r->next = BLOCK_NONE;
    r->list = list;
    if (last == BLOCK_NONE) s->rests[list].head = id;
    else s->residents[last].next = id;
    s->rests[list].tail = id;
    s->rests[list].n++;
}

void rest_remove(tree_slot *s, block_id id)
{
    resident *r = &s->residents[id];
    rest_list list = r->list;
    if (list == REST_NONE) return;
    if (r->prev == BLOCK_NONE) s->rests[list].head = r->next;
    else s->residents[r->prev].next = r->next;
    if (r->next == BLOCK_NONE) s->rests[list].tail = r->prev;
    else s->residents[r->next].prev = r->prev;
    s->rests[list].n--;
    r->list = REST_NONE;
}

void kv_tree_rest(kv_tree *t, int slot, block_id id, bool behind)
{
    tree_slot *s = &t->slots[slot];
    if (!s->residents) return;
    assert(s->residents[id].node && s->residents[id].list == REST_NONE && pool_refs(s->pool, id) == 0);
    rest_add(s, id, behind ? REST_BEHIND : REST_PLAIN);
}

void kv_tree_wake(kv_tree *t, int slot, block_id id)
{
    tree_slot *s = &t->slots[slot];
    if (!s->residents) return;
    assert(s->residents[id].node);
    rest_remove(s, id);
}

bool evict_let_go(tree_slot *s, block_id id)
{
    bool frees = pool_state(s->pool, id) == BLOCK_CACHED;
    if (s->residents) {
        rest_remove(s, id);
        s->residents[id].node = NULL;
    }
    pool_drop(s->pool, id);
    return frees;
}

/* Drops the last block of a leaf in all slots; true when a block of `slot` is free by that. */
static bool drop_last(kv_tree *t, kv_node *n, int slot)
{
    bool freed = false;
    n->n--;
    for (int i = 0; i < t->n_slots; i++) {
        block_id id = node_ids(t, n, i)[n->n];
        if (id != BLOCK_NONE && evict_let_go(&t->slots[i], id) && i == slot) freed = true;
    }
    t->counts.blocks--;
    t->counts.tails -= n->tail_rows > 0;
    t->counts.evicted++;
    if (n->n == 0) node_remove(t, n);
    return freed;
}

/* Drops what rests longest in a list of a windowed slot, its node staying, until that frees a block. */
static bool drop_resting(kv_tree *t, int slot, rest_list list)
{
    tree_slot *s = &t->slots[slot];
    for (block_id id; (id = s->rests[list].head) != BLOCK_NONE;) {
        const resident *r = &s->residents[id];
        if (r->node->tail_rows) { /* a tail that lacks a slot is of no use */
            if (drop_last(t, r->node, slot)) return true;
            continue;
        }
        node_ids(t, r->node, slot)[r->index - r->node->first] = BLOCK_NONE;
        t->counts.evicted_behind++;
        if (evict_let_go(s, id)) return true;
    }
    return false;
}

bool kv_tree_evict(kv_tree *t, int slot)
{
    assert(slot >= 0 && slot < t->n_slots);
    tree_slot *s = &t->slots[slot];
    if (pool_count(s->pool).cached == 0) return false;
    if (drop_resting(t, slot, REST_BEHIND)) return true;
    for (evict_entry *e; (e = evict_choose(&t->order)) != NULL;)
        if (drop_last(t, (kv_node *)e, slot)) return true;
    return drop_resting(t, slot, REST_PLAIN);
}

bool kv_tree_evict_leaf(kv_tree *t)
{
    evict_entry *e = evict_choose(&t->order);
    if (e) drop_last(t, (kv_node *)e, -1);
    return e != NULL;
}

void kv_tree_clear(kv_tree *t)
{
    while (kv_tree_evict_leaf(t)) {}
}
