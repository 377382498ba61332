/* engine_state.h - inside the engine: what its own files share. */
#ifndef KVASIR_ENGINE_ENGINE_STATE_H
#define KVASIR_ENGINE_ENGINE_STATE_H

#include "engine/engine.h"
#include "engine/pace.h"

/* A prefix that stays in the cache until its time is over. */
typedef struct pin {
    kv_seq *seq;
    int64_t until_ns;
} pin;

struct engine {
    const model *model;
    threads *team;
    kv_groups groups;
    kv_cache *cache;
    forward *forward;
    sampler_scratch **scratch; /* [max_workers] for the sessions' samplers: one for each worker of the team */
    int (*kv_wait)(void *user, int layer, const kv_seq *seq, status *st); /* as in engine_config */
    void *kv_user;
    int max_workers, context, chunk, max_sessions, n_sessions, max_running, n_running;
    session *sessions; /* those begun, by priority, then by age: the order of service; idle ones anywhere */
    bool reserve;
    int64_t (*clock)(void); /* the only clock of what decides; times that are only told come from it as well */
    pace pace;
    pin pins[MAX_PINS]; /* the oldest first */
    int n_pins;
    engine_stats stats;
    /* The step at hand. */
    batch_row *rows;  /* [chunk] */
    bool *finite;     /* [chunk] of rows that want logits: they are numbers */
    kv_seq **seqs;    /* [max_running] */
    session **owners; /* [max_running] the session of each sequence of the batch */
    int64_t *old_len; /* [max_running] before the step's append */
    int n_rows, n_seqs;
    int n_decoding;   /* sequences of the batch that have begun their answer */
};

/* step.c. Puts the next n tokens of a sequence into the batch, with room for them in the cache. */
int engine_add_rows(engine *e, kv_seq *seq, const int32_t *ids, int n, bool all_logits, status *st);
/* pins.c. The fewest pins go, the oldest first, so that there is enough for s and n; those without which there is enough
 * stay. Returns how many: 0, and all stay, when not even all would do. */
typedef bool pins_enough(const engine *e, const session *s, int n);
int engine_drop_pins(engine *e, pins_enough *enough, const session *s, int n);
/* Releases the pins that are over, or all. */
void engine_unpin(engine *e, int64_t now_ns);
#define UNPIN_ALL INT64_MAX

#endif
