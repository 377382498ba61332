/* seed.h - everything but tokens and salt that changes a block's bytes, in 32 of them: what the keys of blocks start
 * from (I4).
 *
 *      SHA-256(version of the kernels' arithmetic, model's fingerprint, context that chose its RoPE factors, kernels'
 *      level, exact or not, format, tokens of a block)
 *
 * Threads: pure.
 */
#ifndef KVASIR_ENGINE_SEED_H
#define KVASIR_ENGINE_SEED_H

#include "cache/cache.h"
#include "model/model.h"

/* Goes up when a change to the kernels or to a format changes bits. */
#define SEED_VERSION 2

int engine_seed(uint8_t out[32], const model *m, const kv_format *format, int block_tokens, bool exact, status *st);

#endif
