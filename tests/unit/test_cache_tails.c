/* What sequences leave of themselves when they retire, and what later ones find: every computed row, also of a partly
 * filled last block. Rows tell which prefix they belong to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "sanitized.h"
#include "small_cache.h"

enum { MAX_TOKENS = 100, PAST = 80 };

/* A row's serial number is a function of all tokens up to it, as K and V are. */
static uint32_t serial_of(const int32_t *ids, int64_t row)
{
    uint32_t h = 17;
    for (int64_t i = 0; i <= row; i++) h = h * 31 + (uint32_t)ids[i] + 1;
    return h;
}

static void compute(kv_seq *s, kv_cache *c, const int32_t *ids, int64_t n)
{
    while (kv_seq_len(s) < n) {
        int64_t from = kv_seq_len(s), more = n - from < STEP ? n - from : STEP;
        append(s, (int)more);
        for (int64_t i = from; i < from + more; i++)
            for (int g = 0; g < 2; g++) write_row(c, g, kv_seq_place(s, g, i), serial_of(ids, i));
        kv_seq_share(s, ids);
    }
}

/* The rows that a query at the end sees, in both groups, are those of ids. */
static void check_rows(const kv_cache *c, const kv_seq *s, const int32_t *ids)
{
    for (int g = 0; g < 2; g++) {
        attn_span spans[32];
        int n = kv_seq_spans(s, g, spans, 32);
        int64_t len = kv_seq_len(s), seen = g && len >= WINDOW ? len - WINDOW + 1 : 0, end = 0;
        pool *p = kv_cache_pool(c, g);
        if (n) assert_true(spans[0].index <= seen);
        for (int i = 0; i < n; i++, end = spans[i - 1].index + spans[i - 1].n)
            for (int row = 0; row < spans[i].n; row++)
                check_row(c, g, pool_block(p, spans[i].block), spans[i].row + row, serial_of(ids, spans[i].index + row));
        assert_int_equal(end, len);
    }
}

/* One that comes, finds, computes the rest up to n and retires; returns what it found of at most n - 1 tokens. */
static int64_t turn(kv_cache *c, const int32_t *ids, int64_t n)
{
    kv_seq *s = make_seq(c);
    int64_t found = kv_seq_match(s, 1, ids, n - 1, 0);
    check_rows(c, s, ids);
    compute(s, c, ids, n);
    kv_seq_retire(s, ids);
    assert_int_equal(kv_seq_len(s), 0);
    kv_seq_free(s);
    audit(c);
    return found;
}

static kv_tree_counts tree_of(const kv_cache *c)
{
    return kv_tree_count(kv_cache_tree(c));
}

static void count_up(int32_t *ids, int n)
{
    for (int i = 0; i < n; i++) ids[i] = i;
}

static void a_turn_computes_its_new_tokens(void **state)
{
    (void)state;
    int32_t ids[MAX_TOKENS];
    count_up(ids, MAX_TOKENS);
    kv_cache *c = make_cache(config_of(16, "f16", MAX_TOKENS, 0));
    assert_int_equal(turn(c, ids, 21), 0);
    assert_int_equal(turn(c, ids, 30), 21);
    for (int g = 0; g < 2; g++) assert_int_equal(kv_cache_copied_rows(c, g), 21 - 16);
    assert_int_equal(turn(c, ids, 30), 29); /* all but the last, whose logits are wanted */
    assert_int_equal(turn(c, ids, 31), 30);
    assert_int_equal(tree_of(c).blocks, 2);
    assert_int_equal(tree_of(c).tails, 1);
    for (int n = 32; n <= MAX_TOKENS; n++) {
        assert_int_equal(turn(c, ids, n), n - 1);
        assert_int_equal(tree_of(c).tails, n % 16 != 0);
        assert_int_equal(tree_of(c).blocks, (n + 15) / 16);
    }
    ids[90]++; /* two conversations have two ends */
    assert_int_equal(turn(c, ids, 95), 90);
    assert_int_equal(tree_of(c).tails, 2); /* 80 .. 94; 96 .. 99 */
    kv_cache_free(c);
}

