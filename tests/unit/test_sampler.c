/* Sampling: every step by hand and against the straightforward way, draws that depend on nothing but their place. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "engine/sampler.h"
#include "logits.h"

/* All steps off, temperature 1. */
static sampler_params plain(void)
{
    sampler_params p = sampler_defaults();
    p.temperature = 1;
    p.top_k = 0;
    p.top_p = 1;
    p.min_p = 0;
    return p;
}

/* One scratch for each size of vocabulary, for all tests. */
static sampler_scratch *scratch_for(int n_vocab)
{
    static struct {
        int n_vocab;
        sampler_scratch *scratch;
    } all[32];
    status st = STATUS_INIT;
    int i = 0;
    while (all[i].scratch && all[i].n_vocab != n_vocab) assert_true(++i < 32);
    all[i].n_vocab = n_vocab;
    if (!all[i].scratch && sampler_scratch_new(&all[i].scratch, kernels_get(CPU_AUTO), n_vocab, 4096, &st))
        fail_msg("%s", st.text);
    return all[i].scratch;
}

static sampler *make(const sampler_params *p, int n_vocab, int history)
{
    status st = STATUS_INIT;
    sampler *s = NULL;
    if (sampler_new(&s, p, n_vocab, history, &st)) fail_msg("%s", st.text);
    return s;
}

static int32_t pick(const sampler *s, const float *logits, int n_vocab, int64_t position)
{
    sampler_scratch *scratch = scratch_for(n_vocab);
    sampler_read(scratch, logits);
    return sampler_pick(s, scratch, position);
}

/* What greedy picks after the tokens of a history. */
static int32_t greedy_after(sampler_params p, const float *logits, int n_vocab, const int32_t *history, int n)
{
    p.temperature = 0;
    sampler *s = make(&p, n_vocab, 100);
    for (int i = 0; i < n; i++) sampler_accept(s, history[i]);
    int32_t id = pick(s, logits, n_vocab, n);
    sampler_free(s);
    return id;
}

/* How far token a lies above token b after biases and penalties, found by bisection over a bias on b. */
static double lead_over(sampler_params p, const float *logits, int n_vocab, const int32_t *history, int n, int32_t a,
                        int32_t b)
{
    logit_bias bias[16];
    int n_bias = 0;
    for (int32_t t = 0; t < n_vocab; t++)
        if (t != a && t != b) bias[n_bias++] = (logit_bias){t, -INFINITY};
    bias[n_bias++] = (logit_bias){b, 0};
    p.bias = bias;
    p.n_bias = n_bias;
    double low = -64, high = 64;
    for (int i = 0; i < 40; i++) {
        double middle = (low + high) / 2;
        bias[n_bias - 1].bias = (float)middle;
        if (greedy_after(p, logits, n_vocab, history, n) == a) low = middle;
        else high = middle;
    }
    return low;
}

/* Infinities, NaN and rows where nothing is possible: always a token, and a possible one where there is one. */
static void strange_logits_still_give_a_token(void **state)
{
    (void)state;
    const float rows[][4] = {{NAN, NAN, NAN, NAN},
                             {-INFINITY, -INFINITY, -INFINITY, -INFINITY},
                             {NAN, 1, INFINITY, INFINITY},
                             {NAN, -INFINITY, 3, NAN},
                             {-INFINITY, 2, NAN, -INFINITY}};
    const int32_t want[] = {0, 0, 2, 2, 1};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int mode = 0; mode < 7; mode++) {
            sampler_params p = plain();
            if (mode == 0) p.temperature = 0;
            if (mode == 1) p.top_k = 2;
            if (mode == 2) p.typical_p = 0.5f;
            if (mode == 3) p.top_p = 0.5f;
            if (mode == 4) p.min_p = 0.5f;
            if (mode == 5) p.xtc_probability = 1, p.xtc_threshold = 0;
            sampler *s = make(&p, 4, 0);
            for (int64_t at = 0; at < 20; at++) assert_int_equal(pick(s, rows[i], 4, at), want[i]);
            sampler_free(s);
        }
}

