#include <stdio.h>

#include "forest.h"

#include <openssl/sha.h>

#include "base/mem.h"

static void test_match_down_to_the_token(void **state)
{
    (void)state;
    forest f = plant(1, 0);
    assert_match(&f, 1, "aaaabbbb", 0, 0);
    assert_null(match(&f, 1, "aaaabbbb").node);
    put(&f, 1, "aaaabbbbcccc");
    assert_match(&f, 1, "aaaabbbbcccc", 3, 0);
    assert_match(&f, 1, "aaaabbbbccccdddd", 3, 0);
    assert_match(&f, 1, "aaaabbbbcc", 2, 2);
    assert_match(&f, 1, "aaaabbbbccxc", 2, 2);
    assert_match(&f, 1, "aaaabbxb", 1, 2);
    assert_match(&f, 1, "aaax", 0, 3);
    assert_match(&f, 1, "a", 0, 1);
    assert_match(&f, 1, "", 0, 0);
    assert_match(&f, 1, "xaaa", 0, 0);
    put(&f, 1, "aaaabbbbcxcc");
    assert_match(&f, 1, "aaaabbbbcxcd", 2, 3);
    assert_match(&f, 1, "aaaabbbbccc", 2, 3);
    assert_match(&f, 1, "aaaabbbb", 2, 0);
    kv_match m = match(&f, 1, "aaaabbbbcxcd");
    block_id upper, lower;
    kv_tree_blocks(f.t, m.node, 0, 1, 1, &upper);
    kv_tree_blocks(f.t, m.next, 0, 2, 1, &lower);
    assert_int_equal(upper, 1); /* as they were taken */
    assert_int_equal(lower, 3);
    fell(&f);
}

static void test_split_keeps_the_lower_node(void **state)
{
    (void)state;
    forest f = plant(1, 0);
    block_id first[MAX_SLOTS][MAX_BLOCKS], second[MAX_SLOTS][MAX_BLOCKS], path[5];
    kv_node *a = append(&f, lock(&f, 1, ""), "aaaabbbbccccddddeeee", first);
    assert_int_equal(kv_tree_count(f.t).nodes, 2);
    kv_node *upper = lock(&f, 1, "aaaabbbbccccxxxx");
    assert_ptr_not_equal(upper, a);
    assert_int_equal(kv_node_blocks(upper), 3);
    assert_int_equal(kv_node_blocks(a), 5);
    assert_int_equal(kv_tree_count(f.t).nodes, 3);
    kv_tree_blocks(f.t, a, 0, 0, 5, path);
    assert_memory_equal(path, first[0], sizeof path);
    kv_node *b = append(&f, upper, "xxxx", second);
    kv_tree_blocks(f.t, b, 0, 2, 2, path);
    assert_int_equal(path[0], first[0][2]);
    assert_int_equal(path[1], second[0][0]);
    /* The first holder goes on where it was, in place. */
    a = append(&f, a, "ffff", second);
    assert_int_equal(kv_tree_count(f.t).nodes, 4);
    assert_match(&f, 1, "aaaabbbbccccddddeeeeffff", 6, 0);
    audit(f.t);
    for (int i = 0; i < 5; i++) pool_unref(f.pools[0], first[0][i]);
    pool_unref(f.pools[0], second[0][0]);
    kv_tree_blocks(f.t, b, 0, 3, 1, path);
    pool_unref(f.pools[0], path[0]);
    kv_tree_unlock(f.t, a);
    kv_tree_unlock(f.t, b);
    fell(&f);
}

