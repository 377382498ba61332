/* cache.h - a model's KV cache: one pool per group, the sequences that live in its blocks, and the radix tree through
 * which they share prefixes.
 *
 * Owns (kv_cache): pools, tree. Owns (kv_seq): a block table per group, references to its blocks.
 *
 *      sequence, group 0 (global):    [b3][b9][b4][b7: tail, 5 of 16 rows]    committed rows 0 .. len-1
 *      sequence, group 1 (window 32):  -   -  [b1][b2: tail]                  blocks behind the window are free
 *      drafts:                        [b8: 6 of 16 slots]                     uncommitted slots, apart from the tail
 *
 * C1 Row i of a sequence lies in table[i / B], row i % B, in every group; no K or V exists outside blocks.
 * C2 Only the tail block is written, by its one owner (refs 1, not in the tree). A sequence that is forked or truncated
 *    inside a block which others hold gets its own copy of the rows before that point, at most B - 1 a group; the rows
 *    are never computed again.
 * C3 An operation does all or nothing: on failure the sequence is as before.
 * C4 A window group holds every row that a query at index >= len can see: rows > len - window; kv_seq_append drops what
 *    lies behind.
 * C5 Nothing allocates but the constructors (kv_cache_new, kv_seq_new, kv_seq_fork), the tree's nodes (kv_seq_match,
 *    kv_seq_share, kv_seq_retire; kv_seq_truncate and kv_seq_copy where they cut what the tree has) and the audit.
 * C6 Blocks are free for the taking when they are FREE or CACHED: what the tree alone has is evicted as need be.
 * C7 A block that the tree has never changes; a sequence and the tree, or two sequences, hold the same full block for
 *    the same tokens of one salt as soon as both have shown it (kv_seq_share). The tail joins the tree when its
 *    sequence retires (exact formats), so that every computed row can be found; whoever continues it gets a copy of
 *    the rows, or, where there is no room for a copy, the block itself out of the tree:
 *
 *      retired:  [b3][b9] in the tree, (b7: 5 of 16 rows) a tail under them
 *      matched:  [b3][b9] shared, [b12: 5 rows copied from b7]     retired again: its tail takes the place of b7's
 * Threads: one writer (the engine's step). Rows of different sequences may be written in parallel through kv_place.
 */
#ifndef KVASIR_CACHE_CACHE_H
#define KVASIR_CACHE_CACHE_H

#include "cache/evict.h"
#include "cache/format.h"
#include "cache/layout.h"
#include "cache/pool.h"
#include "cache/tree.h"
#include "kernel/attention.h"

#define KV_BLOCK_TOKENS 16 /* default */

typedef struct kv_cache kv_cache;
typedef struct kv_seq kv_seq;

typedef struct kv_cache_config {
    const kv_group *groups; /* copied, their layer lists too */
    int n_groups;
    const kv_format *format;
    int block_tokens;      /* a power of two, 8..256, a multiple of the format's group_tokens; 0 = KV_BLOCK_TOKENS */
    uint64_t max_tokens;   /* longest sequence */
    uint64_t step_tokens;  /* most rows that one append adds, and most draft slots */
    int n_seqs;            /* sequences that should fit at their longest, if memory allows */
    uint64_t memory_bytes; /* ceiling for all pools; 0 = as much as n_seqs * max_tokens needs */
    const evict_policy *evict; /* NULL = lru */
    bool no_sharing;           /* no tree: prefixes are neither found nor kept */
    const uint8_t *seed;       /* [32] of the blocks' keys (tree.h); NULL = zeros */
} kv_cache_config;

/* Pools get blocks in proportion to what one longest sequence needs in each group, as many as memory_bytes allows; when
 * that is not enough for one sequence of max_tokens, what the longest sequence that fits needs. ST_LIMIT with the
 * numbers when not even one block a group fits; ST_ARG for a block size that can't be. */
int kv_cache_new(kv_cache **out, const kv_cache_config *c, status *st);
void kv_cache_free(kv_cache *c); /* after its sequences */
int kv_cache_n_groups(const kv_cache *c);
const kv_group *kv_cache_group(const kv_cache *c, int group);
pool *kv_cache_pool(const kv_cache *c, int group);
const kv_format *kv_cache_format(const kv_cache *c);
int kv_cache_block_tokens(const kv_cache *c);
uint64_t kv_cache_bytes(const kv_cache *c); /* of all pools */
/* Longest sequence that the pools can hold when it is alone (at most max_tokens): no sequence grows beyond it. */
uint64_t kv_cache_longest_tokens(const kv_cache *c);
/* Tokens whose K and V the pools hold at once, of all sequences and prefixes: the rows of the smallest pool among the
 * groups that keep all tokens; among all groups where each has a window. */
