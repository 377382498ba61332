#include <assert.h>
#include <string.h>

#include <openssl/evp.h>

#include "base/mem.h"
#include "cache/tree_impl.h"

static int slot_init(tree_slot *s, const kv_tree_slot *c, status *st)
{
    s->pool = c->pool;
    s->window = c->window;
    for (int i = 0; i < REST_LISTS; i++) s->rests[i].head = s->rests[i].tail = BLOCK_NONE;
    if (!c->window) return ST_OK;
    uint32_t n = pool_count(c->pool).total;
    s->residents = mem_calloc(n, sizeof *s->residents);
    return s->residents ? ST_OK : status_nomem(st, n * sizeof *s->residents);
}

/* The digest and what depends on the slots. */
static int tree_init(kv_tree *t, const kv_tree_config *c, status *st)
{
    t->digest = EVP_MD_CTX_new();
    if (!t->digest || !EVP_DigestInit_ex(t->digest, EVP_sha256(), NULL))
        return status_set(st, ST_NOMEM, STATUS_NO_POS, "SHA-256 can't be set up");
    for (int i = 0; i < c->n_slots; i++) {
        if (slot_init(&t->slots[i], &c->slots[i], st)) return st->code;
        /* As many nodes as blocks, if it comes to that: then only nodes and runs are left to allocate. */
        if (evict_reserve(&t->order, pool_count(c->slots[i].pool).total, st)) return st->code;
    }
    return ST_OK;
}

int kv_tree_new(kv_tree **out, const kv_tree_config *c, status *st)
{
    assert(c->block_tokens > 0 && c->n_slots >= 0 && c->n_slots <= KV_TREE_SLOTS);
    kv_tree *t = mem_calloc(1, sizeof *t);
    if (!t) return status_nomem(st, sizeof *t);
    t->block_tokens = c->block_tokens;
    t->n_slots = c->n_slots;
    t->whole_blocks = c->whole_blocks;
    t->order.policy = c->policy ? c->policy : evict_policy_at(0);
    if (c->seed) memcpy(t->seed, c->seed, sizeof t->seed);
    if (tree_init(t, c, st)) {
        kv_tree_free(t);
        return st->code;
    }
    *out = t;
    return ST_OK;
}

void kv_tree_free(kv_tree *t)
{
    if (!t) return;
    kv_tree_clear(t);
    assert(!t->roots);
    for (int i = 0; i < t->n_slots; i++) mem_free(t->slots[i].residents);
    EVP_MD_CTX_free(t->digest);
    evict_free(&t->order);
    mem_free(t);
}

/* Shared by match and insert: one level down, along the child that shares most of ids [0, n). */
static tree_step step_down(const kv_tree *t, const kv_node *from, const int32_t *ids, int64_t n)
{
    int shared, b = t->block_tokens;
    kv_node *child = order_nearest(t, from->children, ids, n, &shared);
    if (!child || shared < b) return (tree_step){child, 0, shared};
    const int32_t *run = node_tokens(t, child);
    int64_t end = (int64_t)child->n * b, i = b;
    if (end > n) end = n;
    while (i < end && ids[i] == run[i]) i++;
    return (tree_step){child, (uint32_t)(i / b), (int)(i % b)};
}

/* Of each slot: how many blocks in a row are there, up to the place where a match stands. */
typedef struct presence {
    int64_t n[KV_TREE_SLOTS];
} presence;

/* Takes the next block, number `index` from the root. */
static void count_present(const kv_tree *t, presence *p, const kv_node *n, int64_t index)
{
    for (int slot = 0; slot < t->n_slots; slot++)
        p->n[slot] = node_ids(t, n, slot)[index - n->first] == BLOCK_NONE ? 0 : p->n[slot] + 1;
}

/* Whether a hit may end `rows` rows after the first n_blocks blocks. A window sees its last window - 1 rows. */
static bool usable(const kv_tree *t, const presence *p, int64_t n_blocks, int rows)
{
    for (int slot = 0; slot < t->n_slots; slot++) {
        int64_t need = n_blocks, window = t->slots[slot].window, seen = window - 1 - rows;
        if (window) need = seen > 0 ? (seen + t->block_tokens - 1) / t->block_tokens : 0;
        if (p->n[slot] < (need < n_blocks ? need : n_blocks)) return false;
    }
    return true;
}

