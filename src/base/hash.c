#include "base/hash.h"

#define XXH_STATIC_LINKING_ONLY /* the size of a state, for the message */
#include <xxhash.h>

/* The state comes from the library's own allocator: it wants an alignment of 64. */
int hash_new(hash_stream **out, status *st)
{
    XXH3_state_t *s = XXH3_createState();
    if (!s) return status_nomem(st, sizeof *s);
    XXH3_64bits_reset(s);
    *out = (hash_stream *)s;
    return ST_OK;
}

void hash_free(hash_stream *h)
{
    XXH3_freeState((XXH3_state_t *)h);
}

void hash_update(hash_stream *h, const void *data, size_t n_bytes)
{
    XXH3_64bits_update((XXH3_state_t *)h, data, n_bytes);
}

uint64_t hash_value(const hash_stream *h)
{
    return XXH3_64bits_digest((const XXH3_state_t *)h);
}

hash128 hash128_of(const void *data, size_t n_bytes)
{
    XXH128_hash_t h = XXH3_128bits(data, n_bytes);
    return (hash128){h.low64, h.high64};
}
