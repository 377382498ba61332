#include "engine/schedule.h"

#include <limits.h>

#include "base/minmax.h"
#include "engine/engine_state.h"
#include "engine/session.h"

static bool has_room(const engine *e, const session *s, int n)
{
    for (int g = 0; g < kv_cache_n_groups(e->cache); g++)
        if (kv_seq_append_needs(s->seq, g, n) > kv_cache_available(e->cache, g)) return false;
    return true;
}

/* Blocks for all tokens so far, and one over for each of the others. */
static bool fits(const engine *e, const session *s)
{
    for (int g = 0; g < kv_cache_n_groups(e->cache); g++)
        if (kv_seq_needs(s->seq, g, s->n_ids) + (uint64_t)e->n_running - 1 > kv_cache_available(e->cache, g))
            return false;
    return true;
}

static session *last_running(const engine *e)
{
    session *last = NULL;
    for (session *s = e->sessions; s; s = s->next)
        if (s->running) last = s;
    return last;
}

/* Room for n rows of a running session, at the cost of those behind it. False when s itself had to wait or failed. */
static bool make_room(engine *e, session *s, int n)
{
    while (!has_room(e, s, n)) {
        session *victim = last_running(e);
        if (victim != s || e->n_running > 1) {
            session_preempt(victim);
            if (victim == s) return false;
        } else if (engine_drop_pins(e, has_room, s, n) == 0) {
            status st = STATUS_INIT;
            kv_seq_append(s->seq, n, &st); /* says what is short */
            session_fail(s, &st);
            return false;
        }
    }
    return true;
}

/* Puts the next tokens of a running session into the batch, at most `most`; returns how many. */
static int add_session(engine *e, session *s, int64_t most)
{
    int64_t pending = session_pending(s);
    int n = (int)min_i64(pending, most);
    bool all_logits = s->params.prompt_logprobs && s->n_reported < s->n_prompt;
    status st = STATUS_INIT;
    if (n == 0 || !make_room(e, s, n)) return 0;
    session_admitted(s, kv_seq_len(s->seq));
    e->owners[e->n_seqs] = s;
    if (engine_add_rows(e, s->seq, s->ids + kv_seq_len(s->seq), n, all_logits, &st)) return session_fail(s, &st), 0;
    e->rows[e->n_rows - 1].wants_logits |= n == pending;
    return n;
}

/* Whether a running session is still at its prompt, the rows that it has in this step's batch included. */
static bool at_prompt(const engine *e, const session *s)
{
    if (session_pending(s) > 1) return true;
    for (int i = 0; i < e->n_seqs; i++)
        if (e->owners[i] == s) return kv_seq_len(s->seq) - e->old_len[i] > 1;
    return false;
}

/* A running session computes more of s's prompt than the cache has: worth waiting for, unless others may keep it from
 * its rows for longer than s. */
static bool prefix_is_coming(const engine *e, const session *s)
{
    if (!kv_cache_tree(e->cache)) return false;
    int64_t b = kv_cache_block_tokens(e->cache), cached = session_cached(s, NULL);
    for (const session *r = e->sessions; r; r = r->next) {
        if (!r->running || r->params.salt != s->params.salt || r->params.priority < s->params.priority) continue;
        if (!at_prompt(e, r)) continue;
        int64_t same = 0, most = min_i64(session_reusable(s), r->n_ids);
        while (same < most && r->ids[same] == s->ids[same]) same++;
        if (same / b * b > cached) return true;
    }
    return false;
}

/* Blocks for the longest that every running session, and s, may become. */
static bool fits_reserved(const engine *e, const session *s)
{
    for (int g = 0; g < kv_cache_n_groups(e->cache); g++) {
        uint64_t sum = 0;
        for (const session *r = e->sessions; r; r = r->next)
            if (r->running || r == s) sum += kv_cache_blocks(e->cache, g, session_longest(r));
        if (sum > pool_count(kv_cache_pool(e->cache, g)).total) return false;
    }
    return true;
}

/* Whether s, waiting, would fit once it is in, if the running ones of priority `spared` and above stayed: said without a
 * use of its prefix, since it may wait for many steps. */
static bool would_fit(const engine *e, const session *s, int spared)
{
    uint32_t in_use[KV_MAX_GROUPS];
    session_cached(s, in_use);
    for (int g = 0; g < kv_cache_n_groups(e->cache); g++) {
        uint64_t need = kv_cache_blocks(e->cache, g, s->n_ids);
        uint64_t have = (uint64_t)kv_cache_available(e->cache, g) + in_use[g];
        for (const session *r = e->sessions; r; r = r->next) {
            if (r->running && r->params.priority >= spared) need++;
            else if (r->running) have += kv_seq_releases(r->seq, g);
        }
        if (need > have) return false;
    }
    return true;
}

static bool will_fit(const engine *e, const session *s)
{
    return would_fit(e, s, INT_MIN) && (!e->reserve || fits_reserved(e, s));
}

static bool try_to_enter(engine *e, session *s)
{
    if (!will_fit(e, s)) return false;
    session_admit(s);
    if (fits(e, s)) return true;
    session_withdraw(s);
    return false;
}

static bool fits_alone(const engine *e, const session *s, int n)
{
    (void)n;
    return will_fit(e, s);
}

/* Into the batch, from sessions of lower priority if need be; alone, with pins' blocks too. */
static bool admit(engine *e, session *s)
{
    for (;;) {
        if (e->n_running < e->max_running && try_to_enter(e, s)) return true;
        session *victim = last_running(e);
        bool lower = victim && victim->params.priority < s->params.priority;
        if (lower && would_fit(e, s, s->params.priority)) session_preempt(victim); /* not in vain */
        else if (victim || engine_drop_pins(e, fits_alone, s, 0) == 0) break;
    }
    if (e->n_running) return false;
    status st = STATUS_INIT; /* nobody else holds a block */
    status_set(&st, ST_LIMIT, STATUS_NO_POS,
               "a sequence of %lld tokens can't fit into the KV cache, whose longest one has %llu; shorten it, or give "
               "the cache more memory (--kv-memory)",
               (long long)s->n_ids, (unsigned long long)kv_cache_longest_tokens(e->cache));
    session_fail(s, &st);
    return false;
}

/* Whether a waiting session runs now; *blocked: those behind it have to wait as well. */
static bool enters(engine *e, session *s, int rows_left, bool *blocked)
{
    if (s->leader || rows_left == 0 || *blocked) return false;
    if (prefix_is_coming(e, s)) return false;
    if (admit(e, s)) return true;
    *blocked = session_active(s);
    return false;
}

bool schedule_lacks_blocks(const engine *e)
{
    if (e->n_running == 0 || e->n_running == e->max_running) return false;
    for (const session *s = e->sessions; s; s = s->next) {
        if (!session_active(s) || s->running || s->leader) continue;
        if (!prefix_is_coming(e, s)) return !will_fit(e, s);
    }
    return false;
}

void schedule_step(engine *e, int64_t now_ns)
{
    engine_unpin(e, now_ns);
    e->n_rows = e->n_seqs = e->n_decoding = 0;
    for (const session *s = e->sessions; s; s = s->next) e->n_decoding += s->running && session_pending(s) == 1;
    int left = pace_rows(&e->pace, e->n_decoding, e->chunk - e->n_decoding);
    e->stats.chunk = left;
    bool blocked = false;
    for (session *s = e->sessions; s; s = s->next) {
        if (!session_active(s)) continue;
        if (s->running && session_pending(s) == 1) add_session(e, s, 1);
        else if (s->running || enters(e, s, left, &blocked)) left -= add_session(e, s, left);
    }
}
