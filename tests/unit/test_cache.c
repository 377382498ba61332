/* The cache by hand: windows, forks, cuts, drafts, sizes, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "small_cache.h"

static void test_window_drops_blocks(void **state)
{
    (void)state;
    kv_cache *c = make_cache(config_of(8, "f16", 200, 0));
    kv_seq *s = make_seq(c);
    attn_span spans[32];
    for (int i = 0; i < 60; i++) append(s, 1);
    assert_int_equal(kv_seq_spans(s, 0, spans, 32), 8);
    assert_int_equal(spans[0].index, 0);
    assert_int_equal(spans[7].n, 4);
    /* the last append stood at 59 and kept rows 40 and up: blocks 5, 6, 7 */
    assert_int_equal(kv_seq_spans(s, 1, spans, 32), 3);
    assert_int_equal(spans[0].index, 40);
    assert_int_equal(spans[2].index, 56);
    assert_int_equal(pool_count(kv_cache_pool(c, 1)).in_use, 3);
    assert_int_equal(kv_seq_spans(s, 0, spans, 0), 8); /* the number is told when there is no room */
    kv_seq_free(s);
    kv_cache_free(c);
}

static void test_window_never_exceeds_the_formula(void **state)
{
    (void)state;
    for (int b = 8; b <= 32; b *= 2) {
        kv_cache *c = make_cache(config_of(b, "f16", 400, 0));
        kv_seq *s = make_seq(c);
        uint32_t most = 0;
        for (int i = 1; kv_seq_len(s) + STEP <= 400; i++) {
            append(s, 1 + i * 7 % STEP);
            uint32_t n = pool_count(kv_cache_pool(c, 1)).in_use;
            if (n > most) most = n;
        }
        assert_true(most <= kv_blocks(&GROUPS[1].layout, b, 400, STEP));
        assert_true(most + 1 >= kv_blocks(&GROUPS[1].layout, b, 400, STEP));
        kv_seq_free(s);
        kv_cache_free(c);
    }
}

static void test_fork_copies_less_than_a_block(void **state)
{
    (void)state;
    kv_cache *c = make_cache(config_of(16, "f16", 200, 0));
    kv_seq *s = make_seq(c);
    for (int i = 0; i < 10; i++) append(s, 10);
    uint64_t before = kv_cache_copied_rows(c, 0);
    kv_seq *f = fork_at(s, 95);
    assert_int_equal(kv_cache_copied_rows(c, 0) - before, 15);
    assert_int_equal(kv_cache_copied_rows(c, 1) - before, 15);
    assert_int_equal(pool_count(kv_cache_pool(c, 0)).in_use, 7 + 1);
    assert_ptr_equal(kv_seq_place(f, 0, 79).block, kv_seq_place(s, 0, 79).block);
    assert_ptr_not_equal(kv_seq_place(f, 0, 80).block, kv_seq_place(s, 0, 80).block);
    kv_seq *whole = fork_at(s, 96); /* at a block's end nothing is copied */
    assert_int_equal(kv_cache_copied_rows(c, 0) - before, 15);
    kv_seq_free(s); /* what was shared lives on */
    audit(c);
    assert_int_equal(kv_seq_len(whole), 96);
    kv_seq_free(whole);
    kv_seq_free(f);
    kv_cache_free(c);
}

/* A conversation in the tree, 4,096 tokens or one less, and 16 branches of it: a tail of at most 15 rows each. */
static void test_sixteen_branches_of_a_conversation(void **state)
{
    (void)state;
    enum { BRANCHES = 16 };
    static int32_t ids[4096];
    for (int i = 0; i < 4096; i++) ids[i] = i * 7 % 1000;
    for (int n = 4095; n <= 4096; n++) {
        kv_cache_config config = config_of(16, "f16", 4200, 0);
        config.n_seqs = BRANCHES;
        kv_cache *c = make_cache(config);
        kv_seq *s = make_seq(c), *branch[BRANCHES];
        kv_seq_match(s, 0, ids, n, 0);
        for (int64_t left; (left = n - kv_seq_len(s)); kv_seq_share(s, ids)) append(s, left < STEP ? (int)left : STEP);
        uint32_t held[2] = {pool_count(kv_cache_pool(c, 0)).in_use, pool_count(kv_cache_pool(c, 1)).in_use};
        for (int i = 0; i < BRANCHES; i++) branch[i] = fork_at(s, n);
        for (int g = 0; g < 2; g++) {
            assert_int_equal(kv_cache_copied_rows(c, g), BRANCHES * (n % 16));
            assert_int_equal(pool_count(kv_cache_pool(c, g)).in_use - held[g], n % 16 ? BRANCHES : 0);
        }
        audit(c);
        for (int i = 0; i < BRANCHES; i++) kv_seq_free(branch[i]);
        kv_seq_free(s);
        kv_cache_free(c);
    }
}

