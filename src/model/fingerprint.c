#include "model/fingerprint.h"

#include <openssl/evp.h>

static bool add(EVP_MD_CTX *d, const void *data, size_t n_bytes)
{
    uint64_t n = n_bytes; /* lengths go in too: "ab", "c" is not "a", "bc" */
    return EVP_DigestUpdate(d, &n, sizeof n) && EVP_DigestUpdate(d, data, n_bytes);
}

static bool add_file(EVP_MD_CTX *d, const gguf *g)
{
    bool ok = true;
    for (size_t i = 0; ok && i < gguf_kv_count(g); i++) {
        const gguf_kv *kv = gguf_kv_at(g, i);
        uint32_t types[] = {(uint32_t)kv->type, (uint32_t)kv->elem_type};
        ok = add(d, kv->key.data, kv->key.n) && add(d, types, sizeof types) && add(d, kv->value, kv->value_bytes);
    }
    for (size_t i = 0; ok && i < gguf_tensor_count(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        size_t n = t->n_bytes < FINGERPRINT_BYTES ? t->n_bytes : FINGERPRINT_BYTES;
        ok = add(d, t->name.data, t->name.n) && add(d, &t->type, sizeof t->type) && add(d, t->dims, sizeof t->dims) &&
             add(d, t->data, n);
    }
    return ok;
}

int model_fingerprint(uint8_t out[32], const gguf *g, status *st)
{
    EVP_MD_CTX *d = EVP_MD_CTX_new();
    bool ok = d && EVP_DigestInit_ex(d, EVP_sha256(), NULL) && add_file(d, g) && EVP_DigestFinal_ex(d, out, NULL);
    EVP_MD_CTX_free(d);
    return ok ? ST_OK : status_nomem(st, 32);
}
