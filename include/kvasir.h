/* kvasir.h - an LLM inference engine whose KV cache is a database: the library's one public header.
 *
 *      kvasir_model    the file: weights, tokenizer, chat template     constant, shared by engines, freed last
 *      kvasir_engine   the KV cache and the forward pass over a model  one caller at a time
 *      kvasir_session  one sequence of an engine, and its answers
 *
 *      kvasir_status st = {0};
 *      kvasir_model *m = NULL;  kvasir_engine *e = NULL;  kvasir_session *s = NULL;
 *      if (kvasir_model_load(&m, "model.gguf", NULL, &st)) puts(st.text);
 *      kvasir_engine_new(&e, m, NULL, &st);
 *      kvasir_session_new(&s, e, &st);
 *      kvasir_session_start(s, ids, n_ids, NULL, on_token, user, &st);
 *      while (kvasir_session_active(s)) kvasir_engine_step(e, &st);
 *
 * Contract
 *   - Functions that can fail return 0 or a status code and fill *st (never NULL) on failure; then *out is untouched
 *     and nothing is owed. Text is UTF-8, one sentence, and says what to do.
 *   - The library never prints, exits or reads the environment. It keeps no state outside the handles, but for two
 *     counters of its heap.
 *   - on_token is called inside kvasir_engine_step. It may cancel sessions; it may not start, fork or free one.
 *   - *_free(NULL) does nothing. Sessions are freed before their engine, engines before their model.
 *   - A sequence's tokens are a function of the model, the prompt and the parameters alone, bit for bit on one machine:
 *     not of the number of threads, the chunk, or what other sessions do.
 */
#ifndef KVASIR_H
#define KVASIR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVASIR_API __attribute__((visibility("default")))

enum {
    KVASIR_OK = 0,
    KVASIR_NOMEM,       /* an allocation failed */
    KVASIR_IO,          /* the operating system refused */
    KVASIR_NOT_FOUND,
    KVASIR_FORMAT,      /* bytes that are not what they claim to be */
    KVASIR_UNSUPPORTED, /* well formed, but beyond what this build can do */
    KVASIR_ARG,         /* an argument out of range */
    KVASIR_LIMIT,       /* does not fit: context, cache */
    KVASIR_CANCELLED,
    KVASIR_TIMEOUT
};

typedef struct kvasir_status {
    int code;
    uint64_t pos; /* byte offset, line or index of the trouble; UINT64_MAX when it has no place */
    char text[496];
} kvasir_status;

KVASIR_API const char *kvasir_version(void);

typedef struct kvasir_model kvasir_model;
typedef struct kvasir_engine kvasir_engine;
typedef struct kvasir_session kvasir_session;

/* -- model --------------------------------------------------------------------------------------------------------- */