static void test_truncate_into_a_shared_block(void **state)
{
    (void)state;
    kv_cache *c = make_cache(config_of(16, "f16", 200, 0));
    kv_seq *s = make_seq(c);
    append(s, 20);
    for (int g = 0; g < 2; g++)
        for (int i = 0; i < 20; i++) write_row(c, g, kv_seq_place(s, g, i), (uint32_t)i + 1);
    kv_seq *f = fork_at(s, 16);
    truncate_to(s, 7); /* into the block that f holds as well */
    assert_int_equal(kv_cache_copied_rows(c, 0), 7);
    append(s, 5);
    for (int g = 0; g < 2; g++) {
        for (int i = 7; i < 12; i++) write_row(c, g, kv_seq_place(s, g, i), 99);
        for (int i = 0; i < 16; i++) check_row(c, g, kv_seq_place(f, g, i).block, i, (uint32_t)i + 1);
        for (int i = 0; i < 7; i++) check_row(c, g, kv_seq_place(s, g, i).block, i, (uint32_t)i + 1);
    }
    audit(c);
    kv_seq_free(f);
    kv_seq_free(s);
    kv_cache_free(c);
}

/* What a sequence holds stays in the tree, also when a cut ends inside a node's run: evicting all that can go leaves it
 * for the next prompt, and a fork likewise. */
static void test_a_cut_keeps_its_place_in_the_tree(void **state)
{
    (void)state;
    kv_cache *c = make_cache(config_of(8, "f16", 200, 0));
    int32_t ids[40];
    for (int i = 0; i < 40; i++) ids[i] = i;
    for (int forks = 0; forks < 2; forks++) {
        kv_seq *s = make_seq(c), *f = NULL;
        kv_seq_match(s, 1, ids, 0, 0);
        append(s, 20);
        append(s, 20);
        kv_seq_share(s, ids); /* five blocks, one node */
        if (forks) f = fork_at(s, 19), truncate_to(s, 0);
        else truncate_to(s, 19);
        kv_seq *other = make_seq(c); /* what it leaves is younger: the first one's go before */
        kv_seq_match(other, 2, ids, 0, 0);
        append(other, 16);
        kv_seq_share(other, ids);
        kv_seq_free(other);
        for (int g = 0; g < 2; g++)
            while (kv_tree_evict(kv_cache_tree(c), g)) {}
        audit(c);
        assert_int_equal(kv_cache_match(c, 1, ids, 40, NULL), 16);
        assert_int_equal(kv_tree_count(kv_cache_tree(c)).blocks, 2);
        kv_seq_free(f);
        kv_seq_free(s);
        kv_tree_clear(kv_cache_tree(c));
    }
    kv_cache_free(c);
}

static void test_a_window_cannot_be_cut_far_back(void **state)
{
    (void)state;
    kv_cache *c = make_cache(config_of(8, "f16", 200, 0));
    kv_seq *s = make_seq(c), *f = NULL;
    status st = STATUS_INIT;
    for (int i = 0; i < 60; i++) append(s, 1);
    assert_int_equal(kv_seq_truncate(s, 50, &st), ST_ARG);
    assert_non_null(strstr(st.text, "window of 20 tokens"));
    assert_int_equal(kv_seq_fork(&f, s, 58, &st), ST_ARG);
    assert_int_equal(kv_seq_truncate(s, 61, &st), ST_ARG);
    assert_int_equal(kv_seq_truncate(s, -1, &st), ST_ARG);
    assert_int_equal(kv_seq_len(s), 60);
    truncate_to(s, 59); /* what the last append saw is still there */
    f = fork_at(s, 0);  /* nothing needs nothing */
    assert_int_equal(kv_seq_len(f), 0);
    truncate_to(s, 0);
    append(s, 3);
    assert_int_equal(kv_seq_place(s, 1, 0).row, 0);
    audit(c);
    kv_seq_free(f);
    kv_seq_free(s);
    kv_cache_free(c);
}

