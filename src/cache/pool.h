/* pool.h - physical blocks of one size on one memory.
 *
 * Owns: one run of pages, cut into n_blocks blocks; a state and a reference count for each.
 *
 *      FREE --pool_take--> IN_USE (refs 1) --pool_ref/unref--> refs 0 --> FREE
 *                            |                                   \--> CACHED, when kept (the tree has it; refs 0)
 *                            |                                           |--pool_ref--> IN_USE
 *                            |                                           \--pool_drop--> FREE
 *                            \--pool_begin_move--> IN_FLIGHT --pool_end_move--> IN_USE, CACHED or FREE
 *
 * P1 free + cached + in use + in flight = total, after every operation (I3); pool_audit recounts.
 * P2 A block of refs > 0 is never given out again; a FREE block has refs 0.
 * P3 A block is IN_FLIGHT exactly while its location is LOADING or SAVING. References may come and go meanwhile; its
 *    bytes are nobody's but the mover's. What it is afterwards, references and the keeper decide.
 * P4 A block's bytes are written only by the sequence whose tail it is; blocks with more than one reference and kept
 *    ones are never written.
 * P5 Nothing allocates after pool_new; every operation but the audit takes constant time.
 * Threads: one writer (the engine's step).
 */
#ifndef KVASIR_CACHE_POOL_H
#define KVASIR_CACHE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct pool pool;
typedef uint32_t block_id;
#define BLOCK_NONE UINT32_MAX

typedef enum block_state { BLOCK_FREE, BLOCK_IN_USE, BLOCK_CACHED, BLOCK_IN_FLIGHT } block_state;

/* Where a block's bytes are, and whether they can be read: tiers and peers move blocks, readers ask. */
typedef enum block_device { BLOCK_ON_RAM, BLOCK_ON_DEVICE, BLOCK_ON_DISK, BLOCK_ON_REMOTE } block_device;
typedef enum block_ready { BLOCK_READY, BLOCK_LOADING, BLOCK_SAVING } block_ready;
typedef struct block_location {
    block_device device;
    block_ready ready;
} block_location;

typedef struct pool_counts {
    uint32_t total, free, cached, in_use, in_flight;
} pool_counts;

/* block_bytes: a multiple of 64; every block is aligned to that. n_blocks: 1 .. BLOCK_NONE - 1. */
int pool_new(pool **out, uint64_t block_bytes, uint32_t n_blocks, status *st);
void pool_free(pool *p);
uint64_t pool_block_bytes(const pool *p);
uint8_t *pool_block(const pool *p, block_id id);

block_id pool_take(pool *p); /* refs 1; BLOCK_NONE when no block is free */
void pool_ref(pool *p, block_id id);
void pool_unref(pool *p, block_id id);
/* The radix tree keeps the block from now on: without references it is CACHED instead of FREE. Not for FREE blocks, nor
 * twice. */
void pool_keep(pool *p, block_id id);
void pool_drop(pool *p, block_id id); /* the tree evicts: CACHED -> FREE; one in use lives on until its last unref */
bool pool_kept(const pool *p, block_id id);
/* IN_USE or CACHED -> IN_FLIGHT; where: the other end of the move, LOADING from it or SAVING to it. */
void pool_begin_move(pool *p, block_id id, block_location where);
void pool_end_move(pool *p, block_id id); /* back to IN_USE (refs > 0), CACHED (kept) or FREE, READY on RAM */

uint32_t pool_refs(const pool *p, block_id id);
block_state pool_state(const pool *p, block_id id);
block_location pool_location(const pool *p, block_id id);
size_t pool_block_overhead(void); /* bytes of bookkeeping that each block costs */
pool_counts pool_count(const pool *p);
/* Recounts from scratch; ST_OK, or ST_FORMAT with what does not add up. refs (may be NULL): the counts that holders
 * know of, by id. */
int pool_audit(const pool *p, const uint32_t *refs, status *st);

#endif
