/* forward.h - the network: a batch of rows through a range of layers, K and V into blocks.
 *
 * Owns: activation buffers for max_rows rows and the attention plans. Borrows: model, cache, team.
 *
 *      tokens --embed--> x [n][d_model] --layer_begin .. layer_end--> x --norm, head--> logits of rows that want them
 *                 hidden_in --^                                  ^-- hidden_out, taps
 *
 * A batch row is {token, position, sequence, slot, wants_logits}. The slot is the row's stored index: below the
 * sequence's length for rows that kv_seq_append made room for; length + j for draft slot j, whose parent the sequence
 * knows (kv_seq_draft). A row sees every committed row before its own slot (a draft: all committed rows, its ancestors,
 * itself), minus what lies outside a layer's window.
 *
 * E1 Rows of a sequence come in ascending slot order; the slots they occupy are written by this call alone.
 * E2 A row's hidden state and logits depend on its sequence's tokens alone, bit for bit: not on the other rows (I5),
 *    and as well for drafts on a line. Drafts of a tree that has other branches between them sum in another order:
 *    nearly the same.
 * E3 forward_run allocates nothing.
 * E4 A failed wait loses its sequence alone: nothing more of it is waited for, its rows get no logits, and what else is
 *    computed of them means nothing. The others of the batch go on, with the same bits (E2).
 * Threads: one forward_run at a time per forward; several forwards may share a model.
 */
#ifndef KVASIR_ENGINE_FORWARD_H
#define KVASIR_ENGINE_FORWARD_H

#include "base/threads.h"
#include "cache/cache.h"
#include "engine/groups.h"
#include "engine/phases.h"
#include "model/model.h"

typedef struct batch_row {
    int32_t token;
    int32_t seq; /* number in batch.seqs */
    int64_t position;
    int64_t slot;
    bool wants_logits;
} batch_row;

typedef struct batch {
    const batch_row *rows;
    int n_rows;
    kv_seq *const *seqs;
    int n_seqs;
} batch;

typedef struct forward_config {
    int max_rows, max_seqs;
    int max_drafts;      /* draft slots of one sequence; 0..FORWARD_MAX_DRAFTS */
    int max_logit_rows;  /* head products are made for this many rows at a time; 1..FORWARD_MAX_LOGIT_ROWS */
    int max_workers;     /* the team may be resized up to this */
    bool exact;          /* float products, whatever the weights' type */
    /* For comparison, with the same bits: */
    bool no_split;       /* one worker walks all chunks of a row */
    bool no_cascade;     /* each sequence reads blocks that it shares by itself */
} forward_config;

#define FORWARD_MAX_DRAFTS 256
#define FORWARD_MAX_LOGIT_ROWS 64

typedef struct forward_io {
    int layer_begin, layer_end; /* of the model's layers; {0, n_layers} = all */
    const float *hidden_in;     /* [n_rows][d_model]; NULL = embed the tokens */
    float *hidden_out;          /* [n_rows][d_model] after layer_end; NULL = not wanted */
    /* Called in row order for rows that want logits, when layer_end is the last; logits [n_vocab] are the callee's for
     * the call. NULL = no head. */
    void (*on_logits)(void *user, int row, const float *logits);
    /* Called before on_logits, for several rows at the same time over the team; worker < max_workers, and the logits are
     * those that on_logits will see. NULL = nothing to do. */
    void (*each_logits)(void *user, int row, const float *logits, int worker);
    /* The residual stream after chosen layers. */
    const int *tap_layers;
    int n_taps;
    void (*on_tap)(void *user, int layer, const float *hidden);
    /* K and V of this step's rows are in the blocks of that layer. */
    void (*kv_ready)(void *user, int layer);
    /* A layer is about to read the K and V of a sequence's earlier rows. A wait that fails loses that sequence (E4). Its
     * blocks may hold anything then, but nobody writes to them until the run is over. */
    int (*kv_wait)(void *user, int layer, int seq, status *st);
    void (*on_lost)(void *user, int seq, const status *st); /* once; set with kv_wait */
    void *user;
} forward_io;

typedef struct forward forward;

int forward_new(forward **out, const model *m, kv_cache *cache, const kv_groups *groups, threads *team,
                const forward_config *c, status *st);
void forward_free(forward *f);
phase_clock *forward_phases(forward *f); /* off until somebody starts it */
/* n_rows 1..max_rows, tokens below n_vocab (ST_ARG otherwise). */
int forward_run(forward *f, const batch *b, const forward_io *io, status *st);

#endif
