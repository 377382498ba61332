/* The network gives the same bits however its rows come: in which chunks, batches, blocks, threads, drafts. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "forward_net.h"

static void check_variant(net_config c, const int32_t *ids, int n_ids, const float *want, int chunk, const char *what)
{
    net *n = net_open(c);
    kv_seq *s = net_seq(n);
    float *got = logits_new(n_ids);
    net_run_chunks(n, s, ids, n_ids, chunk, got);
    same(got, want, n_ids, what);
    kv_seq_free(s);
    net_close(n);
    free(got);
}

static void check_chunks_threads_blocks(net_config c)
{
    const int32_t *ids = some_ids();
    float *want = reference(c, ids, N_IDS);
    check_variant(c, ids, N_IDS, want, 1, "chunk 1");
    check_variant(c, ids, N_IDS, want, 7, "chunk 7");
    check_variant(c, ids, N_IDS, want, 64, "chunk 64");
    c.threads = 2;
    check_variant(c, ids, N_IDS, want, 64, "2 threads");
    c.threads = 3;
    c.block_tokens = 8;
    check_variant(c, ids, N_IDS, want, 7, "3 threads, blocks of 8");
    c.block_tokens = 32;
    c.no_split = true;
    check_variant(c, ids, N_IDS, want, 64, "blocks of 32, no split");
    free(want);
}

static void chunks_threads_blocks(void **state)
{
    on_all(state, check_chunks_threads_blocks);
}

static void exact_and_f32_cache_are_identical_to_themselves(void **state)
{
    nets *w = *state;
    const int32_t *ids = some_ids();
    float *last = NULL;
    for (int i = 0; i < 4; i++) {
        net_config c = {.m = w->m[1][3], .exact = i % 2, .format = i / 2 ? "f32" : "f16"};
        float *want = reference(c, ids, N_IDS);
        c.threads = 2;
        check_variant(c, ids, N_IDS, want, 7, "exact or f32");
        if (last) assert_memory_not_equal(last, want, N_IDS * ROW_BYTES);
        free(last);
        last = want;
    }
    free(last);
}

/* Several chunks of attention, so that rows are split over workers and merged. */
static void long_sequences(void **state)
{
    nets *w = *state;
    enum { LONG = 560 };
    int32_t ids[LONG];
    tiny_ids(ids, LONG, 5);
    for (int i = SANITIZED ? 2 : 0; i < 3; i++) {
        net_config c = {.m = w->m[i > 0][i / 2]}; /* llama with both kernel tables, gemma */
        float *want = reference(c, ids, LONG);
        check_variant(c, ids, LONG, want, 64, "chunk 64");
        c.threads = 3;
        check_variant(c, ids, LONG, want, 250, "3 threads");
        net *n = net_open(c);
        kv_seq *s = net_seq(n);
        float *got = logits_new(LONG);
        net_run_chunks(n, s, ids, LONG - 20, 512, got);
        net_run_chunks(n, s, ids + LONG - 20, 20, 1, got + (LONG - 20) * TINY_VOCAB);
        same(got, want, LONG, "decoding at depth, split");
        kv_seq_free(s);
        net_close(n);
        free(got);
        free(want);
    }
}

/* Three sequences at different depths in one batch, their rows next to each other. */
static void check_batches(net_config c)
{
    int32_t ids[3][N_IDS];
    float *want[3], *got[3];
    kv_seq *s[3];
    c.threads = 2;
    net *n = net_open(c);
    for (int i = 0; i < 3; i++) {
        tiny_ids(ids[i], N_IDS, 20 + (uint64_t)i);
        want[i] = reference(c, ids[i], N_IDS);
        got[i] = logits_new(N_IDS);
        s[i] = net_seq(n);
    }
    int at[3] = {0}, sizes[3] = {1, 11, 30};
    for (int left = 1; left;) {
        left = 0;
        for (int i = 0; i < 3; i++) {
            int more = N_IDS - at[i] < sizes[i] ? N_IDS - at[i] : sizes[i];
            if (more == 0) continue;
            net_add_tokens(n, s[i], ids[i] + at[i], more, got[i] + at[i] * TINY_VOCAB);
            at[i] += more;
            left = 1;
        }
        if (left) net_run(n);
    }
    for (int i = 0; i < 3; i++) {
        same(got[i], want[i], N_IDS, "in a batch");
        kv_seq_free(s[i]);
        free(want[i]);
        free(got[i]);
    }
    net_close(n);
}

static void batches(void **state)
{
    on_some(state, check_batches);
}

