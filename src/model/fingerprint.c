#include "model/fingerprint.h"

#include <openssl/evp.h>

#include "base/hash.h"
#include "base/mem.h"

#define CHUNK_BYTES ((size_t)256 << 10)
#define WINDOW_CHUNKS 32 /* whose pages are in memory together */

typedef struct tensor_chunks {
    size_t first, n; /* in digest[] */
    bool read;
} tensor_chunks;

struct fingerprint {
    const gguf *g;
    threads *team;
    tensor_chunks *tensors; /* [gguf_tensor_count] */
    hash128 *digest;        /* of every chunk of the file */
};

int fingerprint_new(fingerprint **out, const gguf *g, threads *team, status *st)
{
    size_t n_tensors = gguf_tensor_count(g), n_chunks = 0;
    fingerprint *f = mem_calloc(1, sizeof *f);
    if (!f) return status_nomem(st, sizeof *f);
    *f = (fingerprint){.g = g, .team = team, .tensors = mem_calloc(n_tensors + 1, sizeof *f->tensors)};
    for (size_t i = 0; f->tensors && i < n_tensors; i++) {
        size_t n = (gguf_tensor_at(g, i)->n_bytes + CHUNK_BYTES - 1) / CHUNK_BYTES;
        f->tensors[i] = (tensor_chunks){.first = n_chunks, .n = n};
        n_chunks += n;
    }
    f->digest = mem_array(n_chunks + 1, sizeof *f->digest);
    if (!f->tensors || !f->digest) {
        fingerprint_free(f);
        return status_nomem(st, n_tensors * sizeof *f->tensors + n_chunks * sizeof *f->digest);
    }
    *out = f;
    return ST_OK;
}

void fingerprint_free(fingerprint *f)
{
    if (!f) return;
    mem_free(f->tensors);
    mem_free(f->digest);
    mem_free(f);
}

typedef struct window {
    const uint8_t *data;
    size_t n_bytes;
    hash128 *digest;
} window;

static void hash_chunks(void *arg, int begin, int end, int worker)
{
    (void)worker;
    const window *w = arg;
    for (int i = begin; i < end; i++) {
        size_t at = (size_t)i * CHUNK_BYTES, rest = w->n_bytes - at;
        w->digest[i] = hash128_of(w->data + at, rest < CHUNK_BYTES ? rest : CHUNK_BYTES);
    }
}

void fingerprint_tensor(fingerprint *f, const gguf_tensor *t)
{
    tensor_chunks *c = &f->tensors[t - gguf_tensor_at(f->g, 0)];
    for (size_t i = 0; !c->read && i < c->n; i += WINDOW_CHUNKS) {
        size_t at = i * CHUNK_BYTES, rest = t->n_bytes - at;
        window w = {t->data + at, rest < WINDOW_CHUNKS * CHUNK_BYTES ? rest : WINDOW_CHUNKS * CHUNK_BYTES,
                    f->digest + c->first + i};
        threads_run(f->team, hash_chunks, &w, (int)((w.n_bytes + CHUNK_BYTES - 1) / CHUNK_BYTES), 1);
        gguf_drop(f->g, t, at, w.n_bytes);
    }
    c->read = true;
}

static bool add(EVP_MD_CTX *d, const void *data, size_t n_bytes)
{
    uint64_t n = n_bytes; /* lengths go in too: "ab", "c" is not "a", "bc" */
    return EVP_DigestUpdate(d, &n, sizeof n) && EVP_DigestUpdate(d, data, n_bytes);
}

static bool add_file(EVP_MD_CTX *d, const fingerprint *f)
{
    const gguf *g = f->g;
    bool ok = true;
    for (size_t i = 0; ok && i < gguf_kv_count(g); i++) {
        const gguf_kv *kv = gguf_kv_at(g, i);
        uint32_t types[] = {(uint32_t)kv->type, (uint32_t)kv->elem_type};
        ok = add(d, kv->key.data, kv->key.n) && add(d, types, sizeof types) && add(d, kv->value, kv->value_bytes);
    }
    for (size_t i = 0; ok && i < gguf_tensor_count(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        const tensor_chunks *c = &f->tensors[i];
        ok = add(d, t->name.data, t->name.n) && add(d, &t->type, sizeof t->type) && add(d, t->dims, sizeof t->dims) &&
             add(d, f->digest + c->first, c->n * sizeof *f->digest);
    }
    return ok;
}

int fingerprint_finish(fingerprint *f, uint8_t out[32], status *st)
{
    for (size_t i = 0; i < gguf_tensor_count(f->g); i++) fingerprint_tensor(f, gguf_tensor_at(f->g, i));
    EVP_MD_CTX *d = EVP_MD_CTX_new();
    bool ok = d && EVP_DigestInit_ex(d, EVP_sha256(), NULL) && add_file(d, f) && EVP_DigestFinal_ex(d, out, NULL);
    EVP_MD_CTX_free(d);
    return ok ? ST_OK : status_nomem(st, 32);
}