static void test_drafts_stand_apart(void **state)
{
    (void)state;
    kv_cache *c = make_cache(config_of(8, "f16", 200, 0));
    kv_seq *s = make_seq(c);
    append(s, 5);
    draft(s, 6);
    draft(s, 6);
    assert_int_equal(kv_seq_len(s), 5);
    assert_int_equal(kv_seq_n_drafts(s), 12);
    assert_int_equal(kv_seq_draft_parent(s, 0), -1);
    assert_int_equal(kv_seq_draft_parent(s, 6), 5); /* without parents, drafts are a line */
    attn_span spans[8];
    assert_int_equal(kv_seq_spans(s, 0, spans, 8), 3);
    assert_int_equal(spans[1].index, 5); /* slot j has index len + j */
    assert_int_equal(spans[1].n, 8);
    assert_int_equal(spans[2].index, 13);
    assert_int_equal(spans[2].n, 4);
    for (int g = 0; g < 2; g++)
        for (int slot = 0; slot < 12; slot++) write_row(c, g, kv_seq_draft_place(s, g, slot), 100 + (uint32_t)slot);
    status st = STATUS_INIT;
    const int slots[] = {0, 3, 4, 11}; /* a path through a tree */
    must(kv_seq_commit(s, slots, 4, &st), &st);
    assert_int_equal(kv_seq_len(s), 9);
    assert_int_equal(kv_seq_n_drafts(s), 0);
    for (int g = 0; g < 2; g++)
        for (int i = 0; i < 4; i++) {
            kv_place at = kv_seq_place(s, g, 5 + i);
            check_row(c, g, at.block, at.row, 100 + (uint32_t)slots[i]);
        }
    assert_int_equal(pool_count(kv_cache_pool(c, 0)).in_use, 2);
    draft(s, 1);
    kv_seq_rollback(s);
    assert_int_equal(pool_count(kv_cache_pool(c, 0)).in_use, 2);
    assert_int_equal(kv_seq_draft(s, STEP + 1, NULL, &st), ST_LIMIT);
    kv_seq_free(s);
    kv_cache_free(c);
}

static void test_a_move_keeps_a_sequence_waiting(void **state)
{
    (void)state;
    kv_cache *c = make_cache(config_of(8, "f16", 200, 0));
    kv_seq *s = make_seq(c), *other = make_seq(c);
    append(s, 20);
    append(other, 20);
    assert_true(kv_seq_ready(s));
    block_id id = 0; /* a block of s: the first taken from the second group's pool */
    pool *p = kv_cache_pool(c, 1);
    assert_ptr_equal(pool_block(p, id), kv_seq_place(s, 1, 0).block);
    pool_begin_move(p, id, (block_location){BLOCK_ON_DISK, BLOCK_LOADING});
    assert_false(kv_seq_ready(s));
    assert_true(kv_seq_ready(other));
    audit(c);
    pool_end_move(p, id);
    assert_true(kv_seq_ready(s));
    draft(s, 1);
    while (pool_block(p, id) != kv_seq_draft_place(s, 1, 0).block) id++;
    pool_begin_move(p, id, (block_location){BLOCK_ON_REMOTE, BLOCK_SAVING});
    assert_false(kv_seq_ready(s));
    pool_end_move(p, id);
    kv_seq_free(other);
    kv_seq_free(s);
    kv_cache_free(c);
}

