/* One session: how answers begin, what is shown of them, and how they end. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "talk.h"

static int open_world(void **state)
{
    return talk_open_world(state, 1, DTYPE_F32);
}

typedef struct stage {
    model *m;
    engine *e;
    talk k;
    int32_t first; /* of the script: the prompt */
} stage;

static void open_stage(stage *g, talk_world *w, const char *script, int context)
{
    tiny_config c = tiny_script(script);
    g->m = tiny_load(&c, kernels_get(CPU_AUTO), w->team);
    g->e = talk_engine(g->m, w->team, (engine_config){.context = context});
    g->first = (unsigned char)script[0];
    talk_open(&g->k, g->e);
}

static void close_stage(stage *g)
{
    session_free(g->k.s);
    engine_free(g->e);
    model_free(g->m);
}

static void expect(stage *g, const generate_params *p, const char *text, finish_reason finish, int n_tokens)
{
    talk_answer(&g->k, g->e, &g->first, 1, p);
    g->k.text[g->k.n_bytes] = 0;
    assert_string_equal(g->k.text, text);
    assert_string_equal(finish_name(session_finish(g->k.s)), finish_name(finish));
    assert_int_equal(g->k.n, n_tokens);
    assert_int_equal(session_get_stats(g->k.s).generated_tokens, n_tokens);
}

static void ends(void **state)
{
    stage g;
    open_stage(&g, *state, "abcdefghij", 100);
    generate_params p = talk_params(-1);
    expect(&g, &p, "bcdefghij", FINISH_EOS, 10);
    assert_int_equal(g.k.tokens[9], TINY_END);
    p.max_tokens = 0;
    expect(&g, &p, "", FINISH_LENGTH, 0);
    p.max_tokens = 1;
    expect(&g, &p, "b", FINISH_LENGTH, 1);
    p.max_tokens = 9; /* the end would be the tenth */
    expect(&g, &p, "bcdefghij", FINISH_LENGTH, 9);
    p.max_tokens = 10;
    expect(&g, &p, "bcdefghij", FINISH_EOS, 10);
    p.ignore_eos = true;
    p.max_tokens = 12;
    talk_answer(&g.k, g.e, &g.first, 1, &p);
    assert_int_equal(session_finish(g.k.s), FINISH_LENGTH);
    assert_int_equal(g.k.n, 12);
    assert_int_equal(g.k.tokens[9], TINY_END);
    assert_memory_equal(g.k.text, "bcdefghij", 9);
    int32_t stops[] = {'z', 'e'};
    p = talk_params(-1);
    p.stop_tokens = stops;
    p.n_stop_tokens = 2;
    expect(&g, &p, "bcd", FINISH_STOP, 4);
    close_stage(&g);
}

/* Tokens that would end the answer are not drawn, strings that would are text. */
static void the_least_tokens_end_nothing(void **state)
{
    stage g;
    open_stage(&g, *state, "abcdefghij", 100);
    const char *one[] = {"def"};
    int32_t stops[] = {'e'};
    generate_params p = talk_params(-1);
    p.min_tokens = 9;
    expect(&g, &p, "bcdefghij", FINISH_EOS, 10);
    p.min_tokens = 10, p.max_tokens = 12;
    for (int ignore = 0; ignore < 2; ignore++) {
        p.ignore_eos = ignore;
        talk_answer(&g.k, g.e, &g.first, 1, &p);
        assert_memory_equal(g.k.text, "bcdefghij", 9);
        assert_true(g.k.n >= 11);
        for (int i = 0; i < 10; i++) assert_int_not_equal(g.k.tokens[i], TINY_END);
    }
    p = talk_params(-1);
    p.stop = one, p.n_stop = 1;
    p.min_tokens = 4; /* the string ends with the fifth */
    expect(&g, &p, "bc", FINISH_STOP, 5);
    p.min_tokens = 5;
    expect(&g, &p, "bcdefghij", FINISH_EOS, 10);
    p = talk_params(4);
    p.stop_tokens = stops, p.n_stop_tokens = 1;
    p.min_tokens = 3;
    expect(&g, &p, "bcd", FINISH_STOP, 4);
    p.min_tokens = 4;
    talk_answer(&g.k, g.e, &g.first, 1, &p);
    assert_string_equal(finish_name(session_finish(g.k.s)), "length");
    assert_int_not_equal(g.k.tokens[3], 'e');
    status st = STATUS_INIT;
    p.min_tokens = 5;
    assert_int_equal(session_start(g.k.s, &g.first, 1, &p, NULL, &st), ST_ARG);
    p.min_tokens = -1;
    assert_int_equal(session_start(g.k.s, &g.first, 1, &p, NULL, &st), ST_ARG);
    close_stage(&g);
}

