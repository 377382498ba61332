/* mem.h - the only door to the heap: checked sizes, accounting, and a hook that makes the n-th allocation fail.
 *
 * M1 Every byte that Kvasir asks for itself goes through here (libraries keep their own heaps).
 * M2 mem_stats().bytes returns to its earlier value when an object is freed: tests hold every module to it.
 * Threads: all functions may be called from any thread (the counters are atomic; they are the one piece of
 * process-wide state in the library, since they mirror a process-wide resource).
 */
#ifndef KVASIR_BASE_MEM_H
#define KVASIR_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

/* Uninitialized memory, NULL on failure; n_bytes 0 gives a unique pointer. Free with mem_free. */
void *mem_alloc(size_t n_bytes);
/* Zeroed array; NULL when count * size overflows or memory is short. */
void *mem_calloc(size_t count, size_t size);
/* Uninitialized array with the same check. */
void *mem_array(size_t count, size_t size);
/* As realloc(3) over count * size bytes; on failure p is still the caller's. */
void *mem_resize(void *p, size_t count, size_t size);
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n);
void mem_free(void *p);
/* Gives free memory, that of libraries too, back to the system: after work that took much. */
void mem_trim(void);

/* Aligned to a power of two of at least 64, backed by mmap and advised to huge pages when large. Zeroed.
 * Free with mem_pages_free and the same size. */
void *mem_pages_alloc(size_t n_bytes);
void mem_pages_free(void *p, size_t n_bytes);

typedef struct mem_counters {
    uint64_t bytes;       /* live now */
    uint64_t peak_bytes;  /* most that were live at once */
    uint64_t live;        /* allocations not yet freed */
    uint64_t calls;       /* allocations ever made: unchanged over a step means that the step allocated nothing */
} mem_counters;
mem_counters mem_stats(void);

/* Tests: the n-th allocation from now (1 = the next) fails, once; 0 disarms. */
void mem_fail_after(int64_t n);

#endif
