/* The workloads of `kvasir bench serve`: lengths, what follows what, and that the seed says it all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "bench/work.h"

enum { VOCAB = 5000 };

static work_config config(work_kind kind, int n_answers)
{
    return (work_config){
        .kind = kind, .n_answers = n_answers, .seed = 1, .scale = 1, .n_vocab = VOCAB, .prompt = 256, .answer = 64};
}

static workload make(const work_config *c)
{
    workload w;
    status st = STATUS_INIT;
    if (workload_new(&w, c, &st)) fail_msg("%s", st.text);
    return w;
}

/* What must be so in every workload. */
static void check(const workload *w)
{
    uint64_t prompts = 0, answers = 0;
    int n = 0, longest = 0;
    for (int i = 0; i < w->n_items; i++) {
        const work_item *t = &w->items[i];
        assert_true(t->follows < i && t->n_ids >= 1 && t->n_answer >= 1 && t->first + (size_t)t->n_ids <= w->n_ids);
        assert_int_equal(t->first_answer, n);
        const work_item *before = t->follows == WORK_NOTHING ? NULL : &w->items[t->follows];
        assert_int_equal(t->n_prompt, t->n_ids + (before ? before->n_prompt + before->n_answer : 0));
        assert_true(!before || (t->rank >= 0 && t->rank < before->n_branches));
        n += t->n_branches;
        prompts += (uint64_t)(t->n_branches * t->n_prompt);
        answers += (uint64_t)(t->n_branches * t->n_answer);
        if (t->n_prompt + t->n_answer > longest) longest = t->n_prompt + t->n_answer;
    }
    assert_int_equal(n, w->n_answers);
    assert_int_equal(prompts, w->prompt_tokens);
    assert_int_equal(answers, w->answer_tokens);
    assert_int_equal(longest, w->longest);
    for (size_t i = 0; i < w->n_ids; i++) assert_true(w->ids[i] >= 1000 && w->ids[i] < VOCAB - 1000);
}

static bool same_ids(const workload *w, int a, int b, int n)
{
    return memcmp(w->ids + w->items[a].first, w->ids + w->items[b].first, (size_t)n * sizeof *w->ids) == 0;
}

