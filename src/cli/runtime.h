/* runtime.h - what every command that computes needs: a team, a model, an engine, from one set of options.
 *
 * The options below stand in the tables of run, chat, logits and bench, so that they parse and read the same
 * everywhere.
 */
#ifndef KVASIR_CLI_RUNTIME_H
#define KVASIR_CLI_RUNTIME_H

#include "cli/cli.h"
#include "engine/engine.h"

#define RUNTIME_OPTIONS                                                                                                \
    {.name = "threads", .letter = 't', .kind = OPTION_INT, .arg = "N", .min = 1, .max = THREADS_MAX,                   \
     .help = "workers (default: the processors this process may use)"},                                                \
    {.name = "cpu", .kind = OPTION_CHOICE, .arg = "LEVEL", .fallback = "auto",                                         \
     .choices = "auto|scalar|avx2|avx512|neon|dotprod", .help = "kernels to compute with"},                            \
    {.name = "exact", .kind = OPTION_FLAG,                                                                             \
     .help = "float products and, unless --kv is given, an f32 cache: slow, for reference"}

#define CACHE_OPTIONS                                                                                                  \
    {.name = "kv", .kind = OPTION_CHOICE, .arg = "FORMAT", .fallback = "f16", .choices = "f16|f32",                    \
     .help = "format of the cache"},                                                                                   \
    {.name = "kv-memory", .kind = OPTION_BYTES, .arg = "BYTES",                                                        \
     .help = "ceiling for the cache (default: half of the free memory)"},                                              \
    {.name = "block-size", .kind = OPTION_INT, .arg = "N", .fallback = "16", .min = 8, .max = 256,                     \
     .help = "tokens of a block: 8, 16, 32, 64, 128 or 256"},                                                          \
    {.name = "chunk", .kind = OPTION_INT, .arg = "N", .fallback = "512", .min = 1, .max = 4096,                        \
     .help = "most tokens that one step takes from a prompt"}

typedef struct runtime {
    threads *team;
    model *m;
    engine *e;
} runtime;

/* Opens the team, the model (by path or name, with a progress bar) and the engine. base holds what the command decides;
 * the options fill in the rest. On failure nothing is left open. */
int runtime_open(runtime *r, const args *a, const char *model_name, engine_config base, status *st);
/* In two steps, for several engines one after the other. base.block_tokens goes before the option,
 * base.kv_memory_bytes after it. */
int runtime_open_model(runtime *r, const args *a, const char *model_name, int context, status *st);
int runtime_open_engine(runtime *r, const args *a, engine_config base, status *st);
void runtime_close_engine(runtime *r);
void runtime_close(runtime *r);
/* Memory for that many of the longest sequences of an engine of these settings. */
int runtime_cache_bytes(uint64_t *out, const runtime *r, const args *a, engine_config base, int n_seqs, status *st);

#endif
