#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "cli/json_ids.h"
#include "cli/runtime.h"

typedef struct sink {
    FILE *file; /* NULL: only the hash is wanted */
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
    if (k->file) fwrite(logits, sizeof *logits, k->n_vocab, k->file);
    progress_update(&k->bar, ++k->done);
}

static int read_ids(token_list *out, const char *path, status *st)
{
    strbuf text;
    strbuf_init(&text, 0);
    if (file_read(&text, path, (size_t)256 << 20, st) == ST_OK && json_ids_parse(out, strbuf_cstr(&text), text.n_bytes, st))
        status_prefix(st, "%s", path);
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
    }
    progress_end(&k->bar);
    kv_seq_free(seq);
    return rc;
}

static int write_error(const char *path, status *st)
{
    return status_set(st, ST_IO, STATUS_NO_POS, "%s can't be written: %s", path, strerror(errno));
}

/* Writes beside the file and renames, so that a failure leaves no half; devices and pipes are written directly. */
static int score_to(runtime *r, const int32_t *ids, size_t n, int chunk, sink *k, const char *path, status *st)
{
    if (!path) return score(r, ids, n, chunk, k, st);
    struct stat info;
    bool direct = stat(path, &info) == 0 && !S_ISREG(info.st_mode);
    strbuf tmp;
    strbuf_init(&tmp, 0);
    strbuf_printf(&tmp, direct ? "%s" : "%s.part", path);
    if (strbuf_check(&tmp, st)) return st->code;
    int rc = ST_OK;
    k->file = fopen(tmp.data, "wbe");
    if (!k->file) rc = write_error(path, st);
    else {
        rc = score(r, ids, n, chunk, k, st);
        bool bad = ferror(k->file);
        if ((fclose(k->file) || bad) && rc == ST_OK) rc = write_error(path, st);
        if (!direct && rc == ST_OK && rename(tmp.data, path)) rc = write_error(path, st);
        if (!direct && rc) unlink(tmp.data);
    }
    strbuf_deinit(&tmp);
    return rc;
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
    return st->code ? 1 : 0;
}

static const option_spec options[] = {
    {.name = "ids", .kind = OPTION_FILE, .arg = "FILE", .fallback = "-", .help = "JSON array of token ids (- = standard input)"},
    {.name = "out", .letter = 'o', .kind = OPTION_FILE, .arg = "FILE", .help = "where the logits go: raw little-endian float32 [positions, vocabulary]"},
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
    .details = "Runs the token ids through the model and its cache, --chunk tokens at a time, writes the logits after each of them, and prints "
               "a hash of all their bits. The hash is the same for every chunk, number of threads and block size.\n\n"
               "  echo '[1, 2, 3]' | kvasir logits smollm2-135m-instruct --out logits.f32",
    .options = options,
    .run = run,
};
