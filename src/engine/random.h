/* random.h - random numbers without a state: Philox 4x32-10 (Salmon et al., SC 2011), keyed by the seed, counted by
 * what the draw is for. */
#ifndef KVASIR_ENGINE_RANDOM_H
#define KVASIR_ENGINE_RANDOM_H

#include <stdint.h>

typedef enum random_purpose { RANDOM_TOKEN, RANDOM_XTC } random_purpose;

void random_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
/* Uniform in [0, 1), 53 bits. */
double random_uniform(uint64_t seed, uint32_t choice, int64_t position, random_purpose purpose);

#endif