/* What one sequence makes is one node, but what it appends to what others have used is a node of its own. */
static void test_runs_grow_in_place(void **state)
{
    (void)state;
    forest f = plant(0, 0);
    status st = STATUS_INIT;
    kv_node *n = lock(&f, 1, "");
    for (int i = 0; i < 9; i++) assert_int_equal(kv_tree_insert(f.t, &n, tokens("abcdefgh"), 2, NULL, &st), ST_OK);
    assert_int_equal(kv_tree_count(f.t).nodes, 2);
    assert_int_equal(kv_node_blocks(n), 18);
    kv_node *same = lock(&f, 1, "abcdefghabcdefghabcdefghabcdefghabcdefghabcdefghabcdefghabcdefghabcdefgh");
    assert_ptr_equal(same, n);
    assert_int_equal(kv_tree_insert(f.t, &n, tokens("ijkl"), 1, NULL, &st), ST_OK);
    assert_ptr_not_equal(same, n);
    assert_int_equal(kv_tree_insert(f.t, &n, tokens("mnop"), 1, NULL, &st), ST_OK);
    assert_int_equal(kv_tree_insert(f.t, &same, tokens("qrst"), 1, NULL, &st), ST_OK);
    assert_int_equal(kv_tree_count(f.t).nodes, 4);
    assert_int_equal(kv_tree_count(f.t).blocks, 21);
    kv_tree_unlock(f.t, n);
    kv_tree_unlock(f.t, same);
    same = lock(&f, 1, "abcdefgh"); /* a split, then nothing that goes on from the upper one */
    assert_int_equal(kv_tree_insert(f.t, &same, tokens("abcdefgh"), 2, NULL, &st), ST_OK);
    assert_int_equal(kv_tree_count(f.t).nodes, 6);
    assert_int_equal(kv_node_blocks(same), 4);
    kv_tree_unlock(f.t, same);
    fell(&f);
}

static void test_nearest_of_many_siblings(void **state)
{
    (void)state;
    enum { N = 300 };
    status st = STATUS_INIT;
    kv_tree *t;
    kv_tree_config c = {.block_tokens = B};
    int32_t all[N][B], ask[B];
    uint32_t x = 3;
    assert_int_equal(kv_tree_new(&t, &c, &st), ST_OK);
    for (int i = 0; i < N + 2000; i++) {
        for (int j = 0; j < B; j++) ask[j] = (int32_t)((x = x * 1664525 + 1013904223) >> 29) - 4; /* -4 .. 3 */
        int n_known = i < N ? i : N, most = 0;
        for (int k = 0; k < n_known; k++) {
            int shared = 0;
            while (shared < B && all[k][shared] == ask[shared]) shared++;
            if (shared > most) most = shared;
        }
        kv_match m = kv_tree_match(t, 5, ask, B);
        assert_int_equal(m.n_blocks * B + m.rows, most);
        if (i >= N) continue;
        kv_node *n;
        memcpy(all[i], ask, sizeof ask);
        assert_int_equal(kv_tree_lock(t, 5, &m, 0, &n, &st), ST_OK);
        if (most < B) assert_int_equal(kv_tree_insert(t, &n, ask, 1, NULL, &st), ST_OK);
        kv_tree_unlock(t, n);
        if (i % 16 == 0) audit(t);
    }
    while (kv_tree_count(t).blocks > N / 3) assert_true(kv_tree_evict_leaf(t));
    audit(t);
    kv_tree_clear(t);
    assert_int_equal(kv_tree_count(t).nodes, 0);
    kv_tree_free(t);
}

static void test_salts_are_apart(void **state)
{
    (void)state;
    forest f = plant(1, 0);
    put(&f, 1, "aaaabbbb");
    put(&f, UINT64_MAX, "aaaa");
    assert_match(&f, 1, "aaaabbbb", 2, 0);
    assert_match(&f, UINT64_MAX, "aaaabbbb", 1, 0);
    assert_match(&f, 0, "aaaabbbb", 0, 0);
    assert_int_equal(kv_tree_count(f.t).blocks, 3);
    kv_node *n = lock(&f, 0, "aaaa"); /* a root alone, which goes with its last lock */
    assert_int_equal(kv_tree_count(f.t).nodes, 5);
    assert_int_equal(kv_node_blocks(n), 0);
    kv_node *again = kv_tree_lock_prefix(f.t, n, 0);
    assert_ptr_equal(again, n);
    kv_tree_unlock(f.t, n);
    audit(f.t);
    kv_tree_clear(f.t); /* but not before */
    assert_int_equal(kv_tree_count(f.t).nodes, 1);
    audit(f.t);
    kv_tree_unlock(f.t, again);
    assert_int_equal(kv_tree_count(f.t).nodes, 0);
    fell(&f);
}

