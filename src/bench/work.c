#include "bench/work.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/random.h"

/* The mix is log-normal. With these medians and spreads, and the bounds below, prompts have 161 tokens in the mean and
 * answers 338: the figures of ShareGPT's conversations in the paper on PagedAttention (arXiv 2309.06180). The bounds
 * are those of the public serving benchmarks over that set. */
#define MIX_PROMPT_MEDIAN 104.
#define MIX_PROMPT_SIGMA 1.1
#define MIX_ANSWER_MEDIAN 244.
#define MIX_ANSWER_SIGMA 0.9
#define MIX_LEAST 4
#define MIX_MOST_PROMPT 1024
#define MIX_MOST 2048 /* together */

#define AGENTS_SHARED 5000
#define AGENTS_OWN 60
#define AGENTS_ANSWER 32

#define CHAT_TURNS 4
#define CHAT_FIRST 200
#define CHAT_NEXT 80
#define CHAT_ANSWER 48

#define TREE_PROMPT 512
#define TREE_MORE 16
#define TREE_ANSWER 32
#define TREE_BRANCHES 4
#define TREE_KEPT 2
#define TREE_ITEMS (1 + 2 * TREE_KEPT)

#define LAST_ARRIVAL_S 1e9 /* times are in ns, in 64 bits */

const char *work_name(work_kind k)
{
    static const char *const names[] = {"fixed", "mix", "agents", "chat", "tree"};
    return names[k];
}

typedef enum draw_purpose { DRAW_TOKEN, DRAW_LENGTH, DRAW_ARRIVAL } draw_purpose;
#define OF_ALL UINT32_MAX /* instead of an item's number: of what all share */

/* Uniform in [0, 1): the i-th number for that purpose. */
static double draw(uint64_t seed, draw_purpose purpose, uint32_t number, uint32_t i)
{
    const uint32_t counter[4] = {i, number, (uint32_t)purpose, 0}, key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t bits[4];
    random_philox(counter, key, bits);
    return (double)(((uint64_t)bits[1] << 32 | bits[0]) >> 11) * 0x1p-53;
}

static double draw_normal(uint64_t seed, draw_purpose purpose, uint32_t number, uint32_t i)
{
    double radius = sqrt(-2 * log(1 - draw(seed, purpose, number, 2 * i)));
    return radius * cos(2 * 3.14159265358979323846 * draw(seed, purpose, number, 2 * i + 1));
}

void work_mix_lengths(uint64_t seed, uint32_t number, int *prompt, int *answer)
{
    uint32_t i = 0;
    do {
        double p = MIX_PROMPT_MEDIAN * exp(MIX_PROMPT_SIGMA * draw_normal(seed, DRAW_LENGTH, number, i++));
        double a = MIX_ANSWER_MEDIAN * exp(MIX_ANSWER_SIGMA * draw_normal(seed, DRAW_LENGTH, number, i++));
        *prompt = p < MIX_MOST ? (int)(p + 0.5) : MIX_MOST;
        *answer = a < MIX_MOST ? (int)(a + 0.5) : MIX_MOST;
    } while (*prompt < MIX_LEAST || *answer < MIX_LEAST || *prompt > MIX_MOST_PROMPT || *prompt + *answer > MIX_MOST);
}

/* A workload in the making. */
typedef struct maker {
    workload *w;
    const work_config *c;
    size_t max_ids;
    double arrival_s; /* of the last item that follows nothing */
} maker;

static int scaled(const maker *m, int n)
{
    int s = (int)(n * m->c->scale + 0.5);
    return s > 1 ? s : 1;
}

/* n more tokens, which keep clear of the vocabulary's ends, where special tokens live. */
static int add_ids(maker *m, uint32_t number, int n, status *st)
{
    workload *w = m->w;
    if (w->n_ids + (size_t)n > m->max_ids) {
        size_t more = 2 * (w->n_ids + (size_t)n);
        int32_t *ids = mem_resize(w->ids, more, sizeof *ids);
        if (!ids) return status_nomem(st, (uint64_t)more * sizeof *ids);
        w->ids = ids;
        m->max_ids = more;
    }
    int margin = m->c->n_vocab > 2000 ? 1000 : 0;
    for (int i = 0; i < n; i++)
        w->ids[w->n_ids++] =
            margin + (int32_t)(draw(m->c->seed, DRAW_TOKEN, number, (uint32_t)i) * (m->c->n_vocab - 2 * margin));
    return ST_OK;
}

