/* The radix tree's tails: partial blocks that sequences leave, what takes their place, and when they go. */
#include <stdio.h>

#include "forest.h"

#include "base/mem.h"

/* A sequence that comes and goes and leaves all of its text: full blocks, then a tail. */
static int leave(forest *f, const char *text, int priority)
{
    int rows = (int)strlen(text) % B;
    char full[256];
    status st = STATUS_INIT;
    block_id tail[MAX_SLOTS];
    snprintf(full, sizeof full, "%.*s", (int)strlen(text) - rows, text);
    put(f, 1, full);
    if (rows == 0) return ST_OK;
    kv_node *n = lock(f, 1, full);
    for (int slot = 0; slot < f->n_slots; slot++) tail[slot] = pool_take(f->pools[slot]);
    int rc = kv_tree_insert_tail(f->t, n, tokens(text + strlen(full)), rows, tail, priority, &st);
    for (int slot = 0; slot < f->n_slots; slot++) let_go(f, slot, tail[slot], false);
    kv_tree_unlock(f->t, n);
    audit(f->t);
    return rc;
}

static void assert_counts(const forest *f, uint64_t blocks, uint64_t tails)
{
    assert_int_equal(kv_tree_count(f->t).blocks, blocks);
    assert_int_equal(kv_tree_count(f->t).tails, tails);
    for (int slot = 0; slot < f->n_slots; slot++) assert_int_equal(pool_count(f->pools[slot]).cached, blocks);
}

static void test_a_tail_is_found(void **state)
{
    (void)state;
    forest f = plant(2, B);
    leave(&f, "aaaabbbbcc", 0);
    assert_counts(&f, 3, 1);
    assert_match(&f, 1, "aaaabbbbcc", 2, 2);
    assert_match(&f, 1, "aaaabbbbccdd", 2, 2);
    assert_match(&f, 1, "aaaabbbbcdcc", 2, 1);
    assert_match(&f, 1, "aaaabbbb", 2, 0);
    assert_match(&f, 1, "aaaabbbbd", 2, 0);
    assert_match(&f, 2, "aaaabbbbcc", 0, 0);
    leave(&f, "xy", 0); /* shorter than a block: under the root of its salt */
    assert_match(&f, 1, "xyz", 0, 2);
    assert_counts(&f, 4, 2);
    fell(&f);
}

/* The cases of the drawing in tree.h. */
static void test_what_takes_the_place_of_a_tail(void **state)
{
    (void)state;
    forest f = plant(2, 0);
    leave(&f, "aaaabb", 0);
    leave(&f, "aaaab", 0); /* its rows are there */
    assert_counts(&f, 2, 1);
    assert_match(&f, 1, "aaaabbbb", 1, 2);
    leave(&f, "aaaabbb", 0); /* a longer one in its place */
    assert_counts(&f, 2, 1);
    assert_match(&f, 1, "aaaabbbb", 1, 3);
    leave(&f, "aaaabxx", 0); /* another end */
    assert_counts(&f, 3, 2);
    assert_match(&f, 1, "aaaabbbb", 1, 3);
    assert_match(&f, 1, "aaaabxxb", 1, 3);
    put(&f, 1, "aaaabbbb"); /* a full block in the place of the first */
    assert_counts(&f, 3, 1);
    leave(&f, "aaaabb", 0); /* the beginning of a full block */
    assert_counts(&f, 3, 1);
    put(&f, 1, "aaaabxxb");
    assert_counts(&f, 3, 0);
    assert_int_equal(kv_tree_count(f.t).inserted, 6);
    assert_int_equal(kv_tree_count(f.t).absorbed, 3);
    leave(&f, "aaaabbbbcccc" "d", 0); /* a tail further down stays where a path is split above it */
    kv_node *upper = lock(&f, 1, "aaaabbbbx");
    assert_match(&f, 1, "aaaabbbbccccdd", 3, 1);
    kv_tree_unlock(f.t, upper);
    fell(&f);
}

static void test_a_chat_has_one_tail(void **state)
{
    (void)state;
    forest f = plant(1, 0);
    char text[128] = "";
    for (int turn = 0; turn < 100; turn++) {
        text[turn] = (char)('a' + turn % 23);
        text[turn + 1] = '\0';
        leave(&f, text, 0);
        assert_counts(&f, (uint64_t)(turn / B + 1), (turn + 1) % B != 0);
        assert_match(&f, 1, text, (turn + 1) / B, (turn + 1) % B);
    }
    fell(&f);
}

/* The longest unused first, a tail before what it follows; a copied one has been used. */
static void test_tails_are_evicted_like_leaves(void **state)
{
    (void)state;
    forest f = plant(1, 0);
    leave(&f, "aaaab", 0);
    leave(&f, "ccccd", 0);
    leave(&f, "eeeef", 0);
    kv_tree_unlock(f.t, lock(&f, 1, "aaaabx")); /* whose match has a row of the tail */
    assert_true(kv_tree_evict(f.t, 0));
    assert_match(&f, 1, "ccccd", 1, 0);
    assert_true(kv_tree_evict(f.t, 0));
    assert_match(&f, 1, "ccccd", 0, 0);
    assert_true(kv_tree_evict(f.t, 0));
    assert_match(&f, 1, "eeeef", 1, 0);
    assert_match(&f, 1, "aaaab", 1, 1);
    assert_counts(&f, 3, 1);
    kv_node *n = lock(&f, 1, "aaaa"); /* locks what is above it, not the tail */
    for (int i = 0; i < 2; i++) assert_true(kv_tree_evict(f.t, 0));
    assert_counts(&f, 1, 0);
    assert_false(kv_tree_evict_leaf(f.t));
    kv_tree_unlock(f.t, n);
    fell(&f);
}

