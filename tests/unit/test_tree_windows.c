/* The radix tree with several slots: windows, blocks that are missing, what is adopted, what is evicted first. */
#include "forest.h"

static void test_insert_meets_what_is_there(void **state)
{
    (void)state;
    forest f = plant(2, B);
    block_id a[MAX_SLOTS][MAX_BLOCKS], b[MAX_SLOTS][MAX_BLOCKS], got;
    kv_node *first = lock(&f, 1, ""), *second = lock(&f, 1, "");
    first = append(&f, first, "aaaabbbbcccc", a);
    /* The first one's window moves on, and one of the blocks behind it is evicted. */
    let_go(&f, 1, a[1][0], true);
    let_go(&f, 1, a[1][1], true);
    assert_true(kv_tree_evict(f.t, 1));
    audit(f.t);
    kv_tree_blocks(f.t, first, 1, 0, 1, &got);
    assert_int_equal(got, BLOCK_NONE);

    block_id own[MAX_SLOTS][2], *blocks[MAX_SLOTS] = {b[0], b[1]};
    status st = STATUS_INIT;
    for (int slot = 0; slot < 2; slot++)
        for (int i = 0; i < 2; i++) b[slot][i] = own[slot][i] = pool_take(f.pools[slot]);
    assert_int_equal(kv_tree_insert(f.t, &second, tokens("aaaabbbb"), 2, blocks, &st), ST_OK);
    assert_int_equal(b[0][0], a[0][0]); /* the tree's */
    assert_int_equal(b[0][1], a[0][1]);
    assert_int_equal(b[1][0], own[1][0]); /* adopted */
    assert_int_equal(b[1][1], a[1][1]);
    assert_int_equal(kv_node_blocks(second), 2);
    assert_int_equal(kv_tree_count(f.t).blocks, 3);
    assert_false(pool_kept(f.pools[0], own[0][0]));
    assert_true(pool_kept(f.pools[1], own[1][0]));
    audit(f.t);

    for (int i = 0; i < 2; i++) pool_unref(f.pools[0], own[0][i]);
    pool_unref(f.pools[1], own[1][1]);
    let_go(&f, 1, own[1][0], false);
    for (int i = 0; i < 3; i++) pool_unref(f.pools[0], a[0][i]);
    let_go(&f, 1, a[1][2], false);
    kv_tree_unlock(f.t, first);
    kv_tree_unlock(f.t, second);
    fell(&f);
}

/* A caller may have nothing for a slot, whichever it is. */
static void test_missing_blocks(void **state)
{
    (void)state;
    for (int lacks = 0; lacks < 2; lacks++) {
        forest f = plant(2, 0);
        int has = 1 - lacks;
        block_id ids[MAX_SLOTS][2] = {{BLOCK_NONE, BLOCK_NONE}, {BLOCK_NONE, BLOCK_NONE}};
        block_id *blocks[MAX_SLOTS] = {ids[0], ids[1]};
        status st = STATUS_INIT;
        for (int i = 0; i < 2; i++) ids[has][i] = pool_take(f.pools[has]);
        kv_node *n = lock(&f, 1, "");
        assert_int_equal(kv_tree_insert(f.t, &n, tokens("aaaabbbb"), 2, blocks, &st), ST_OK);
        assert_match(&f, 1, "aaaabbbb", 0, 0); /* the slot can't serve it, nor rows of it */
        assert_match(&f, 1, "aaax", 0, 0);
        kv_tree_unlock(f.t, n);
        n = lock(&f, 1, "");
        ids[lacks][0] = pool_take(f.pools[lacks]);
        assert_int_equal(kv_tree_insert(f.t, &n, tokens("aaaa"), 1, blocks, &st), ST_OK);
        assert_match(&f, 1, "aaaabbbb", 1, 0);
        assert_match(&f, 1, "aaax", 0, 3);
        kv_tree_unlock(f.t, n);
        for (int i = 0; i < 2; i++) pool_unref(f.pools[has], ids[has][i]);
        pool_unref(f.pools[lacks], ids[lacks][0]);
        /* Dropping a leaf that has nothing in the slot does not count there: the next one goes too. */
        assert_true(kv_tree_evict(f.t, lacks));
        assert_int_equal(kv_tree_count(f.t).blocks, 0);
        assert_false(kv_tree_evict(f.t, lacks));
        fell(&f);
    }
}