/* The next item: own tokens, of which the first `shared` are the same in all items. */
static int add_item(maker *m, work_item item, int shared, int own, status *st)
{
    workload *w = m->w;
    uint32_t number = (uint32_t)w->n_items;
    item.first = w->n_ids;
    item.n_ids = shared + own;
    if ((shared && add_ids(m, OF_ALL, shared, st)) || add_ids(m, number, own, st)) return st->code;
    item.n_prompt = item.n_ids;
    if (item.follows != WORK_NOTHING) {
        const work_item *before = &w->items[item.follows];
        item.n_prompt += before->n_prompt + before->n_answer;
    } else if (m->c->rate > 0) {
        m->arrival_s -= log(1 - draw(m->c->seed, DRAW_ARRIVAL, number, 0)) / m->c->rate;
        item.arrival_s = m->arrival_s;
        if (m->arrival_s > LAST_ARRIVAL_S)
            return status_set(st, ST_ARG, STATUS_NO_POS,
                              "request %u comes only after %.3g s; a higher --rate or fewer --requests", number,
                              m->arrival_s);
    }
    item.first_answer = (size_t)w->n_answers;
    w->n_answers += item.n_branches;
    w->prompt_tokens += (uint64_t)item.n_branches * (uint64_t)item.n_prompt;
    w->answer_tokens += (uint64_t)item.n_branches * (uint64_t)item.n_answer;
    if (item.n_prompt + item.n_answer > w->longest) w->longest = item.n_prompt + item.n_answer;
    if (item.n_branches > w->max_branches) w->max_branches = item.n_branches;
    w->items[w->n_items++] = item;
    return ST_OK;
}

static int add_alone(maker *m, int shared, int own, int answer, status *st)
{
    return add_item(m, (work_item){.follows = WORK_NOTHING, .n_branches = 1, .n_answer = scaled(m, answer)},
                    shared ? scaled(m, shared) : 0, scaled(m, own), st);
}

static int make_single(maker *m, status *st)
{
    const work_config *c = m->c;
    for (int i = 0; i < c->n_answers && !st->code; i++) {
        int prompt = c->prompt, answer = c->answer;
        if (c->kind == WORK_MIX) work_mix_lengths(c->seed, (uint32_t)i, &prompt, &answer);
        if (c->kind == WORK_AGENTS) add_alone(m, AGENTS_SHARED, AGENTS_OWN, AGENTS_ANSWER, st);
        else add_alone(m, 0, prompt, answer, st);
    }
    return st->code;
}

/* Turn by turn, all conversations: those that wait for their next turn leave their blocks to the cache. */
static int make_chat(maker *m, status *st)
{
    int n = (m->c->n_answers + CHAT_TURNS - 1) / CHAT_TURNS;
    for (int i = 0; i < n * CHAT_TURNS && !st->code; i++)
        add_item(m,
                 (work_item){.follows = i < n ? WORK_NOTHING : i - n,
                             .n_branches = 1,
                             .n_answer = scaled(m, CHAT_ANSWER)},
                 0, scaled(m, i < n ? CHAT_FIRST : CHAT_NEXT), st);
    return st->code;
}

static int make_tree(maker *m, status *st)
{
    int per_tree = TREE_ITEMS * TREE_BRANCHES, n = (m->c->n_answers + per_tree - 1) / per_tree;
    for (int i = 0; i < n * TREE_ITEMS && !st->code; i++) {
        int place = i % TREE_ITEMS, root = i - place; /* place: 0 the root, 1.. its best ones, then the best of each */
        work_item item = {.follows = place == 0           ? WORK_NOTHING
                                     : place <= TREE_KEPT ? root
                                                          : i - TREE_KEPT,
                          .rank = place >= 1 && place <= TREE_KEPT ? place - 1 : 0,
                          .n_branches = TREE_BRANCHES,
                          .n_answer = scaled(m, TREE_ANSWER)};
        add_item(m, item, 0, scaled(m, place ? TREE_MORE : TREE_PROMPT), st);
    }
    return st->code;
}

int workload_new(workload *out, const work_config *c, status *st)
{
    *out = (workload){0};
    maker m = {.w = out, .c = c};
    size_t most = (size_t)c->n_answers + (CHAT_TURNS > TREE_ITEMS ? CHAT_TURNS : TREE_ITEMS);
    out->items = mem_calloc(most, sizeof *out->items);
    if (!out->items) return status_nomem(st, most * sizeof *out->items);
    int rc = c->kind == WORK_CHAT ? make_chat(&m, st) : c->kind == WORK_TREE ? make_tree(&m, st) : make_single(&m, st);
    if (rc) workload_free(out);
    return rc;
}

void workload_free(workload *w)
{
    mem_free(w->items);
    mem_free(w->ids);
    *w = (workload){0};
}