static void greedy_takes_the_largest(void **state)
{
    (void)state;
    float logits[] = {1, 3, 2, 3}, flat[] = {0, 0, 0}, minus[] = {-0.0f, 0.0f};
    assert_int_equal(greedy_after(plain(), logits, 4, NULL, 0), 1);
    assert_int_equal(greedy_after(plain(), flat, 3, NULL, 0), 0);
    assert_int_equal(greedy_after(plain(), minus, 2, NULL, 0), 0);
}

static void bias_is_added_first(void **state)
{
    (void)state;
    float logits[] = {1, 2, 3}, before[3];
    memcpy(before, logits, sizeof before);
    logit_bias up[] = {{0, 5}}, ban[] = {{2, -INFINITY}}, both[] = {{0, 1}, {0, 1.5f}};
    sampler_params p = plain();
    p.bias = up, p.n_bias = 1;
    assert_int_equal(greedy_after(p, logits, 3, NULL, 0), 0);
    p.bias = ban;
    assert_int_equal(greedy_after(p, logits, 3, NULL, 0), 1);
    p.bias = both, p.n_bias = 2;
    assert_int_equal(greedy_after(p, logits, 3, NULL, 0), 0);
    assert_memory_equal(logits, before, sizeof before);
    /* Before the penalties: 1 + 5 = 6 is halved to 3 and ties with token 2, whose id is higher. */
    int32_t history[] = {0};
    p.bias = up, p.n_bias = 1;
    p.repeat_penalty = 2;
    assert_int_equal(greedy_after(p, logits, 3, history, 1), 0);
    p.repeat_penalty = 2.01f;
    assert_int_equal(greedy_after(p, logits, 3, history, 1), 2);
}

/* Whatever the others say, and however the token is drawn. */
static void barred_tokens_are_not_drawn_before_their_position(void **state)
{
    (void)state;
    const float logits[] = {1, 9, 8, 7};
    const int32_t barred[] = {1, 2};
    const logit_bias up[] = {{1, 50}};
    sampler_params p = plain();
    p.barred = barred, p.n_barred = 2, p.barred_before = 5;
    p.bias = up, p.n_bias = 1;
    for (int drawn = 0; drawn < 2; drawn++) {
        p.temperature = (float)drawn;
        sampler *s = make(&p, 4, 8), *clone;
        status st = STATUS_INIT;
        assert_int_equal(sampler_clone(&clone, s, &st), ST_OK);
        for (int64_t position = 0; position < 10; position++) {
            int32_t token = pick(s, logits, 4, position);
            if (position < 5) assert_true(token == 0 || token == 3);
            else assert_int_equal(token, 1);
            assert_int_equal(pick(clone, logits, 4, position), token);
        }
        sampler_free(clone);
        sampler_free(s);
    }
    status st = STATUS_INIT;
    assert_int_equal(sampler_check(&p, 2, &st), ST_ARG);
    assert_non_null(strstr(st.text, "barred token 2"));
}

static double penalized(const sampler_params *p, double x, int count)
{
    if (!count) return x;
    x = x > 0 ? x / p->repeat_penalty : x * p->repeat_penalty;
    return x - p->presence_penalty - p->frequency_penalty * count;
}

static void penalties_equal_reference(void **state)
{
    (void)state;
    float logits[] = {2, -1, 0.5f, 1.5f};
    const int windows[] = {-1, 0, 3, 64};
    for (int round = 0; round < 40; round++) {
        int32_t history[12];
        int n = (int)roll(13), counts[4] = {0};
        sampler_params p = plain();
        p.repeat_penalty = 1 + (float)roll(10) / 10;
        p.presence_penalty = (float)roll(10) / 10 - 0.3f;
        p.frequency_penalty = (float)roll(10) / 20;
        p.penalty_last_n = windows[round % 4];
        for (int i = 0; i < n; i++) history[i] = (int32_t)roll(3);
        int first = p.penalty_last_n < 0 || p.penalty_last_n > n ? 0 : n - p.penalty_last_n;
        for (int i = first; i < n; i++) counts[history[i]]++;
        for (int32_t t = 0; t < 3; t++) {
            double want = penalized(&p, logits[t], counts[t]) - logits[3]; /* token 3 is never in the history */
            assert_true(fabs(lead_over(p, logits, 4, history, n, t, 3) - want) < 1e-4);
        }
    }
}