/* With show_special control tokens have their name in the text; the one that ends the answer has not. */
static void special_tokens_by_name(void **state)
{
    stage g;
    open_stage(&g, *state, "abc", 100);
    generate_params p = talk_params(4);
    p.ignore_eos = p.show_special = true;
    logit_bias ban[] = {{'x', 0}};
    p.sampling.bias = ban;
    p.sampling.n_bias = 1;
    talk_answer(&g.k, g.e, &g.first, 1, &p);
    assert_true(g.k.n_bytes >= 9);
    assert_memory_equal(g.k.text, "bc<|end|>", 9);
    p.ignore_eos = false;
    expect(&g, &p, "bc", FINISH_EOS, 3);
    close_stage(&g);
}

static void stop_strings_across_tokens(void **state)
{
    stage g;
    open_stage(&g, *state, "abcdefghij", 100);
    const char *one[] = {"def"}, *two[] = {"zz", "hij", "gx"}, *late[] = {"ij!", "j"}, *hidden[] = {"hijk", "ij"};
    generate_params p = talk_params(-1);
    p.stop = one, p.n_stop = 1;
    expect(&g, &p, "bc", FINISH_STOP, 5);
    p.stop = two, p.n_stop = 3;
    expect(&g, &p, "bcdefg", FINISH_STOP, 9);
    p.stop = late, p.n_stop = 2; /* "ij!" might have come; the end shows that it doesn't, and "j" stands there */
    expect(&g, &p, "bcdefghi", FINISH_STOP, 10);
    p.stop = hidden;
    expect(&g, &p, "bcdefgh", FINISH_STOP, 10);
    p.stop = (const char *[]){"jz"}, p.n_stop = 1; /* what was held comes out at the end */
    expect(&g, &p, "bcdefghij", FINISH_EOS, 10);
    p.max_tokens = 9;
    expect(&g, &p, "bcdefghij", FINISH_LENGTH, 9);
    close_stage(&g);
}

static void text_comes_in_whole_characters(void **state)
{
    stage g;
    const char *script = "a\xC3\xA9"
                         "b\xE2\x82\xAC"
                         "c\xF0\x9D\x84\x9E"
                         "d";
    open_stage(&g, *state, script, 100);
    generate_params p = talk_params(-1);
    talk_start(&g.k, &g.first, 1, &p);
    while (session_active(g.k.s)) {
        talk_step(g.e);
        for (size_t at = 0; at < g.k.n_bytes;) {
            int n = utf8_length(g.k.text + at, g.k.n_bytes - at);
            assert_true(n > 0);
            at += (size_t)n;
        }
    }
    g.k.text[g.k.n_bytes] = 0;
    assert_string_equal(g.k.text, script + 1);
    const char *stop[] = {"\xE2\x82\xAC"};
    p.stop = stop, p.n_stop = 1;
    expect(&g, &p,
           "\xC3\xA9"
           "b",
           FINISH_STOP, 6);
    /* An answer that ends inside a character gives the bytes that there are. */
    p = talk_params(5);
    expect(&g, &p,
           "\xC3\xA9"
           "b\xE2\x82",
           FINISH_LENGTH, 5);
    close_stage(&g);
}

