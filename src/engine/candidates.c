#include "engine/candidates.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/mem.h"

#define FIRST_SPANS 8  /* ranked at first: what reaches the largest of the eighth span, so eight at least */
#define MOST_SPANS 128 /* then of four times as many, up to this; then counts decide */
#define BUCKETS 1024
#define STRIDE 16 /* one logit of so many is counted */
#define FAR_BUCKETS 256

bool candidates_init(candidates *s, const kernels *ks, int n_vocab)
{
    size_t n = (size_t)n_vocab;
    int n_spans = (n_vocab + SPAN - 1) / SPAN;
    *s = (candidates){.ks = ks,
                      .c = mem_array(n, sizeof *s->c),
                      .other = mem_array(n, sizeof *s->other),
                      .count = mem_array(BUCKETS, sizeof *s->count),
                      .spans = mem_array((size_t)n_spans, sizeof *s->spans),
                      .weight = mem_array(n, sizeof *s->weight),
                      .found = mem_array(SPAN, sizeof *s->found),
                      .logit = mem_array(n, sizeof *s->logit),
                      .n_vocab = n_vocab,
                      .n_spans = n_spans};
    if (s->c && s->other && s->count && s->spans && s->weight && s->found && s->logit) return true;
    candidates_deinit(s);
    return false;
}

void candidates_deinit(candidates *s)
{
    mem_free(s->c);
    mem_free(s->other);
    mem_free(s->count);
    mem_free(s->spans);
    mem_free(s->weight);
    mem_free(s->found);
    mem_free(s->logit);
    *s = (candidates){0};
}

/* Unsigned keys whose ascending order is the descending order of the logits; NaN last. */
static uint32_t by_logit(candidate c)
{
    if (c.logit != c.logit) return UINT32_MAX;
    uint32_t u = float_bits(c.logit == 0 ? 0.0f : c.logit);
    return u & 0x80000000 ? u : ~u & 0x7FFFFFFF;
}

static uint32_t by_token(candidate c)
{
    return (uint32_t)c.token;
}

/* Stable radix sort, ascending by key: equal keys keep their order. */
static void sort(candidate *c, candidate *other, int n, uint32_t (*key)(candidate))
{
    for (int shift = 0; shift < 32; shift += 8) { /* an even number of times: the last one ends in c */
        int start[257] = {0};
        for (int i = 0; i < n; i++) start[(key(c[i]) >> shift & 0xFF) + 1]++;
        for (int b = 0; b < 256; b++) start[b + 1] += start[b];
        for (int i = 0; i < n; i++) other[start[key(c[i]) >> shift & 0xFF]++] = c[i];
        candidate *t = c;
        c = other;
        other = t;
    }
}

static void rank_all(candidates *s)
{
    if (s->n_ranked == s->n) return;
    for (int i = 0; i < s->n_vocab; i++) s->c[i] = (candidate){i, s->logits[i]};
    sort(s->c, s->other, s->n_vocab, by_logit);
    s->n_ranked = s->n;
}

/* How much further to rank: so many more, and until their weights at this temperature come to that mass, both as far as
 * a sample tells. */
typedef struct goal {
    int n;
    double mass;
    float temperature;
} goal;

/* Counts a sample of the logits by how far below the largest they are; the last bucket takes the rest. */
static void count_buckets(candidates *s)
{
    float top = s->spans[0].logit;
    s->width = (top - s->least) / 64;
    memset(s->count, 0, BUCKETS * sizeof *s->count);
    if (s->width <= 0) return;
    float per_width = 1 / s->width;
    for (int i = 0; i < s->n_vocab; i += STRIDE) {
        float b = (top - s->logits[i]) * per_width;
        s->count[b < BUCKETS - 1 ? (int)b : BUCKETS - 1]++;
    }
}

/* The largest of spans lead no further. */
static bool far_down(const candidates *s)
{
    return s->n_open >= MOST_SPANS || s->n_open == s->n_spans;
}

/* A "least" lower than that: the largest of the spans that come next; later what the counts say. -INFINITY: all. */
static float next_least(candidates *s, float below, const goal *until)
{
    if (!far_down(s)) {
        s->n_open = s->n_open ? 4 * s->n_open : FIRST_SPANS;
        if (s->n_open > s->n_spans) s->n_open = s->n_spans;
        float least = s->spans[s->n_open - 1].logit;
        while (s->n_open < s->n_spans && s->spans[s->n_open].logit == least) s->n_open++;
        return least;
    }
    if (!s->counted) count_buckets(s);
    s->counted = true;
    int64_t n = 0;
    double mass = 0;
    float least = below;
    for (int b = 0; b < BUCKETS - 1; b++) {
        least = s->spans[0].logit - (float)(b + 1) * s->width;
        if (least >= below) continue;
        n += (int64_t)STRIDE * s->count[b];
        mass += STRIDE * s->count[b] * exp(-(b + 0.5) * s->width / until->temperature);
        if (n >= until->n && mass >= until->mass) return least;
    }
    return least < below ? least : -INFINITY;
}

