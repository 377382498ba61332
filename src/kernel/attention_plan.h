/* attention_plan.h - what a built plan holds. Internal: attention_plan.c and attention_share.c build it,
 * attention_run.c runs it.
 *
 *      seq ---> chunks [kind, index of the first place, spans cut at its borders], ascending, those without a span left
 *               out
 *      group    query rows of one sequence (rows x heads fit one attend call), and the chunks they see
 *      tile     one or more groups, and a run of chunks that all of them see. Cascade: where the spans of several
 *               sequences are the same, one tile holds their groups:
 *
 *                   chunks      0    1    2 | 3    4 | 5 ...         12 groups and 4 share chunks 0..2,
 *                   tile A  [ 16 groups     ]                        the 4 also 3 and 4; what is left
 *                   tile B                  [ 4      ]               of a sequence is a tile of its group alone
 *                   tiles C..                        [ 1 each, from 3 or 5 on ]
 *
 *      item     (tile, heads of one KV head, run of its chunks): one worker's unit
 *                 whole: all chunks of a group that no other tile has, merged on the way into the output, normalized
 *                 part:  each chunk's partial of each row into a slot of its own; a part that begins at the first chunk
 *                        of all its groups merges its chunks on the way, into that one's slot
 *      join     (group, heads): its slots, merged in ascending order into the output by whoever ends the last part
 *
 * AP1 Items and joins of one plan write disjoint outputs and slots.
 * AP2 A group either has slots for all its chunks, each written by one part for each head, or is one whole tile.
 */
#ifndef KVASIR_KERNEL_ATTENTION_PLAN_H
#define KVASIR_KERNEL_ATTENTION_PLAN_H

#include "kernel/attention.h"

typedef struct plan_chunk {
    int64_t begin; /* index of its first place */
    attn_kind kind;
    int first_span, n_spans;
    int n_tok; /* held by its spans */
    /* For cascade, of chunks seen by a group that may share: */
    int group;
    int next;    /* the next group's chunk of the same spans; -1 = none */
    bool leads;  /* the first of those */
    bool shared; /* a tile of several groups has it */
} plan_chunk;

typedef struct plan_seq {
    int first_chunk, n_chunks;
    int first_row, n_rows; /* in plan.order */
} plan_seq;

typedef struct plan_group {
    int first_row, n_rows; /* in plan.order */
    int first_chunk, n_chunks;
    int slot;     /* its first; -1 = none */
    int n_folded; /* chunks whose partials one part merges, in order, into the slot of the first */
} plan_group;

/* A group of a tile, and its own sequence's name for the tile's first chunk. */
typedef struct plan_member {
    int group, first_chunk;
} plan_member;

typedef struct plan_tile {
    int first_member, n_members;
    int n_rows;
    int first_chunk, n_chunks; /* by the first member's name */
    int64_t cost;              /* of one item over all its chunks; any unit */
} plan_tile;

typedef struct plan_item {
    int tile, head_block;
    int first_chunk, n_chunks; /* counted from the tile's first */
    bool folds;
} plan_item;

typedef struct plan_join {
    int n_parts;
    _Atomic int n_left; /* parts not yet done in this run; n_parts between runs */
} plan_join;

struct attn_plan {
    const kernels *ks;
    attn_shape shape;
    int group;         /* query heads of a KV head */
    int tile_heads;    /* of those, how many one attend call takes */
    int group_rows;    /* rows of a group */
    int blocks_per_kv; /* ceil(group / tile_heads) */
    int head_blocks;
    int max_workers, max_rows, max_seqs, max_spans, max_shares, max_tiles, max_items, max_slots;

    attn_row *rows;       /* [max_rows] */
    int *order;           /* [max_rows] rows by sequence */
    plan_seq *seqs;       /* [max_seqs] */
    attn_span *spans;     /* [2 * max_spans], cut at chunk borders */
    plan_chunk *chunks;   /* [2 * max_spans] */
    int *table;           /* [table_size] chunks by their spans */
    plan_group *groups;   /* [max_rows] */
    plan_member *members; /* [max_rows + 2 * max_shares] */
    plan_tile *tiles;     /* [max_tiles] */
    plan_item *items;     /* [max_items] */
    plan_join *joins;     /* [max_rows][head_blocks] by group */
    int n_rows, n_seqs, n_spans, n_chunks, n_groups, n_members, n_tiles, n_shared_tiles, n_items, n_slots;

    float *slot_o;          /* [max_slots][d_v] */
    float *slot_m, *slot_l; /* [max_slots] */
    float *scratch;         /* [max_workers][scratch_floats]: q [ATTEND_ROWS][d_k], scores [ATTEND_ROWS][ATTN_CHUNK],
                              one partial [ATTEND_ROWS][d_v] */
    size_t table_size;      /* a power of two */
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

/* The slots of a group's rows for one chunk and some heads, row after row: [n_rows][heads.n]. */
static inline size_t plan_slot(const plan_group *g, head_range heads, int chunk)
{
    size_t rows = (size_t)g->n_rows, before = (size_t)g->n_chunks * rows * (size_t)heads.first;
    return (size_t)g->slot + before + (size_t)(chunk - g->first_chunk) * rows * (size_t)heads.n;
}

/* Slots for all chunks of the group, if it has none yet; false when there are too few left. */
bool plan_give_slots(attn_plan *p, plan_group *g);
/* Adds a tile without members over n_chunks chunks from first_chunk on. */
plan_tile *plan_add_tile(attn_plan *p, int first_chunk, int n_chunks);
void plan_add_member(attn_plan *p, plan_tile *t, int group, int first_chunk);

/* Makes the tiles of several groups, and marks the chunks that they take. */
void plan_share(attn_plan *p, int n_workers);

#endif