static void test_windows(void **state)
{
    (void)state;
    forest f = plant(2, 6); /* a hit of n tokens needs rows > n - 6: two blocks before its end */
    block_id ids[MAX_SLOTS][MAX_BLOCKS];
    kv_node *n = append(&f, lock(&f, 1, ""), "aaaabbbbccccddddeeee", ids);
    for (int i = 0; i < 3; i++) let_go(&f, 1, ids[1][i], true);
    assert_match(&f, 1, "aaaabbbbccccddddeeee", 5, 0);
    assert_true(kv_tree_evict(f.t, 1)); /* a: the oldest behind */
    assert_match(&f, 1, "aaaabbbbccccddddee", 4, 2);
    assert_match(&f, 1, "aaaabbbbccccdd", 3, 2); /* needs b and c */
    assert_match(&f, 1, "aaaabbbb", 0, 0);       /* needs a and b */
    assert_match(&f, 1, "aaaabbxx", 0, 0);
    assert_true(kv_tree_evict(f.t, 1)); /* b */
    assert_match(&f, 1, "aaaabbbbccccdd", 3, 2); /* from the end of the two rows c is enough */
    assert_match(&f, 1, "aaaabbbbccccx", 0, 0);  /* from before them it is not */
    assert_match(&f, 1, "aaaabbbbccccddddx", 4, 0);
    assert_match(&f, 1, "aaaabbbbccccddddeeeex", 5, 0);
    assert_int_equal(kv_tree_count(f.t).evicted_behind, 2);
    /* A lock where a hit ended, in the middle of the run. */
    kv_node *four = lock(&f, 1, "aaaabbbbccccddddx");
    assert_int_equal(kv_node_blocks(four), 4);
    audit(f.t);
    kv_tree_unlock(f.t, four);
    for (int i = 0; i < 5; i++) pool_unref(f.pools[0], ids[0][i]);
    for (int i = 3; i < 5; i++) let_go(&f, 1, ids[1][i], false);
    kv_tree_unlock(f.t, n);
    fell(&f);
}

/* How many blocks before its end a hit needs, for windows of all remainders. */
static void test_window_sizes(void **state)
{
    (void)state;
    for (int window = 1; window <= 4 * B; window++) {
        forest f = plant(2, window);
        block_id ids[MAX_SLOTS][MAX_BLOCKS];
        kv_node *n = append(&f, lock(&f, 1, ""), "aaaabbbbccccddddeeeeffff", ids);
        int first_row = 6 * B - window + 1, needed = 6 - (first_row > 0 ? first_row : 0) / B;
        for (int i = 0; i < 6; i++) let_go(&f, 1, ids[1][i], true);
        for (int gone = 0; gone < 6; gone++) { /* the first `gone` blocks */
            kv_match m = match(&f, 1, "aaaabbbbccccddddeeeeffff");
            assert_int_equal(m.n_blocks == 6, 6 - gone >= needed);
            assert_true(kv_tree_evict(f.t, 1));
        }
        for (int i = 0; i < 6; i++) pool_unref(f.pools[0], ids[0][i]);
        kv_tree_unlock(f.t, n);
        fell(&f);
    }
}

/* Blocks behind windows first, the oldest first; then leaves; then what rests on paths that stay. */
static void test_order_of_a_windowed_slot(void **state)
{
    (void)state;
    forest f = plant(2, B);
    block_id a[MAX_SLOTS][MAX_BLOCKS], b[MAX_SLOTS][MAX_BLOCKS], path[3];
    kv_node *n = append(&f, lock(&f, 1, ""), "aaaabbbbcccc", a), *m = append(&f, lock(&f, 1, ""), "xxxxyyyy", b);
    let_go(&f, 1, b[1][0], true);
    let_go(&f, 1, a[1][0], true);
    let_go(&f, 1, a[1][1], false);
    kv_tree_wake(f.t, 1, a[1][0]); /* held again, and let go again: the youngest now */
    pool_ref(f.pools[1], a[1][0]);
    let_go(&f, 1, a[1][0], true);
    for (int i = 0; i < 2; i++) pool_unref(f.pools[0], b[0][i]);
    let_go(&f, 1, b[1][1], false);
    kv_tree_unlock(f.t, m); /* xxxxyyyy is a leaf; aaaabbbbcccc stays locked */
    audit(f.t);
    const block_id order[] = {b[1][0], a[1][0], b[1][1], a[1][1]};
    for (int i = 0; i < 4; i++) {
        assert_true(pool_kept(f.pools[1], order[i]));
        assert_true(kv_tree_evict(f.t, 1));
        assert_false(pool_kept(f.pools[1], order[i]));
        assert_int_equal(pool_count(f.pools[1]).free, MAX_BLOCKS - 4 + i);
        audit(f.t);
    }
    assert_false(kv_tree_evict(f.t, 1)); /* cccc is in use */
    assert_match(&f, 1, "xxxxyyyy", 0, 0);
    assert_int_equal(kv_tree_count(f.t).blocks, 3); /* xxxx went before what rests, though it freed nothing */
    assert_int_equal(kv_tree_count(f.t).evicted_behind, 3);
    kv_tree_blocks(f.t, n, 1, 0, 3, path);
    assert_int_equal(path[0], BLOCK_NONE);
    assert_int_equal(path[1], BLOCK_NONE);
    assert_int_equal(path[2], a[1][2]);
    for (int i = 0; i < 3; i++) pool_unref(f.pools[0], a[0][i]);
    let_go(&f, 1, a[1][2], false);
    kv_tree_unlock(f.t, n);
    fell(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_insert_meets_what_is_there),
        cmocka_unit_test(test_missing_blocks),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_window_sizes),
        cmocka_unit_test(test_order_of_a_windowed_slot),
    };
    return cmocka_run_group_tests_name("tree_windows", tests, NULL, NULL);
}