/* Prompt and answer are at most the context together (N4), for a session and for its fork. */
static void context_ends_the_answer(void **state)
{
    talk_world *w = *state;
    enum { CONTEXT = 40 };
    int32_t ids[CONTEXT + 1];
    tiny_ids(ids, CONTEXT + 1, 8);
    engine *e = talk_engine(w->llama, w->team, (engine_config){.context = CONTEXT, .chunk = 16, .n_sessions = 2});
    talk k, fork;
    talk_open(&k, e);
    talk_open(&fork, e);
    generate_params p = talk_params(-1);
    p.ignore_eos = true;
    status st = STATUS_INIT;
    for (int n = CONTEXT - 4; n < CONTEXT; n++)
        for (int64_t most = -1; most <= CONTEXT - n + 1; most++) {
            bool full = most < 0 || most > CONTEXT - n;
            p.max_tokens = most;
            talk_start(&k, ids, (size_t)n, &p);
            session_callbacks cb = talk_callbacks(&fork);
            assert_int_equal(session_fork(fork.s, k.s, 1, &cb, &st), ST_OK);
            talk_run(e);
            for (int i = 0; i < 2; i++) {
                const talk *t = i ? &fork : &k;
                assert_int_equal(session_finish(t->s), full ? FINISH_CONTEXT : FINISH_LENGTH);
                assert_int_equal(t->n, full ? CONTEXT - n : most);
                assert_int_equal(session_get_stats(t->s).context_used, n + t->n);
            }
        }
    /* A prompt that fills the context has an answer of none; one that is longer has nothing. */
    for (int64_t most = -1; most <= 1; most++) {
        p.max_tokens = most;
        if (most == 0) talk_answer(&k, e, ids, CONTEXT, &p);
        else assert_int_equal(talk_try(&k, ids, CONTEXT, &p, &st), ST_LIMIT);
        assert_int_equal(session_finish(k.s), most == 0 ? FINISH_LENGTH : FINISH_CANCELLED);
        if (most) assert_non_null(strstr(st.text, "40 tokens fill the context of 40"));
        if (most) assert_non_null(strstr(st.text, "no room for an answer"));
        assert_int_equal(talk_try(&k, ids, CONTEXT + 1, &p, &st), ST_LIMIT);
        assert_non_null(strstr(st.text, "41 tokens"));
        assert_non_null(strstr(st.text, "40"));
        assert_false(session_active(k.s));
    }
    session_free(k.s);
    session_free(fork.s);
    engine_free(e);
}

static void fit_is_told_with_the_numbers(void **state)
{
    (void)state;
    status st = STATUS_INIT;
    assert_int_equal(context_check(64, 60, 4, &st), ST_OK);
    assert_int_equal(context_check(64, 64, 0, &st), ST_OK);
    assert_int_equal(context_check(64, 0, 0, &st), ST_ARG);
    assert_int_equal(context_check(64, 60, 5, &st), ST_LIMIT);
    assert_non_null(strstr(st.text, "60 tokens of prompt and 5 of answer"));
    assert_non_null(strstr(st.text, "at most 4 are left"));
    assert_int_equal(context_check(64, 64, 1, &st), ST_LIMIT);
    assert_non_null(strstr(st.text, "no room"));
    assert_int_equal(context_check(64, 65, 0, &st), ST_LIMIT);
    assert_non_null(strstr(st.text, "65 tokens"));
    assert_int_equal(context_check(64, 1, INT64_MAX, &st), ST_LIMIT);
}