/* Where a window's pool needs a tail's block, the tail goes from every slot: a part of it is of no use. */
static void test_a_tail_goes_whole(void **state)
{
    (void)state;
    forest f = plant(2, B);
    leave(&f, "aaaabb", 0);
    kv_node *n = lock(&f, 1, "aaaa");
    assert_true(kv_tree_evict(f.t, 1));
    assert_int_equal(kv_tree_count(f.t).tails, 0);
    assert_int_equal(pool_count(f.pools[0]).cached, 1);
    assert_int_equal(pool_count(f.pools[1]).cached, 1);
    assert_match(&f, 1, "aaaabb", 1, 0);
    kv_tree_unlock(f.t, n);
    fell(&f);
}

static void test_a_tail_is_taken_back(void **state)
{
    (void)state;
    forest f = plant(2, 2 * B);
    leave(&f, "aaaabb", 0);
    kv_match m = match(&f, 1, "aaaabbbb");
    block_id ids[MAX_SLOTS];
    for (int slot = 0; slot < 2; slot++) {
        kv_tree_blocks(f.t, m.next, slot, 1, 1, &ids[slot]);
        pool_ref(f.pools[slot], ids[slot]);
        kv_tree_wake(f.t, slot, ids[slot]);
    }
    assert_true(kv_tree_take_tail(f.t, m.next));
    audit(f.t);
    assert_match(&f, 1, "aaaabb", 1, 0);
    for (int slot = 0; slot < 2; slot++) {
        assert_false(pool_kept(f.pools[slot], ids[slot]));
        pool_unref(f.pools[slot], ids[slot]);
    }
    m = match(&f, 1, "aaxx");
    assert_false(kv_tree_take_tail(f.t, m.next)); /* rows of a full block */
    assert_match(&f, 1, "aaaa", 1, 0);
    fell(&f);
}

static void test_priority_of_a_tail(void **state)
{
    (void)state;
    status st = STATUS_INIT;
    kv_tree *t;
    kv_tree_config c = {.block_tokens = B, .policy = evict_policy_get("priority")};
    assert_int_equal(kv_tree_new(&t, &c, &st), ST_OK);
    kv_node *n;
    kv_match none = {0};
    assert_int_equal(kv_tree_lock(t, 1, &none, 0, &n, &st), ST_OK);
    assert_int_equal(kv_tree_insert_tail(t, n, tokens("ab"), 2, NULL, 5, &st), ST_OK);
    assert_int_equal(kv_tree_insert_tail(t, n, tokens("cd"), 2, NULL, 1, &st), ST_OK);
    assert_int_equal(kv_tree_insert_tail(t, n, tokens("ef"), 2, NULL, 3, &st), ST_OK);
    assert_int_equal(kv_tree_insert_tail(t, n, tokens("cde"), 3, NULL, 4, &st), ST_OK);
    assert_true(kv_tree_evict_leaf(t));
    assert_int_equal(kv_tree_match(t, 1, tokens("ef"), 2).rows, 0);
    assert_true(kv_tree_evict_leaf(t));
    assert_int_equal(kv_tree_match(t, 1, tokens("cd"), 2).rows, 0);
    assert_int_equal(kv_tree_match(t, 1, tokens("ab"), 2).rows, 2);
    kv_tree_unlock(t, n);
    kv_tree_free(t);
}

static void test_memory(void **state)
{
    (void)state;
    uint64_t live = mem_stats().live;
    forest f = plant(1, 0);
    status st = STATUS_INIT;
    block_id id = pool_take(f.pools[0]);
    kv_node *n = lock(&f, 1, "");
    int failed = 0;
    for (int k = 1;; k++) {
        mem_fail_after((uint64_t)k);
        int rc = kv_tree_insert_tail(f.t, n, tokens("ab"), 2, &id, 0, &st);
        mem_fail_after(0);
        audit(f.t);
        if (rc == ST_OK) break;
        assert_int_equal(rc, ST_NOMEM);
        assert_false(pool_kept(f.pools[0], id));
        failed++;
    }
    assert_true(failed >= 2); /* the node, its run */
    assert_true(pool_kept(f.pools[0], id));
    pool_unref(f.pools[0], id);
    uint64_t calls = mem_stats().calls;
    id = pool_take(f.pools[0]);
    assert_int_equal(kv_tree_insert_tail(f.t, n, tokens("abc"), 3, &id, 0, &st), ST_OK); /* in its place */
    assert_int_equal(mem_stats().calls, calls);
    pool_unref(f.pools[0], id);
    kv_tree_unlock(f.t, n);
    fell(&f);
    assert_int_equal(mem_stats().live, live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_tail_is_found),
        cmocka_unit_test(test_what_takes_the_place_of_a_tail),
        cmocka_unit_test(test_a_chat_has_one_tail),
        cmocka_unit_test(test_tails_are_evicted_like_leaves),
        cmocka_unit_test(test_a_tail_goes_whole),
        cmocka_unit_test(test_a_tail_is_taken_back),
        cmocka_unit_test(test_priority_of_a_tail),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests_name("tree_tails", tests, NULL, NULL);
}