/* The longest run before each possible place that ends as the history ends, by looking. */
static int longest_run(const int32_t *h, int n, int32_t next, const int32_t *breakers, int n_breakers)
{
    int best = 0;
    for (int at = 1; at < n; at++) {
        if (h[at] != next) continue;
        int length = 0;
        bool broken = false;
        while (length < at && h[at - 1 - length] == h[n - 1 - length] && !broken) {
            for (int b = 0; b < n_breakers; b++) broken |= h[n - 1 - length] == breakers[b];
            length += !broken;
        }
        best = length > best ? length : best;
    }
    return best;
}

static void dry_equals_reference(void **state)
{
    (void)state;
    float logits[5] = {0};
    for (int round = 0; round < 60; round++) {
        int32_t history[40], breakers[] = {3};
        int n = (int)roll(41), letters = 1 + (int)roll(3);
        for (int i = 0; i < n; i++) history[i] = roll(12) == 0 ? 3 : (int32_t)roll((uint32_t)letters);
        sampler_params p = plain();
        p.dry_multiplier = 0.8f;
        p.dry_base = 1.1f;
        p.dry_allowed_length = 1 + (int)roll(3);
        p.dry_last_n = round % 3 ? -1 : (int)roll(30);
        p.dry_breakers = breakers;
        p.n_dry_breakers = (int)roll(2);
        int seen = p.dry_last_n < 0 || p.dry_last_n > n ? n : p.dry_last_n;
        for (int32_t t = 0; t < 4; t++) {
            int run = longest_run(history + n - seen, seen, t, breakers, p.n_dry_breakers);
            double want = run >= p.dry_allowed_length ? -0.8 * pow(1.1, run - p.dry_allowed_length) : 0;
            assert_true(fabs(lead_over(p, logits, 5, history, n, t, 4) - want) < 1e-3);
        }
    }
}

static void dry_by_hand(void **state)
{
    (void)state;
    /* 0 1 2 0 1: "0 1" was followed by 2 once; that costs 0.5 * 2^(2 - 2). A third time round it costs 0.5 * 2^(5 - 2).
     * */
    float logits[] = {0, 0, 0.4f, 0.1f};
    int32_t once[] = {0, 1, 2, 0, 1}, twice[] = {0, 1, 2, 0, 1, 2, 0, 1}, broken[] = {0, 1, 2, 0, 3, 1};
    sampler_params p = plain();
    p.dry_multiplier = 0.5f;
    p.dry_base = 2;
    assert_true(fabs(lead_over(p, logits, 4, once, 5, 2, 3) - (0.3 - 0.5)) < 1e-4);
    assert_true(fabs(lead_over(p, logits, 4, twice, 8, 2, 3) - (0.3 - 4)) < 1e-4);
    assert_true(fabs(lead_over(p, logits, 4, broken, 6, 2, 3) - 0.3) < 1e-4);
    int32_t line = 1;
    p.dry_breakers = &line;
    p.n_dry_breakers = 1;
    assert_true(fabs(lead_over(p, logits, 4, twice, 8, 2, 3) - 0.3) < 1e-4);
    /* A run without end costs much, not infinity. */
    float two[] = {0, -1e20f};
    int32_t same[2000] = {0};
    p = plain();
    p.temperature = 0;
    p.dry_multiplier = 100;
    p.dry_base = 100;
    sampler *s = make(&p, 2, 2000);
    for (int i = 0; i < 2000; i++) sampler_accept(s, same[i]);
    assert_int_equal(pick(s, two, 2, 0), 1);
    sampler_free(s);
}

/* The oldest of max_history leave, whatever the history's inner place. */
static void history_forgets_the_oldest(void **state)
{
    (void)state;
    float logits[] = {1, 0.9f, 0.8f, 0.7f, 0.6f, 0.5f, 0.4f, 0.3f};
    sampler_params p = plain();
    p.temperature = 0;
    p.presence_penalty = 10;
    p.penalty_last_n = -1;
    for (int most = 1; most <= 6; most++) {
        sampler *s = make(&p, 8, most);
        for (int i = 0; i < 40; i++) {
            sampler_accept(s, i % 7);
            bool recent[8] = {false};
            for (int j = 0; j < most && j <= i; j++) recent[(i - j) % 7] = true;
            int want = 0;
            while (recent[want]) want++;
            assert_int_equal(pick(s, logits, 8, i), want);
        }
        sampler_reset(s);
        assert_int_equal(pick(s, logits, 8, 0), 0);
        sampler_free(s);
    }
}

