/* arena.h - many small objects that die together.
 *
 * Owns: a chain of chunks, each twice the last (up to 1 MiB, or the object's size).
 *
 *      arena -> [chunk: used.....|free] -> [older chunk: full] -> ...
 *
 * AR1 Memory handed out is zeroed and stays where it is until arena_reset or arena_deinit.
 * AR2 arena_reset keeps the newest (largest) chunk, so that a loop that resets allocates nothing after its first
 *     rounds.
 * Threads: one at a time.
 */
#ifndef KVASIR_BASE_ARENA_H
#define KVASIR_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

typedef struct arena {
    struct arena_chunk *head;
    size_t limit_bytes; /* 0 = none: the sum of what may be handed out */
    size_t used_bytes;
} arena;

void arena_init(arena *a, size_t limit_bytes);
void arena_deinit(arena *a);
void arena_reset(arena *a);
/* align: a power of two up to 64. NULL when memory or the limit is short. */
void *arena_alloc(arena *a, size_t n_bytes, size_t align);
void *arena_array(arena *a, size_t count, size_t size); /* aligned to 16; NULL on overflow too */
char *arena_strndup(arena *a, const char *s, size_t n); /* NUL-terminated copy */

#endif
