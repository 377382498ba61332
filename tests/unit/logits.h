/* logits.h - random logits, and the order that candidates must come in. */
#ifndef KVASIR_TESTS_LOGITS_H
#define KVASIR_TESTS_LOGITS_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

static uint64_t random_state = 11;

static inline uint32_t roll(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

static inline float roll_float(float most)
{
    return ((float)roll(1 << 20) / (1 << 19) - 1) * most;
}

#define VOCAB 300

/* Descending by logit, NaN last, ties by id: the order that everything rests on. */
static const float *order_logits;

static inline int by_order(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    float fx = order_logits[x], fy = order_logits[y];
    if (isnan(fx) != isnan(fy)) return isnan(fx) ? 1 : -1;
    if (fx > fy || fx < fy) return fx > fy ? -1 : 1;
    return x < y ? -1 : x > y;
}

static inline void sorted(const float *logits, int n, int32_t *ids)
{
    for (int i = 0; i < n; i++) ids[i] = i;
    order_logits = logits;
    qsort(ids, (size_t)n, sizeof *ids, by_order);
}

#endif