static void test_pools_are_sized_by_the_formula(void **state)
{
    (void)state;
    const kv_format *f16 = kv_format_get("f16");
    uint64_t need[2], one = 0;
    for (int g = 0; g < 2; g++) {
        need[g] = kv_blocks(&GROUPS[g].layout, 16, 1000, STEP);
        one += kv_bytes(&GROUPS[g], f16, 16, 1000, STEP);
    }
    const struct {
        uint64_t memory;
        double times;
    } cases[] = {{0, 3}, {UINT64_MAX, 3}, {one * 2, 2}, {one, 1}, {one * 3 / 2, 1.5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kv_cache *c = make_cache(config_of(16, "f16", 1000, cases[i].memory));
        assert_int_equal(kv_cache_longest_tokens(c), 1000);
        for (int g = 0; g < 2; g++)
            assert_int_equal(pool_count(kv_cache_pool(c, g)).total, (uint64_t)((double)need[g] * cases[i].times));
        if (cases[i].memory) assert_true(kv_cache_bytes(c) <= cases[i].memory);
        kv_cache_free(c);
    }
}

/* With too little memory for the longest sequence, every group can still hold one and the same shorter sequence. */
static void test_a_small_pool_serves_a_shorter_sequence(void **state)
{
    (void)state;
    uint64_t one =
        kv_block_bytes(&GROUPS[0], kv_format_get("f16"), 8) + kv_block_bytes(&GROUPS[1], kv_format_get("f16"), 8);
    for (uint64_t memory = one; memory < one * 40; memory += one * 3 / 4) {
        kv_cache *c = make_cache(config_of(8, "f16", 100000, memory));
        kv_seq *s = make_seq(c);
        status st = STATUS_INIT;
        uint64_t most = kv_cache_longest_tokens(c);
        assert_true(kv_cache_bytes(c) <= memory && most >= 8);
        while ((uint64_t)kv_seq_len(s) < most)
            append(s, (int)(most - (uint64_t)kv_seq_len(s) < STEP ? most - (uint64_t)kv_seq_len(s) : STEP));
        assert_int_equal(kv_seq_append(s, 1, &st), ST_LIMIT);
        assert_non_null(strstr(st.text, "longest sequence"));
        kv_seq_free(s);
        kv_cache_free(c);
    }
}

static void test_capacity(void **state)
{
    (void)state;
    kv_cache_config config = config_of(16, "f16", 64, 0); /* three sequences of four blocks in the global group */
    kv_cache *c = make_cache(config);
    assert_int_equal(kv_cache_longest_tokens(c), 64);
    assert_int_equal(kv_cache_capacity_tokens(c), 3 * 64);
    kv_seq *s[3];
    int64_t held = 0;
    for (int i = 0; i < 3; i++, held += 64) {
        s[i] = make_seq(c);
        while (kv_seq_len(s[i]) < 64) append(s[i], 16);
    }
    assert_int_equal(held, kv_cache_capacity_tokens(c));
    assert_int_equal(kv_cache_available(c, 0), 0);
    for (int i = 0; i < 3; i++) kv_seq_free(s[i]);
    kv_cache_free(c);
}

static void test_too_small(void **state)
{
    (void)state;
    kv_cache *c = NULL;
    status st = STATUS_INIT;
    kv_cache_config config = config_of(16, "f16", 1000, 2000);
    assert_int_equal(kv_cache_new(&c, &config, &st), ST_LIMIT);
    assert_null(c);
    assert_non_null(strstr(st.text, "3840 bytes"));
    assert_non_null(strstr(st.text, "has 2000"));
    assert_non_null(strstr(st.text, "--kv-memory"));
    config.memory_bytes = 0;
    config.max_tokens = UINT64_C(1) << 50;
    assert_int_equal(kv_cache_new(&c, &config, &st), ST_LIMIT);
}

static void test_a_full_pool_says_so(void **state)
{
    (void)state;
    kv_cache_config config = config_of(16, "f16", 64, 0);
    config.n_seqs = 1;
    kv_cache *c = make_cache(config);
    kv_seq *a = make_seq(c), *b = make_seq(c);
    append(a, 24);
    append(a, 24);
    status st = STATUS_INIT;
    assert_int_equal(kv_seq_append(b, 17, &st), ST_LIMIT);
    assert_non_null(strstr(st.text, "2 blocks of 16 tokens are needed and 1 of 4 can be had"));
    assert_int_equal(kv_seq_len(b), 0);
    append(b, 16);
    audit(c);
    kv_seq_free(a);
    append(b, 17);
    kv_seq_free(b);
    kv_cache_free(c);
}

static void test_bad_configurations(void **state)
{
    (void)state;
    kv_cache *c = NULL;
    status st = STATUS_INIT;
    static const int bad[] = {-16, 1, 4, 12, 24, 512};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        kv_cache_config config = config_of(bad[i], "f16", 100, 0);
        assert_int_equal(kv_cache_new(&c, &config, &st), ST_ARG);
    }
    kv_format grouped = *kv_format_get("f16");
    grouped.group_tokens = 32;
    kv_cache_config config = config_of(16, "f16", 100, 0);
    config.format = &grouped;
    assert_int_equal(kv_cache_new(&c, &config, &st), ST_ARG);
    assert_non_null(strstr(st.text, "multiple of 32"));
    kv_group latent = {.layout = {.kind = KV_MLA, .d_c = 512, .d_rope = 64}, .layers = GLOBAL_LAYERS, .n_layers = 2};
    config = config_of(16, "f16", 100, 0);
    config.groups = &latent;
    config.n_groups = 1;
    assert_int_equal(kv_cache_new(&c, &config, &st), ST_UNSUPPORTED);
    assert_null(c);
}

