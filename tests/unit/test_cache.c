#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/mem.h"
#include "cache/cache.h"

/* Two groups like a small Gemma-3: layers 0 and 2 see everything, layer 1 a window. */
static const int GLOBAL_LAYERS[] = {0, 2}, WINDOW_LAYERS[] = {1};
enum { WINDOW = 20, STEP = 24, MAX_D = 16 };
static const kv_group GROUPS[] = {
    {.layout = {.kind = KV_GQA, .n_kv_heads = 2, .d_k = 8, .d_v = 16}, .layers = GLOBAL_LAYERS, .n_layers = 2},
    {.layout = {.kind = KV_GQA, .n_kv_heads = 1, .d_k = 16, .d_v = 8, .window = WINDOW},
     .layers = WINDOW_LAYERS,
     .n_layers = 1},
};

static kv_cache_config config_of(int block_tokens, const char *format, uint64_t max_tokens, uint64_t memory_bytes)
{
    return (kv_cache_config){.groups = GROUPS,
                             .n_groups = 2,
                             .format = kv_format_get(format),
                             .block_tokens = block_tokens,
                             .max_tokens = max_tokens,
                             .step_tokens = STEP,
                             .n_seqs = 3,
                             .memory_bytes = memory_bytes};
}

static kv_cache *make_cache(kv_cache_config config)
{
    kv_cache *c = NULL;
    status st = STATUS_INIT;
    if (kv_cache_new(&c, &config, &st)) fail_msg("%s", st.text);
    return c;
}

static kv_seq *make_seq(kv_cache *c)
{
    kv_seq *s = NULL;
    status st = STATUS_INIT;
    if (kv_seq_new(&s, c, &st)) fail_msg("%s", st.text);
    return s;
}

static void audit(const kv_cache *c)
{
    status st = STATUS_INIT;
    if (kv_cache_audit(c, &st)) fail_msg("%s", st.text);
}

static void must(int rc, const status *st)
{
    if (rc) fail_msg("%s", st->text);
}

static void append(kv_seq *s, int n)
{
    status st = STATUS_INIT;
    must(kv_seq_append(s, n, &st), &st);
}

static void truncate_to(kv_seq *s, int64_t n)
{
    status st = STATUS_INIT;
    must(kv_seq_truncate(s, n, &st), &st);
}

static kv_seq *fork_at(const kv_seq *s, int64_t n)
{
    kv_seq *f = NULL;
    status st = STATUS_INIT;
    must(kv_seq_fork(&f, s, n, &st), &st);
    return f;
}

static void draft(kv_seq *s, int n)
{
    status st = STATUS_INIT;
    must(kv_seq_draft(s, n, NULL, &st), &st);
}

static void to_half(const float *x, int64_t n, uint16_t *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = float_to_half(x[i]);
}

/* What serial number `serial` puts into one head of one layer: small integers, exact in f16, that differ almost
 * everywhere. */
static void pattern(float *x, int d, uint32_t serial, int layer, int head, int is_v)
{
    uint32_t h = serial * 2654435761u + (uint32_t)(layer * 64 + head * 8 + is_v) * 40503u;
    for (int c = 0; c < d; c++) {
        h = h * 1664525u + 1013904223u;
        x[c] = (float)(int)(h >> 21) - 1024;
    }
}

static void write_row(const kv_cache *c, int group, kv_place at, uint32_t serial)
{
    static const kernels ks = {.to_half = to_half};
    const kv_group *g = kv_cache_group(c, group);
    const kv_format *f = kv_cache_format(c);
    float x[MAX_D];
    for (int layer = 0; layer < g->n_layers; layer++)
        for (int head = 0; head < g->layout.n_kv_heads; head++) {
            pattern(x, g->layout.d_k, serial, g->layers[layer], head, 0);
            f->write_k(&ks, at.block + kv_k_offset(c, group, layer, head), kv_cache_block_tokens(c), at.row, x,
                       g->layout.d_k);
            pattern(x, g->layout.d_v, serial, g->layers[layer], head, 1);
            f->write_v(&ks, at.block + kv_v_offset(c, group, layer, head), kv_cache_block_tokens(c), at.row, x,
                       g->layout.d_v);
        }
}

