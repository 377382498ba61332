#include <stdio.h>

#include "base/file.h"
#include "base/hash.h"
#include "cli/json_ids.h"
#include "cli/runtime.h"
#include "fetch/interrupt.h"
#include "fetch/progress.h"

typedef struct sink {
    new_file *file; /* NULL: only the hash is wanted */
    hash_stream *hash;
    size_t n_vocab;
    progress bar;
    uint64_t done;
} sink;

static void take(void *user, int number, int64_t position, const float *logits)
{
    (void)number;
    (void)position;
    sink *k = user;
    hash_update(k->hash, logits, k->n_vocab * sizeof *logits);
    if (k->file) new_file_write(k->file, logits, k->n_vocab * sizeof *logits);
    progress_update(&k->bar, ++k->done);
}

static int read_ids(token_list *out, const char *path, status *st)
{
    strbuf text;
    strbuf_init(&text, 0);
    if (file_read(&text, path, (size_t)256 << 20, st) == ST_OK &&
        json_ids_parse(out, strbuf_cstr(&text), text.n_bytes, st))
        status_prefix(st, "%s", file_shown(path));
    strbuf_deinit(&text);
    return st->code;
}

static int score(runtime *r, const int32_t *ids, size_t n, int chunk, sink *k, status *st)
{
    kv_seq *seq;
    if (kv_seq_new(&seq, engine_cache(r->e), st)) return st->code;
    int rc = ST_OK;
    progress_begin(&k->bar, "logits", n, "positions");
    for (size_t at = 0; at < n && rc == ST_OK; at += (size_t)chunk) {
        feed f = {seq, ids + at, n - at < (size_t)chunk ? (int)(n - at) : chunk, true};
        rc = engine_feed(r->e, &f, 1, take, k, st);
        if (rc == ST_OK && interrupt_pending()) rc = interrupt_status(st);
    }
    progress_end(&k->bar);
    kv_seq_free(seq);
    return rc;
}

/* A failed or interrupted run leaves no half of a file. */
static int score_to(runtime *r, const int32_t *ids, size_t n, int chunk, sink *k, const char *path, status *st)
{
    if (!path) return score(r, ids, n, chunk, k, st);
    new_file file;
    if (new_file_open(&file, path, st)) return st->code;
    k->file = &file;
    interrupt_catch();
    int rc = score(r, ids, n, chunk, k, st);
    k->file = NULL;
    if (rc) {
        status ignored = STATUS_INIT;
        new_file_close(&file, false, &ignored);
        return rc;
    }
    return new_file_close(&file, true, st);
}

static void print_result(const sink *k, size_t n, bool json)
{
    unsigned long long hash = hash_value(k->hash);
    if (json) printf("{\"positions\": %zu, \"vocabulary\": %zu, \"hash\": \"%016llx\"}\n", n, k->n_vocab, hash);
    else printf("%016llx\n", hash);
}

static int run(const args *a, status *st)
{
    token_list ids = {0};
    runtime r = {0};
    sink k = {0};
    if (read_ids(&ids, args_string(a, "ids"), st) == ST_OK) {
        engine_config c = {.context = (int)(ids.n < INT32_MAX ? ids.n : INT32_MAX), .logit_rows = 16};
        if (runtime_open(&r, a, args_positional(a, 0), c, st) == ST_OK && hash_new(&k.hash, st) == ST_OK) {
            k.n_vocab = (size_t)r.m->params.n_vocab;
            if (score_to(&r, ids.ids, ids.n, engine_chunk(r.e), &k, args_string(a, "out"), st) == ST_OK)
                print_result(&k, ids.n, args_flag(a, "json"));
        }
    }
    hash_free(k.hash);
    runtime_close(&r);
    token_list_deinit(&ids);
    interrupt_die();
    return st->code ? 1 : 0;
}

static const option_spec options[] = {
    {.name = "ids", .kind = OPTION_FILE, .arg = "FILE", .fallback = "-",
     .help = "JSON array of token ids (- = standard input)"},
    {.name = "out", .letter = 'o', .kind = OPTION_FILE, .arg = "FILE",
     .help = "where the logits go: raw little-endian float32 [positions, vocabulary]"},
    {.name = "json", .kind = OPTION_FLAG, .help = "print the sizes and the hash as JSON"},
    RUNTIME_OPTIONS,
    CACHE_OPTIONS,
    {0},
};

const command cmd_logits = {
    .name = "logits",
    .positional = "MODEL",
    .min_positional = 1,
    .max_positional = 1,
    .summary = "Write the logits after every token of a sequence",
    .details = "Runs the token ids through the model and its cache, --chunk tokens at a time, writes the logits after "
               "each of them, and prints a hash of all their bits. The hash is the same for every chunk, number of "
               "threads and block size.\n\n"
               "  echo '[1, 2, 3]' | kvasir logits smollm2-135m-instruct --out logits.f32",
    .options = options,
    .run = run,
};