static void test_locks(void **state)
{
    (void)state;
    forest f = plant(1, 0);
    put(&f, 1, "aaaabbbbcccc");
    put(&f, 1, "aaaaxxxx");
    kv_node *n = lock(&f, 1, "aaaabbbb");
    assert_true(kv_tree_evict(f.t, 0)); /* cccc, then xxxx */
    assert_true(kv_tree_evict(f.t, 0));
    assert_false(kv_tree_evict(f.t, 0));
    assert_match(&f, 1, "aaaabbbbcccc", 2, 0);
    kv_node *prefix = kv_tree_lock_prefix(f.t, n, 1);
    assert_int_equal(kv_node_blocks(prefix), 1);
    kv_node *end = kv_tree_lock_prefix(f.t, n, 7);
    assert_ptr_equal(end, n);
    kv_node *root = kv_tree_lock_prefix(f.t, n, 0);
    assert_int_equal(kv_node_blocks(root), 0);
    kv_tree_unlock(f.t, n);
    assert_false(kv_tree_evict(f.t, 0));
    kv_tree_unlock(f.t, end);
    assert_true(kv_tree_evict(f.t, 0));
    assert_false(kv_tree_evict(f.t, 0)); /* aaaa is locked */
    assert_match(&f, 1, "aaaabbbb", 1, 0);
    kv_tree_unlock(f.t, prefix);
    assert_true(kv_tree_evict(f.t, 0));
    kv_tree_unlock(f.t, root);
    fell(&f);
}

/* A lock inside a run splits it there; without memory for that it goes back to where a node ends. */
static void test_prefix_inside_a_run(void **state)
{
    (void)state;
    for (int fails = 0; fails < 2; fails++) {
        forest f = plant(0, 0);
        status st = STATUS_INIT;
        kv_node *n = lock(&f, 1, "");
        assert_int_equal(kv_tree_insert(f.t, &n, tokens("aaaabbbbcccc"), 3, NULL, &st), ST_OK);
        mem_fail_after(fails);
        kv_node *prefix = kv_tree_lock_prefix(f.t, n, 1);
        mem_fail_after(0);
        assert_int_equal(kv_node_blocks(prefix), fails ? 0 : 1);
        assert_int_equal(kv_node_blocks(n), 3);
        /* It goes on over blocks that are there: they are found, not made again. */
        const char *more = fails ? "aaaaxxxx" : "xxxx";
        assert_int_equal(kv_tree_insert(f.t, &prefix, tokens(more), fails ? 2 : 1, NULL, &st), ST_OK);
        assert_int_equal(kv_node_blocks(prefix), 2);
        assert_int_equal(kv_tree_count(f.t).blocks, 4);
        audit(f.t);
        kv_tree_unlock(f.t, prefix);
        kv_tree_unlock(f.t, n);
        fell(&f);
    }
}

/* A leaf whose blocks are in use frees nothing: the next one goes as well. */
static void test_evict_frees(void **state)
{
    (void)state;
    forest f = plant(1, 0);
    block_id ids[MAX_SLOTS][MAX_BLOCKS];
    assert_false(kv_tree_evict(f.t, 0));
    kv_node *n = append(&f, lock(&f, 1, ""), "aaaa", ids);
    kv_tree_unlock(f.t, n);
    assert_false(kv_tree_evict(f.t, 0)); /* nothing is cached, so nothing goes */
    assert_int_equal(kv_tree_count(f.t).blocks, 1);
    put(&f, 1, "bbbb");
    assert_true(kv_tree_evict(f.t, 0));
    assert_int_equal(kv_tree_count(f.t).blocks, 0);
    assert_int_equal(kv_tree_count(f.t).evicted, 2);
    assert_int_equal(pool_state(f.pools[0], ids[0][0]), BLOCK_IN_USE);
    pool_unref(f.pools[0], ids[0][0]);
    fell(&f);
}

static void test_whole_blocks(void **state)
{
    (void)state;
    status st = STATUS_INIT;
    kv_tree_config c = {.block_tokens = B, .whole_blocks = true};
    forest f = {0};
    assert_int_equal(kv_tree_new(&f.t, &c, &st), ST_OK);
    put(&f, 1, "aaaabbbb");
    assert_match(&f, 1, "aaaabbbx", 1, 0);
    fell(&f);
}

