/* The real models: one hash of the logits, however the work is cut. Fails without the models (`make models` fetches
 * them; $KVASIR_MODELS tells where they are). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/mem.h"
#include "real_model.h"

#define N_IDS 80

typedef struct way {
    int chunk, threads, block_tokens;
    bool in_batch; /* beside two other sequences */
} way;

typedef struct listener {
    hash_stream *hash;
    int n_vocab;
} listener;

static void hear(void *user, int i, int64_t position, const float *logits)
{
    (void)position;
    listener *l = user;
    if (i == 0) hash_update(l->hash, logits, (size_t)l->n_vocab * sizeof *logits);
}

static uint64_t hash_of(const model *m, threads *team, const int32_t *ids, int n_ids, way w)
{
    status st = STATUS_INIT;
    engine *e = NULL;
    kv_seq *seqs[3] = {0};
    int n_seqs = w.in_batch ? 3 : 1;
    assert_int_equal(threads_resize(team, w.threads, &st), ST_OK);
    engine_config c = {.context = 128, .chunk = w.chunk * n_seqs, .n_sessions = n_seqs, .block_tokens = w.block_tokens};
    if (engine_new(&e, m, team, &c, &st)) fail_msg("%s", st.text);
    listener l = {.n_vocab = m->params.n_vocab};
    assert_int_equal(hash_new(&l.hash, &st), ST_OK);
    for (int i = 0; i < n_seqs; i++) assert_int_equal(kv_seq_new(&seqs[i], engine_cache(e), &st), ST_OK);
    for (int at = 0; at < n_ids; at += w.chunk) {
        int n = n_ids - at < w.chunk ? n_ids - at : w.chunk;
        /* The others read the same tokens from another place on. */
        feed feeds[] = {{seqs[0], ids + at, n, true}, {seqs[1], ids, n, false}, {seqs[2], ids + n_ids - n, n, false}};
        if (engine_feed(e, feeds, n_seqs, hear, &l, &st)) fail_msg("%s", st.text);
    }
    uint64_t hash = hash_value(l.hash);
    hash_free(l.hash);
    for (int i = 0; i < n_seqs; i++) kv_seq_free(seqs[i]);
    engine_free(e);
    return hash;
}

static void check(const char *file, cpu_level level, int n_ids, const way *ways, size_t n_ways)
{
    status st = STATUS_INIT;
    threads *team = NULL;
    uint64_t live = mem_stats().live;
    assert_int_equal(threads_new(&team, 2, &st), ST_OK);
    model *m = load_real(file, level, team);
    int32_t ids[N_IDS];
    read_text(m, ids, n_ids);
    uint64_t want = hash_of(m, team, ids, n_ids, ways[0]);
    for (size_t i = 1; i < n_ways; i++) {
        way w = ways[i];
        uint64_t got = hash_of(m, team, ids, n_ids, w);
        if (got != want)
            fail_msg("%s, %s: chunk %d, %d threads, blocks of %d%s: hash %016llx, not %016llx", file, m->ks->name,
                     w.chunk, w.threads, w.block_tokens, w.in_batch ? ", in a batch" : "", (unsigned long long)got,
                     (unsigned long long)want);
    }
    ids[0]++;
    assert_true(hash_of(m, team, ids, n_ids, ways[0]) != want);
    model_free(m);
    threads_free(team);
    assert_int_equal(mem_stats().live, live);
}

static const way all_ways[] = {{512, 1, 16, false}, {1, 2, 16, false},  {7, 1, 16, false},
                               {64, 3, 16, false},  {512, 2, 8, false}, {512, 3, 32, false},
                               {7, 2, 8, true},     {64, 1, 64, true},  {512, 2, 256, true}};

/* Sequences that go on from one prefix, three tokens each; ways to compute them. */
typedef struct fan {
    int n_seqs, threads, block_tokens;
    int chunk;   /* of the prefix */
    bool alone;  /* each sequence in steps of its own */
    bool ragged; /* every third sequence takes its tokens at once */
    bool no_split, no_cascade;
} fan;