static void order_of_steps(void **state)
{
    (void)state;
    /* Top-k before top-p: of 4, 3, 2, 1 (tenths) the two largest stay, 4/7 and 3/7; a nucleus of half is then token 0
     * alone, while top-p first would have kept both. */
    float logits[] = {logf(4), logf(3), logf(2), logf(1)};
    sampler_params p = plain();
    p.top_k = 2;
    p.top_p = 0.5f;
    for (uint64_t seed = 0; seed < 50; seed++) {
        p.seed = seed;
        sampler *s = make(&p, 4, 0);
        assert_int_equal(pick(s, logits, 4, 0), 0);
        sampler_free(s);
    }
    /* The filters see the probabilities before temperature: at temperature 100 a min-p of 0.6 still keeps tokens 0 and
     * 1 alone. */
    p = plain();
    p.min_p = 0.6f;
    p.temperature = 100;
    int seen[4] = {0};
    for (int64_t at = 0; at < 200; at++) {
        sampler *s = make(&p, 4, 0);
        seen[pick(s, logits, 4, at)]++;
        sampler_free(s);
    }
    assert_true(seen[0] > 60 && seen[1] > 60 && seen[2] == 0 && seen[3] == 0);
    /* XTC last: with its chance at 1 only the least likely of those above the threshold is left of them. */
    p = plain();
    p.xtc_probability = 1;
    p.xtc_threshold = 0.25f;
    p.top_k = 2;
    sampler *s = make(&p, 4, 0);
    for (int64_t at = 0; at < 50; at++) assert_int_equal(pick(s, logits, 4, at), 1);
    sampler_free(s);
}

static void frequencies_match_probabilities(void **state)
{
    (void)state;
    enum { DRAWS = 20000 };
    float logits[] = {0, 1, -1, 0.5f, 2};
    for (int i = 0; i < 3; i++) {
        float temperature = (float[]){0.5f, 1, 2}[i];
        sampler_params p = plain();
        p.temperature = temperature;
        p.seed = 1234;
        sampler *s = make(&p, 5, 0);
        int count[5] = {0};
        for (int64_t at = 0; at < DRAWS; at++) count[pick(s, logits, 5, at)]++;
        double sum = 0, chi2 = 0;
        for (int t = 0; t < 5; t++) sum += exp(logits[t] / temperature);
        for (int t = 0; t < 5; t++) {
            double want = DRAWS * exp(logits[t] / temperature) / sum;
            chi2 += (count[t] - want) * (count[t] - want) / want;
        }
        assert_true(chi2 < 18.5); /* 4 degrees of freedom: passed by chance once in a thousand */
        sampler_free(s);
    }
}

static void draws_depend_on_their_place_alone(void **state)
{
    (void)state;
    float logits[64];
    for (int i = 0; i < 64; i++) logits[i] = roll_float(2);
    sampler_params p = plain();
    p.seed = 5;
    p.xtc_probability = 0.5f;
    p.xtc_threshold = 0.02f;
    sampler *s = make(&p, 64, 8);
    int32_t forward[100];
    for (int i = 0; i < 100; i++) forward[i] = pick(s, logits, 64, i);
    for (int i = 99; i >= 0; i--) assert_int_equal(pick(s, logits, 64, i), forward[i]);
    int same_seed = 0, same_choice = 0;
    p.seed = 6;
    sampler *seed = make(&p, 64, 8);
    p.seed = 5;
    p.choice = 1;
    sampler *choice = make(&p, 64, 8);
    for (int i = 0; i < 100; i++) {
        same_seed += pick(seed, logits, 64, i) == forward[i];
        same_choice += pick(choice, logits, 64, i) == forward[i];
    }
    assert_true(same_seed < 30 && same_choice < 30);
    sampler_free(s);
    sampler_free(seed);
    sampler_free(choice);
}