static void sha(uint8_t key[32], const void *data, size_t n_bytes)
{
    uint8_t buffer[32 + 4 * B + 8];
    memcpy(buffer, key, 32);
    memcpy(buffer + 32, data, n_bytes);
    SHA256(buffer, 32 + n_bytes, key);
}

static void test_keys(void **state)
{
    (void)state;
    uint8_t seed[32], key[32], got[32], range[200][32];
    status st = STATUS_INIT;
    kv_tree *t;
    kv_node *n = NULL;
    uint64_t salt = 0x0123456789abcdefu;
    int32_t ids[200 * B];
    for (int i = 0; i < 32; i++) seed[i] = (uint8_t)(i * 7);
    for (int i = 0; i < 200 * B; i++) ids[i] = i * i;
    kv_tree_config c = {.block_tokens = B, .seed = seed};
    assert_int_equal(kv_tree_new(&t, &c, &st), ST_OK);
    kv_node *held[200];
    for (int i = 0; i < 200; i++) { /* 200 nodes in a row: each is used before it goes on */
        kv_match m = kv_tree_match(t, salt, ids, i * B);
        assert_int_equal(kv_tree_lock(t, salt, &m, 0, &held[i], &st), ST_OK);
        assert_int_equal(kv_tree_insert(t, &held[i], ids + i * B, 1, NULL, &st), ST_OK);
        n = held[i];
    }
    assert_int_equal(kv_tree_count(t).nodes, 201);
    kv_tree_keys(t, n, 0, 200, range);
    memcpy(key, seed, 32);
    sha(key, &salt, sizeof salt);
    for (int i = 0; i < 200; i++) {
        sha(key, ids + i * B, sizeof(int32_t) * B);
        assert_memory_equal(range[i], key, 32);
        kv_tree_key(t, n, i, got);
        assert_memory_equal(got, key, 32);
        kv_tree_key(t, held[i], i, got);
        assert_memory_equal(got, key, 32);
    }
    kv_tree_keys(t, n, 77, 50, range);
    kv_tree_key(t, n, 126, got);
    assert_memory_equal(range[49], got, 32);
    for (int i = 0; i < 200; i++) kv_tree_unlock(t, held[i]);
    kv_tree_free(t);
    /* Without a seed: zeros. In one run as in many. */
    c.seed = NULL;
    assert_int_equal(kv_tree_new(&t, &c, &st), ST_OK);
    kv_match m = kv_tree_match(t, 9, ids, 0);
    assert_int_equal(kv_tree_lock(t, 9, &m, 0, &n, &st), ST_OK);
    assert_int_equal(kv_tree_insert(t, &n, ids, 3, NULL, &st), ST_OK);
    memset(key, 0, 32);
    salt = 9;
    sha(key, &salt, sizeof salt);
    for (int i = 0; i < 3; i++) sha(key, ids + i * B, sizeof(int32_t) * B);
    kv_tree_key(t, n, 2, got);
    assert_memory_equal(got, key, 32);
    kv_tree_unlock(t, n);
    kv_tree_free(t);
}

typedef struct listing {
    char text[256];
    int stop_after;
} listing;

static bool list(void *user, const kv_node_info *n)
{
    listing *l = user;
    char *at = l->text + strlen(l->text);
    if (n->n_blocks == 0) sprintf(at, "(%d:%d)", (int)n->salt, n->n_children);
    else
        sprintf(at, "%d%c%c%d+%d ", n->depth, n->ids[0], n->ids[n->n_blocks * B - 1], (int)n->first_block,
                (int)n->n_blocks);
    return --l->stop_after != 0;
}

static void test_walk(void **state)
{
    (void)state;
    forest f = plant(0, 0);
    put(&f, 3, "cccc");
    put(&f, 2, "aaaabbbbccccdddd");
    put(&f, 2, "aaaabbbbxxxx");
    put(&f, 2, "aaaabbbbccccyyyy");
    put(&f, 2, "AAAA");
    listing l = {.text = ""};
    kv_tree_walk(f.t, list, &l);
    assert_string_equal(l.text, "(2:2)0AA0+1 0ab0+2 1cc2+1 2dd3+1 2yy3+1 1xx2+1 (3:1)0cc0+1 ");
    l = (listing){.stop_after = 3};
    kv_tree_walk(f.t, list, &l);
    assert_string_equal(l.text, "(2:2)0AA0+1 0ab0+2 ");
    fell(&f);
}