static void check_window(talk_world *w, const model *m, int64_t keep, int64_t kept)
{
    enum { CONTEXT = 40, PROMPT = 30 };
    int32_t ids[PROMPT];
    tiny_ids(ids, PROMPT, 9);
    engine *e = talk_engine(m, w->team, (engine_config){.context = CONTEXT, .chunk = 16, .n_sessions = 2});
    talk k, fresh;
    talk_open(&k, e);
    talk_open(&fresh, e);
    generate_params p = talk_params(100), q = talk_params(3);
    p.ignore_eos = q.ignore_eos = true;
    p.overflow = OVERFLOW_WINDOW;
    p.keep = keep;
    talk_start(&k, ids, PROMPT, &p);
    int32_t all[PROMPT + 100];
    memcpy(all, ids, sizeof ids);
    while (k.n_drops == 0) talk_step(e);
    /* The context was full, and one token more is there: of the 41, `kept` and the newest half of the rest stay. */
    assert_int_equal(k.n, CONTEXT - PROMPT + 1);
    memcpy(all + PROMPT, k.tokens, (size_t)k.n * sizeof *all);
    int64_t stay = (CONTEXT - kept + 1) / 2, n = PROMPT + k.n;
    assert_int_equal(k.dropped[0], n - kept - stay);
    size_t n_left;
    const int32_t *left = session_ids(k.s, &n_left);
    assert_int_equal(n_left, kept + stay);
    assert_memory_equal(left, all, (size_t)kept * sizeof *all);
    assert_memory_equal(left + kept, all + n - stay, (size_t)stay * sizeof *all);
    int32_t prompt[CONTEXT];
    memcpy(prompt, left, n_left * sizeof *prompt);
    int said = k.n;
    talk_run(e);
    assert_int_equal(session_finish(k.s), FINISH_LENGTH);
    assert_int_equal(k.n, 100);
    assert_true(k.n_drops >= 3);
    for (int i = 0; i < k.n; i++) assert_int_equal(k.positions[i], PROMPT + i);
    /* What follows is what a fresh session says after the tokens that stayed. */
    talk_answer(&fresh, e, prompt, n_left, &q);
    assert_memory_equal(fresh.tokens, k.tokens + said, 3 * sizeof *k.tokens);
    session_free(k.s);
    session_free(fresh.s);
    engine_free(e);
}

static void window_keeps_the_beginning_and_the_newest(void **state)
{
    talk_world *w = *state;
    check_window(w, w->llama, -1, 10);
    check_window(w, w->llama, 0, 0);
    check_window(w, w->llama, 7, 7);
    check_window(w, w->llama, 1000, 20);
    check_window(w, w->gemma, 5, 5);
}

static void window_of_the_smallest_contexts(void **state)
{
    talk_world *w = *state;
    int32_t ids[] = {5, 6, 7};
    for (int context = 1; context <= 3; context++) {
        engine *e = talk_engine(w->llama, w->team, (engine_config){.context = context});
        talk k;
        talk_open(&k, e);
        generate_params p = talk_params(20);
        p.ignore_eos = true;
        p.overflow = OVERFLOW_WINDOW;
        talk_answer(&k, e, ids, (size_t)context, &p);
        assert_int_equal(session_finish(k.s), FINISH_LENGTH);
        assert_int_equal(k.n, 20);
        session_free(k.s);
        engine_free(e);
    }
}

/* A fork whose first token overflows the context has moved on from the prompt, while its leader, which that token ends,
 * still has all rows of it: they are of no use to the fork, which goes by itself. A fork of an answer that has moved on
 * begins with the prompt, not with what is left of it. */