/* Puts those from least up to below into c from `end` on, in the order of tokens; returns their end. */
static int collect(candidates *s, float least, float below, int end)
{
    for (int g = 0; g < s->n_spans; g++) {
        if (s->span_max[g] < least) continue;
        int first = g * SPAN, n = s->n_vocab - first < SPAN ? s->n_vocab - first : SPAN;
        n = s->ks->find_between(s->logits + first, n, least, below, s->found);
        for (int k = 0; k < n; k++) s->c[end++] = (candidate){first + s->found[k], s->logits[first + s->found[k]]};
    }
    return end;
}

/* Ranks those that come next, if there are any before the next least. */
static void rank_more(candidates *s, const goal *until)
{
    int begin = s->n_ranked;
    float below = begin ? s->least : INFINITY, least = next_least(s, below, until);
    if (least == -INFINITY) {
        rank_all(s);
        return;
    }
    int end = collect(s, least, below, begin);
    sort(s->c + begin, s->other, end - begin, by_logit);
    s->least = least;
    s->n_ranked = end;
}

void candidates_take(candidates *s, const float *logits, const float *span_max, int k)
{
    s->logits = logits;
    s->span_max = span_max;
    s->n = s->n_vocab;
    s->n_ranked = s->n_open = 0;
    s->counted = false;
    if (span_max) {
        for (int g = 0; g < s->n_spans; g++) s->spans[g] = (candidate){g, span_max[g]};
        sort(s->spans, s->other, s->n_spans, by_logit);
    }
    if (!span_max || s->spans[0].logit == -INFINITY) rank_all(s);
    else rank_more(s, NULL);
    if (k <= 0) return;
    while (s->n_ranked < k) rank_more(s, &(goal){k - s->n_ranked, 0, 1});
    s->n = s->n_ranked = k;
}

/* The weights of the ranked, and their sum. */
static double weigh(candidates *s, float temperature)
{
    double sum = 0, largest = s->c[0].logit;
    for (int i = 0; i < s->n_ranked; i++) {
        double d = s->c[i].logit - largest;
        s->weight[i] = d == d ? exp(d / temperature) : i == 0; /* the first of equal infinities weighs 1 */
        sum += s->weight[i];
    }
    return sum;
}

/* What the sum of the weights of all in play, added up in their order, lies between. */
typedef struct bounds {
    double low, high;
    bool quick; /* they could be closer */
} bounds;

/* Weighs. While not all are ranked, the whole row is in play: the sum is the kernel's, which is within 1e-11 or 5e-6 of
 * the true one; n additions of positive numbers, in whatever order, are within n * 2^-53 of it: those of the sum, those
 * up to a place in the order and those that draw_far makes instead, and as much again is for the exponentials'
 * own rounding. */
static bounds sum_of_weights(candidates *s, float temperature, bool quick)
{
    double sum = weigh(s, temperature);
    if (s->n_ranked == s->n) return (bounds){sum, sum, false};
    assert(s->n == s->n_vocab);
    quick &= temperature >= 1e-3f && s->n_vocab <= 1 << 24;
    sum = quick ? s->ks->sum_exp_f32(s->logits, s->n_vocab, s->c[0].logit, 1 / temperature)
                : s->ks->sum_exp(s->logits, s->n_vocab, s->c[0].logit, 1.0 / temperature);
    double off = sum * ((quick ? 5e-6 : 1e-11) + s->n_vocab * 0x1p-51);
    return (bounds){sum - off, sum + off, quick};
}

/* Weighs after more have been ranked. */
static void weigh_more(candidates *s, float temperature, bounds *sum)
{
    double ranked = weigh(s, temperature);
    if (s->n_ranked == s->n) *sum = (bounds){ranked, ranked, false};
}

enum { UNDECIDED = -1 };

/* Adds weights to *mass until it reaches the target (beyond: is more than it). How many it takes; 0: all are too few;
 * UNDECIDED: that differs within the bounds. */
static int walk(const double *weight, int n_weights, double *mass, bounds target, bool beyond)
{
    for (int n = 0; n < n_weights; n++) {
        *mass += weight[n];
        if (beyond ? *mass > target.high : *mass >= target.high) return n + 1;
        if (beyond ? *mass > target.low : *mass >= target.low) return UNDECIDED;
    }
    return 0;
}

static double weight_of(const candidates *s, candidate c, float temperature)
{
    return exp(((double)c.logit - s->c[0].logit) / temperature);
}

typedef struct buckets {
    float top, per_width;
} buckets;

/* Ascends as logits descend. */
static int bucket(buckets b, float logit)
{
    float i = (b.top - logit) * b.per_width;
    return i < FAR_BUCKETS - 1 ? (int)i : FAR_BUCKETS - 1;
}

/* As reach, for a draw behind the ranked, whose mass is given: collects the next ones until they should hold it, tells
 * by buckets of logits where among them it is, and orders the candidates of that bucket. They are left behind the
 * ranked. */
