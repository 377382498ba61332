/* Random operations on a cache, each compared with arrays that do the same the plain way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "sanitized.h"
#include "small_cache.h"

/* The plain model: a sequence is an array of serial numbers, one a row; held[g] is the first row that the window's
 * blocks hold. */
enum { SEQS = 6, MAX_TOKENS = 150 };

typedef struct plain_seq {
    kv_seq *s;
    int64_t len, held[2];
    uint32_t rows[MAX_TOKENS], drafts[STEP];
    int n_drafts, parents[STEP];
} plain_seq;

typedef struct world {
    kv_cache *c;
    int b;
    plain_seq seqs[SEQS];
    uint32_t serial, seed;
    int n_refused, n_forks, n_commits, n_cuts_refused, n_moved_tails;
} world;

static uint32_t draw(world *w, uint32_t n)
{
    w->seed ^= w->seed << 13;
    w->seed ^= w->seed >> 17;
    w->seed ^= w->seed << 5;
    return w->seed % n;
}

static int64_t round_up(int64_t n, int64_t b)
{
    return (n + b - 1) / b * b;
}

static int64_t seen_from(int group, int64_t len)
{
    return group == 1 && len >= WINDOW ? len - WINDOW + 1 : 0;
}

/* Where row i of p is; the rows of a block count as one place, named by the block's address. */
static const uint8_t *block_of(const plain_seq *p, int group, int64_t i)
{
    return kv_seq_place(p->s, group, i).block;
}

static int holders(const world *w, int group, const uint8_t *block)
{
    int n = 0;
    for (int i = 0; i < SEQS; i++) {
        const plain_seq *p = &w->seqs[i];
        if (!p->s) continue;
        for (int64_t row = p->held[group]; row < p->len; row += w->b) n += block_of(p, group, row) == block;
    }
    return n;
}

/* Blocks in use, counted from the places of all rows. */
static uint32_t free_blocks(const world *w, int group)
{
    const uint8_t *seen[512];
    uint32_t n = 0;
    for (int i = 0; i < SEQS; i++) {
        const plain_seq *p = &w->seqs[i];
        if (!p->s) continue;
        for (int64_t row = p->held[group]; row < p->len; row += w->b) {
            const uint8_t *block = block_of(p, group, row);
            uint32_t j = 0;
            while (j < n && seen[j] != block) j++;
            if (j == n) seen[n++] = block;
        }
        for (int slot = 0; slot < p->n_drafts; slot += w->b) seen[n++] = kv_seq_draft_place(p->s, group, slot).block;
    }
    return pool_count(kv_cache_pool(w->c, group)).total - n;
}

/* Blocks of rows [from, to) of p that nobody else holds. */
static int64_t own_blocks(const world *w, const plain_seq *p, int group, int64_t from, int64_t to)
{
    int64_t n = 0;
    for (int64_t row = from; row < to; row += w->b) n += holders(w, group, block_of(p, group, row)) == 1;
    return n;
}

static int64_t kept_from(const world *w, const plain_seq *p, int group)
{
    int64_t from = seen_from(group, p->len) / w->b * w->b;
    return from > p->held[group] ? from : p->held[group];
}

/* Whether an append of n rows fits, from first principles. */
static bool append_fits(const world *w, const plain_seq *p, int n)
{
    if (p->len + n > (int64_t)kv_cache_longest_tokens(w->c)) return false;
    bool fits = true;
    for (int g = 0; g < 2; g++) {
        int64_t more = (round_up(p->len + n, w->b) - round_up(p->len, w->b)) / w->b;
        int64_t net = more - own_blocks(w, p, g, p->held[g], kept_from(w, p, g));
        assert_int_equal(kv_seq_append_needs(p->s, g, n), net > 0 ? net : 0);
        fits = fits && net <= (int64_t)free_blocks(w, g);
    }
    return fits;
}

static void check_world(world *w, bool everything)
{
    for (int i = 0; i < SEQS; i++) {
        plain_seq *p = &w->seqs[i];
        if (!p->s) continue;
        assert_int_equal(kv_seq_len(p->s), p->len);
        assert_int_equal(kv_seq_n_drafts(p->s), p->n_drafts);
        for (int slot = 0; slot < p->n_drafts; slot++)
            assert_int_equal(kv_seq_draft_parent(p->s, slot), p->parents[slot]);
        for (int g = 0; g < 2; g++) {
            attn_span spans[64];
            int n = kv_seq_spans(p->s, g, spans, 64);
            int64_t index = p->held[g], end = p->len + p->n_drafts;
            for (int j = 0; j < n; index += spans[j++].n) {
                assert_int_equal(spans[j].index, index);
                assert_true(spans[j].n > 0 && spans[j].row + spans[j].n <= w->b);
                int one = (int)draw(w, (uint32_t)spans[j].n);
                for (int r = everything ? 0 : one; r < (everything ? spans[j].n : one + 1); r++) {
                    int64_t at = index + r;
                    uint32_t serial = at < p->len ? p->rows[at] : p->drafts[at - p->len];
                    check_row(w->c, g, pool_block(kv_cache_pool(w->c, g), spans[j].block), spans[j].row + r, serial);
                    kv_place place =
                        at < p->len ? kv_seq_place(p->s, g, at) : kv_seq_draft_place(p->s, g, (int)(at - p->len));
                    assert_ptr_equal(place.block, pool_block(kv_cache_pool(w->c, g), spans[j].block));
                    assert_int_equal(place.row, spans[j].row + r);
                }
            }
            assert_int_equal(index, end);
            assert_true(p->held[g] <= seen_from(g, p->len));
            assert_int_equal(pool_count(kv_cache_pool(w->c, g)).free, free_blocks(w, g));
        }
    }
    audit(w->c);
}