static void forks_of_a_full_context(void **state)
{
    talk_world *w = *state;
    enum { CONTEXT = 48 };
    int32_t ids[CONTEXT];
    tiny_ids(ids, CONTEXT, 15);
    engine *e = talk_engine(w->llama, w->team, (engine_config){.context = CONTEXT, .n_sessions = 3});
    talk leader, alone, fork;
    talk_open(&leader, e);
    talk_open(&alone, e);
    talk_open(&fork, e);
    generate_params p = talk_params(70);
    p.ignore_eos = true;
    p.overflow = OVERFLOW_WINDOW;
    p.sampling.temperature = 2;
    p.sampling.seed = 3;
    talk_answer(&leader, e, ids, CONTEXT, &p);
    int32_t first = leader.tokens[0];
    p.sampling.choice = 1;
    p.stop_tokens = &first, p.n_stop_tokens = 1;
    talk_answer(&alone, e, ids, CONTEXT, &p);
    assert_true(alone.n > 1 && alone.n_drops > 0);
    p.sampling.choice = 0;
    talk_start(&leader, ids, CONTEXT, &p);
    status st = STATUS_INIT;
    session_callbacks cb = talk_callbacks(&fork);
    assert_int_equal(session_fork(fork.s, leader.s, 1, &cb, &st), ST_OK);
    talk_run(e);
    assert_int_equal(session_finish(leader.s), FINISH_STOP);
    assert_int_equal(leader.n, 1);
    talk_same(&fork, &alone);
    /* of `alone`, which has dropped most of its prompt */
    cb = talk_callbacks(&fork);
    assert_int_equal(session_fork(fork.s, alone.s, 0, &cb, &st), ST_OK);
    talk_run(e);
    talk_same(&fork, &leader);
    session_free(leader.s);
    session_free(alone.s);
    session_free(fork.s);
    engine_free(e);
}

static void check_reuse(talk_world *w, const model *m, bool windowed)
{
    int32_t ids[90];
    tiny_ids(ids, 90, 12);
    engine *e = talk_engine(m, w->team, (engine_config){.context = 200, .chunk = 32, .n_sessions = 2});
    talk k, fresh;
    talk_open(&k, e);
    generate_params p = talk_params(5);
    p.ignore_eos = true;
    /* Prompt lengths that grow, shrink, repeat, part ways. */
    const struct {
        int n, other_from, reused;
    } turns[] = {{30, 90, 0},  {60, 90, 30}, {60, 90, 59},     {62, 90, 60},
                 {61, 90, 60}, {61, 58, 58}, {20, 90, 20 - 1}, {90, 0, 0}};
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        int32_t prompt[90];
        for (int j = 0; j < turns[i].n; j++) prompt[j] = j < turns[i].other_from ? ids[j] : (ids[j] + 1) % TINY_TOKENS;
        talk_answer(&k, e, prompt, (size_t)turns[i].n, &p);
        int64_t reused = session_get_stats(k.s).reused_tokens;
        if (windowed && turns[i].n == 20) assert_int_equal(reused, 0); /* the window has moved past the place */
        else assert_int_equal(reused, turns[i].reused);
        assert_int_equal(session_get_stats(k.s).prompt_tokens, turns[i].n);
        assert_int_equal(k.progress_total, turns[i].n - reused);
        assert_int_equal(k.progress_done, k.progress_total);
        talk_open(&fresh, e);
        talk_answer(&fresh, e, prompt, (size_t)turns[i].n, &p);
        talk_same(&k, &fresh);
        session_free(fresh.s);
    }
    /* The answer is a prefix too: a chat goes on. */
    size_t n;
    const int32_t *said = session_ids(k.s, &n);
    int32_t next[120];
    memcpy(next, said, n * sizeof *next);
    next[n] = 3;
    talk_answer(&k, e, next, n + 1, &p);
    assert_int_equal(session_get_stats(k.s).reused_tokens, n - 1); /* the last token was never computed */
    session_free(k.s);
    engine_free(e);
}

static void prefix_is_reused(void **state)
{
    talk_world *w = *state;
    check_reuse(w, w->llama, false);
    check_reuse(w, w->gemma, true);
}