static void test_offsets_tile_a_block(void **state)
{
    (void)state;
    kv_cache *c = make_cache(config_of(16, "f16", 100, 0));
    for (int g = 0; g < 2; g++) {
        const kv_group *group = kv_cache_group(c, g);
        size_t at = 0;
        for (int layer = 0; layer < group->n_layers; layer++) {
            for (int head = 0; head < group->layout.n_kv_heads; head++) {
                assert_int_equal(kv_k_offset(c, g, layer, head), at);
                at += (size_t)group->layout.d_k * 16 * 2;
                assert_int_equal(kv_v_offset(c, g, layer, head), at);
                at += (size_t)group->layout.d_v * 16 * 2;
            }
        }
        assert_int_equal(at, pool_block_bytes(kv_cache_pool(c, g)));
        assert_int_equal(group->layers[0], GROUPS[g].layers[0]);
        assert_ptr_not_equal(group->layers, GROUPS[g].layers);
    }
    assert_int_equal(kv_cache_block_tokens(c), 16);
    assert_int_equal(kv_cache_n_groups(c), 2);
    kv_cache_free(c);
}

static void test_memory(void **state)
{
    (void)state;
    mem_counters before = mem_stats();
    kv_cache_config config = config_of(16, "f16", 100, 0);
    kv_cache *c = NULL;
    status st = STATUS_INIT;
    int n = 0;
    do {
        mem_fail_after(++n);
        kv_cache_new(&c, &config, &st);
        if (!c) assert_int_equal(st.code, ST_NOMEM);
        if (!c) assert_int_equal(mem_stats().bytes, before.bytes);
    } while (!c);
    assert_true(n > 1 + 1 + 2 * 4 + 1); /* cache, layers, two pools of four, the tree */
    mem_fail_after(1);
    kv_seq *s = NULL, *f = NULL;
    assert_int_equal(kv_seq_new(&s, c, &st), ST_NOMEM);
    assert_null(s);
    s = make_seq(c);
    append(s, 20);
    mem_fail_after(1);
    assert_int_equal(kv_seq_fork(&f, s, 20, &st), ST_NOMEM);
    assert_null(f);
    mem_fail_after(1);
    assert_int_equal(kv_cache_audit(c, &st), ST_NOMEM);
    audit(c);
    uint64_t calls = mem_stats().calls;
    append(s, 20);
    draft(s, 20);
    const int slots[] = {3, 2, 1};
    must(kv_seq_commit(s, slots, 3, &st), &st);
    truncate_to(s, 41);
    assert_int_equal(mem_stats().calls, calls); /* a step allocates nothing */
    kv_seq_free(s);
    kv_cache_free(c);
    assert_int_equal(mem_stats().bytes, before.bytes);
    assert_int_equal(mem_stats().live, before.live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_window_drops_blocks),
        cmocka_unit_test(test_window_never_exceeds_the_formula),
        cmocka_unit_test(test_fork_copies_less_than_a_block),
        cmocka_unit_test(test_sixteen_branches_of_a_conversation),
        cmocka_unit_test(test_truncate_into_a_shared_block),
        cmocka_unit_test(test_a_cut_keeps_its_place_in_the_tree),
        cmocka_unit_test(test_a_window_cannot_be_cut_far_back),
        cmocka_unit_test(test_drafts_stand_apart),
        cmocka_unit_test(test_a_move_keeps_a_sequence_waiting),
        cmocka_unit_test(test_pools_are_sized_by_the_formula),
        cmocka_unit_test(test_a_small_pool_serves_a_shorter_sequence),
        cmocka_unit_test(test_capacity),
        cmocka_unit_test(test_too_small),
        cmocka_unit_test(test_a_full_pool_says_so),
        cmocka_unit_test(test_bad_configurations),
        cmocka_unit_test(test_offsets_tile_a_block),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