static void check_truncate_and_fork(net_config c)
{
    const int32_t *ids = some_ids();
    float *want = reference(c, ids, N_IDS), *got = logits_new(N_IDS);
    status st = STATUS_INIT;
    net *n = net_open(c);
    kv_seq *s = net_seq(n), *f = NULL;
    net_run_chunks(n, s, ids, 40, 8, got);
    /* Other tokens after the 37th, taken back (a window of 9 still holds what the 37th row sees). */
    int32_t other[3];
    tiny_ids(other, 3, 99);
    float *ignored = logits_new(3);
    assert_int_equal(kv_seq_truncate(s, 37, &st), ST_OK);
    net_run_chunks(n, s, other, 3, 1, ignored);
    assert_int_equal(kv_seq_truncate(s, 37, &st), ST_OK);
    assert_int_equal(kv_seq_fork(&f, s, 37, &st), ST_OK);
    net_run_chunks(n, s, other, 3, 3, ignored); /* the other branch writes on */
    net_run_chunks(n, f, ids + 37, N_IDS - 37, 9, got + 37 * TINY_VOCAB);
    same(got, want, N_IDS, "after truncation and fork");
    kv_seq_free(s);
    kv_seq_free(f);
    net_close(n);
    free(want);
    free(got);
    free(ignored);
}

static void truncate_and_fork(void **state)
{
    on_some(state, check_truncate_and_fork);
}

static void add_drafts(net *n, kv_seq *s, const int32_t *ids, int n_ids, const int *parents, float *logits)
{
    status st = STATUS_INIT;
    int64_t len = kv_seq_len(s), first = kv_seq_n_drafts(s);
    if (kv_seq_draft(s, n_ids, parents, &st)) fail_msg("%s", st.text);
    for (int i = 0; i < n_ids; i++) {
        int64_t depth = 0;
        for (int j = (int)first + i; j >= 0; j = kv_seq_draft_parent(s, j)) depth++;
        net_add_row(n, s, ids[i], len + depth - 1, len + first + i, logits + (size_t)i * TINY_VOCAB);
    }
}

/* Drafts on a line are decoding ahead; taken back, they leave nothing; committed, they are the sequence. */
static void check_draft_line(net_config c)
{
    enum { BEFORE = 17, DRAFTS = 22 };
    const int32_t *ids = some_ids();
    int32_t wrong[DRAFTS];
    int slots[DRAFTS];
    tiny_ids(wrong, DRAFTS, 44);
    for (int i = 0; i < DRAFTS; i++) slots[i] = i;
    float *want = reference(c, ids, N_IDS), *got = logits_new(N_IDS), *ignored = logits_new(DRAFTS);
    status st = STATUS_INIT;
    c.threads = 2;
    net *n = net_open(c);
    kv_seq *s = net_seq(n);
    net_run_chunks(n, s, ids, BEFORE, 9, got);
    add_drafts(n, s, wrong, DRAFTS, NULL, ignored);
    net_run(n);
    kv_seq_rollback(s);
    add_drafts(n, s, ids + BEFORE, 10, NULL, got + BEFORE * TINY_VOCAB); /* in two steps: drafts of drafts */
    net_run(n);
    add_drafts(n, s, ids + BEFORE + 10, DRAFTS - 10, NULL, got + (BEFORE + 10) * TINY_VOCAB);
    net_run(n);
    same(got, want, BEFORE + DRAFTS, "drafts");
    assert_int_equal(kv_seq_commit(s, slots, DRAFTS - 3, &st), ST_OK);
    int at = BEFORE + DRAFTS - 3;
    net_run_chunks(n, s, ids + at, N_IDS - at, 4, got + at * TINY_VOCAB);
    same(got, want, N_IDS, "after the commit");
    kv_seq_free(s);
    net_close(n);
    free(want);
    free(got);
    free(ignored);
}

static void draft_lines(void **state)
{
    on_some(state, check_draft_line);
}

/* Branches between a draft and its ancestors change the order of the sums over places. */
static void nearly_same(const float *got, const float *want, const char *what)
{
    double error = 0, size = 0;
    for (int i = 0; i < TINY_VOCAB; i++) {
        error += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        size += (double)want[i] * want[i];
    }
    if (!(sqrt(error / size) < 1e-4)) fail_msg("%s%s: off by %g", net_label, what, sqrt(error / size));
}

/*      0 --- 1 --- 3 --- 5 --- 8 --- 9 --- ... --- 19     deeper than a small window
 *        \-- 2 --- 4           and 6 --- 7 beside them: each path's logits are nearly those of the sequence that takes it alone. */