/* Only rows that were computed: a sequence that ends without retiring leaves its full blocks. */
static void freed_and_retired(void **state)
{
    (void)state;
    int32_t ids[MAX_TOKENS];
    count_up(ids, MAX_TOKENS);
    kv_cache *c = make_cache(config_of(16, "f16", MAX_TOKENS, 0));
    kv_seq *s = make_seq(c);
    kv_seq_match(s, 1, ids, 40, 0);
    compute(s, c, ids, 40);
    kv_seq_share(s, ids);
    kv_seq *f = fork_at(s, 37);
    kv_seq_free(s);
    assert_int_equal(kv_cache_match(c, 1, ids, 40, NULL), 32);
    draft(f, 3); /* drafts are not rows */
    kv_seq_retire(f, ids);
    assert_int_equal(kv_cache_match(c, 1, ids, 40, NULL), 37);
    assert_int_equal(kv_cache_match(c, 2, ids, 40, NULL), 0);
    kv_seq_free(f);
    audit(c);
    kv_cache_free(c);
    kv_cache_config config = config_of(16, "f16", MAX_TOKENS, 0);
    config.no_sharing = true;
    c = make_cache(config);
    s = make_seq(c);
    kv_seq_match(s, 1, ids, 40, 0);
    compute(s, c, ids, 40);
    kv_seq_retire(s, ids);
    for (int g = 0; g < 2; g++) assert_int_equal(pool_count(kv_cache_pool(c, g)).in_use, 0);
    kv_seq_free(s);
    kv_cache_free(c);
}

/* In a cache that is full of one conversation there is no room for a copy: the next turn takes the block itself. */
static void without_room_the_tail_comes_back(void **state)
{
    (void)state;
    int32_t ids[64];
    count_up(ids, 64);
    kv_cache_config config = config_of(16, "f16", 64, 0);
    config.n_seqs = 1;
    kv_cache *c = make_cache(config);
    assert_int_equal(pool_count(kv_cache_pool(c, 0)).total, 4);
    assert_int_equal(turn(c, ids, 60), 0);
    uint64_t copied = kv_cache_copied_rows(c, 0);
    assert_int_equal(pool_count(kv_cache_pool(c, 0)).free, 0);
    assert_int_equal(turn(c, ids, 63), 60);
    assert_int_equal(turn(c, ids, 64), 63);
    assert_int_equal(kv_cache_copied_rows(c, 0), copied);
    assert_int_equal(tree_of(c).tails, 0);
    assert_int_equal(turn(c, ids, 60), 48); /* rows of a full block, which others may want whole */
    kv_cache_free(c);
}

/* One whose window has moved on past block 1: it computed 62 tokens, then the last ones. */
static void leave_behind(kv_cache *c, const int32_t *ids, int64_t n)
{
    kv_seq *s = make_seq(c);
    kv_seq_match(s, 1, ids, 0, 0);
    compute(s, c, ids, 62);
    compute(s, c, ids, n);
    kv_seq_retire(s, ids);
    kv_seq_free(s);
    audit(c);
}

static void evict_behind(const kv_cache *c)
{
    for (int i = 0; i < 2; i++) assert_true(kv_tree_evict(kv_cache_tree(c), 1));
    assert_int_equal(tree_of(c).evicted_behind, 2);
}

static int64_t found_of(kv_cache *c, const int32_t *ids, int64_t n)
{
    uint32_t in_use[2];
    kv_seq *s = make_seq(c);
    int64_t could = kv_cache_match(c, 1, ids, n, in_use), found = kv_seq_match(s, 1, ids, n, 0);
    assert_int_equal(in_use[0] + in_use[1], 0);
    assert_true(found <= could);
    check_rows(c, s, ids);
    audit(c);
    kv_seq_free(s);
    audit(c);
    return found;
}

