/* The network gives the same bits however its rows come: in which chunks, batches, blocks, threads, layer ranges, drafts. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "engine/forward.h"
#include "tiny_model.h"

#define MAX_SEQS 3
#define ROW_BYTES (TINY_VOCAB * sizeof(float))

typedef struct net_config {
    const model *m;
    int threads, block_tokens, chunk;
    const char *format;
    bool exact, no_split;
} net_config;

/* A cache and a forward pass over a model, and the step that is being put together. */
typedef struct net {
    threads *team;
    kv_groups groups;
    kv_cache *cache;
    forward *f;
    int n_layers, d_model;
    batch_row rows[1024];
    kv_seq *seqs[MAX_SEQS];
    float *to[1024]; /* where a row's logits go */
    int n_rows, n_seqs;
    uint64_t fill; /* of spans that are free: K and V that nobody may read */
} net;

static net *open_net(net_config c)
{
    status st = STATUS_INIT;
    net *n = calloc(1, sizeof *n);
    if (threads_new(&n->team, c.threads ? c.threads : 1, &st)) fail_msg("%s", st.text);
    n->n_layers = c.m->params.n_layers;
    n->d_model = c.m->params.d_model;
    kv_groups_init(&n->groups, &c.m->params);
    int chunk = c.chunk ? c.chunk : 1024;
    kv_cache_config k = {.groups = n->groups.group,
                         .n_groups = n->groups.n,
                         .format = kv_format_get(c.format ? c.format : "f16"),
                         .block_tokens = c.block_tokens,
                         .max_tokens = 768,
                         .step_tokens = (uint64_t)chunk,
                         .n_seqs = MAX_SEQS};
    if (kv_cache_new(&n->cache, &k, &st)) fail_msg("%s", st.text);
    /* What the cache holds before anything is written to it must not matter. */
    for (int g = 0; g < n->groups.n; g++) {
        pool *p = kv_cache_pool(n->cache, g);
        for (uint32_t i = 0; i < pool_count(p).total; i++) memset(pool_block(p, i), 0xFF, pool_block_bytes(p));
    }
    forward_config f = {.max_rows = chunk,
                        .max_seqs = MAX_SEQS,
                        .max_drafts = FORWARD_MAX_DRAFTS,
                        .max_logit_rows = 5,
                        .max_workers = threads_count(n->team),
                        .exact = c.exact,
                        .no_split = c.no_split};
    if (forward_new(&n->f, c.m, n->cache, &n->groups, n->team, &f, &st)) fail_msg("%s", st.text);
    return n;
}

static void close_net(net *n)
{
    status st = STATUS_INIT;
    if (kv_cache_audit(n->cache, &st)) fail_msg("%s", st.text);
    forward_free(n->f);
    kv_cache_free(n->cache);
    threads_free(n->team);
    free(n);
}

static kv_seq *new_seq(net *n)
{
    status st = STATUS_INIT;
    kv_seq *s = NULL;
    if (kv_seq_new(&s, n->cache, &st)) fail_msg("%s", st.text);
    return s;
}

static int seq_number(net *n, kv_seq *s)
{
    for (int i = 0; i < n->n_seqs; i++)
        if (n->seqs[i] == s) return i;
    n->seqs[n->n_seqs] = s;
    return n->n_seqs++;
}

static void add_row(net *n, kv_seq *s, int32_t token, int64_t position, int64_t slot, float *to)
{
    n->to[n->n_rows] = to;
    n->rows[n->n_rows++] = (batch_row){token, seq_number(n, s), position, slot, to != NULL};
}

/* The next n_ids tokens of a sequence; logits [n_ids][vocab], or NULL. */
static void add_tokens(net *n, kv_seq *s, const int32_t *ids, int n_ids, float *logits)
{
    status st = STATUS_INIT;
    int64_t at = kv_seq_len(s);
    if (kv_seq_append(s, n_ids, &st)) fail_msg("%s", st.text);
    for (int i = 0; i < n_ids; i++)
        add_row(n, s, ids[i], at + i, at + i, logits ? logits + (size_t)i * TINY_VOCAB : NULL);
}

