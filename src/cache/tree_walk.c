#include "cache/tree_impl.h"

kv_node *walk_first(const kv_tree *t)
{
    return order_first(t->roots);
}

kv_node *walk_next(const kv_tree *t, kv_node *n, int *depth)
{
    if (n->children) {
        ++*depth;
        return order_first(n->children);
    }
    for (; n; n = n->parent, --*depth) {
        kv_node *next = order_next(t, n->parent ? n->parent->children : t->roots, n);
        if (next) return next;
    }
    return NULL;
}

void kv_tree_walk(const kv_tree *t, bool (*fn)(void *user, const kv_node_info *n), void *user)
{
    int depth = -1; /* of the root's children: 0 */
    uint64_t salt = 0;
    const block_id *blocks[KV_TREE_SLOTS];
    for (kv_node *n = walk_first(t); n; n = walk_next(t, n, &depth)) {
        if (!n->parent) salt = n->salt;
        for (int slot = 0; n->parent && slot < t->n_slots; slot++) blocks[slot] = node_ids(t, n, slot);
        kv_node_info info = {
            .salt = salt,
            .depth = n->parent ? depth : 0,
            .ids = n->parent ? node_tokens(t, n) : NULL,
            .n_blocks = n->n,
            .tail_rows = (int)n->tail_rows,
            .first_block = n->first,
            .locks = (int)n->locks,
            .n_children = (int)n->n_children,
            .hits = n->evict.hits,
            .blocks = blocks,
        };
        if (!fn(user, &info)) return;
    }
}