static sampler_params everything(void)
{
    static const int32_t breakers[] = {3};
    static const logit_bias bias[] = {{1, 0.5f}, {2, -INFINITY}};
    sampler_params p = sampler_defaults();
    p.repeat_penalty = 1.1f;
    p.presence_penalty = 0.1f;
    p.frequency_penalty = 0.1f;
    p.typical_p = 0.95f;
    p.dry_multiplier = 0.5f;
    p.dry_breakers = breakers;
    p.n_dry_breakers = 1;
    p.xtc_probability = 0.5f;
    p.bias = bias;
    p.n_bias = 2;
    p.seed = 77;
    return p;
}

static void clone_goes_on_as_the_original(void **state)
{
    (void)state;
    status st = STATUS_INIT;
    sampler_params p = everything();
    for (int length = 0; length < 70; length += 23) {
        sampler *s = make(&p, 64, 30), *clone = NULL;
        for (int i = 0; i < length; i++) sampler_accept(s, (int32_t)roll(64));
        assert_int_equal(sampler_clone(&clone, s, &st), ST_OK);
        int32_t said[100];
        float logits[100][64];
        for (int i = 0; i < 100; i++) {
            for (int t = 0; t < 64; t++) logits[i][t] = roll_float(3);
            sampler_accept(s, said[i] = pick(s, logits[i], 64, i));
        }
        sampler_free(s); /* the clone has its own of everything */
        for (int i = 0; i < 100; i++) {
            assert_int_equal(pick(clone, logits[i], 64, i), said[i]);
            sampler_accept(clone, said[i]);
        }
        sampler_free(clone);
    }
}

static void pick_allocates_nothing(void **state)
{
    (void)state;
    float logits[500], chosen;
    token_logprob top[20];
    for (int i = 0; i < 500; i++) logits[i] = roll_float(4);
    sampler_params p = everything();
    sampler *s = make(&p, 500, 50);
    scratch_for(500);
    uint64_t calls = mem_stats().calls;
    for (int i = 0; i < 200; i++) {
        int32_t id = pick(s, logits, 500, i);
        sampler_logprobs(scratch_for(500), id, &chosen, top, 20);
        sampler_accept(s, id);
    }
    assert_int_equal(mem_stats().calls, calls);
    sampler_free(s);
}

static void logprobs_equal_reference(void **state)
{
    (void)state;
    sampler_scratch *w = scratch_for(VOCAB);
    for (int round = 0; round < 50; round++) {
        float logits[VOCAB], chosen;
        int32_t ids[VOCAB];
        double sum = 0, all = 0;
        token_logprob top[VOCAB + 1];
        for (int i = 0; i < VOCAB; i++) logits[i] = round % 2 ? roll_float(8) : (float)roll(4);
        sorted(logits, VOCAB, ids);
        for (int i = 0; i < VOCAB; i++) sum += exp(logits[i]);
        int32_t id = (int32_t)roll(VOCAB);
        int n = round == 0 ? VOCAB + 1 : (int)roll(20);
        assert_true(sampler_read(w, logits));
        assert_int_equal(sampler_logprobs(w, id, &chosen, top, n), n > VOCAB ? VOCAB : n);
        assert_true(fabs(chosen - (logits[id] - log(sum))) < 1e-5);
        for (int i = 0; i < n && i < VOCAB; i++) {
            assert_int_equal(top[i].token, ids[i]);
            assert_true(fabs(top[i].logprob - (logits[ids[i]] - log(sum))) < 1e-5);
            all += exp(top[i].logprob);
        }
        if (n > VOCAB) assert_true(fabs(all - 1) < 1e-4);
    }
    assert_true(sampler_read(w, (float[VOCAB]){0}));
    assert_int_equal(sampler_logprobs(w, 0, &(float){0}, NULL, -1), 0);
}