static void test_audit_sees(void **state)
{
    (void)state;
    forest f = plant(2, B);
    status st = STATUS_INIT;
    put(&f, 1, "aaaabbbb");
    put(&f, 1, "aaaacccc");
    pool_ref(f.pools[1], 1); /* held again without a word to the tree */
    assert_int_equal(kv_tree_audit(f.t, &st), ST_FORMAT);
    assert_non_null(strstr(st.text, "block 1 has 1 references and is resting"));
    pool_unref(f.pools[1], 1);
    audit(f.t);
    pool_drop(f.pools[0], 2);
    assert_int_equal(kv_tree_audit(f.t, &st), ST_FORMAT);
    assert_non_null(strstr(st.text, "not kept"));
    block_id again = pool_take(f.pools[0]);
    assert_int_equal(again, 2);
    pool_keep(f.pools[0], 2);
    pool_unref(f.pools[0], 2);
    audit(f.t);
    block_id stray = pool_take(f.pools[0]);
    pool_keep(f.pools[0], stray);
    assert_int_equal(kv_tree_audit(f.t, &st), ST_FORMAT);
    assert_non_null(strstr(st.text, "kept, but not in the tree"));
    pool_drop(f.pools[0], stray);
    pool_unref(f.pools[0], stray);
    fell(&f);
}

/* Every allocation fails in turn: nothing is made, nothing leaks, and the tree is as it was. */
static void test_memory(void **state)
{
    (void)state;
    status st = STATUS_INIT;
    uint64_t live = mem_stats().live, bytes = mem_stats().bytes;
    pool *p;
    assert_int_equal(pool_new(&p, 64, MAX_BLOCKS, &st), ST_OK);
    kv_tree_slot slots[] = {{p, B}};
    kv_tree_config c = {.block_tokens = B, .slots = slots, .n_slots = 1};
    kv_tree *t = NULL;
    uint64_t with_pool = mem_stats().live;
    int n = 1;
    for (mem_fail_after(n); kv_tree_new(&t, &c, &st); mem_fail_after(++n)) {
        assert_int_equal(st.code, ST_NOMEM);
        assert_null(t);
        assert_int_equal(mem_stats().live, with_pool);
    }
    mem_fail_after(0);
    assert_int_equal(n, 4);
    kv_tree_free(t);
    pool_free(p);

    forest f = plant(1, 0);
    put(&f, 1, "aaaabbbbccccdddd");
    uint64_t nodes = kv_tree_count(f.t).nodes;
    kv_match m = match(&f, 1, "aaaabbbb");
    kv_node *at = NULL;
    for (n = 1, mem_fail_after(1); kv_tree_lock(f.t, 1, &m, 0, &at, &st); mem_fail_after(++n)) { /* a split */
        mem_fail_after(0);
        assert_int_equal(st.code, ST_NOMEM);
        assert_int_equal(kv_tree_count(f.t).nodes, nodes);
        audit(f.t);
        assert_match(&f, 1, "aaaabbbbccccdddd", 4, 0);
    }
    mem_fail_after(0);
    assert_int_equal(n, 3);
    block_id ids[2] = {pool_take(f.pools[0]), pool_take(f.pools[0])}, *blocks[] = {ids};
    kv_node *was = at;
    nodes = kv_tree_count(f.t).nodes;
    m = match(&f, 2, "");
    for (n = 1, mem_fail_after(1); kv_tree_lock(f.t, 2, &m, 0, &at, &st); mem_fail_after(++n)) audit(f.t);
    mem_fail_after(0);
    assert_int_equal(n, 2); /* a root */
    kv_tree_unlock(f.t, at);
    at = was;
    for (n = 1, mem_fail_after(1); kv_tree_insert(f.t, &at, tokens("ccccxxxx"), 2, blocks, &st); mem_fail_after(++n)) {
        mem_fail_after(0); /* a split and a child */
        assert_ptr_equal(at, was);
        assert_int_equal(kv_tree_count(f.t).nodes, nodes);
        assert_false(pool_kept(f.pools[0], ids[1]));
        audit(f.t);
    }
    mem_fail_after(0);
    assert_int_equal(n, 5);
    assert_int_equal(ids[0], 2);
    assert_int_equal(kv_node_blocks(at), 4);
    kv_tree_unlock(f.t, kv_tree_lock_prefix(f.t, at, 1));
    uint64_t calls = mem_stats().calls;
    kv_tree_unlock(f.t, at);
    pool_unref(f.pools[0], 4);
    pool_unref(f.pools[0], 5);
    while (kv_tree_evict(f.t, 0)) {}
    assert_int_equal(mem_stats().calls, calls); /* T6 */
    assert_int_equal(kv_tree_count(f.t).nodes, 0);
    fell(&f);
    assert_int_equal(mem_stats().live, live);
    assert_int_equal(mem_stats().bytes, bytes);
}