static void take_row(void *user, int row, const float *logits)
{
    net *n = user;
    memcpy(n->to[row], logits, ROW_BYTES);
}

static int run_io(net *n, forward_io *io, status *st)
{
    batch b = {n->rows, n->n_rows, n->seqs, n->n_seqs};
    if (!io->layer_end) io->layer_end = n->n_layers;
    return forward_run(n->f, &b, io, st);
}

static void clear(net *n)
{
    n->n_rows = n->n_seqs = 0;
}

static void run(net *n)
{
    status st = STATUS_INIT;
    forward_io io = {.on_logits = take_row, .user = n};
    if (run_io(n, &io, &st)) fail_msg("%s", st.text);
    clear(n);
}

/* ids in chunks, logits of all of them. */
static void run_chunks(net *n, kv_seq *s, const int32_t *ids, int n_ids, int chunk, float *logits)
{
    for (int at = 0; at < n_ids; at += chunk) {
        int left = n_ids - at;
        add_tokens(n, s, ids + at, left < chunk ? left : chunk, logits + (size_t)at * TINY_VOCAB);
        run(n);
    }
}

static float *logits_new(int n)
{
    return calloc((size_t)n, ROW_BYTES);
}

/* Logits of all ids in one chunk, by one thread: what everything else is compared with. */
static float *reference(net_config c, const int32_t *ids, int n_ids)
{
    c.threads = c.block_tokens = c.chunk = 0;
    net *n = open_net(c);
    kv_seq *s = new_seq(n);
    float *logits = logits_new(n_ids);
    run_chunks(n, s, ids, n_ids, n_ids, logits);
    for (int i = 0; i < n_ids * TINY_VOCAB; i++) assert_true(isfinite(logits[i]));
    assert_memory_not_equal(logits, logits + TINY_VOCAB, ROW_BYTES);
    kv_seq_free(s);
    close_net(n);
    return logits;
}

/* The model at hand, for messages. */
static char label[32] = "";

static void same(const float *a, const float *b, int n_rows, const char *what)
{
    for (int i = 0; i < n_rows; i++)
        if (memcmp(a + (size_t)i * TINY_VOCAB, b + (size_t)i * TINY_VOCAB, ROW_BYTES))
            fail_msg("%s%s: row %d differs", label, what, i);
}

/* -- models ---------------------------------------------------------------------------------------------------------------------- */

#define N_MODELS 9

static tiny_config model_config(int i)
{
    tiny_config c = i % 2 ? tiny_gemma() : tiny_llama();
    const dtype types[] = {DTYPE_F32, DTYPE_F32, DTYPE_F16, DTYPE_Q8_0, DTYPE_Q4_1, DTYPE_Q4_K, DTYPE_Q6_K};
    if (i < 7) c.type = types[i];
    if (i == 2) c.n_kv_heads = 1, c.own_head = true, c.window = 9; /* every layer windowed, MQA */
    if (i == 3 || i == 4) c.d_k = c.d_v = 32;
    if (i == 5 || i == 6) { /* rows of whole super-blocks */
        c.d_model = c.d_ff = 256;
        c.d_k = c.d_v = 64;
        c.n_kv_heads = 2;
    }
    if (i == 7) { /* all heads their own, K wider than V */
        c.n_kv_heads = 4;
        c.d_v = 8;
        c.window = 12;
    }
    if (i == 8) c.arch = "qwen2";
    return c;
}

typedef struct world {
    threads *team;
    model *m[2][N_MODELS]; /* by kernels: scalar, this machine's best */
} world;

static int open_world(void **state)
{
    status st = STATUS_INIT;
    world *w = calloc(1, sizeof *w);
    if (threads_new(&w->team, 1, &st)) return -1;
    for (int i = 0; i < N_MODELS; i++) {
        tiny_config c = model_config(i);
        w->m[0][i] = tiny_load(&c, kernels_get(CPU_SCALAR), w->team);
        w->m[1][i] = tiny_load(&c, kernels_get(CPU_AUTO), w->team);
    }
    *state = w;
    return 0;
}

