#include <string.h>

#include "base/mem.h"
#include "cache/tree_impl.h"

/* What the audit finds by walking. */
typedef struct found {
    uint64_t nodes, blocks, tails, candidates;
    uint8_t *seen[KV_TREE_SLOTS]; /* [blocks of the pool] that stand in the tree */
} found;

static int bad(status *st, const kv_node *n, const char *what)
{
    return status_set(st, ST_FORMAT, n->first, "tree: node of blocks %u to %u: %s", n->first, n->first + n->n, what);
}

/* T1 and T3, as far as one node shows. */
static int audit_node(const kv_tree *t, const kv_node *n, status *st)
{
    bool candidate = n->parent && !n->children && !n->locks;
    uint32_t n_children = 0;
    for (const kv_node *c = order_first(n->children), *next; c; c = next, n_children++) {
        next = order_next(t, n->children, c);
        if (c->parent != n) return bad(st, c, "its parent is another");
        if (c->first != n->first + n->n) return bad(st, c, "it does not begin where its parent ends");
        if (next && order_compare(t, c, next) >= 0) return bad(st, c, "the order of siblings is wrong");
    }
    if (n_children != n->n_children) return bad(st, n, "its children are miscounted");
    if ((n->left && n->left->height > n->height) || (n->right && n->right->height > n->height))
        return bad(st, n, "a sibling below it is higher");
    if (n->parent ? n->n == 0 : n->n != 0) return bad(st, n, "its run is empty, or it is a root with a run");
    if (!n->parent && !n->children && !n->locks) return bad(st, n, "a root that nobody needs");
    if (n->parent && (uint64_t)n->start + n->n > n->cap) return bad(st, n, "its run is longer than its memory");
    if (n->tail_rows && (n->tail_rows >= (uint32_t)t->block_tokens || n->n != 1 || n->children || n->locks))
        return bad(st, n, "it is a tail, yet locked, a parent or a full block");
    if (candidate != (n->evict.place != EVICT_OUTSIDE)) return bad(st, n, "the order of eviction lacks it or has it");
    if (candidate && (n->evict.place >= t->order.n || t->order.heap[n->evict.place] != &n->evict))
        return bad(st, n, "its place in the order of eviction is wrong");
    if (candidate && n->evict.place > 0 && evict_before(&n->evict, t->order.heap[(n->evict.place - 1) / 2]))
        return bad(st, n, "the order of eviction is wrong");
    return ST_OK;
}

/* T2: its blocks are kept and stand nowhere else; a windowed slot knows where. */
static int audit_blocks(const kv_tree *t, const kv_node *n, found *f, status *st)
{
    for (int slot = 0; slot < t->n_slots; slot++) {
        const tree_slot *s = &t->slots[slot];
        const block_id *ids = node_ids(t, n, slot);
        for (uint32_t i = 0; i < n->n; i++) {
            if (ids[i] == BLOCK_NONE && n->tail_rows) return bad(st, n, "it is a tail and lacks a block");
            if (ids[i] == BLOCK_NONE) continue;
            if (ids[i] >= pool_count(s->pool).total || !pool_kept(s->pool, ids[i]))
                return bad(st, n, "a block of it is not kept");
            if (f->seen[slot][ids[i]]++) return bad(st, n, "a block of it stands in two places");
            if (!s->residents) continue;
            const resident *r = &s->residents[ids[i]];
            if (r->node != n || r->index != n->first + i) return bad(st, n, "a block of it is recorded elsewhere");
        }
    }
    return ST_OK;
}

static int audit_lists(const tree_slot *s, status *st)
{
    for (rest_list list = REST_BEHIND; list < REST_LISTS; list++) {
        uint32_t n = 0;
        for (block_id id = s->rests[list].head, before = BLOCK_NONE; id != BLOCK_NONE;
             before = id, id = s->residents[id].next, n++) {
            const resident *r = &s->residents[id];
            if (r->list != list || r->prev != before || n > s->rests[list].n)
                return status_set(st, ST_FORMAT, id, "tree: block %u: its list of resting blocks is broken", id);
        }
        if (n != s->rests[list].n)
            return status_set(st, ST_FORMAT, STATUS_NO_POS, "tree: %u blocks rest, %u are counted", n,
                              s->rests[list].n);
    }
    return ST_OK;
}

/* The other way round: what the pool keeps stands in the tree, and of a windowed slot rests if nobody holds it. */
static int audit_slot(const tree_slot *s, const uint8_t *seen, status *st)
{
    for (block_id id = 0; id < pool_count(s->pool).total; id++) {
        if (pool_kept(s->pool, id) != (seen[id] > 0))
            return status_set(st, ST_FORMAT, id, "tree: block %u is kept, but not in the tree", id);
        if (!s->residents) continue;
        const resident *r = &s->residents[id];
        if (!seen[id] && (r->node || r->list != REST_NONE))
            return status_set(st, ST_FORMAT, id, "tree: block %u is recorded, but not in the tree", id);
        if (seen[id] && pool_state(s->pool, id) != BLOCK_IN_FLIGHT &&
            (r->list != REST_NONE) != (pool_refs(s->pool, id) == 0))
            return status_set(st, ST_FORMAT, id, "tree: block %u has %u references and is %sresting", id,
                              pool_refs(s->pool, id), r->list == REST_NONE ? "not " : "");
    }
    return s->residents ? audit_lists(s, st) : ST_OK;
}

static int audit_counts(const kv_tree *t, const found *f, status *st)
{
    const kv_tree_counts *c = &t->counts;
    if (f->nodes != c->nodes || f->blocks != c->blocks || f->tails != c->tails ||
        c->inserted - c->evicted - c->absorbed != c->blocks)
        return status_set(st, ST_FORMAT, STATUS_NO_POS,
                          "tree: %llu nodes, %llu blocks and %llu tails are counted, %llu, %llu and %llu are there",
                          (unsigned long long)c->nodes, (unsigned long long)c->blocks, (unsigned long long)c->tails,
                          (unsigned long long)f->nodes, (unsigned long long)f->blocks, (unsigned long long)f->tails);
    if (f->candidates != t->order.n)
        return status_set(st, ST_FORMAT, STATUS_NO_POS, "tree: %u nodes can be evicted, %llu are there", t->order.n,
                          (unsigned long long)f->candidates);
    return ST_OK;
}

static int audit_all(const kv_tree *t, found *f, status *st)
{
    int depth = 0;
    for (kv_node *n = walk_first(t); n; n = walk_next(t, n, &depth)) {
        if (audit_node(t, n, st) || (n->parent && audit_blocks(t, n, f, st))) return st->code;
        f->nodes++;
        f->blocks += n->n;
        f->tails += n->tail_rows > 0;
        f->candidates += n->evict.place != EVICT_OUTSIDE;
    }
    for (int slot = 0; slot < t->n_slots; slot++)
        if (audit_slot(&t->slots[slot], f->seen[slot], st)) return st->code;
    return audit_counts(t, f, st);
}

int kv_tree_audit(const kv_tree *t, status *st)
{
    found f = {0};
    int rc = ST_OK;
    for (int slot = 0; rc == ST_OK && slot < t->n_slots; slot++) {
        uint32_t n = pool_count(t->slots[slot].pool).total;
        f.seen[slot] = mem_calloc(n, 1);
        if (!f.seen[slot]) rc = status_nomem(st, n);
    }
    if (rc == ST_OK) rc = audit_all(t, &f, st);
    for (int slot = 0; slot < t->n_slots; slot++) mem_free(f.seen[slot]);
    return rc;
}
