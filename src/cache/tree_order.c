#include "cache/tree_impl.h"

static int compare_tokens(const int32_t *a, const int32_t *b, int64_t n, int *shared)
{
    int64_t i = 0;
    while (i < n && a[i] == b[i]) i++;
    *shared = (int)i;
    return i == n ? 0 : a[i] < b[i] ? -1 : 1;
}

int order_compare(const kv_tree *t, const kv_node *a, const kv_node *b)
{
    int shared;
    if (!a->parent) return a->salt < b->salt ? -1 : a->salt > b->salt;
    int64_t n = node_first_tokens(t, a), n_b = node_first_tokens(t, b); /* no one begins as the other does (T1) */
    return compare_tokens(node_tokens(t, a), node_tokens(t, b), n < n_b ? n : n_b, &shared);
}

/* Parts the treap at top into those before n and those after it. */
static void part(const kv_tree *t, kv_node *top, const kv_node *n, kv_node **before, kv_node **after)
{
    while (top) {
        if (order_compare(t, top, n) < 0) {
            *before = top;
            before = &top->right;
            top = top->right;
        } else {
            *after = top;
            after = &top->left;
            top = top->left;
        }
    }
    *before = *after = NULL;
}

static kv_node **link_of(const kv_tree *t, kv_node **top, const kv_node *n)
{
    while (*top != n) top = order_compare(t, n, *top) < 0 ? &(*top)->left : &(*top)->right;
    return top;
}

void order_add(const kv_tree *t, kv_node **top, kv_node *n)
{
    while (*top && (*top)->height >= n->height) top = order_compare(t, n, *top) < 0 ? &(*top)->left : &(*top)->right;
    part(t, *top, n, &n->left, &n->right);
    *top = n;
}

void order_remove(const kv_tree *t, kv_node **top, kv_node *n)
{
    kv_node *before = n->left, *after = n->right;
    top = link_of(t, top, n);
    while (before && after) {
        if (before->height >= after->height) {
            *top = before;
            top = &before->right;
            before = before->right;
        } else {
            *top = after;
            top = &after->left;
            after = after->left;
        }
    }
    *top = before ? before : after;
    n->left = n->right = NULL;
}

void order_replace(const kv_tree *t, kv_node **top, const kv_node *old, kv_node *with)
{
    *link_of(t, top, old) = with;
    with->left = old->left;
    with->right = old->right;
    with->height = old->height;
}

kv_node *order_first(kv_node *top)
{
    while (top && top->left) top = top->left;
    return top;
}

kv_node *order_next(const kv_tree *t, kv_node *top, const kv_node *n)
{
    kv_node *next = NULL;
    while (top) {
        if (order_compare(t, n, top) < 0) {
            next = top;
            top = top->left;
        } else {
            top = top->right;
        }
    }
    return next;
}

kv_node *order_root(const kv_tree *t, uint64_t salt)
{
    kv_node *n = t->roots;
    while (n && n->salt != salt) n = salt < n->salt ? n->left : n->right;
    return n;
}

/* The neighbours of where ids would stand are on the way down, and one of them shares most. */
kv_node *order_nearest(const kv_tree *t, kv_node *top, const int32_t *ids, int64_t n, int *shared)
{
    kv_node *best = NULL;
    *shared = 0;
    for (int order = 1; top && order && n; top = order < 0 ? top->left : top->right) {
        int64_t has = node_first_tokens(t, top);
        int common;
        order = compare_tokens(ids, node_tokens(t, top), has < n ? has : n, &common);
        if (common <= *shared) continue;
        best = top;
        *shared = common;
    }
    return best;
}