static void logprobs_are_the_models(void **state)
{
    talk_world *w = *state;
    int32_t ids[10];
    tiny_ids(ids, 10, 13);
    engine *e = talk_engine(w->llama, w->team, (engine_config){.context = 64});
    talk k;
    talk_open(&k, e);
    generate_params p = talk_params(12);
    p.ignore_eos = true;
    p.n_logprobs = 4;
    talk_answer(&k, e, ids, 10, &p);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(k.n_top[i], 4);
        assert_int_equal(k.top[i][0].token, k.tokens[i]); /* greedy */
        assert_true(k.top[i][0].logprob == k.logprobs[i] && k.logprobs[i] < 0);
        for (int j = 1; j < 4; j++) assert_true(k.top[i][j].logprob <= k.top[i][j - 1].logprob);
    }
    p.n_logprobs = 0;
    talk_answer(&k, e, ids, 10, &p);
    assert_int_equal(k.n_top[0], 0);
    assert_true(k.logprobs[0] < 0);
    p.n_logprobs = -1;
    talk_answer(&k, e, ids, 10, &p);
    assert_true(k.logprobs[0] == 0);
    status st = STATUS_INIT;
    p.n_logprobs = MAX_LOGPROBS + 1;
    assert_int_equal(talk_try(&k, ids, 10, &p, &st), ST_ARG);
    session_free(k.s);
    engine_free(e);
}

static void bad_starts(void **state)
{
    talk_world *w = *state;
    int32_t ids[] = {1, 2, 3}, low[] = {1, -1}, high[] = {1, 2, TINY_VOCAB};
    engine *e = talk_engine(w->llama, w->team, (engine_config){.context = 64});
    talk k;
    talk_open(&k, e);
    generate_params p = talk_params(3);
    status st = STATUS_INIT;
    assert_int_equal(session_finish(k.s), FINISH_CANCELLED);
    assert_int_equal(talk_try(&k, ids, 0, &p, &st), ST_ARG);
    assert_non_null(strstr(st.text, "empty"));
    assert_int_equal(talk_try(&k, low, 2, &p, &st), ST_ARG);
    assert_int_equal(st.pos, 1);
    assert_int_equal(talk_try(&k, high, 3, &p, &st), ST_ARG);
    assert_int_equal(st.pos, 2);
    p.sampling.top_p = 7;
    assert_int_equal(talk_try(&k, ids, 3, &p, &st), ST_ARG);
    p = talk_params(3);
    p.stop = (const char *[]){""}, p.n_stop = 1;
    assert_int_equal(talk_try(&k, ids, 3, &p, &st), ST_ARG);
    assert_false(session_active(k.s));
    talk_step(e);
    p = talk_params(3);
    p.ignore_eos = true;
    talk_answer(&k, e, ids, 3, &p); /* it is as good as new */
    assert_int_equal(k.n, 3);
    session_free(k.s);
    engine_free(e);
}

static void callbacks_may_be_absent(void **state)
{
    talk_world *w = *state;
    int32_t ids[] = {1, 2, 3};
    engine *e = talk_engine(w->llama, w->team, (engine_config){.context = 64});
    talk k;
    talk_open(&k, e);
    generate_params p = talk_params(3);
    p.ignore_eos = true;
    status st = STATUS_INIT;
    assert_int_equal(session_start(k.s, ids, 3, &p, NULL, &st), ST_OK);
    talk_run(e);
    assert_int_equal(session_get_stats(k.s).generated_tokens, 3);
    session_stats t = session_get_stats(k.s);
    assert_true(t.prefill_s >= 0 && t.decode_s >= 0 && t.first_token_s >= t.prefill_s);
    session_free(k.s);
    engine_free(e);
}

