/* engine_state.h - inside the engine: what its own files share. */
#ifndef KVASIR_ENGINE_ENGINE_STATE_H
#define KVASIR_ENGINE_ENGINE_STATE_H

#include "engine/engine.h"

struct engine {
    const model *model;
    threads *team;
    kv_groups groups;
    kv_cache *cache;
    forward *forward;
    int context, chunk, max_sessions, n_sessions;
    session *sessions; /* oldest first */
    /* The step at hand. */
    batch_row *rows;  /* [chunk] */
    kv_seq **seqs;    /* [max_sessions] */
    session **owners; /* [max_sessions] the session of each sequence of the batch */
    int64_t *old_len; /* [max_sessions] before the step's append */
    int n_rows, n_seqs;
};

#endif