/* Counts a failure, which may only be a shortage that is explained. */
static bool refused(world *w, int rc, const status *st)
{
    if (rc == ST_OK) return false;
    assert_int_equal(rc, ST_LIMIT);
    assert_true(strlen(st->text) > 20);
    w->n_refused++;
    return true;
}

static void advance(world *w, plain_seq *p, int n)
{
    for (int g = 0; g < 2; g++) p->held[g] = kept_from(w, p, g);
    p->len += n;
}

static void random_append(world *w, plain_seq *p)
{
    int n = (int)draw(w, draw(w, 4) ? 4 : STEP + 1);
    status st = STATUS_INIT;
    bool fits = append_fits(w, p, n);
    int rc = kv_seq_append(p->s, n, &st);
    assert_int_equal(rc == ST_OK, fits);
    if (refused(w, rc, &st)) return;
    int64_t old = p->len;
    advance(w, p, n);
    for (int64_t i = old; i < p->len; i++) {
        p->rows[i] = ++w->serial;
        for (int g = 0; g < 2; g++) write_row(w->c, g, kv_seq_place(p->s, g, i), p->rows[i]);
    }
}

static bool cut_allowed(const plain_seq *p, int64_t n)
{
    return n == 0 || (p->held[0] <= seen_from(0, n) && p->held[1] <= seen_from(1, n));
}

static void random_truncate(world *w, plain_seq *p)
{
    int64_t n = draw(w, 3) ? p->len - draw(w, (uint32_t)(p->len < 6 ? p->len + 1 : 6)) : draw(w, (uint32_t)p->len + 1);
    status st = STATUS_INIT;
    bool allowed = cut_allowed(p, n), fits = true, moves[2] = {false, false};
    for (int g = 0; g < 2 && allowed; g++) {
        moves[g] = n % w->b && holders(w, g, block_of(p, g, n - 1)) > 1;
        fits = fits && (!moves[g] || free_blocks(w, g) + own_blocks(w, p, g, round_up(n, w->b), p->len) > 0);
    }
    uint64_t copied[2] = {kv_cache_copied_rows(w->c, 0), kv_cache_copied_rows(w->c, 1)};
    int rc = kv_seq_truncate(p->s, n, &st);
    assert_int_equal(rc, !allowed ? ST_ARG : fits ? ST_OK : ST_LIMIT);
    if (rc == ST_ARG) w->n_cuts_refused++;
    else refused(w, rc, &st);
    for (int g = 0; g < 2; g++) {
        uint64_t now = kv_cache_copied_rows(w->c, g) - copied[g];
        assert_int_equal(now, rc == ST_OK && moves[g] ? n % w->b : 0);
        w->n_moved_tails += now > 0;
    }
    if (rc) return;
    p->len = n;
    if (n == 0) p->held[0] = p->held[1] = 0;
}

static void random_fork(world *w, plain_seq *p)
{
    int slot = 0;
    while (slot < SEQS && w->seqs[slot].s) slot++;
    if (slot == SEQS) return;
    plain_seq *to = &w->seqs[slot];
    int64_t n = draw(w, 2) ? p->len : draw(w, (uint32_t)p->len + 1), rest = n % w->b;
    uint64_t copied[2] = {kv_cache_copied_rows(w->c, 0), kv_cache_copied_rows(w->c, 1)};
    bool allowed = cut_allowed(p, n), fits = !rest || (free_blocks(w, 0) && free_blocks(w, 1));
    status st = STATUS_INIT;
    kv_seq *f = NULL;
    int rc = kv_seq_fork(&f, p->s, n, &st);
    assert_int_equal(rc, !allowed ? ST_ARG : fits ? ST_OK : ST_LIMIT);
    if (rc) assert_null(f);
    if (rc == ST_ARG) w->n_cuts_refused++;
    else refused(w, rc, &st);
    for (int g = 0; g < 2; g++) assert_int_equal(kv_cache_copied_rows(w->c, g) - copied[g], rc ? 0 : rest);
    if (rc) return;
    *to = (plain_seq){.s = f, .len = n, .held = {n ? p->held[0] : 0, n ? p->held[1] : 0}};
    memcpy(to->rows, p->rows, (size_t)n * sizeof *p->rows);
    w->n_forks++;
    for (int g = 0; g < 2; g++)
        for (int64_t i = to->held[g]; i < n; i++)
            assert_int_equal(block_of(to, g, i) == block_of(p, g, i), i < n - rest);
}