static void check_draft_tree(net_config c)
{
    enum { BEFORE = 27, DRAFTS = 20 };
    const int parents[DRAFTS] = {-1, 0, 0, 1, 2, 3, -1, 6, 5, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18},
              branch[] = {0, 2, 4};
    c.format = "f32"; /* coarse roundings would turn a last bit into a step */
    c.exact = true;
    const int looked_at[] = {0, 1, 2, 4, 5, 7, 11, 15, 19};
    const int32_t *ids = some_ids();
    int32_t drafts[DRAFTS], path[N_IDS];
    tiny_ids(drafts, DRAFTS, 45);
    float *ignored = logits_new(BEFORE), *got = logits_new(DRAFTS);
    status st = STATUS_INIT;
    net *n = net_open(c);
    kv_seq *s = net_seq(n);
    net_run_chunks(n, s, ids, BEFORE, 9, ignored);
    add_drafts(n, s, drafts, DRAFTS, parents, got);
    net_run(n);
    for (size_t k = 0; k < sizeof looked_at / sizeof *looked_at; k++) {
        int i = looked_at[k], depth = 0, at[DRAFTS];
        for (int j = i; j >= 0; j = parents[j]) at[depth++] = j;
        memcpy(path, ids, BEFORE * sizeof *path);
        for (int d = 0; d < depth; d++) path[BEFORE + d] = drafts[at[depth - 1 - d]];
        float *want = reference(c, path, BEFORE + depth);
        nearly_same(got + i * TINY_VOCAB, want + (BEFORE + depth - 1) * TINY_VOCAB, "a path of the tree");
        free(want);
    }
    assert_int_equal(kv_seq_commit(s, branch, 3, &st), ST_OK);
    for (int i = 0; i < 3; i++) path[BEFORE + i] = drafts[branch[i]];
    memcpy(path + BEFORE + 3, ids, 20 * sizeof *path);
    float *want = reference(c, path, BEFORE + 23), *after = logits_new(20);
    net_run_chunks(n, s, ids, 20, 6, after);
    for (int i = 0; i < 20; i++)
        nearly_same(after + i * TINY_VOCAB, want + (BEFORE + 3 + i) * TINY_VOCAB, "after a branch is committed");
    kv_seq_free(s);
    net_close(n);
    free(ignored);
    free(got);
    free(want);
    free(after);
}

static void draft_trees(void **state)
{
    on_some(state, check_draft_tree);
}

static void run_allocates_nothing(void **state)
{
    nets *w = *state;
    const int32_t *ids = some_ids();
    float *got = logits_new(N_IDS);
    net *n = net_open((net_config){.m = w->m[1][1], .threads = 2});
    kv_seq *s = net_seq(n);
    uint64_t calls = mem_stats().calls;
    net_run_chunks(n, s, ids, 40, 40, got);
    net_run_chunks(n, s, ids + 40, N_IDS - 40, 1, got + 40 * TINY_VOCAB);
    assert_int_equal(mem_stats().calls, calls);
    kv_seq_free(s);
    net_close(n);
    free(got);
}

static void short_memory_leaks_nothing(void **state)
{
    nets *w = *state;
    net *n = net_open((net_config){.m = w->m[1][1], .threads = 2});
    forward_config f = {.max_rows = 16, .max_seqs = 2, .max_drafts = 4, .max_logit_rows = 2, .max_workers = 2};
    uint64_t bytes = mem_stats().bytes, calls = mem_stats().calls;
    status st = STATUS_INIT;
    forward *made = NULL;
    assert_int_equal(forward_new(&made, w->m[1][1], n->cache, &n->groups, n->team, &f, &st), ST_OK);
    int64_t n_calls = (int64_t)(mem_stats().calls - calls);
    forward_free(made);
    assert_int_equal(mem_stats().bytes, bytes);
    for (int64_t i = 1; i <= n_calls; i++) {
        made = NULL;
        mem_fail_after(i);
        assert_int_equal(forward_new(&made, w->m[1][1], n->cache, &n->groups, n->team, &f, &st), ST_NOMEM);
        assert_null(made);
        assert_int_equal(mem_stats().bytes, bytes);
    }
    mem_fail_after(0);
    forward_free(NULL);
    net_close(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_threads_blocks),
        cmocka_unit_test(exact_and_f32_cache_are_identical_to_themselves),
        cmocka_unit_test(long_sequences),
        cmocka_unit_test(batches),
        cmocka_unit_test(truncate_and_fork),
        cmocka_unit_test(draft_lines),
        cmocka_unit_test(draft_trees),
        cmocka_unit_test(run_allocates_nothing),
        cmocka_unit_test(short_memory_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, nets_open, nets_close);
}
