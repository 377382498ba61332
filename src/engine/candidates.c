#include "engine/candidates.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/mem.h"

bool candidates_init(candidates *s, int n_vocab)
{
    size_t n = (size_t)n_vocab;
    *s = (candidates){.c = mem_array(n, sizeof *s->c),
                      .other = mem_array(n, sizeof *s->other),
                      .weight = mem_array(n, sizeof *s->weight),
                      .logit = mem_array(n, sizeof *s->logit),
                      .n_vocab = n_vocab};
    if (s->c && s->other && s->weight && s->logit) return true;
    candidates_deinit(s);
    return false;
}

void candidates_deinit(candidates *s)
{
    mem_free(s->c);
    mem_free(s->other);
    mem_free(s->weight);
    mem_free(s->logit);
    *s = (candidates){0};
}

/* Unsigned keys whose ascending order is the descending order of the floats; NaN last. */
static uint32_t descending_key(float x)
{
    if (x != x) return UINT32_MAX;
    uint32_t u = float_bits(x == 0 ? 0.0f : x);
    return u & 0x80000000 ? u : ~u & 0x7FFFFFFF;
}

static uint32_t by_logit(candidate c)
{
    return descending_key(c.logit);
}

static uint32_t by_token(candidate c)
{
    return (uint32_t)c.token;
}

/* Stable radix sort, ascending by key: equal keys keep their order. */
static void sort(candidates *s, uint32_t (*key)(candidate))
{
    for (int shift = 0; shift < 32; shift += 8) {
        int start[257] = {0};
        for (int i = 0; i < s->n; i++) start[(key(s->c[i]) >> shift & 0xFF) + 1]++;
        for (int b = 0; b < 256; b++) start[b + 1] += start[b];
        for (int i = 0; i < s->n; i++) s->other[start[key(s->c[i]) >> shift & 0xFF]++] = s->c[i];
        candidate *t = s->c;
        s->c = s->other;
        s->other = t;
    }
}

/* a is less likely than b. */
static bool behind(candidate a, candidate b)
{
    uint32_t ka = descending_key(a.logit), kb = descending_key(b.logit);
    return ka != kb ? ka > kb : a.token > b.token;
}

static void sift_down(candidate *heap, int n, int i)
{
    for (int child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && behind(heap[child + 1], heap[child])) child++;
        if (!behind(heap[child], heap[i])) return;
        candidate t = heap[i];
        heap[i] = heap[child];
        heap[child] = t;
    }
}

/* The k best, in a heap whose root is the worst of them. */
static void select_top(candidates *s, const float *logits, int k)
{
    for (int i = 0; i < k; i++) s->c[i] = (candidate){i, logits[i]};
    for (int i = k / 2 - 1; i >= 0; i--) sift_down(s->c, k, i);
    for (int i = k; i < s->n_vocab; i++) {
        candidate c = {i, logits[i]};
        if (!behind(s->c[0], c)) continue;
        s->c[0] = c;
        sift_down(s->c, k, 0);
    }
    for (int n = k; n > 1; n--) { /* the worst goes to the end */
        candidate t = s->c[0];
        s->c[0] = s->c[n - 1];
        s->c[n - 1] = t;
        sift_down(s->c, n - 1, 0);
    }
    s->n = k;
}

static double weigh(candidates *s, float temperature)
{
    double sum = 0, largest = s->c[0].logit;
    for (int i = 0; i < s->n; i++) {
        double d = s->c[i].logit - largest;
        s->weight[i] = d == d ? exp(d / temperature) : i == 0; /* the first of equal infinities weighs 1 */
        sum += s->weight[i];
    }
    return sum;
}

void candidates_take(candidates *s, const float *logits, int k)
{
    if (k > 0 && k < s->n_vocab) {
        select_top(s, logits, k);
        return;
    }
    for (int i = 0; i < s->n_vocab; i++) s->c[i] = (candidate){i, logits[i]};
    s->n = s->n_vocab;
    sort(s, by_logit);
}

void candidates_typical(candidates *s, float p)
{
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
    sort(s, by_logit);
    double mass = 0;
    int n = 0;
    while (n < s->n && (n == 0 || mass < p)) mass += exp((double)s->logit[s->c[n++].token] - largest) / sum;
    s->n = n;
    for (int i = 0; i < n; i++) s->c[i].logit = s->logit[s->c[i].token];
    sort(s, by_token);
    sort(s, by_logit);
}

void candidates_top_p(candidates *s, float p)
{
    double sum = weigh(s, 1), mass = 0;
    int n = 0;
    while (n < s->n && (n == 0 || mass < p * sum)) mass += s->weight[n++];
    s->n = n;
}

void candidates_min_p(candidates *s, float p)
{
    weigh(s, 1);
    int n = 1;
    while (n < s->n && s->weight[n] >= p * s->weight[0]) n++;
    s->n = n;
}

void candidates_xtc(candidates *s, float threshold)
{
    double sum = weigh(s, 1);
    int above = 0;
    while (above < s->n && s->weight[above] > 0 && s->weight[above] >= threshold * sum) above++;
    if (above < 2) return;
    memmove(s->c, s->c + above - 1, (size_t)(s->n - above + 1) * sizeof *s->c);
    s->n -= above - 1;
}

int32_t candidates_draw(candidates *s, float temperature, double u)
{
    double target = u * weigh(s, temperature), mass = 0;
    for (int i = 0; i < s->n; i++) {
        mass += s->weight[i];
        if (target < mass) return s->c[i].token;
    }
    return s->c[0].token;
}
