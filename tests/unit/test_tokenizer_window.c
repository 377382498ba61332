/* Long words in windows: the tokens of one run over the whole word, with work that grows as the word does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"
#include "model/tokenizer_internal.h"
#include "vocab_build.h"

static vocab V; /* too large for some stacks */

static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* Random merges over three letters, learned in order or in any order, so that a later merge may go before the ones it is
 * made of. For SPM the same pieces with scores. */
static tokenizer *random_vocab(bool spm, uint64_t *seed)
{
    static char names[40][32], merges[40][40];
    static const char *const letters[] = {"a", "b", "c"};
    int n = 3;
    if (spm) vocab_spm(&V);
    else vocab_bpe(&V, "gpt-2");
    if (spm) V.add_space_prefix = 0;
    for (int i = 0; i < 3; i++) {
        snprintf(names[i], sizeof names[i], "%s", letters[i]);
        if (spm) vocab_add(&V, letters[i], 1, -100);
    }
    int n_merges = 0, wanted = 4 + (int)(next_random(seed) % 28);
    for (int tries = 0; tries < 300 && n_merges < wanted; tries++) {
        const char *l = names[next_random(seed) % (uint32_t)n], *r = names[next_random(seed) % (uint32_t)n];
        char both[28];
        snprintf(both, sizeof both, "%.12s%.12s", l, r);
        bool known = strlen(both) > 12;
        for (int i = 0; i < n && !known; i++) known = strcmp(names[i], both) == 0;
        if (known) continue;
        snprintf(merges[n_merges++], sizeof merges[0], "%.12s %.12s", l, r);
        snprintf(names[n++], sizeof names[0], "%s", both);
    }
    bool shuffled = next_random(seed) % 2;
    for (int i = 0; i < n_merges; i++) {
        int k = shuffled ? i + (int)(next_random(seed) % (uint32_t)(n_merges - i)) : i;
        char swap[40];
        memcpy(swap, merges[i], 40), memcpy(merges[i], merges[k], 40), memcpy(merges[k], swap, 40);
        vocab_add(&V, names[i + 3], 1, spm ? -(float)(shuffled ? next_random(seed) % 20 : (uint32_t)i) : 0);
        if (!spm) vocab_merge(&V, merges[i]);
    }
    status st = STATUS_INIT;
    tokenizer *t = vocab_open(&V, &st);
    if (!t) fail_msg("%s", st.text);
    return t;
}

/* Letters at random, or a few of them again and again. */
static size_t random_text(char *out, uint64_t *seed)
{
    size_t n = 100 + next_random(seed) % 400, period = next_random(seed) % 2 ? n : 1 + next_random(seed) % 7;
    for (size_t i = 0; i < n; i++) out[i] = i < period ? "abc"[next_random(seed) % 3] : out[i - period];
    return n;
}

static void windows_equal_one_run(void **state)
{
    (void)state;
    static char text[512];
    uint64_t seed = 11;
    int n_cut = 0, n_runs = 0;
    for (int round = 0; round < 600; round++) {
        bool spm = round % 2;
        tokenizer *t = random_vocab(spm, &seed);
        merger whole = {.t = t, .rules = spm ? &SPM_RULES : &BPE_RULES}, cut = whole;
        for (int k = 0; k < 8; k++) {
            size_t n = random_text(text, &seed);
            status st = STATUS_INIT;
            token_list want = {0}, got = {0};
            whole.window = n;
            cut.window = 16 + next_random(&seed) % 64;
            assert_int_equal(merger_run(&whole, text, n, &want, &st), ST_OK);
            assert_int_equal(merger_run(&cut, text, n, &got, &st), ST_OK);
            assert_int_equal(got.n, want.n);
            assert_memory_equal(got.ids, want.ids, want.n * sizeof *want.ids);
            n_runs++;
            n_cut += cut.windows[0].capacity < n; /* it needed no window for all */
            token_list_deinit(&want), token_list_deinit(&got);
            merger_deinit(&cut);
        }
        merger_deinit(&whole);
        tokenizer_free(t);
    }
    assert_true(n_cut > n_runs * 9 / 10);
}

/* Pairs go from right to left, so that the last letter decides where tokens begin in the whole word: with an odd number of
 * letters no cut that a window suggests holds. */