static void random_draft(world *w, plain_seq *p)
{
    int n = (int)draw(w, 12), parents[12];
    status st = STATUS_INIT;
    for (int i = 0; i < n; i++) parents[i] = (int)draw(w, (uint32_t)(p->n_drafts + i + 1)) - 1;
    int64_t more = (round_up(p->n_drafts + n, w->b) - round_up(p->n_drafts, w->b)) / w->b;
    bool fits = p->n_drafts + n <= STEP && more <= (int64_t)free_blocks(w, 0) && more <= (int64_t)free_blocks(w, 1);
    int rc = kv_seq_draft(p->s, n, parents, &st);
    assert_int_equal(rc == ST_OK, fits);
    if (refused(w, rc, &st)) return;
    for (int i = 0; i < n; i++) {
        int slot = p->n_drafts++;
        p->drafts[slot] = ++w->serial;
        p->parents[slot] = parents[i];
        for (int g = 0; g < 2; g++) write_row(w->c, g, kv_seq_draft_place(p->s, g, slot), p->drafts[slot]);
    }
}

static void random_commit(world *w, plain_seq *p)
{
    int slots[STEP], n = 0;
    bool chain = draw(w, 2);
    for (int slot = 0; slot < p->n_drafts; slot++)
        if (chain || draw(w, 2)) slots[n++] = slot;
    if (draw(w, 4) == 0 && n > 1) { /* any order will do */
        int i = (int)draw(w, (uint32_t)n), kept = slots[i];
        slots[i] = slots[0];
        slots[0] = kept;
    }
    if (n) n -= (int)draw(w, (uint32_t)n);
    status st = STATUS_INIT;
    bool fits = append_fits(w, p, n);
    int rc = kv_seq_commit(p->s, slots, n, &st);
    assert_int_equal(rc == ST_OK, fits);
    if (refused(w, rc, &st)) return;
    int64_t old = p->len;
    advance(w, p, n);
    for (int i = 0; i < n; i++) p->rows[old + i] = p->drafts[slots[i]];
    p->n_drafts = 0;
    w->n_commits++;
}

static void random_op(world *w)
{
    plain_seq *p = &w->seqs[draw(w, SEQS)];
    if (!p->s) {
        if (draw(w, 10) == 0) *p = (plain_seq){.s = make_seq(w->c)};
        return;
    }
    uint32_t op = draw(w, 100);
    if (p->n_drafts) {
        if (op < 30) random_draft(w, p);
        else if (op < 75) random_commit(w, p);
        else if (op < 85) random_fork(w, p);
        else if (op < 92) {
            kv_seq_rollback(p->s);
            p->n_drafts = 0;
        }
    } else if (op < 55) random_append(w, p);
    else if (op < 70) random_truncate(w, p);
    else if (op < 82) random_fork(w, p);
    else if (op < 92) random_draft(w, p);
    if (op >= 94) {
        kv_seq_free(p->s);
        p->s = NULL;
    }
}

enum { OPS = SANITIZED ? 4000 : 50000 };

static void run_world(int block_tokens, const char *format, uint32_t seed)
{
    uint64_t one_bytes = 0;
    for (int g = 0; g < 2; g++)
        one_bytes += kv_bytes(&GROUPS[g], kv_format_get(format), block_tokens, MAX_TOKENS, STEP);
    world w = {.c = make_cache(config_of(block_tokens, format, MAX_TOKENS, one_bytes * 5 / 2)),
               .b = block_tokens,
               .seed = seed};
    for (int op = 0; op < OPS; op++) {
        random_op(&w);
        check_world(&w, op % 32 == 0);
    }
    for (int i = 0; i < SEQS; i++) kv_seq_free(w.seqs[i].s);
    for (int g = 0; g < 2; g++) {
        pool_counts n = pool_count(kv_cache_pool(w.c, g));
        assert_int_equal(n.free, n.total);
    }
    audit(w.c);
    kv_cache_free(w.c);
    /* each kind of event has been seen, not skipped */
    assert_true(w.n_refused > OPS / 200 && w.n_forks > OPS / 200 && w.n_commits > OPS / 200);
    assert_true(w.n_cuts_refused > OPS / 200 && w.n_moved_tails > OPS / 2000);
}

static void test_random_8(void **state)
{
    (void)state;
    run_world(8, "f16", 1);
}
static void test_random_16(void **state)
{
    (void)state;
    run_world(16, "f16", 2);
}
static void test_random_32(void **state)
{
    (void)state;
    run_world(32, "f16", 3);
}
static void test_random_f32(void **state)
{
    (void)state;
    run_world(16, "f32", 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_8),
        cmocka_unit_test(test_random_16),
        cmocka_unit_test(test_random_32),
        cmocka_unit_test(test_random_f32),
    };
    return cmocka_run_group_tests_name("cache_random", tests, NULL, NULL);
}
