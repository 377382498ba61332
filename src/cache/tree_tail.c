#include <assert.h>
#include <string.h>

#include "cache/tree_impl.h"

static void let_go(kv_tree *t, kv_node *tail)
{
    for (int slot = 0; slot < t->n_slots; slot++) evict_let_go(&t->slots[slot], *node_ids(t, tail, slot));
    t->counts.blocks--;
    t->counts.tails--;
    t->counts.absorbed++;
}

void tail_drop(kv_tree *t, kv_node *tail)
{
    let_go(t, tail);
    tail->n = 0;
    node_remove(t, tail);
}

void tail_use(kv_tree *t, kv_node *tail, int priority, bool hit)
{
    if (tail->evict.place != EVICT_OUTSIDE) evict_leave(&t->order, &tail->evict);
    if (tail->evict.priority < priority) tail->evict.priority = priority;
    evict_use(&t->order, &tail->evict, (double)tail->first * t->block_tokens + tail->tail_rows, hit);
    node_settle(t, tail);
}

int kv_tree_insert_tail(kv_tree *t, kv_node *node, const int32_t *ids, int rows, const block_id *blocks, int priority,
                        status *st)
{
    assert(node->locks > 0 && rows > 0 && rows < t->block_tokens && !t->whole_blocks);
    int shared;
    kv_node *near = order_nearest(t, node->children, ids, rows, &shared), *tail;
    if (near && shared == rows) { /* as a tail, or as the beginning of more */
        if (near->tail_rows == (uint32_t)rows) tail_use(t, near, priority, false);
        return ST_OK;
    }
    if (near && (uint32_t)shared == near->tail_rows) { /* whose place among its siblings is the longer one's too */
        tail = near;
        let_go(t, tail);
        memcpy(tail->run, ids, (size_t)rows * sizeof *ids);
    } else {
        if (node_new(t, &tail, 1, st)) return st->code;
        memcpy(tail->run, ids, (size_t)rows * sizeof *ids);
        tail->n = 1;
        tail->parent = node;
        tail->first = (uint32_t)kv_node_blocks(node);
        tail->tail_rows = (uint32_t)rows; /* its place depends on them */
        order_add(t, &node->children, tail);
        node->n_children++;
    }
    tail->tail_rows = (uint32_t)rows;
    for (int slot = 0; slot < t->n_slots; slot++) node_keep(t, tail, slot, 0, blocks[slot]);
    t->counts.blocks++;
    t->counts.tails++;
    t->counts.inserted++;
    tail_use(t, tail, priority, false);
    return ST_OK;
}

bool kv_tree_take_tail(kv_tree *t, kv_node *next)
{
    if (!next->tail_rows) return false;
    tail_drop(t, next);
    return true;
}