static int by_value(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Means as published, and a long tail. */
static void lengths_of_the_mix(void **state)
{
    (void)state;
    enum { N = 20000 };
    static int prompts[N], answers[N];
    double prompt_sum = 0, answer_sum = 0;
    for (int i = 0; i < N; i++) {
        work_mix_lengths(7, (uint32_t)i, &prompts[i], &answers[i]);
        assert_true(prompts[i] >= 4 && prompts[i] <= 1024 && answers[i] >= 4 && prompts[i] + answers[i] <= 2048);
        prompt_sum += prompts[i];
        answer_sum += answers[i];
    }
    assert_true(prompt_sum / N > 156 && prompt_sum / N < 166);
    assert_true(answer_sum / N > 330 && answer_sum / N < 346);
    qsort(prompts, N, sizeof *prompts, by_value);
    qsort(answers, N, sizeof *answers, by_value);
    assert_true(prompts[N / 2] > 97 && prompts[N / 2] < 107);
    assert_true(answers[N / 2] > 232 && answers[N / 2] < 248);
    assert_true(prompts[N * 9 / 10] > 360 && prompts[N * 9 / 10] < 410);
    assert_true(answers[N * 9 / 10] > 700 && answers[N * 9 / 10] < 760);
}

static void work_that_stands_alone(void **state)
{
    (void)state;
    work_config c = config(WORK_FIXED, 5);
    workload w = make(&c);
    check(&w);
    assert_int_equal(w.n_items, 5);
    assert_int_equal(w.prompt_tokens, 5 * 256);
    assert_int_equal(w.answer_tokens, 5 * 64);
    assert_false(same_ids(&w, 0, 1, 16));
    workload_free(&w);

    c = config(WORK_MIX, 40);
    w = make(&c);
    check(&w);
    for (int i = 0; i < 40; i++) {
        int prompt, answer;
        work_mix_lengths(1, (uint32_t)i, &prompt, &answer);
        assert_int_equal(w.items[i].n_prompt, prompt);
        assert_int_equal(w.items[i].n_answer, answer);
    }
    workload_free(&w);

    c = config(WORK_AGENTS, 3);
    w = make(&c);
    check(&w);
    assert_int_equal(w.longest, 5000 + 60 + 32);
    assert_true(same_ids(&w, 0, 2, 5000));
    assert_false(same_ids(&w, 0, 2, 5060));
    workload_free(&w);
}

/* Whole conversations, turn by turn. */
static void turns_follow_turns(void **state)
{
    (void)state;
    work_config c = config(WORK_CHAT, 9);
    workload w = make(&c);
    check(&w);
    assert_int_equal(w.n_items, 12); /* three conversations of four turns */
    for (int i = 0; i < 12; i++) assert_int_equal(w.items[i].follows, i < 3 ? WORK_NOTHING : i - 3);
    assert_int_equal(w.items[11].n_prompt, 200 + 3 * (48 + 80));
    assert_int_equal(w.max_branches, 1);
    workload_free(&w);
}

static void trees_branch(void **state)
{
    (void)state;
    work_config c = config(WORK_TREE, 21);
    workload w = make(&c);
    check(&w);
    static const int follows[] = {WORK_NOTHING, 0, 0, 1, 2}, ranks[] = {0, 0, 1, 0, 0};
    assert_int_equal(w.n_items, 10); /* two trees of twenty answers */
    assert_int_equal(w.n_answers, 40);
    assert_int_equal(w.max_branches, 4);
    for (int i = 0; i < 10; i++) {
        int before = follows[i % 5];
        assert_int_equal(w.items[i].follows, before == WORK_NOTHING ? before : before + i / 5 * 5);
        assert_int_equal(w.items[i].rank, ranks[i % 5]);
    }
    assert_int_equal(w.longest, 512 + 2 * (32 + 16) + 32);
    workload_free(&w);
}

/* The same seed, the same work; another one, another. More answers change nothing in those before. */
static void the_seed_says_it_all(void **state)
{
    (void)state;
    for (int kind = 0; kind < WORK_KINDS; kind++) {
        work_config c = config((work_kind)kind, 20);
        c.rate = 3;
        workload a = make(&c), b = make(&c);
        c.seed = 2;
        workload other = make(&c);
        assert_int_equal(a.n_ids, b.n_ids);
        assert_int_equal(a.n_items, b.n_items);
        assert_memory_equal(a.ids, b.ids, a.n_ids * sizeof *a.ids);
        for (int i = 0; i < a.n_items; i++) assert_memory_equal(&a.items[i], &b.items[i], sizeof a.items[i]);
        assert_memory_not_equal(a.ids, other.ids, 16 * sizeof *a.ids);
        assert_true(a.items[0].arrival_s != other.items[0].arrival_s);
        workload_free(&a);
        workload_free(&b);
        workload_free(&other);
    }
    work_config c = config(WORK_MIX, 10);
    workload few = make(&c);
    c.n_answers = 30;
    workload many = make(&c);
    assert_memory_equal(few.ids, many.ids, few.n_ids * sizeof *few.ids);
    workload_free(&few);
    workload_free(&many);
}

/* Ascending times, the rate's gaps in the mean; what follows something has no time of its own. */
static void arrivals(void **state)
{
    (void)state;
    work_config c = config(WORK_FIXED, 4000);
    c.prompt = c.answer = 1;
    c.rate = 8;
    workload w = make(&c);
    for (int i = 1; i < w.n_items; i++) assert_true(w.items[i].arrival_s > w.items[i - 1].arrival_s);
    double gap = w.items[w.n_items - 1].arrival_s / w.n_items;
    assert_true(gap > 0.95 / 8 && gap < 1.05 / 8);
    workload_free(&w);
    c = config(WORK_CHAT, 40);
    w = make(&c);
    assert_true(w.items[9].arrival_s == 0); /* a closed loop */
    workload_free(&w);
    c.rate = 8;
    w = make(&c);
    assert_true(w.items[9].arrival_s > w.items[8].arrival_s && w.items[10].arrival_s == 0);
    workload_free(&w);
    c.rate = 1e-300;
    status st = STATUS_INIT;
    assert_int_equal(workload_new(&w, &c, &st), ST_ARG);
    assert_non_null(strstr(st.text, "--rate"));
}

static void scales(void **state)
{
    (void)state;
    work_config c = config(WORK_AGENTS, 2);
    c.scale = 0.01;
    workload w = make(&c);
    check(&w);
    assert_int_equal(w.items[0].n_prompt, 50 + 1);
    assert_int_equal(w.items[0].n_answer, 1);
    workload_free(&w);
}

/* Every allocation in turn fails: a status, and nothing is left behind. */
static void short_of_memory(void **state)
{
    (void)state;
    uint64_t live = mem_stats().live;
    work_config c = config(WORK_MIX, 30);
    int failures = 0;
    for (int64_t n = 1;; n++) {
        workload w;
        status st = STATUS_INIT;
        mem_fail_after(n);
        int rc = workload_new(&w, &c, &st);
        mem_fail_after(0);
        if (rc == ST_OK) workload_free(&w);
        assert_int_equal(mem_stats().live, live);
        if (rc == ST_OK) break;
        assert_int_equal(rc, ST_NOMEM);
        failures++;
    }
    assert_true(failures >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_of_the_mix),
        cmocka_unit_test(work_that_stands_alone),
        cmocka_unit_test(turns_follow_turns),
        cmocka_unit_test(trees_branch),
        cmocka_unit_test(the_seed_says_it_all),
        cmocka_unit_test(arrivals),
        cmocka_unit_test(scales),
        cmocka_unit_test(short_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
