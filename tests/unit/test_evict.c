/* The order in which policies evict, by hand. A letter is a block, and no two blocks have the same. */
#include <stdlib.h>

#include "forest.h"

typedef struct alphabet {
    int block_tokens;
    bool has[128];
} alphabet;

static bool add_letters(void *user, const kv_node_info *n)
{
    alphabet *a = user;
    for (int64_t i = 0; i < n->n_blocks; i++) a->has[n->ids[i * a->block_tokens]] = true;
    return true;
}

static kv_tree *grow(const char *policy, int block_tokens)
{
    kv_tree *t;
    status st = STATUS_INIT;
    kv_tree_config c = {.block_tokens = block_tokens, .policy = evict_policy_get(policy)};
    assert_non_null(c.policy);
    assert_int_equal(kv_tree_new(&t, &c, &st), ST_OK);
    assert_string_equal(kv_tree_policy(t), policy);
    return t;
}

static void use_text(kv_tree *t, const char *text, int block_tokens, int priority)
{
    int64_t n = (int64_t)strlen(text), have;
    int32_t *ids = malloc((size_t)n * (size_t)block_tokens * sizeof *ids);
    status st = STATUS_INIT;
    kv_node *node;
    for (int64_t i = 0; i < n * block_tokens; i++) ids[i] = text[i / block_tokens];
    kv_match m = kv_tree_match(t, 1, ids, n * block_tokens);
    assert_int_equal(kv_tree_lock(t, 1, &m, priority, &node, &st), ST_OK);
    have = m.n_blocks;
    assert_int_equal(kv_tree_insert(t, &node, ids + have * block_tokens, n - have, NULL, &st), ST_OK);
    kv_tree_prioritize(t, node, priority);
    kv_tree_unlock(t, node);
    audit(t);
    free(ids);
}

/* Evicts as many blocks as there are letters, which must be those, in that order. */
static void assert_order(kv_tree *t, const char *order, int block_tokens)
{
    for (; *order; order++) {
        alphabet before = {block_tokens, {false}}, after = before;
        kv_tree_walk(t, add_letters, &before);
        assert_true(kv_tree_evict_leaf(t));
        kv_tree_walk(t, add_letters, &after);
        audit(t);
        for (int c = 0; c < 128; c++) assert_int_equal(before.has[c] != after.has[c], c == *order);
    }
}

static void test_policies(void **state)
{
    (void)state;
    static const struct {
        const char *policy, *uses[6], *order;
    } cases[] = {
        {"lru", {"ab", "cd", "ae"}, "bdcea"},
        {"lru", {"ab", "cd", "ab"}, "dcba"},
        {"lru", {"abc", "d", "ab"}, "cdba"},
        {"lfu", {"ab", "cd", "ab", "ef"}, "dcfeba"},
        {"lfu", {"ab", "ab", "abc", "de", "de"}, "cedba"}, /* c has no hit, though what it follows has */
        {"fifo", {"ab", "cd", "ab", "e"}, "badce"},
        {"fifo", {"ab", "c", "abd"}, "cdba"}, /* children before their parents */
        {"slru", {"ab", "cd", "ab", "ab", "cd", "ef"}, "febadc"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        kv_tree *t = grow(cases[i].policy, 1);
        for (int u = 0; u < 6 && cases[i].uses[u]; u++) use_text(t, cases[i].uses[u], 1, 0);
        assert_order(t, cases[i].order, 1);
        assert_false(kv_tree_evict_leaf(t));
        kv_tree_free(t);
    }
    assert_null(evict_policy_get("mru"));
    char names[64] = "";
    for (int i = 0; evict_policy_at(i); i++) {
        if (i) strcat(names, "|");
        strcat(names, evict_policy_at(i)->name);
        assert_ptr_equal(evict_policy_get(evict_policy_at(i)->name), evict_policy_at(i));
    }
    assert_string_equal(names, EVICT_NAMES); /* lru first, the default */
}

static void test_priority(void **state)
{
    (void)state;
    kv_tree *t = grow("priority", 1);
    use_text(t, "ab", 1, 5);
    use_text(t, "cd", 1, -1);
    use_text(t, "ef", 1, 0);
    use_text(t, "ab", 1, -9); /* the highest counts */
    assert_order(t, "dc", 1);
    use_text(t, "ef", 1, 7);
    assert_order(t, "bafe", 1);
    kv_tree_free(t);
}

/* Blocks of 4,096 tokens: one alone is worth 1.5, a run of two 2, times its uses, on top of the age. */
static void test_cost(void **state)
{
    (void)state;
    kv_tree *t = grow("cost", 4096);
    use_text(t, "ab", 4096, 0);
    use_text(t, "c", 4096, 0);
    use_text(t, "d", 4096, 0);
    assert_order(t, "c", 4096); /* age 1.5 */
    use_text(t, "e", 4096, 0);  /* 1.5 + 1.5 */
    use_text(t, "d", 4096, 0);  /* 1.5 + 2 * 1.5 */
    assert_order(t, "ba", 4096);
    use_text(t, "f", 4096, 0); /* age 2: 3.5 */
    assert_order(t, "efd", 4096);
    kv_tree_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policies),
        cmocka_unit_test(test_priority),
        cmocka_unit_test(test_cost),
    };
    return cmocka_run_group_tests_name("evict", tests, NULL, NULL);
}