#define PREFIX 530 /* two chunks of attention and a bit */
#define OWN 3
#define MAX_FAN 33

typedef struct fan_run {
    engine *e;
    kv_seq *seqs[MAX_FAN];
    hash_stream *hash[MAX_FAN];
    int heard[MAX_FAN]; /* the sequences of the feeds at hand */
    const int32_t *ids;
} fan_run;

static void hear_fan(void *user, int i, int64_t position, const float *logits)
{
    (void)position;
    fan_run *r = user;
    hash_update(r->hash[r->heard[i]], logits, (size_t)engine_model(r->e)->params.n_vocab * sizeof *logits);
}

static void open_fan(fan_run *r, const model *m, threads *team, fan w)
{
    status st = STATUS_INIT;
    assert_int_equal(threads_resize(team, w.threads, &st), ST_OK);
    engine_config c = {.context = PREFIX + OWN,
                       .chunk = w.chunk > w.n_seqs * OWN ? w.chunk : w.n_seqs * OWN,
                       .n_sessions = w.n_seqs,
                       .block_tokens = w.block_tokens,
                       .no_split = w.no_split,
                       .no_cascade = w.no_cascade};
    if (engine_new(&r->e, m, team, &c, &st)) fail_msg("%s", st.text);
    assert_int_equal(kv_seq_new(&r->seqs[0], engine_cache(r->e), &st), ST_OK);
    for (int at = 0; at < PREFIX; at += w.chunk) {
        feed f = {r->seqs[0], r->ids + at, PREFIX - at < w.chunk ? PREFIX - at : w.chunk, false};
        if (engine_feed(r->e, &f, 1, NULL, NULL, &st)) fail_msg("%s", st.text);
    }
    for (int s = 0; s < w.n_seqs; s++) {
        if (s) assert_int_equal(kv_seq_fork(&r->seqs[s], r->seqs[0], PREFIX, &st), ST_OK);
        assert_int_equal(hash_new(&r->hash[s], &st), ST_OK);
    }
}

/* The next tokens of sequences [first, end), in one step. */
static void step_fan(fan_run *r, fan w, int first, int end)
{
    feed feeds[MAX_FAN];
    status st = STATUS_INIT;
    int n = 0;
    for (int s = first; s < end; s++) {
        int done = (int)kv_seq_len(r->seqs[s]) - PREFIX, left = OWN - done;
        if (!left) continue;
        r->heard[n] = s;
        feeds[n++] = (feed){r->seqs[s], r->ids + 15 * s + done, w.ragged && s % 3 == 1 ? left : 1, true};
    }
    if (n && engine_feed(r->e, feeds, n, hear_fan, r, &st)) fail_msg("%s", st.text);
}

static void hash_fan(const model *m, threads *team, const int32_t *ids, fan w, uint64_t hashes[MAX_FAN])
{
    fan_run r = {.ids = ids};
    open_fan(&r, m, team, w);
    for (int t = 0; t < OWN; t++) {
        for (int s = 0; w.alone && s < w.n_seqs; s++) step_fan(&r, w, s, s + 1);
        if (!w.alone) step_fan(&r, w, 0, w.n_seqs);
    }
    for (int s = 0; s < w.n_seqs; s++) {
        hashes[s] = hash_value(r.hash[s]);
        hash_free(r.hash[s]);
        kv_seq_free(r.seqs[s]);
    }
    engine_free(r.e);
}