static void a_word_that_cannot_be_cut(void **state)
{
    (void)state;
    static char merges[25][4];
    vocab_bpe(&V, "gpt-2");
    for (int i = 0; i < 25; i++) {
        snprintf(merges[i], sizeof merges[i], "%c %c", 'y' - i, 'z' - i);
        vocab_merge(&V, merges[i]);
        vocab_add(&V, (char[]){(char)('y' - i), (char)('z' - i), 0}, 1, 0);
    }
    status st = STATUS_INIT;
    tokenizer *t = vocab_open(&V, &st);
    assert_non_null(t);
    for (size_t skip = 0; skip < 2; skip++) {
        const char *text = &"abcdefghijklmnopqrstuvwxyz"[skip];
        merger m = {.t = t, .rules = &BPE_RULES, .window = 16};
        token_list ids = {.n_dropped = 3};
        assert_int_equal(merger_run(&m, text, 26 - skip, &ids, &st), ST_OK);
        assert_int_equal(ids.n, 13);
        assert_int_equal(ids.n_dropped, 3);
        for (size_t i = skip; i < 13; i++) assert_int_equal(ids.ids[i], 256 + 2 * (12 - i)); /* yz is 256 */
        if (skip) assert_int_equal(ids.ids[0], 'b');
        token_list_deinit(&ids);
        merger_deinit(&m);
    }
    tokenizer_free(t);
}

static size_t n_read; /* characters that went into windows */

static symbol counted_read(const merger *m, size_t at)
{
    n_read++;
    return BPE_RULES.read(m, at);
}

#define LONG ((size_t)1 << 20)

/* What is read twice is the part of a window behind its cut, whatever the length of the word; memory is that of two
 * windows; and a limit ends the work where it is reached. */
static void work_is_linear(void **state)
{
    (void)state;
    vocab_bpe(&V, "gpt-2");
    vocab_merge(&V, "a a"), vocab_merge(&V, "aa aa"), vocab_merge(&V, "b a"), vocab_merge(&V, "aaaa b");
    vocab_add(&V, "aa", 1, 0), vocab_add(&V, "aaaa", 1, 0), vocab_add(&V, "ba", 1, 0), vocab_add(&V, "aaaab", 1, 0);
    status st = STATUS_INIT;
    tokenizer *t = vocab_open(&V, &st);
    assert_non_null(t);
    merge_rules rules = BPE_RULES;
    rules.read = counted_read;
    char *text = malloc(LONG);
    assert_non_null(text);
    static const char *const units[] = {"a", "aaaab", "ba", "xyz", "aab"};
    for (size_t k = 0; k < sizeof units / sizeof units[0]; k++) {
        for (size_t i = 0, len = strlen(units[k]); i < LONG; i++) text[i] = units[k][i % len];
        for (size_t n = LONG / 4; n <= LONG; n *= 4) {
            merger m = {.t = t, .rules = &rules};
            token_list ids = {0};
            n_read = 0;
            assert_int_equal(merger_run(&m, text, n, &ids, &st), ST_OK);
            assert_in_range(n_read, n, n + n / 4);
            for (int w = 0; w < 2; w++) {
                assert_in_range(m.windows[w].capacity, 1, 1024);
                assert_in_range(m.windows[w].heap_capacity, 0, 4096);
            }
            ids.n = 0;
            ids.limit = 10;
            n_read = 0;
            assert_int_equal(merger_run(&m, text, n, &ids, &st), ST_LIMIT);
            assert_in_range(n_read, 1, 2048);
            token_list_deinit(&ids);
            merger_deinit(&m);
            st = (status)STATUS_INIT;
        }
    }
    free(text);
    tokenizer_free(t);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static char text[4096];
    memset(text, 'x', sizeof text);
    vocab_bpe(&V, "gpt-2");
    status st = STATUS_INIT;
    tokenizer *t = vocab_open(&V, &st);
    assert_non_null(t);
    uint64_t before = mem_stats().bytes;
    int n = 0, rc;
    do {
        merger m = {.t = t, .rules = &BPE_RULES};
        token_list ids = {0};
        mem_fail_after(++n);
        rc = merger_run(&m, text, sizeof text, &ids, &st);
        mem_fail_after(0);
        assert_true(rc == ST_OK || rc == ST_NOMEM);
        token_list_deinit(&ids);
        merger_deinit(&m);
        assert_int_equal(mem_stats().bytes, before);
    } while (rc != ST_OK && n < 100);
    assert_int_equal(rc, ST_OK);
    assert_true(n > 5);
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_equal_one_run),
        cmocka_unit_test(a_word_that_cannot_be_cut),
        cmocka_unit_test(work_is_linear),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("tokenizer_window", tests, NULL, NULL);
}