/* The window of a sequence that ended at 63 tokens sees blocks 2 and 3; from 48 it would see block 1 as well. */
static void a_window_sees_from_the_tails_end(void **state)
{
    (void)state;
    int32_t ids[64];
    count_up(ids, 64);
    kv_cache_config config = config_of(16, "f16", 64, 0);
    kv_cache *c = make_cache(config);
    leave_behind(c, ids, 63);
    evict_behind(c);
    assert_int_equal(found_of(c, ids, 48), 0);
    assert_int_equal(found_of(c, ids, 64), 63);
    assert_int_equal(found_of(c, ids, 51), 51); /* sees rows from 32 on */
    assert_int_equal(found_of(c, ids, 50), 0);
    kv_cache_free(c);
    /* Four full blocks and no room: what is found without rows of the last one depends on block 1. */
    config.n_seqs = 1;
    for (int gone = 0; gone < 2; gone++) {
        c = make_cache(config);
        leave_behind(c, ids, 64);
        assert_int_equal(pool_count(kv_cache_pool(c, 0)).free, 0);
        if (gone) evict_behind(c);
        assert_int_equal(found_of(c, ids, 62), gone ? 0 : 48);
        assert_int_equal(found_of(c, ids, 64), 64);
        kv_cache_free(c);
    }
}

static void memory_may_fail(void **state)
{
    (void)state;
    int32_t ids[40];
    count_up(ids, 40);
    uint64_t live = mem_stats().live;
    for (int k = 1; k < 6; k++) {
        kv_cache *c = make_cache(config_of(16, "f16", MAX_TOKENS, 0));
        kv_seq *s = make_seq(c);
        kv_seq_match(s, 1, ids, 40, 0);
        compute(s, c, ids, 40);
        mem_fail_after((uint64_t)k);
        kv_seq_retire(s, ids);
        mem_fail_after(0);
        int64_t found = kv_cache_match(c, 1, ids, 40, NULL);
        assert_true(found == 32 || found == 40);
        if (k == 1) assert_int_equal(found, 32);
        if (k == 5) assert_int_equal(found, 40);
        kv_seq_free(s);
        audit(c);
        kv_cache_free(c);
    }
    assert_int_equal(mem_stats().live, live);
}

typedef struct world {
    kv_cache *c;
    uint32_t seed;
    int b, n_past; /* what retired */
    int32_t past[PAST][MAX_TOKENS];
    int past_n[PAST];
    struct {
        kv_seq *s;
        int32_t ids[MAX_TOKENS];
    } seqs[4];
    int n_found_tails, n_lost;
} world;

static int draw(world *w, int n)
{
    w->seed = w->seed * 1664525 + 1013904223;
    return (int)((w->seed >> 8) % (uint32_t)n);
}

static int64_t longest_common(const int32_t *a, int64_t n_a, const int32_t *b, int64_t n_b)
{
    int64_t n = 0;
    while (n < n_a && n < n_b && a[n] == b[n]) n++;
    return n;
}

/* The longest prefix of ids among all that retired, and among full blocks of what runs. */
static int64_t plain_match(const world *w, const int32_t *ids, int64_t n)
{
    int64_t best = 0;
    for (int i = 0; i < w->n_past; i++) {
        int64_t same = longest_common(w->past[i], w->past_n[i], ids, n);
        if (same > best) best = same;
    }
    for (int i = 0; i < 4; i++) {
        if (!w->seqs[i].s) continue;
        int64_t same = longest_common(w->seqs[i].ids, kv_seq_len(w->seqs[i].s) / w->b * w->b, ids, n);
        if (same > best) best = same;
    }
    return best;
}

static void draw_ids(world *w, int32_t *ids)
{
    int kept = 0;
    if (w->n_past && draw(w, 4)) {
        int i = draw(w, w->n_past);
        memcpy(ids, w->past[i], sizeof w->past[i]);
        kept = draw(w, 2) ? w->past_n[i] : draw(w, w->past_n[i] + 1);
    }
    for (int i = kept; i < MAX_TOKENS; i++) ids[i] = draw(w, 2);
}