static int close_world(void **state)
{
    world *w = *state;
    for (int i = 0; i < 2 * N_MODELS; i++) model_free(w->m[i / N_MODELS][i % N_MODELS]);
    threads_free(w->team);
    free(w);
    return mem_stats().live != 0;
}

static void on_model(world *w, int table, int i, void (*check)(net_config c))
{
    const model *m = w->m[table][i];
    snprintf(label, sizeof label, "%s, model %d, ", m->ks->name, i);
    check((net_config){.m = m});
    label[0] = 0;
}

/* Every model with both kernel tables. */
static void on_all(void **state, void (*check)(net_config c))
{
    for (int i = 0; i < 2 * N_MODELS; i += SANITIZED ? 4 : 1) on_model(*state, i / N_MODELS, i % N_MODELS, check);
}

/* A model of each family, each window and each head count. */
static void on_some(void **state, void (*check)(net_config c))
{
    const int models[] = {7, 2, 5, 0, 1};
    if (!SANITIZED) on_model(*state, 0, 1, check);
    if (!SANITIZED) on_model(*state, 0, 7, check);
    for (int i = 0; i < (SANITIZED ? 2 : 5); i++) on_model(*state, 1, models[i], check);
}

#define N_IDS 50

static int32_t *some_ids(void)
{
    static int32_t ids[N_IDS];
    tiny_ids(ids, N_IDS, 3);
    return ids;
}

/* -- the same bits --------------------------------------------------------------------------------------------------------------- */

