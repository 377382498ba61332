/* Pins: what they keep, for how long, which of them go when there is no room, and who is told. */
#include "engine/schedule.h"
#include "talk.h"

enum { PINS = 4, PROMPT = 32 }; /* two blocks each */

/* A cache of 13 blocks; four pinned prompts hold eight of them. */
static engine *pinned_engine(const talk_world *w, talk *k, int32_t prompts[PINS][PROMPT])
{
    engine *e = talk_engine(w->llama, w->team,
                            (engine_config){.context = 200, .n_sessions = 2, .clock = talk_clock,
                                            .kv_memory_bytes = talk_memory(w->llama, w->team, 200)});
    assert_int_equal(pool_count(kv_cache_pool(engine_cache(e), 0)).total, 13);
    talk_open(k, e);
    generate_params p = talk_params(0);
    p.pin_s = 100;
    for (int i = 0; i < PINS; i++) {
        tiny_ids(prompts[i], PROMPT, 70 + (uint64_t)i);
        talk_answer(k, e, prompts[i], PROMPT, &p); /* computed, though there is no answer */
        assert_int_equal(session_finish(k->s), FINISH_LENGTH);
        assert_int_equal(k->n, 0);
        assert_int_equal(session_get_stats(k->s).pinned_tokens, PROMPT);
        talk_ns += 1000000000;
    }
    return e;
}

static int64_t cached_of(const engine *e, const int32_t *ids)
{
    return kv_cache_match(engine_cache(e), 0, ids, PROMPT, NULL);
}

static void ask_for_room(talk *k, engine *e, int n)
{
    int32_t ids[190];
    generate_params p = talk_params(1);
    tiny_ids(ids, (size_t)n, 99);
    talk_answer(k, e, ids, (size_t)n, &p);
    assert_int_equal(session_finish(k->s), FINISH_LENGTH);
}

static void the_fewest_go_oldest_first(void **state)
{
    const talk_world *w = *state;
    for (int n_gone = 0; n_gone <= PINS; n_gone++) {
        int32_t prompts[PINS][PROMPT];
        talk k;
        engine *e = pinned_engine(w, &k, prompts);
        int n = (13 - 2 * (PINS - n_gone)) * 16 - 1; /* just so many rows */
        ask_for_room(&k, e, n > 190 ? 190 : n);
        engine_stats s = engine_get_stats(e);
        assert_int_equal(s.pins, PINS - n_gone);
        assert_int_equal(s.pins_dropped, n_gone);
        for (int i = n_gone; i < PINS; i++) assert_int_equal(cached_of(e, prompts[i]), PROMPT);
        pin_report left[MAX_PINS];
        assert_int_equal(engine_list_pins(e, left), PINS - n_gone);
        for (int i = 0; i < PINS - n_gone; i++) {
            assert_int_equal(left[i].n_tokens, PROMPT);
            assert_true(left[i].until_ns == talk_ns + (int64_t)(100 - (PINS - n_gone - i)) * 1000000000);
        }
        session_free(k.s);
        engine_free(e);
    }
}

/* The oldest one's blocks are held by another as well: to drop it alone would free nothing. */
static void one_that_frees_nothing_stays(void **state)
{
    const talk_world *w = *state;
    int32_t prompts[PINS][PROMPT];
    talk k;
    engine *e = pinned_engine(w, &k, prompts);
    generate_params p = talk_params(0);
    p.pin_s = 100;
    talk_answer(&k, e, prompts[0], PROMPT, &p);
    assert_int_equal(engine_get_stats(e).pins, PINS + 1);
    ask_for_room(&k, e, 7 * 16 - 1);
    engine_stats s = engine_get_stats(e);
    assert_int_equal(s.pins_dropped, 1);
    assert_int_equal(cached_of(e, prompts[0]), PROMPT);
    assert_true(cached_of(e, prompts[1]) < PROMPT);
    assert_int_equal(cached_of(e, prompts[2]), PROMPT);
    assert_int_equal(cached_of(e, prompts[3]), PROMPT);
    session_free(k.s);
    engine_free(e);
}

static void a_pin_that_is_not_made_is_told(void **state)
{
    const talk_world *w = *state;
    int32_t prompts[PINS][PROMPT];
    talk k;
    engine *e = pinned_engine(w, &k, prompts);
    generate_params p = talk_params(1);
    p.pin_s = 100;
    talk_answer(&k, e, prompts[0], 15, &p); /* no full block */
    assert_int_equal(session_get_stats(k.s).pinned_tokens, 0);
    for (int i = PINS; i < MAX_PINS; i++) {
        talk_answer(&k, e, prompts[0], PROMPT, &p);
        assert_int_equal(session_get_stats(k.s).pinned_tokens, PROMPT);
    }
    talk_answer(&k, e, prompts[0], PROMPT, &p);
    assert_int_equal(session_get_stats(k.s).pinned_tokens, 0);
    p.pin_s = 0;
    talk_answer(&k, e, prompts[0], PROMPT, &p);
    assert_int_equal(session_get_stats(k.s).pinned_tokens, 0);
    assert_int_equal(engine_get_stats(e).pins, MAX_PINS);
    talk_ns += (int64_t)200e9;
    assert_int_equal(engine_expire_pins(e), 0);
    assert_int_equal(engine_get_stats(e).pins, 0);
    assert_int_equal(engine_get_stats(e).pins_dropped, 0); /* their time was over */
    session_free(k.s);
    engine_free(e);
}

static void a_prompt_is_computed_for_the_cache_alone(void **state)
{
    const talk_world *w = *state;
    int32_t ids[40];
    tiny_ids(ids, 40, 5);
    engine *e = talk_engine(w->llama, w->team, (engine_config){.context = 200});
    talk k;
    talk_open(&k, e);
    generate_params p = talk_params(0);
    talk_answer(&k, e, ids, 40, &p); /* neither an answer nor the cache was wanted */
    assert_int_equal(kv_cache_match(engine_cache(e), 0, ids, 40, NULL), 0);
    p.cache_only = true;
    talk_answer(&k, e, ids, 40, &p);
    assert_int_equal(session_finish(k.s), FINISH_LENGTH);
    assert_int_equal(k.n, 0);
    assert_int_equal(kv_cache_match(engine_cache(e), 0, ids, 40, NULL), 40);
    assert_int_equal(engine_get_stats(e).computed_rows, 40);
    session_free(k.s);
    engine_free(e);
}

static int open_world(void **state)
{
    return talk_open_world(state, 2, DTYPE_F32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fewest_go_oldest_first),
        cmocka_unit_test(one_that_frees_nothing_stays),
        cmocka_unit_test(a_pin_that_is_not_made_is_told),
        cmocka_unit_test(a_prompt_is_computed_for_the_cache_alone),
    };
    return cmocka_run_group_tests_name("pins", tests, open_world, talk_close_world);
}