/* Uses the first `have` blocks of ids and adds those up to n_blocks. */
static void add_run(kv_tree *t, uint64_t salt, const int32_t *ids, int have, int n_blocks)
{
    kv_node *n;
    status st = STATUS_INIT;
    kv_match m = kv_tree_match(t, salt, ids, have * B);
    assert_int_equal(kv_tree_lock(t, salt, &m, 0, &n, &st), ST_OK);
    assert_int_equal(kv_tree_insert(t, &n, ids + have * B, n_blocks - have, NULL, &st), ST_OK);
    kv_tree_unlock(t, n);
}

/* What the tree says of its memory is what it takes, rounding by the heap apart. */
static void test_bytes(void **state)
{
    (void)state;
    uint64_t before = mem_stats().bytes;
    forest f = plant(0, 0);
    status st = STATUS_INIT;
    int32_t ids[B] = {0};
    for (int i = 0; i < 1000; i++) {
        kv_node *n;
        ids[0] = i;
        kv_match m = kv_tree_match(f.t, 1, ids, B);
        assert_int_equal(kv_tree_lock(f.t, 1, &m, 0, &n, &st), ST_OK);
        assert_int_equal(kv_tree_insert(f.t, &n, ids, 1, NULL, &st), ST_OK);
        kv_tree_unlock(f.t, n);
    }
    uint64_t told = kv_tree_count(f.t).bytes, taken = mem_stats().bytes - before;
    assert_in_range(taken, told, told + 1001 * 2 * 16);
    kv_tree_clear(f.t);
    audit(f.t);
    assert_true(kv_tree_count(f.t).bytes < told / 8);

    /* A run that is split again and again gives back what its heads took: it ends as if it had been made like that. */
    int32_t run[256 * B];
    uint64_t bytes[2], nodes[2];
    for (int i = 0; i < 256 * B; i++) run[i] = i;
    for (uint64_t way = 0; way < 2; way++) {
        uint64_t empty = kv_tree_count(f.t).bytes, no_nodes = kv_tree_count(f.t).nodes;
        if (way == 0) add_run(f.t, way, run, 0, 256);
        for (int i = 0; i < 256; i++) add_run(f.t, way, run, i, way ? i + 1 : i);
        assert_int_equal(kv_tree_match(f.t, way, run, 256 * B).n_blocks, 256);
        bytes[way] = kv_tree_count(f.t).bytes - empty;
        nodes[way] = kv_tree_count(f.t).nodes - no_nodes;
    }
    assert_int_equal(nodes[0], nodes[1]);
    assert_in_range(bytes[0], bytes[1] - 1000, bytes[1] + 1000); /* the order of eviction grows in steps */
    assert_in_range(mem_stats().bytes - before, kv_tree_count(f.t).bytes, kv_tree_count(f.t).bytes + 514 * 2 * 16);
    fell(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_match_down_to_the_token),
        cmocka_unit_test(test_split_keeps_the_lower_node),
        cmocka_unit_test(test_runs_grow_in_place),
        cmocka_unit_test(test_nearest_of_many_siblings),
        cmocka_unit_test(test_salts_are_apart),
        cmocka_unit_test(test_locks),
        cmocka_unit_test(test_prefix_inside_a_run),
        cmocka_unit_test(test_evict_frees),
        cmocka_unit_test(test_whole_blocks),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_walk),
        cmocka_unit_test(test_audit_sees),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests_name("tree", tests, NULL, NULL);
}