static void check_variant(net_config c, const int32_t *ids, int n_ids, const float *want, int chunk, const char *what)
{
    net *n = open_net(c);
    kv_seq *s = new_seq(n);
    float *got = logits_new(n_ids);
    run_chunks(n, s, ids, n_ids, chunk, got);
    same(got, want, n_ids, what);
    kv_seq_free(s);
    close_net(n);
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
    world *w = *state;
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
    world *w = *state;
    enum { LONG = 560 };
    int32_t ids[LONG];
    tiny_ids(ids, LONG, 5);
    for (int i = SANITIZED ? 2 : 0; i < 3; i++) {
        net_config c = {.m = w->m[i > 0][i / 2]}; /* llama with both kernel tables, gemma */
        float *want = reference(c, ids, LONG);
        check_variant(c, ids, LONG, want, 64, "chunk 64");
        c.threads = 3;
        check_variant(c, ids, LONG, want, 250, "3 threads");
        net *n = open_net(c);
        kv_seq *s = new_seq(n);
        float *got = logits_new(LONG);
        run_chunks(n, s, ids, LONG - 20, 512, got);
        run_chunks(n, s, ids + LONG - 20, 20, 1, got + (LONG - 20) * TINY_VOCAB);
        same(got, want, LONG, "decoding at depth, split");
        kv_seq_free(s);
        close_net(n);
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
    net *n = open_net(c);
    for (int i = 0; i < 3; i++) {
        tiny_ids(ids[i], N_IDS, 20 + (uint64_t)i);
        want[i] = reference(c, ids[i], N_IDS);
        got[i] = logits_new(N_IDS);
        s[i] = new_seq(n);
    }
    int at[3] = {0}, sizes[3] = {1, 11, 30};
    for (int left = 1; left;) {
        left = 0;
        for (int i = 0; i < 3; i++) {
            int more = N_IDS - at[i] < sizes[i] ? N_IDS - at[i] : sizes[i];
            if (more == 0) continue;
            add_tokens(n, s[i], ids[i] + at[i], more, got[i] + at[i] * TINY_VOCAB);
            at[i] += more;
            left = 1;
        }
        if (left) run(n);
    }
    for (int i = 0; i < 3; i++) {
        same(got[i], want[i], N_IDS, "in a batch");
        kv_seq_free(s[i]);
        free(want[i]);
        free(got[i]);
    }
    close_net(n);
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
    net *n = open_net(c);
    kv_seq *s = new_seq(n), *f = NULL;
    run_chunks(n, s, ids, 40, 8, got);
    /* Other tokens after the 37th, taken back (a window of 9 still holds what the 37th row sees). */
    int32_t other[3];
    tiny_ids(other, 3, 99);
    float *ignored = logits_new(3);
    assert_int_equal(kv_seq_truncate(s, 37, &st), ST_OK);
    run_chunks(n, s, other, 3, 1, ignored);
    assert_int_equal(kv_seq_truncate(s, 37, &st), ST_OK);
    assert_int_equal(kv_seq_fork(&f, s, 37, &st), ST_OK);
    run_chunks(n, s, other, 3, 3, ignored); /* the other branch writes on */
    run_chunks(n, f, ids + 37, N_IDS - 37, 9, got + 37 * TINY_VOCAB);
    same(got, want, N_IDS, "after truncation and fork");
    kv_seq_free(s);
    kv_seq_free(f);
    close_net(n);
    free(want);
    free(got);
    free(ignored);
}

static void truncate_and_fork(void **state)
{
    on_some(state, check_truncate_and_fork);
}

/* -- layer ranges, taps, hooks --------------------------------------------------------------------------------------------------- */

static void check_layer_ranges(net_config c)
{
    const int32_t *ids = some_ids();
    float *want = reference(c, ids, N_IDS), *got = logits_new(N_IDS);
    float *hidden = calloc(N_IDS, (size_t)c.m->params.d_model * sizeof *hidden);
    status st = STATUS_INIT;
    for (int k = 0; k <= c.m->params.n_layers; k++) {
        /* One cache: the same rows twice. Two: a stage each. */
        net *a = open_net(c), *b = open_net(c);
        kv_seq *sa = new_seq(a), *sb = new_seq(b);
        forward_io first = {.layer_end = k, .hidden_out = hidden},
                   second = {.layer_begin = k, .hidden_in = hidden, .on_logits = take_row};
        batch ba, bb;
        add_tokens(a, sa, ids, N_IDS, got);
        add_tokens(b, sb, ids, N_IDS, got);
        ba = (batch){a->rows, a->n_rows, a->seqs, a->n_seqs};
        bb = (batch){b->rows, b->n_rows, b->seqs, b->n_seqs};
        second.layer_end = c.m->params.n_layers;
        assert_int_equal(forward_run(a->f, &ba, &first, &st), ST_OK);
        second.user = b;
        assert_int_equal(forward_run(b->f, &bb, &second, &st), ST_OK);
        same(got, want, N_IDS, "two stages");
        memset(got, 0, N_IDS * ROW_BYTES);
        second.user = a;
        assert_int_equal(forward_run(a->f, &ba, &second, &st), ST_OK);
        same(got, want, N_IDS, "two runs over one cache");
        kv_seq_free(sa);
        kv_seq_free(sb);
        close_net(a);
        close_net(b);
    }
    free(hidden);
    free(want);
    free(got);
}

static void layer_ranges(void **state)
{
    world *w = *state;
    check_layer_ranges((net_config){.m = w->m[0][0]});
    check_layer_ranges((net_config){.m = w->m[1][1]});
    check_layer_ranges((net_config){.m = w->m[1][5]});
}

typedef struct record {
    int taps[8], n_taps, ready[8], n_ready, wait[8], n_wait, fail_at;
    float *hidden[8];
    size_t n_bytes;
    const net *n;
} record;

static void on_tap(void *user, int layer, const float *hidden)
{
    record *r = user;
    r->hidden[r->n_taps] = malloc(r->n_bytes);
    memcpy(r->hidden[r->n_taps], hidden, r->n_bytes);
    r->taps[r->n_taps++] = layer;
}

static void on_ready(void *user, int layer)
{
    record *r = user;
    r->ready[r->n_ready++] = layer;
}

static int on_wait(void *user, int layer, status *st)
{
    record *r = user;
    r->wait[r->n_wait++] = layer;
    assert_int_equal(r->n_ready, r->n_wait); /* this step's rows of the layer are there */
    return layer == r->fail_at ? status_set(st, ST_TIMEOUT, STATUS_NO_POS, "layer %d did not come", layer) : ST_OK;
}

static void taps_and_hooks(void **state)
{
    world *w = *state;
    const int32_t *ids = some_ids();
    status st = STATUS_INIT;
    const int wanted[] = {4, 0, 6};
    net *n = open_net((net_config){.m = w->m[0][1]}); /* 7 layers */
    kv_seq *s = new_seq(n);
    record r = {.n_bytes = 10 * (size_t)n->d_model * sizeof(float), .fail_at = -1, .n = n};
    add_tokens(n, s, ids, 10, NULL);
    forward_io io = {
        .tap_layers = wanted, .n_taps = 3, .on_tap = on_tap, .kv_ready = on_ready, .kv_wait = on_wait, .user = &r};
    assert_int_equal(run_io(n, &io, &st), ST_OK);
    assert_int_equal(r.n_ready, 7);
    assert_int_equal(r.n_wait, 7);
    for (int l = 0; l < 7; l++) {
        assert_int_equal(r.ready[l], l);
        assert_int_equal(r.wait[l], l);
    }
    assert_int_equal(r.n_taps, 3);
    const int order[] = {0, 4, 6};
    float *hidden = malloc(r.n_bytes);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(r.taps[i], order[i]);
        forward_io range = {.layer_end = order[i] + 1, .hidden_out = hidden};
        assert_int_equal(run_io(n, &range, &st), ST_OK);
        assert_memory_equal(hidden, r.hidden[i], r.n_bytes);
        free(r.hidden[i]);
    }
    free(hidden);
    kv_seq_free(s);
    close_net(n);
}