typedef struct kvasir_model_options {
    int threads; /* that pack the weights; 0 = as many as this process may use */
    int context; /* longest context that will be used; 0 = the model's */
    void (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
    void *user;
} kvasir_model_options;

/* options may be NULL. */
KVASIR_API int kvasir_model_load(kvasir_model **out, const char *path, const kvasir_model_options *options,
                                 kvasir_status *st);
KVASIR_API void kvasir_model_free(kvasir_model *m);
KVASIR_API int kvasir_model_vocab_size(const kvasir_model *m);
KVASIR_API int kvasir_model_context(const kvasir_model *m); /* tokens it was trained for */
/* Jinja source; NULL where it has none; the model's */
KVASIR_API const char *kvasir_model_chat_template(const kvasir_model *m);

/* text [n_bytes] -> ids. Writes at most capacity ids and always stores the full number in *n_ids: call twice, or with
 * room for n_bytes + 2. add_special: the model's own beginning and end; parse_special: names of control tokens in the
 * text are those tokens. Bytes that the vocabulary has no token for are left out (SmolLM2 lacks 21, control characters
 * and bytes of no UTF-8): where that matters, compare kvasir_detokenize with the text. */
KVASIR_API int kvasir_tokenize(const kvasir_model *m, const char *text, size_t n_bytes, int add_special,
                               int parse_special, int32_t *ids, size_t capacity, size_t *n_ids, kvasir_status *st);
/* ids -> bytes; at most capacity are written (no NUL), *n_bytes is the full number. */
KVASIR_API int kvasir_detokenize(const kvasir_model *m, const int32_t *ids, size_t n_ids, int with_special, char *text,
                                 size_t capacity, size_t *n_bytes, kvasir_status *st);

/* -- engine -------------------------------------------------------------------------------------------------------- */

typedef struct kvasir_engine_options {
    int threads;              /* 0 = as many as this process may use */
    /* Most tokens of a prompt and its answer together; 0 = the model's, less where memory is short. */
    int context;
    int sessions;             /* at once, those that wait included; 0 = 1 */
    int running;              /* most sessions of one step; 0 = all, at most 256 */
    double itl_target_s;      /* prompts leave running answers a token this often; 0 = no such care */
    int chunk;                /* most tokens of a step; 0 = 512 */
    int block_tokens;         /* 0 = 16 */
    const char *kv_format;    /* "f16", "f32"; NULL = f16 */
    uint64_t kv_memory_bytes; /* ceiling for the cache; 0 = half of the free memory */
    int exact;                /* float products instead of int8 ones */
} kvasir_engine_options;

/* options may be NULL. The model is borrowed. */
KVASIR_API int kvasir_engine_new(kvasir_engine **out, const kvasir_model *m, const kvasir_engine_options *options,
                                 kvasir_status *st);
KVASIR_API void kvasir_engine_free(kvasir_engine *e);
KVASIR_API int kvasir_engine_context(const kvasir_engine *e);
/* One batch over the active sessions that fit, by priority and age; their callbacks run inside. */
KVASIR_API int kvasir_engine_step(kvasir_engine *e, kvasir_status *st);

typedef struct kvasir_cache_info {
    uint64_t bytes;        /* of the pools */
    uint64_t blocks, free_blocks; /* of all pools: a block is block_tokens tokens of one group of layers */
    uint64_t cached_blocks; /* that no session holds, kept for their prefixes until somebody needs the room */
    int block_tokens;       /* blocks that are neither free nor cached are in use */
} kvasir_cache_info;
KVASIR_API kvasir_cache_info kvasir_engine_cache_info(const kvasir_engine *e);
/* Recounts every block and reference; 0, or KVASIR_FORMAT with what does not add up. */
KVASIR_API int kvasir_engine_audit(const kvasir_engine *e, kvasir_status *st);

/* -- session ------------------------------------------------------------------------------------------------------- */

typedef struct kvasir_sampling {
    float temperature; /* 0 = greedy */
    int top_k;         /* 0 = off */
    float top_p;       /* 1 = off */
    float min_p;       /* 0 = off */
    float repeat_penalty; /* 1 = off */
    uint64_t seed;
    int64_t max_tokens; /* -1 = until the context is full, which ends every answer (KVASIR_FINISH_CONTEXT) */
    const char *const *stop; /* the answer ends before any of these */
    int n_stop;
    int ignore_eos;
    /* how the answer is served */
    int priority;      /* higher ones first */
    double deadline_s; /* from the start; 0 = none */
    uint64_t salt;     /* prefixes are shared among equal salts only */
} kvasir_sampling;
KVASIR_API kvasir_sampling kvasir_sampling_defaults(void);

typedef enum kvasir_finish {
    KVASIR_FINISH_NONE, /* still going */
    KVASIR_FINISH_EOS,
    KVASIR_FINISH_STOP,
    KVASIR_FINISH_LENGTH,  /* max_tokens */
    KVASIR_FINISH_CONTEXT, /* prompt and answer fill the context */
    KVASIR_FINISH_CANCELLED,
    KVASIR_FINISH_TIMEOUT,
    KVASIR_FINISH_ERROR
} kvasir_finish;

/* text [n_bytes]: whole UTF-8 characters that can be shown now, perhaps none; valid during the call. */
typedef void kvasir_token_fn(void *user, int32_t token, const char *text, size_t n_bytes);

KVASIR_API int kvasir_session_new(kvasir_session **out, kvasir_engine *e, kvasir_status *st);
KVASIR_API void kvasir_session_free(kvasir_session *s);
/* Begins an answer to ids. What the engine's cache holds of them as a prefix is not computed again. sampling (NULL =
 * the defaults) is copied; on_token may be NULL. KVASIR_LIMIT: the prompt is longer than the context, or fills it, which
 * is of use with max_tokens 0 alone. */
KVASIR_API int kvasir_session_start(kvasir_session *s, const int32_t *ids, size_t n_ids,
                                    const kvasir_sampling *sampling, kvasir_token_fn *on_token, void *user,
                                    kvasir_status *st);
/* Begins another answer to the prompt that leader was started with, by the same parameters and another draw (choice 1,
 * 2, ...). While leader has no token yet, the prompt is computed once for both. KVASIR_ARG where leader was never
 * started. */
KVASIR_API int kvasir_session_fork(kvasir_session *s, kvasir_session *leader, uint32_t choice,
                                   kvasir_token_fn *on_token, void *user, kvasir_status *st);
KVASIR_API int kvasir_session_active(const kvasir_session *s);
KVASIR_API void kvasir_session_cancel(kvasir_session *s);
KVASIR_API kvasir_finish kvasir_session_finish(const kvasir_session *s);
/* Why the session ended with KVASIR_FINISH_ERROR; the session's, until it starts again. */
KVASIR_API const kvasir_status *kvasir_session_error(const kvasir_session *s);

#ifdef __cplusplus
}
#endif

#endif