uint64_t kv_cache_capacity_tokens(const kv_cache *c);
kv_tree *kv_cache_tree(const kv_cache *c); /* slot g is group g; NULL with no_sharing */
/* Blocks of a group's pool that can be taken: free and cached ones. */
uint32_t kv_cache_available(const kv_cache *c, int group);
/* Most blocks of a group that a sequence holds on its way to n_tokens (I1). */
uint64_t kv_cache_blocks(const kv_cache *c, int group, int64_t n_tokens);
/* Rows that the group has copied so far because sequences parted inside a block or committed drafts. */
uint64_t kv_cache_copied_rows(const kv_cache *c, int group);
/* Every pool's conservation, every reference held by exactly one table entry, every tail private. */
int kv_cache_audit(const kv_cache *c, status *st);

/* Byte offsets inside a block of the group. layer: number within the group. */
size_t kv_k_offset(const kv_cache *c, int group, int layer, int head);
size_t kv_v_offset(const kv_cache *c, int group, int layer, int head);

int kv_seq_new(kv_seq **out, kv_cache *c, status *st);
void kv_seq_free(kv_seq *s);
int64_t kv_seq_len(const kv_seq *s);
/* Blocks that an append of n rows takes from a group's pool, those that it gives back taken off. */
uint32_t kv_seq_append_needs(const kv_seq *s, int group, int n);
/* The same for growing to n_tokens, in appends of any size. */
uint64_t kv_seq_needs(const kv_seq *s, int group, int64_t n_tokens);
/* Blocks of a group that others can have when the sequence is released. */
uint32_t kv_seq_releases(const kv_seq *s, int group);
/* Slots for rows [len, len + n) in every group; len grows by n. The caller writes their K and V before anyone attends
 * to them. ST_LIMIT, with what is free and what is needed, when blocks are short. Without drafts only. */
int kv_seq_append(kv_seq *s, int n, status *st);
/* Takes back the newest rows: len becomes new_len. ST_ARG where a window group no longer holds what index new_len would
 * see; ST_LIMIT when the copy that C2 asks for finds no block. Without drafts only. */
int kv_seq_truncate(kv_seq *s, int64_t new_len, status *st);
/* A new sequence with the first n rows of s: full blocks shared, the rows of a divergent block copied; drafts stay with
 * s. ST_ARG and ST_LIMIT as in truncate. */
int kv_seq_fork(kv_seq **out, const kv_seq *s, int64_t n, status *st);

/* The same into a sequence that is empty. */
int kv_seq_copy(kv_seq *to, const kv_seq *from, int64_t n, status *st);

/* Takes the longest prefix of ids [0, n) that the tree has for the salt: full blocks shared, matching rows of the next
 * one, full or a tail, copied. s is empty; returns its new length. Short of blocks or memory it takes less. priority:
 * kv_tree_lock. */
int64_t kv_seq_match(kv_seq *s, uint64_t salt, const int32_t *ids, int64_t n, int priority);
/* How much kv_seq_match would take. in_use (may be NULL) [groups]: how many of its full blocks others hold already; the
 * rest stops being available when it is taken. */
int64_t kv_cache_match(const kv_cache *c, uint64_t salt, const int32_t *ids, int64_t n, uint32_t *in_use);
/* Shows the full blocks among the first len rows to others. ids [len]: the tokens of the rows, of which K and V are
 * written. For sequences that began with kv_seq_match (whatever it found). Short of memory it shows less. */
void kv_seq_share(kv_seq *s, const int32_t *ids);
/* The sequence releases everything, drafts too, and is empty: what kv_seq_share would show stays in the tree, and so
 * do the rows of its tail. */
void kv_seq_retire(kv_seq *s, const int32_t *ids);

/* Of a sequence of full blocks alone: gives up its references, not its table nor its lock, to see what that frees; takes
 * them back. Nothing may be taken or evicted between the two. */
void kv_seq_lend(kv_seq *s);
void kv_seq_take_back(kv_seq *s);

/* Drafts: n more uncommitted slots (numbered on from those there are). parents[i]: the slot that the i-th new one
 * follows, of a lower number; -1 = the last committed row. parents NULL: each follows the slot before it. ST_LIMIT when
 * blocks are short, or over step_tokens. */
int kv_seq_draft(kv_seq *s, int n, const int *parents, status *st);
int kv_seq_n_drafts(const kv_seq *s);
int kv_seq_draft_parent(const kv_seq *s, int slot);
/* Appends the rows of the chosen slots, in that order, copied into the tail, and drops all drafts. ST_LIMIT as in
 * append, the drafts being kept. */
int kv_seq_commit(kv_seq *s, const int *slots, int n, status *st);
void kv_seq_rollback(kv_seq *s);

typedef struct kv_place {
    uint8_t *block;
    int row;
} kv_place;
/* Where row `index` (committed) or draft slot `slot` is stored. */
kv_place kv_seq_place(const kv_seq *s, int group, int64_t index);
kv_place kv_seq_draft_place(const kv_seq *s, int group, int slot);
/* The spans of the group's rows in ascending order, drafts after the committed rows (slot j has index len + j); a
 * window group's begin with the first block still held. Returns their number; at most max are written. */
int kv_seq_spans(const kv_seq *s, int group, attn_span *out, int max);
/* No block of s is in flight: its rows may be read. */
bool kv_seq_ready(const kv_seq *s);

#endif