static bool has_block(const kv_tree *t, const kv_node *n, uint32_t i)
{
    for (int slot = 0; slot < t->n_slots; slot++)
        if (node_ids(t, n, slot)[i] == BLOCK_NONE) return false;
    return true;
}

kv_match kv_tree_match(const kv_tree *t, uint64_t salt, const int32_t *ids, int64_t n)
{
    kv_node *at = order_root(t, salt), *reached = at;
    kv_match m = {.node = at};
    presence p = {{0}};
    tree_step s = {0};
    int64_t walked = 0;
    while (at) {
        s = step_down(t, at, ids + walked * t->block_tokens, n - walked * t->block_tokens);
        for (uint32_t i = 0; i < s.blocks; i++) {
            reached = s.child;
            count_present(t, &p, s.child, walked++);
            if (!usable(t, &p, walked, 0)) continue;
            m.node = s.child;
            m.n_blocks = walked;
        }
        at = s.child && s.blocks == s.child->n ? s.child : NULL;
    }
    if (s.rows && !t->whole_blocks && has_block(t, s.child, s.blocks) && usable(t, &p, walked, s.rows))
        m = (kv_match){.node = reached, .n_blocks = walked, .rows = s.rows, .next = s.child};
    return m;
}

static double depth_of(const kv_tree *t, const kv_node *n)
{
    return (double)kv_node_blocks(n) * t->block_tokens;
}

/* From the end to the root, so that of a path used at once the end is the longest unused. */
static void use_path(kv_tree *t, kv_node *n, bool hit)
{
    for (; n->parent; n = n->parent) evict_use(&t->order, &n->evict, depth_of(t, n), hit);
}

static void prioritize(kv_node *n, int priority)
{
    for (; n && n->evict.priority < priority; n = n->parent) n->evict.priority = priority;
}

int kv_tree_lock(kv_tree *t, uint64_t salt, const kv_match *m, int priority, kv_node **out, status *st)
{
    kv_node *n = m->node;
    if (!n) {
        if (node_new(t, &n, 0, st)) return st->code;
        n->salt = salt;
        order_add(t, &t->roots, n);
    } else if (m->n_blocks < kv_node_blocks(n)) {
        kv_node *lower = n;
        uint32_t head = (uint32_t)(m->n_blocks - n->first);
        if (node_new(t, &n, head, st)) return st->code;
        node_split(t, lower, n, head);
    }
    n->locks++;
    node_settle(t, n);
    prioritize(n, priority);
    use_path(t, n, true);
    if (m->rows && m->next->tail_rows) tail_use(t, m->next, priority, true);
    *out = n;
    return ST_OK;
}

void kv_tree_unlock(kv_tree *t, kv_node *n)
{
    assert(n->locks > 0);
    use_path(t, n, false);
    n->locks--;
    if (!n->parent && !n->children && !n->locks) node_remove(t, n);
    else node_settle(t, n);
}

void kv_tree_prioritize(kv_tree *t, kv_node *n, int priority)
{
    (void)t;
    assert(n->locks > 0);
    prioritize(n, priority);
}

kv_node *kv_tree_lock_prefix(kv_tree *t, kv_node *locked, int64_t n_blocks)
{
    kv_node *n = locked, *lower = NULL, *upper;
    status ignored = STATUS_INIT;
    assert(locked->locks > 0);
    for (; kv_node_blocks(n) > n_blocks; n = n->parent) lower = n;
    uint32_t head = (uint32_t)(n_blocks - kv_node_blocks(n));
    if (head && lower && node_new(t, &upper, head, &ignored) == ST_OK) {
        node_split(t, lower, upper, head);
        n = upper;
    }
    n->locks++;
    return n;
}

int64_t kv_node_blocks(const kv_node *n)
{
    return (int64_t)n->first + n->n;
}

/* How an insert goes: what is there already, and what has to be made. */
typedef struct insertion {
    kv_node *end;  /* the last node of the path that is there already */
    int64_t have;  /* blocks that are there */
    uint32_t head; /* blocks of end that are; less than its run: it has to be split */
    bool in_place; /* the rest goes to end's run */
    kv_node *upper, *child;
    kv_node *tail; /* of end: what comes after it begins with all its rows */
} insertion;