/* exact: nothing is ever evicted, so that everything is found. */
static void operate(world *w, bool exact)
{
    int i = draw(w, 4);
    kv_seq *s = w->seqs[i].s;
    int32_t *ids = w->seqs[i].ids;
    status st = STATUS_INIT;
    if (!s) {
        draw_ids(w, ids);
        int n = draw(w, MAX_TOKENS + 1);
        int64_t best = plain_match(w, ids, n), could = kv_cache_match(w->c, 1, ids, n, NULL);
        s = make_seq(w->c);
        int64_t found = kv_seq_match(s, 1, ids, n, 0);
        assert_true(found <= could && could <= best);
        if (exact) assert_int_equal(found, best);
        w->n_found_tails += found % w->b > 0;
        w->n_lost += found < best;
        w->seqs[i].s = s;
    } else if (draw(w, 3)) {
        int64_t from = kv_seq_len(s);
        int more = draw(w, STEP + 1);
        if (more > MAX_TOKENS - from) more = (int)(MAX_TOKENS - from);
        if (kv_seq_append(s, more, &st) == ST_OK) {
            for (int64_t row = from; row < from + more; row++)
                for (int g = 0; g < 2; g++) write_row(w->c, g, kv_seq_place(s, g, row), serial_of(ids, row));
            kv_seq_share(s, ids);
        }
    } else {
        memcpy(w->past[w->n_past], ids, sizeof w->past[0]);
        w->past_n[w->n_past++] = (int)kv_seq_len(s);
        kv_seq_retire(s, ids);
        kv_seq_free(s);
        w->seqs[i].s = NULL;
    }
    audit(w->c);
    for (int j = 0; j < 4; j++)
        if (w->seqs[j].s) check_rows(w->c, w->seqs[j].s, w->seqs[j].ids);
}

/* As many tails as retired ends that nothing continues, where nothing is evicted. */
static int plain_tails(const world *w)
{
    int n = 0;
    for (int i = 0; i < w->n_past; i++) {
        int end = w->past_n[i];
        bool goes_on = end % w->b == 0;
        for (int j = 0; j < w->n_past; j++) {
            int64_t same = longest_common(w->past[i], end, w->past[j], w->past_n[j]);
            goes_on |= same == end && (w->past_n[j] > end || j < i);
        }
        n += !goes_on;
    }
    return n;
}

static void random_turns(void **state)
{
    (void)state;
    static world w;
    int found_tails = 0, lost = 0, n_worlds = SANITIZED ? 8 : 60;
    for (int i = 0; i < n_worlds; i++) {
        bool exact = i % 2;
        int b = 8 << i / 2 % 2;
        kv_cache_config config = config_of(b, i % 3 ? "f16" : "f32", MAX_TOKENS, 0);
        config.n_seqs = exact ? PAST + 4 : 3;
        memset(&w, 0, sizeof w);
        w.c = make_cache(config);
        w.seed = (uint32_t)i + 1;
        w.b = b;
        while (w.n_past < PAST) operate(&w, exact);
        found_tails += w.n_found_tails;
        lost += w.n_lost;
        for (int j = 0; j < 4; j++) kv_seq_free(w.seqs[j].s);
        if (exact) assert_true(tree_of(w.c).tails <= (uint64_t)plain_tails(&w));
        kv_cache_free(w.c);
    }
    assert_true(found_tails > n_worlds * 10 && lost > n_worlds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_turn_computes_its_new_tokens), cmocka_unit_test(freed_and_retired),
        cmocka_unit_test(without_room_the_tail_comes_back), cmocka_unit_test(a_window_sees_from_the_tails_end),
        cmocka_unit_test(memory_may_fail), cmocka_unit_test(random_turns),
    };
    return cmocka_run_group_tests_name("cache_tails", tests, NULL, NULL);
}