static void parameters_out_of_range_are_named(void **state)
{
    (void)state;
    const struct {
        size_t offset;
        bool integer;
        double bad;
        const char *name;
    } cases[] = {
        {offsetof(sampler_params, temperature), false, -0.1, "temperature"},
        {offsetof(sampler_params, temperature), false, NAN, "temperature"},
        {offsetof(sampler_params, temperature), false, INFINITY, "temperature"},
        {offsetof(sampler_params, top_k), true, -1, "top_k"},
        {offsetof(sampler_params, top_p), false, 1.1, "top_p"},
        {offsetof(sampler_params, min_p), false, -0.1, "min_p"},
        {offsetof(sampler_params, typical_p), false, 2, "typical_p"},
        {offsetof(sampler_params, repeat_penalty), false, 0, "repeat_penalty"},
        {offsetof(sampler_params, presence_penalty), false, 101, "presence_penalty"},
        {offsetof(sampler_params, frequency_penalty), false, -101, "frequency_penalty"},
        {offsetof(sampler_params, penalty_last_n), true, -2, "penalty_last_n"},
        {offsetof(sampler_params, dry_multiplier), false, -1, "dry_multiplier"},
        {offsetof(sampler_params, dry_base), false, 0.5, "dry_base"},
        {offsetof(sampler_params, dry_allowed_length), true, -1, "dry_allowed_length"},
        {offsetof(sampler_params, dry_last_n), true, -2, "dry_last_n"},
        {offsetof(sampler_params, xtc_probability), false, 1.5, "xtc_probability"},
        {offsetof(sampler_params, xtc_threshold), false, NAN, "xtc_threshold"},
    };
    status st = STATUS_INIT;
    sampler_params good = sampler_defaults();
    assert_int_equal(sampler_check(&good, 10, &st), ST_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sampler_params p = good;
        sampler *s = NULL;
        if (cases[i].integer) memcpy((char *)&p + cases[i].offset, &(int){(int)cases[i].bad}, sizeof(int));
        else memcpy((char *)&p + cases[i].offset, &(float){(float)cases[i].bad}, sizeof(float));
        assert_int_equal(sampler_new(&s, &p, 10, 10, &st), ST_ARG);
        assert_null(s);
        if (!strstr(st.text, cases[i].name)) fail_msg("%s does not name %s", st.text, cases[i].name);
    }
    logit_bias wrong[] = {{3, 1}, {10, 1}}, nan[] = {{1, NAN}};
    good.bias = wrong, good.n_bias = 2;
    assert_int_equal(sampler_check(&good, 10, &st), ST_ARG);
    assert_int_equal(st.pos, 1);
    good.bias = nan, good.n_bias = 1;
    assert_int_equal(sampler_check(&good, 10, &st), ST_ARG);
}

static void short_memory_leaks_nothing(void **state)
{
    (void)state;
    sampler_params p = everything();
    scratch_for(100);
    uint64_t bytes = mem_stats().bytes, calls = mem_stats().calls;
    sampler *s = make(&p, 100, 10), *clone = NULL;
    int64_t n_calls = (int64_t)(mem_stats().calls - calls);
    uint64_t with_one = mem_stats().bytes;
    for (int64_t n = 1; n <= n_calls; n++) {
        status st = STATUS_INIT;
        mem_fail_after(n);
        assert_int_equal(sampler_clone(&clone, s, &st), ST_NOMEM);
        assert_null(clone);
        assert_int_equal(mem_stats().bytes, with_one);
    }
    mem_fail_after(0);
    sampler_free(s);
    sampler_free(NULL);
    assert_int_equal(mem_stats().bytes, bytes);
    for (int64_t n = 1; n <= 8; n++) {
        status st = STATUS_INIT;
        sampler_scratch *scratch = NULL;
        mem_fail_after(n);
        assert_int_equal(sampler_scratch_new(&scratch, kernels_get(CPU_AUTO), 100, 10, &st), ST_NOMEM);
        assert_null(scratch);
        assert_int_equal(mem_stats().bytes, bytes);
    }
    mem_fail_after(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strange_logits_still_give_a_token),
        cmocka_unit_test(greedy_takes_the_largest),
        cmocka_unit_test(bias_is_added_first),
        cmocka_unit_test(barred_tokens_are_not_drawn_before_their_position),
        cmocka_unit_test(penalties_equal_reference),
        cmocka_unit_test(dry_equals_reference),
        cmocka_unit_test(dry_by_hand),
        cmocka_unit_test(history_forgets_the_oldest),
        cmocka_unit_test(order_of_steps),
        cmocka_unit_test(frequencies_match_probabilities),
        cmocka_unit_test(draws_depend_on_their_place_alone),
        cmocka_unit_test(clone_goes_on_as_the_original),
        cmocka_unit_test(pick_allocates_nothing),
        cmocka_unit_test(logprobs_equal_reference),
        cmocka_unit_test(parameters_out_of_range_are_named),
        cmocka_unit_test(short_memory_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