static void failed_wait_ends_the_run(void **state)
{
    world *w = *state;
    const int32_t *ids = some_ids();
    for (int family = 0; family < 2; family++) {
        net_config c = {.m = w->m[0][family]};
        float *want = reference(c, ids, N_IDS), *got = logits_new(N_IDS);
        net *n = open_net(c);
        kv_seq *s = new_seq(n);
        run_chunks(n, s, ids, 30, 30, got);
        status st = STATUS_INIT;
        record r = {.fail_at = 1};
        add_tokens(n, s, ids, 20, NULL);
        forward_io io = {.on_logits = take_row, .kv_ready = on_ready, .kv_wait = on_wait, .user = &r};
        assert_int_equal(run_io(n, &io, &st), ST_TIMEOUT);
        assert_string_equal(st.text, "layer 1 did not come");
        assert_int_equal(r.n_wait, 2);
        assert_int_equal(kv_seq_truncate(s, 30, &st), ST_OK);
        clear(n);
        run_chunks(n, s, ids + 30, N_IDS - 30, 20, got + 30 * TINY_VOCAB);
        same(got, want, N_IDS, "after a failed run");
        kv_seq_free(s);
        close_net(n);
        free(want);
        free(got);
    }
}

static void tokens_outside_the_vocabulary(void **state)
{
    world *w = *state;
    net *n = open_net((net_config){.m = w->m[0][0]});
    kv_seq *s = new_seq(n);
    const int32_t bad[][2] = {{1, TINY_VOCAB}, {1, -1}};
    for (int i = 0; i < 2; i++) {
        status st = STATUS_INIT;
        forward_io io = {0};
        add_tokens(n, s, bad[i], 2, NULL);
        assert_int_equal(run_io(n, &io, &st), ST_ARG);
        assert_int_equal(st.pos, 1);
        clear(n);
        assert_int_equal(kv_seq_truncate(s, 0, &st), ST_OK);
    }
    kv_seq_free(s);
    close_net(n);
}

/* -- drafts ---------------------------------------------------------------------------------------------------------------------- */