static insertion follow(const kv_tree *t, kv_node *at, const int32_t *ids, int64_t n_blocks)
{
    insertion in = {.end = at, .head = at->n};
    while (in.have < n_blocks && in.head == in.end->n) {
        tree_step s = step_down(t, in.end, ids + in.have * t->block_tokens, (n_blocks - in.have) * t->block_tokens);
        if (!s.blocks) {
            if (s.rows && (uint32_t)s.rows == s.child->tail_rows) in.tail = s.child;
            break;
        }
        in.have += s.blocks;
        in.end = s.child;
        in.head = s.blocks;
    }
    /* A run that others have used stays as it is: what comes after it has no hits yet. */
    in.in_place = in.have == 0 && at->parent && !at->children && at->locks == 1 && at->evict.hits == 0;
    return in;
}

static int prepare(kv_tree *t, insertion *in, int64_t rest, status *st)
{
    if (in->in_place) return node_reserve(t, in->end, (uint32_t)rest, st);
    if (in->head < in->end->n && node_new(t, &in->upper, in->head, st)) return st->code;
    if (rest && node_new(t, &in->child, (uint32_t)rest, st)) {
        node_free(t, in->upper);
        return st->code;
    }
    return ST_OK;
}

/* Blocks [0, have) are in the tree, up to the end of n's run: the tree's ids replace the caller's, or are those. */
static void adopt(kv_tree *t, kv_node *n, int64_t have, block_id *const *blocks)
{
    for (; have > 0; n = n->parent) {
        for (int slot = 0; slot < t->n_slots; slot++) {
            block_id *ours = node_ids(t, n, slot), *theirs = blocks[slot] + have - n->n;
            for (uint32_t i = 0; i < n->n; i++) {
                if (ours[i] == BLOCK_NONE) node_keep(t, n, slot, i, theirs[i]);
                else theirs[i] = ours[i];
            }
        }
        have -= n->n;
    }
}

int kv_tree_insert(kv_tree *t, kv_node **node, const int32_t *ids, int64_t n_blocks, block_id *const *blocks,
                   status *st)
{
    kv_node *at = *node;
    assert(at->locks > 0);
    if (n_blocks == 0) return ST_OK;
    if (n_blocks > UINT32_MAX - kv_node_blocks(at))
        return status_set(st, ST_LIMIT, STATUS_NO_POS, "a prefix can't have more than %u blocks", UINT32_MAX);
    insertion in = follow(t, at, ids, n_blocks);
    int64_t rest = n_blocks - in.have;
    if (prepare(t, &in, rest, st)) return st->code;
    kv_node *end = in.end;
    if (in.upper) {
        node_split(t, end, in.upper, in.head);
        end = in.upper;
    }
    adopt(t, end, in.have, blocks);
    if (in.child) {
        in.child->parent = end;
        in.child->first = (uint32_t)kv_node_blocks(end);
    }
    kv_node *last = in.child ? in.child : end;
    if (rest) {
        node_append(t, last, ids + in.have * t->block_tokens, blocks, in.have, (uint32_t)rest);
        evict_use(&t->order, &last->evict, depth_of(t, last), false);
    }
    if (in.tail) tail_drop(t, in.tail);
    if (in.child) {
        order_add(t, &end->children, in.child);
        end->n_children++;
        node_settle(t, end);
    }
    at->locks--;
    last->locks++;
    node_settle(t, last);
    *node = last;
    return ST_OK;
}

void kv_tree_blocks(const kv_tree *t, const kv_node *n, int slot, int64_t first, int64_t count, block_id *out)
{
    assert(first >= 0 && count >= 0 && first + count <= kv_node_blocks(n));
    for (int64_t end = first + count; end > first; n = n->parent) {
        int64_t from = n->first > first ? n->first : first;
        if (from >= end) continue;
        memcpy(out + (from - first), node_ids(t, n, slot) + (from - n->first), (size_t)(end - from) * sizeof *out);
        end = from;
    }
}

kv_tree_counts kv_tree_count(const kv_tree *t)
{
    kv_tree_counts c = t->counts;
    c.bytes += sizeof *t + t->order.capacity * sizeof *t->order.heap;
    for (int i = 0; i < t->n_slots; i++)
        if (t->slots[i].residents) c.bytes += pool_count(t->slots[i].pool).total * sizeof *t->slots[i].residents;
    return c;
}

const char *kv_tree_policy(const kv_tree *t)
{
    return t->order.policy->name;
}