static void cancel_inside_the_callback(void **state)
{
    talk_world *w = *state;
    int32_t ids[] = {1, 2, 3};
    engine *e = talk_engine(w->llama, w->team, (engine_config){.context = 64, .n_sessions = 2});
    talk a, b;
    talk_open(&a, e);
    talk_open(&b, e);
    a.cancel_at = 4;
    a.other = &b; /* whose logits are still to come in that step */
    generate_params p = talk_params(10);
    p.ignore_eos = true;
    talk_start(&a, ids, 3, &p);
    talk_start(&b, ids, 2, &p);
    talk_run(e);
    assert_int_equal(session_finish(a.s), FINISH_CANCELLED);
    assert_int_equal(session_finish(b.s), FINISH_CANCELLED);
    assert_int_equal(a.n, 4);
    assert_int_equal(b.n, 3);
    session_cancel(a.s); /* a second time: nothing */
    a.cancel_at = 0;
    talk_answer(&a, e, ids, 3, &p);
    assert_int_equal(session_finish(a.s), FINISH_LENGTH);
    session_cancel(a.s);
    assert_int_equal(session_finish(a.s), FINISH_LENGTH);
    session_free(a.s);
    session_free(b.s);
    engine_free(e);
}

static void short_memory_leaks_nothing(void **state)
{
    talk_world *w = *state;
    int32_t ids[] = {1, 2, 3};
    engine *e =
        talk_engine(w->llama, w->team, (engine_config){.context = 64, .n_sessions = 3, .no_sharing = true});
    generate_params p = talk_params(3);
    logit_bias bias[] = {{1, 1}};
    p.stop = (const char *[]){"one", "two"}, p.n_stop = 2;
    p.stop_tokens = ids, p.n_stop_tokens = 1;
    p.sampling.bias = bias, p.sampling.n_bias = 1;
    uint64_t bytes = mem_stats().bytes;
    status st = STATUS_INIT;
    int n = 0;
    for (int rc = ST_NOMEM; rc; n++) { /* session_new */
        session *s = NULL;
        mem_fail_after(n + 1);
        rc = session_new(&s, e, &st);
        mem_fail_after(0);
        assert_int_equal(rc, s ? ST_OK : ST_NOMEM);
        session_free(s);
        assert_int_equal(mem_stats().bytes, bytes);
    }
    assert_int_equal(n, 3);
    talk k;
    talk_open(&k, e);
    uint64_t idle = mem_stats().bytes;
    n = 0;
    for (int rc = ST_NOMEM; rc; n++) { /* session_start */
        mem_fail_after(n + 1);
        rc = talk_try(&k, ids, 3, &p, &st);
        mem_fail_after(0);
        assert_true(rc == ST_OK || rc == ST_NOMEM);
        assert_int_equal(session_active(k.s), rc == ST_OK);
    }
    assert_true(n > 5);
    talk_run(e);
    session_free(k.s);
    assert_int_equal(mem_stats().bytes, bytes);
    assert_true(idle > bytes);
    /* Memory that runs out for the text ends the session, not the step. */
    for (n = 1; n <= 3; n++) {
        talk_open(&k, e);
        p = talk_params(50);
        p.ignore_eos = true;
        talk_start(&k, ids, 3, &p);
        mem_fail_after(n);
        talk_run(e);
        mem_fail_after(0);
        assert_int_equal(session_finish(k.s), FINISH_ERROR);
        assert_int_equal(session_error(k.s)->code, ST_NOMEM);
        session_free(k.s);
        assert_int_equal(mem_stats().bytes, bytes);
    }
    engine_free(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends),
        cmocka_unit_test(the_least_tokens_end_nothing),
        cmocka_unit_test(special_tokens_by_name),
        cmocka_unit_test(stop_strings_across_tokens),
        cmocka_unit_test(text_comes_in_whole_characters),
        cmocka_unit_test(context_ends_the_answer),
        cmocka_unit_test(fit_is_told_with_the_numbers),
        cmocka_unit_test(window_keeps_the_beginning_and_the_newest),
        cmocka_unit_test(window_of_the_smallest_contexts),
        cmocka_unit_test(forks_of_a_full_context),
        cmocka_unit_test(prefix_is_reused),
        cmocka_unit_test(logprobs_are_the_models),
        cmocka_unit_test(bad_starts),
        cmocka_unit_test(callbacks_may_be_absent),
        cmocka_unit_test(cancel_inside_the_callback),
        cmocka_unit_test(short_memory_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, open_world, talk_close_world);
}