static void compare_fan(const model *m, threads *team, const int32_t *ids, fan w, const uint64_t want[MAX_FAN])
{
    uint64_t got[MAX_FAN];
    hash_fan(m, team, ids, w, got);
    for (int s = 0; s < w.n_seqs; s++)
        if (got[s] != want[s])
            fail_msg("%s, %s: sequence %d of %d, %d threads, blocks of %d, chunk %d%s%s%s: another hash",
                     m->params.traits->name, m->ks->name, s, w.n_seqs, w.threads, w.block_tokens, w.chunk,
                     w.ragged ? ", ragged" : "", w.no_split ? ", no split" : "", w.no_cascade ? ", no cascade" : "");
}

static void check_fans(const char *file)
{
    const fan fans[] = {
        {.n_seqs = 33, .threads = 2, .block_tokens = 16, .chunk = 512},
        {.n_seqs = 33, .threads = 2, .block_tokens = 16, .chunk = 512, .no_cascade = true},
        {.n_seqs = 1, .threads = 2, .block_tokens = 16, .chunk = 29},
        {.n_seqs = 16, .threads = 4, .block_tokens = 16, .chunk = 64, .no_split = true},
        {.n_seqs = 5, .threads = 3, .block_tokens = 8, .chunk = 512, .ragged = true},
        {.n_seqs = 8, .threads = 3, .block_tokens = 32, .chunk = 100, .no_split = true, .no_cascade = true},
        {.n_seqs = 2, .threads = 1, .block_tokens = 64, .chunk = 256},
        {.n_seqs = 12, .threads = 4, .block_tokens = 128, .chunk = 512, .ragged = true},
        {.n_seqs = 17, .threads = 1, .block_tokens = 256, .chunk = 512}};
    const int blocks[] = {8, 16, 32, 64, 128, 256};
    status st = STATUS_INIT;
    threads *team = NULL;
    assert_int_equal(threads_new(&team, 2, &st), ST_OK);
    model *m = load_real(file, CPU_AUTO, team);
    int32_t ids[PREFIX];
    uint64_t want[MAX_FAN];
    read_text(m, ids, PREFIX);
    hash_fan(m, team, ids, (fan){.n_seqs = MAX_FAN, .threads = 2, .block_tokens = 16, .chunk = 512, .alone = true},
             want);
    for (int s = 1; s < MAX_FAN; s++) assert_true(want[s] != want[s - 1]);
    for (size_t i = 0; i < sizeof fans / sizeof *fans; i++) compare_fan(m, team, ids, fans[i], want);
    for (int i = 0; getenv("TEST_FULL") && i < 4 * MAX_FAN; i++) {
        fan w = {.n_seqs = 1 + i % MAX_FAN,
                 .threads = 1 + i % 4,
                 .block_tokens = blocks[i % 6],
                 .chunk = 64 + i,
                 .ragged = i % 5 == 0,
                 .no_split = i % 3 == 0,
                 .no_cascade = i % 7 == 0};
        compare_fan(m, team, ids, w, want);
    }
    model_free(m);
    threads_free(team);
}

static void smollm2(void **state)
{
    (void)state;
    check(SMOLLM2, CPU_AUTO, N_IDS, all_ways, sizeof all_ways / sizeof *all_ways);
}

static void gemma3(void **state)
{
    (void)state;
    check(GEMMA3, CPU_AUTO, N_IDS, all_ways, sizeof all_ways / sizeof *all_ways);
}

static void smollm2_prefixes(void **state)
{
    (void)state;
    check_fans(SMOLLM2);
}

static void gemma3_prefixes(void **state)
{
    (void)state;
    check_fans(GEMMA3);
}

static void scalar_kernels(void **state)
{
    (void)state;
    const way ways[] = {{512, 1, 16, false}, {1, 2, 8, false}, {3, 3, 32, true}};
    check(SMOLLM2, CPU_SCALAR, 4, ways, 3);
    check(GEMMA3, CPU_SCALAR, 4, ways, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smollm2),         cmocka_unit_test(gemma3),         cmocka_unit_test(smollm2_prefixes),
        cmocka_unit_test(gemma3_prefixes), cmocka_unit_test(scalar_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
