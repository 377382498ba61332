/* attention_plan.h - what a built plan holds. Internal: attention_plan.c builds it, attention_run.c runs it.
 *
 *      seq ---> chunks [index of the first place, spans cut at its borders], ascending, those without a span left out
 *      tile     consecutive query rows of one sequence (rows x heads fit one attend call), and the chunks they see
 *      item     (tile, heads of one KV head, run of chunks): one worker's unit
 *                 whole: all chunks of the tile, merged on the way into the output, normalized
 *                 part:  some chunks, each partial into a slot of its own
 *      join     (tile, heads): the slots of its parts, merged in ascending order into the output by whoever ends the last part
 *
 * L1 Items and joins of one plan write disjoint outputs and slots.
 */
#ifndef KVASIR_KERNEL_ATTENTION_PLAN_H
#define KVASIR_KERNEL_ATTENTION_PLAN_H

#include "kernel/attention.h"

typedef struct plan_chunk {
    int64_t begin; /* index of its first place */
    int first_span, n_spans;
    int n_tok; /* held by its spans */
} plan_chunk;

typedef struct plan_seq {
    int first_chunk, n_chunks;
} plan_seq;

typedef struct plan_tile {
    int first_row, n_rows;
    int first_chunk, n_chunks;
    int64_t cost; /* of one item over all its chunks; any unit */
} plan_tile;

typedef struct plan_item {
    int tile, head_block;
    int first_chunk, n_chunks;
    int slot; /* of its first row and chunk; -1 = whole */
    int join; /* of a part */
} plan_item;

typedef struct plan_join {
    int tile, head_block, slot, n_parts;
    _Atomic int n_left; /* parts not yet done in this run; n_parts between runs */
} plan_join;

struct attn_plan {
    const kernels *ks;
    attn_shape shape;
    int group;         /* query heads of a KV head */
    int tile_heads;    /* of those, how many one attend call takes */
    int tile_rows;     /* tile_rows * tile_heads <= ATTEND_ROWS */
    int blocks_per_kv; /* ceil(group / tile_heads) */
    int max_workers, max_rows, max_seqs, max_spans, max_items, max_slots;

    attn_row *rows;     /* [max_rows] */
    plan_seq *seqs;     /* [max_seqs] */
    attn_span *spans;   /* [2 * max_spans], cut at chunk borders */
    plan_chunk *chunks; /* [2 * max_spans] */
    plan_tile *tiles;   /* [max_rows] */
    plan_item *items;   /* [max_items] */
    plan_join *joins;   /* [max_items] */
    int n_rows, n_seqs, n_spans, n_chunks, n_tiles, n_items, n_joins, n_slots;

    /* Slot s of a part: chunk c of the tile, row r of its n = rows * heads lies at slot + c * n + r. */
    float *slot_o;          /* [max_slots][d_v] */
    float *slot_m, *slot_l; /* [max_slots] */
    float *scratch;         /* [max_workers][scratch_floats]: q [ATTEND_ROWS][d_k], scores [ATTEND_ROWS][ATTN_CHUNK],
                              one partial [ATTEND_ROWS][d_v] */
    size_t scratch_floats, slot_bytes, scratch_bytes;
};

/* Heads of a head block: [first, first + n) of all query heads, and the KV head they share. */
typedef struct head_range {
    int kv_head, first, n;
} head_range;

static inline head_range plan_heads(const attn_plan *p, int head_block)
{
    int kv = head_block / p->blocks_per_kv, skip = head_block % p->blocks_per_kv * p->tile_heads;
    int left = p->group - skip;
    return (head_range){kv, kv * p->group + skip, left < p->tile_heads ? left : p->tile_heads};
}

#endif
