/* small_cache.h - a cache of two groups like a small Gemma-3's, and rows in it that tell which token they belong to.
 *
 *      group 0   layers 0 and 2, which see everything        group 1   layer 1, which sees a window of WINDOW tokens
 *
 * Whatever fails here fails the test.
 */
#ifndef KVASIR_TESTS_SMALL_CACHE_H
#define KVASIR_TESTS_SMALL_CACHE_H

#include "cache/cache.h"

enum { WINDOW = 20, STEP = 24 };
extern const int GLOBAL_LAYERS[2];
extern const kv_group GROUPS[2];

/* Up to three sequences and steps of STEP tokens; memory_bytes 0 = as much as they need. */
kv_cache_config config_of(int block_tokens, const char *format, uint64_t max_tokens, uint64_t memory_bytes);
kv_cache *make_cache(kv_cache_config config);
kv_seq *make_seq(kv_cache *c);
void audit(const kv_cache *c);
void must(int rc, const status *st);

void append(kv_seq *s, int n);
void truncate_to(kv_seq *s, int64_t n);
kv_seq *fork_at(const kv_seq *s, int64_t n);
void draft(kv_seq *s, int n);

/* A row of every layer and head of the group: numbers, exact in f16, that follow from the serial number. */
void write_row(const kv_cache *c, int group, kv_place at, uint32_t serial);
void check_row(const kv_cache *c, int group, const uint8_t *block, int row, uint32_t serial);

#endif