static void add_drafts(net *n, kv_seq *s, const int32_t *ids, int n_ids, const int *parents, float *logits)
{
    status st = STATUS_INIT;
    int64_t len = kv_seq_len(s), first = kv_seq_n_drafts(s);
    if (kv_seq_draft(s, n_ids, parents, &st)) fail_msg("%s", st.text);
    for (int i = 0; i < n_ids; i++) {
        int64_t depth = 0;
        for (int j = (int)first + i; j >= 0; j = kv_seq_draft_parent(s, j)) depth++;
        add_row(n, s, ids[i], len + depth - 1, len + first + i, logits + (size_t)i * TINY_VOCAB);
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
    net *n = open_net(c);
    kv_seq *s = new_seq(n);
    run_chunks(n, s, ids, BEFORE, 9, got);
    add_drafts(n, s, wrong, DRAFTS, NULL, ignored);
    run(n);
    kv_seq_rollback(s);
    add_drafts(n, s, ids + BEFORE, 10, NULL, got + BEFORE * TINY_VOCAB); /* in two steps: drafts of drafts */
    run(n);
    add_drafts(n, s, ids + BEFORE + 10, DRAFTS - 10, NULL, got + (BEFORE + 10) * TINY_VOCAB);
    run(n);
    same(got, want, BEFORE + DRAFTS, "drafts");
    assert_int_equal(kv_seq_commit(s, slots, DRAFTS - 3, &st), ST_OK);
    int at = BEFORE + DRAFTS - 3;
    run_chunks(n, s, ids + at, N_IDS - at, 4, got + at * TINY_VOCAB);
    same(got, want, N_IDS, "after the commit");
    kv_seq_free(s);
    close_net(n);
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
    if (!(sqrt(error / size) < 1e-4)) fail_msg("%s%s: off by %g", label, what, sqrt(error / size));
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
    net *n = open_net(c);
    kv_seq *s = new_seq(n);
    run_chunks(n, s, ids, BEFORE, 9, ignored);
    add_drafts(n, s, drafts, DRAFTS, parents, got);
    run(n);
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
    run_chunks(n, s, ids, 20, 6, after);
    for (int i = 0; i < 20; i++)
        nearly_same(after + i * TINY_VOCAB, want + (BEFORE + 3 + i) * TINY_VOCAB, "after a branch is committed");
    kv_seq_free(s);
    close_net(n);
    free(ignored);
    free(got);
    free(want);
    free(after);
}

static void draft_trees(void **state)
{
    on_some(state, check_draft_tree);
}

/* -- memory ---------------------------------------------------------------------------------------------------------------------- */

static void run_allocates_nothing(void **state)
{
    world *w = *state;
    const int32_t *ids = some_ids();
    float *got = logits_new(N_IDS);
    net *n = open_net((net_config){.m = w->m[1][1], .threads = 2});
    kv_seq *s = new_seq(n);
    uint64_t calls = mem_stats().calls;
    run_chunks(n, s, ids, 40, 40, got);
    run_chunks(n, s, ids + 40, N_IDS - 40, 1, got + 40 * TINY_VOCAB);
    assert_int_equal(mem_stats().calls, calls);
    kv_seq_free(s);
    close_net(n);
    free(got);
}

static void short_memory_leaks_nothing(void **state)
{
    world *w = *state;
    net *n = open_net((net_config){.m = w->m[1][1], .threads = 2});
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
    close_net(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_threads_blocks),
        cmocka_unit_test(exact_and_f32_cache_are_identical_to_themselves),
        cmocka_unit_test(long_sequences),
        cmocka_unit_test(batches),
        cmocka_unit_test(truncate_and_fork),
        cmocka_unit_test(layer_ranges),
        cmocka_unit_test(taps_and_hooks),
        cmocka_unit_test(failed_wait_ends_the_run),
        cmocka_unit_test(tokens_outside_the_vocabulary),
        cmocka_unit_test(draft_lines),
        cmocka_unit_test(draft_trees),
        cmocka_unit_test(run_allocates_nothing),
        cmocka_unit_test(short_memory_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