static int draw_far(candidates *s, float temperature, double mass, bounds target, double all)
{
    int begin = s->n_ranked, end = begin, b = FAR_BUCKETS, n = begin;
    float least = s->least;
    buckets range = {0};
    while (b == FAR_BUCKETS) {
        range.top = least;
        double sum[FAR_BUCKETS] = {0};
        double missing = target.high - mass;
        missing += fmin(missing, all - target.high) / 8; /* the sample may tell too much */
        least = next_least(s, range.top, &(goal){begin, missing, temperature});
        if (least == -INFINITY) return UNDECIDED;
        end = collect(s, least, range.top, begin);
        range.per_width = FAR_BUCKETS / (range.top - least);
        for (int i = begin; i < end; i++) sum[bucket(range, s->c[i].logit)] += weight_of(s, s->c[i], temperature);
        for (b = 0; b < FAR_BUCKETS && mass + sum[b] <= target.low;) mass += sum[b++];
    }
    for (int i = begin; i < end; i++)
        if (bucket(range, s->c[i].logit) == b) s->c[n++] = s->c[i];
    sort(s->c + begin, s->other, n - begin, by_logit);
    for (int i = begin; i < n; i++) s->weight[i] = weight_of(s, s->c[i], temperature);
    n = walk(s->weight + begin, n - begin, &mass, target, true);
    return n > 0 ? begin + n : UNDECIDED;
}

/* How many of the most likely it takes until their weights, added up, reach that share of the sum of all (beyond: are
 * more than it); 0 where all together don't. Those are ranked; beyond: at least the last of them is in its place. */
static int reach(candidates *s, float temperature, double share, bool beyond)
{
    bounds sum = sum_of_weights(s, temperature, true);
    for (;;) {
        double mass = 0;
        bounds target = {share * sum.low, share * sum.high, sum.quick};
        int n = walk(s->weight, s->n_ranked, &mass, target, beyond);
        bool more = n == 0 && s->n_ranked < s->n;
        if (more && beyond && far_down(s)) n = draw_far(s, temperature, mass, target, sum.high);
        if (n > 0 || s->n_ranked == s->n) return n;
        if (n == UNDECIDED && sum.quick) {
            sum = sum_of_weights(s, temperature, false);
            continue;
        }
        if (n == UNDECIDED) rank_all(s);
        else rank_more(s, &(goal){s->n_ranked, target.high - mass, temperature});
        weigh_more(s, temperature, &sum);
    }
}

void candidates_typical(candidates *s, float p)
{
    rank_all(s);
    double sum = weigh(s, 1), entropy = 0;
    for (int i = 0; i < s->n; i++)
        if (s->weight[i] > 0) entropy -= s->weight[i] / sum * log(s->weight[i] / sum);
    /* Closeness of surprise to entropy takes the logits' place while the mass is counted. */
    float largest = s->c[0].logit;
    for (int i = 0; i < s->n; i++) {
        s->logit[s->c[i].token] = s->c[i].logit;
        double surprise = s->weight[i] > 0 ? -log(s->weight[i] / sum) : INFINITY;
        s->c[i].logit = (float)-fabs(surprise - entropy);
    }
    sort(s->c, s->other, s->n, by_logit);
    double mass = 0;
    int n = 0;
    while (n < s->n && (n == 0 || mass < p)) mass += exp((double)s->logit[s->c[n++].token] - largest) / sum;
    s->n = s->n_ranked = n;
    for (int i = 0; i < n; i++) s->c[i].logit = s->logit[s->c[i].token];
    sort(s->c, s->other, n, by_token);
    sort(s->c, s->other, n, by_logit);
}

void candidates_top_p(candidates *s, float p)
{
    int n = reach(s, 1, p, false);
    if (n) s->n = s->n_ranked = n;
}

void candidates_min_p(candidates *s, float p)
{
    for (;;) {
        weigh(s, 1);
        int n = 1;
        while (n < s->n_ranked && s->weight[n] >= p * s->weight[0]) n++;
        if (n == s->n_ranked && n < s->n) {
            rank_more(s, &(goal){3 * s->n_ranked, 0, 1});
            continue;
        }
        s->n = s->n_ranked = n;
        return;
    }
}

/* How many of the ranked have at least that weight, and some. */
static int count_from(const candidates *s, double weight)
{
    int n = 0;
    while (n < s->n_ranked && s->weight[n] > 0 && s->weight[n] >= weight) n++;
    return n;
}

void candidates_xtc(candidates *s, float threshold)
{
    bounds sum = sum_of_weights(s, 1, false);
    int above;
    for (;;) {
        above = count_from(s, threshold * sum.low);
        bool sure = above == count_from(s, threshold * sum.high);
        if (s->n_ranked == s->n || (sure && above < s->n_ranked)) break;
        if (!sure) rank_all(s);
        else rank_more(s, &(goal){3 * s->n_ranked, 0, 1});
        weigh_more(s, 1, &sum);
    }
    if (above < 2) return;
    rank_all(s); /* the bounds hold for a whole row */
    memmove(s->c, s->c + above - 1, (size_t)(s->n - above + 1) * sizeof *s->c);
    s->n -= above - 1;
    s->n_ranked = s->n;
}

int32_t candidates_draw(candidates *s, float temperature, double u)
{
    int n = reach(s, temperature, u, true);
    return s->c[n ? n - 1 : 0].token;
}
