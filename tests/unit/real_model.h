/* real_model.h - for tests (included after cmocka.h) over the models that `make models` fetches. */
#ifndef KVASIR_TESTS_REAL_MODEL_H
#define KVASIR_TESTS_REAL_MODEL_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "fetch/model_dir.h"

#define SMOLLM2 "smollm2-135m-instruct.gguf"
#define GEMMA3 "gemma-3-270m.gguf"

/* The model's path in the model directory, into path. */
static inline const char *real_path(char path[4096], const char *file)
{
    status st = STATUS_INIT;
    char *folder = NULL;
    if (model_dir(&folder, &st)) fail_msg("%s", st.text);
    snprintf(path, 4096, "%s/%s", folder, file);
    mem_free(folder);
    return path;
}

static inline model *load_real(const char *file, cpu_level level, threads *team)
{
    char path[4096];
    status st = STATUS_INIT;
    model *m = NULL;
    model_options o = {.ks = kernels_get(level), .team = team};
    if (model_load(&m, real_path(path, file), &o, &st)) fail_msg("%s (`make models` fetches the models)", st.text);
    return m;
}

/* n tokens of an English text, again and again with a number between, so that no two places are alike. */
static inline void read_text(const model *m, int32_t *ids, int n)
{
    static const char text[] = " A key-value cache keeps, for every token that a model has read, what its layers made "
                               "of it: a key that later tokens look for, and a value that they take from it. So a new "
                               "token costs one pass through the weights and one look at all that came before, instead "
                               "of a pass over the whole text again. The price is memory: it grows with every token, "
                               "every layer and every head, and on long texts it outgrows the weights themselves.";
    token_list l = {0};
    status st = STATUS_INIT;
    encode_options o = {.add_special = true};
    for (int round = 1; l.n < (size_t)n; round++) {
        char piece[sizeof text + 16];
        snprintf(piece, sizeof piece, "%s %d.", text, round);
        assert_int_equal(tokenizer_encode(m->tok, piece, strlen(piece), o, &l, &st), ST_OK);
        o.add_special = false;
    }
    memcpy(ids, l.ids, (size_t)n * sizeof *ids);
    token_list_deinit(&l);
}

#endif
