/* forward_net.h - a cache and a forward pass over a model, and the step that is being put together.
 *
 *      net_open --> net_seq --> net_add_tokens, net_add_row ... --> net_run --> net_close
 *
 * Whatever fails here fails the test.
 */
#ifndef KVASIR_TESTS_FORWARD_NET_H
#define KVASIR_TESTS_FORWARD_NET_H

#include "engine/forward.h"
#include "tiny_model.h"

#define MAX_SEQS 3
#define ROW_BYTES (TINY_VOCAB * sizeof(float))

typedef struct net_config {
    const model *m;
    int threads, block_tokens, chunk;
    const char *format;
    bool exact, no_split;
} net_config;

typedef struct net {
    threads *team;
    kv_groups groups;
    kv_cache *cache;
    forward *f;
    int n_layers, d_model;
    batch_row rows[1024];
    kv_seq *seqs[MAX_SEQS];
    float *to[1024]; /* where a row's logits go */
    int n_rows, n_seqs;
} net;

net *net_open(net_config c);
void net_close(net *n); /* audits the cache */
kv_seq *net_seq(net *n);
void net_add_row(net *n, kv_seq *s, int32_t token, int64_t position, int64_t slot, float *to);
/* The next n_ids tokens of a sequence; logits [n_ids][vocab], or NULL. */
void net_add_tokens(net *n, kv_seq *s, const int32_t *ids, int n_ids, float *logits);
void net_take_row(void *user, int row, const float *logits); /* forward_io's on_logits; user = the net */
int net_run_io(net *n, forward_io *io, status *st);
void net_run(net *n);
void net_clear(net *n); /* forgets the step's rows */
/* ids in chunks, logits of all of them. */
void net_run_chunks(net *n, kv_seq *s, const int32_t *ids, int n_ids, int chunk, float *logits);

float *logits_new(int n); /* n rows; free() */
/* Logits of all ids in one chunk, by one thread: what everything else is compared with. */
float *reference(net_config c, const int32_t *ids, int n_ids);
void same(const float *a, const float *b, int n_rows, const char *what);

#define N_MODELS 9

typedef struct nets {
    threads *team;
    model *m[2][N_MODELS]; /* by kernels: scalar, this machine's best */
} nets;

/* A group's set-up and teardown, and a check on every model with both kernel tables, or on one of each family, window,
 * head count. */
int nets_open(void **state);
int nets_close(void **state);
void on_all(void **state, void (*check)(net_config c));
void on_some(void **state, void (*check)(net_config c));
extern char net_label[32]; /* the model at hand, for messages */

#define N_IDS 50
int32_t *some_ids(void);

#endif
