/* Long words, merged window by window: the tokens are those of one run over the whole word, at the price of the cache
 * instead of the memory, and they come out as the word is read.
 *
 *      word      ......................................................
 *      window    [----------- A ------|-----]
 *                                     [----------- B ------|-----]
 *                                     cut: where a token of A begins, some way before A's end
 *
 * In a run over the whole word, what happens on one side of a cut depends on the other side only through a merge across
 * it. While there is none, both sides merge as if they were alone, and the order in which they take turns is known: a
 * merge happens at its own key, or at that of the latest merge it had to wait for (symbol.time). So from the history of
 * the symbol that ends at the cut (in A) and of the one that begins there (in B) it follows which pairs ever met there
 * and whether one of them would have merged before either side had moved on. If none would, the cut holds: the tokens of
 * A up to it are final, and B goes on as the next A. B's history is that of the whole rest if B's own cut holds, and so
 * on to the window that reaches the end.
 *
 * Where no cut of a window holds, the word is begun anew with larger windows, at last with one that takes it whole.
 */
#include <assert.h>

#include "model/tokenizer_internal.h"

#define WINDOW 512 /* symbols; two windows and their heaps stay in the first-level cache */
#define MAX_TRIES 16

#define NEVER UINT64_MAX

/* The symbol on one side of a cut, as it was at one time, and when it changes. */
typedef struct side {
    symbol now;
    uint64_t since, until;
    int32_t at; /* left: index of the symbol; right: of the one it swallows next */
} side;

/* Of left neighbours that swallow one another, ending at the cut: each that is gone still is as it was. */
static void look_left(side *s, const merge_window *w)
{
    s->now = w->symbols[s->at];
    s->until = s->now.next == SWALLOWED ? s->now.time : NEVER;
}

static void step_left(side *s, const merge_window *w)
{
    s->since = s->until;
    s->at = w->symbols[s->at].prev;
    look_left(s, w);
}

/* The first symbol of a window, which swallows what follows: each that is gone knows when. */
static void look_right(side *s, const merge_window *w)
{
    bool grows = s->now.n < w->symbols[0].n;
    s->until = grows ? w->symbols[s->at].time : NEVER;
}

static void step_right(side *s, const merger *m, const merge_window *w)
{
    const symbol *gone = &w->symbols[s->at];
    uint32_t order;
    bool fits = m->rules->fits(m, &s->now, gone, &order, &s->now.id);
    assert(fits);
    (void)fits;
    s->now.n += gone->n;
    s->since = s->until;
    do s->at++;
    while ((size_t)s->at < w->n_symbols && w->symbols[s->at].start < s->now.start + s->now.n);
    look_right(s, w);
}

/* Whether no merge crosses the cut between a's symbol number `cut` - 1 and b, which begins there. */
static bool cut_holds(const merger *m, const merge_window *a, int32_t cut, const merge_window *b)
{
    side left = {.at = cut - 1}, right = {.now = b->symbols[0], .at = 1};
    right.now.id = b->first_id;
    right.now.n = (b->n_symbols > 1 ? b->symbols[1].start : (uint32_t)b->end) - b->symbols[0].start;
    look_left(&left, a);
    look_right(&right, b);
    for (;;) {
        uint64_t first = left.until < right.until ? left.until : right.until;
        uint32_t order;
        int32_t id;
        if (m->rules->fits(m, &left.now, &right.now, &order, &id)) {
            uint64_t crossing = (uint64_t)order << 32 | (a->base + (uint32_t)left.at);
            if (crossing < left.since) crossing = left.since;
            if (crossing < right.since) crossing = right.since;
            if (crossing <= first) return false;
        }
        if (first == NEVER) return true;
        if (left.until < right.until) step_left(&left, a);
        else step_right(&right, m, b);
    }
}

/* The last live symbol before index i. */
static int32_t live_before(const merge_window *w, int32_t i)
{
    for (i--; w->symbols[i].next == SWALLOWED;) i--;
    return i;
}

/* Finds a cut of a that holds, with the window that begins there in b; 0 = none of those tried. */
static int find_cut(int32_t *cut, const merger *m, const merge_window *a, merge_window *b, size_t size, status *st)
{
    int32_t at = (int32_t)(a->n_symbols - size / 16);
    for (int i = 0; i < MAX_TRIES && (at = live_before(a, at)) > 0; i++) {
        int rc = merge_window_run(m, b, a->base + (uint32_t)at, a->symbols[at].start, size, st);
        if (rc || cut_holds(m, a, at, b)) {
            *cut = at;
            return rc;
        }
    }
    *cut = 0;
    return ST_OK;
}

static int emit(const merger *m, const merge_window *w, int32_t end, token_list *out, status *st)
{
    int rc = ST_OK;
    for (int32_t i = 0; !rc && i >= 0 && i < end; i = w->symbols[i].next)
        rc = m->rules->emit(m, &w->symbols[i], out, st);
    return rc;
}

/* *done false: no cut of some window holds. */
static int merge_in_windows(merger *m, size_t size, bool *done, token_list *out, status *st)
{
    merge_window *a = &m->windows[0], *b = &m->windows[1];
    *done = true;
    int rc = merge_window_run(m, a, 0, 0, size, st);
    while (!rc && a->end < m->n) {
        int32_t cut;
        rc = find_cut(&cut, m, a, b, size, st);
        if (rc || cut == 0) {
            *done = false;
            return rc;
        }
        rc = emit(m, a, cut, out, st);
        merge_window *next = b;
        b = a;
        a = next;
    }
    return rc ? rc : emit(m, a, (int32_t)a->n_symbols, out, st);
}

int merger_run(merger *m, const char *text, size_t n, token_list *out, status *st)
{
    size_t before = out->n, dropped = out->n_dropped;
    m->text = text;
    m->n = n;
    if (n == 0) return ST_OK;
    for (size_t size = m->window ? m->window : WINDOW;; size = size > n / 8 ? n : size * 8) {
        bool done;
        int rc = merge_in_windows(m, size, &done, out, st);
        if (rc || done) return rc;
        out->n = before;
        out->n_dropped = dropped;
    }
}

void merger_deinit(merger *m)
{
    merge_window_deinit(&m->windows[0]);
    merge_window_deinit(&m->windows[1]);
}
