/* hash.h - XXH3: 64 bits of a stream of bytes (equal logits print equal hashes), 128 bits of some bytes at once. Not
 * for untrusted keys. */
#ifndef KVASIR_BASE_HASH_H
#define KVASIR_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct hash_stream hash_stream;

int hash_new(hash_stream **out, status *st);
void hash_free(hash_stream *h);
void hash_update(hash_stream *h, const void *data, size_t n_bytes);
uint64_t hash_value(const hash_stream *h);

typedef struct hash128 {
    uint64_t low, high;
} hash128;

hash128 hash128_of(const void *data, size_t n_bytes);

#endif