static void check_row(const kv_cache *c, int group, const uint8_t *block, int row, uint32_t serial)
{
    const kv_group *g = kv_cache_group(c, group);
    const kv_format *f = kv_cache_format(c);
    float x[MAX_D], want[MAX_D];
    for (int layer = 0; layer < g->n_layers; layer++)
        for (int head = 0; head < g->layout.n_kv_heads; head++) {
            pattern(want, g->layout.d_k, serial, g->layers[layer], head, 0);
            f->read_k(block + kv_k_offset(c, group, layer, head), kv_cache_block_tokens(c), row, x, g->layout.d_k);
            assert_memory_equal(x, want, (size_t)g->layout.d_k * sizeof *x);
            pattern(want, g->layout.d_v, serial, g->layers[layer], head, 1);
            f->read_v(block + kv_v_offset(c, group, layer, head), kv_cache_block_tokens(c), row, x, g->layout.d_v);
            assert_memory_equal(x, want, (size_t)g->layout.d_v * sizeof *x);
        }
}

/* The naive model: a sequence is an array of serial numbers, one a row; held[g] is the first row that the window's
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
    if (p->len + n > (int64_t)kv_cache_capacity_tokens(w->c)) return false;
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
                    check_row(w->c, g, spans[j].block, spans[j].row + r, serial);
                    kv_place place =
                        at < p->len ? kv_seq_place(p->s, g, at) : kv_seq_draft_place(p->s, g, (int)(at - p->len));
                    assert_ptr_equal(place.block, spans[j].block);
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

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { OPS = 4000 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { OPS = 4000 };
#else
enum { OPS = 50000 };
#endif
#else
enum { OPS = 50000 };
#endif

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
        assert_int_equal(kv_cache_capacity_tokens(c), 1000);
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
        uint64_t most = kv_cache_capacity_tokens(c);
        assert_true(kv_cache_bytes(c) <= memory && most >= 8);
        while ((uint64_t)kv_seq_len(s) < most)
            append(s, (int)(most - (uint64_t)kv_seq_len(s) < STEP ? most - (uint64_t)kv_seq_len(s) : STEP));
        assert_int_equal(kv_seq_append(s, 1, &st), ST_LIMIT);
        assert_non_null(strstr(st.text, "longest sequence"));
        kv_seq_free(s);
        kv_cache_free(c);
    }
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
    assert_non_null(strstr(st.text, "2 blocks of 16 tokens are needed and 1 of 4 are free"));
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
            for (int head = 0; head < group->layout.n_kv_heads; head++, at += (size_t)group->layout.d_k * 16 * 2)
                assert_int_equal(kv_k_offset(c, g, layer, head), at);
            for (int head = 0; head < group->layout.n_kv_heads; head++, at += (size_t)group->layout.d_v * 16 * 2)
                assert_int_equal(kv_v_offset(c, g, layer, head), at);
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
    assert_int_equal(n, 1 + 1 + 2 * 4 + 1); /* cache, layers, two pools of four; the next would be none of ours */
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
        cmocka_unit_test(test_truncate_into_a_shared_block),
        cmocka_unit_test(test_a_window_cannot_be_cut_far_back),
        cmocka_unit_test(test_drafts_stand_apart),
        cmocka_unit_test(test_a_move_keeps_a_sequence_waiting),
        cmocka_unit_test(test_pools_are_sized_by_the_formula),
        cmocka_unit_test(test_a_small_pool_serves_a_shorter_sequence),
        cmocka_unit_test(test_too_small),
        cmocka_unit_test(test_a_full_pool_says_so),
        cmocka_unit_test(test_bad_configurations),
        cmocka_unit_test(test_offsets_tile_a_block),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_random_8),
        cmocka_unit_test(test_random_16),
        cmocka_unit_test(test_random_32),
        cmocka_unit_test(test_random_f32),
    };
    return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
