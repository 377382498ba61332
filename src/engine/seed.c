#include "engine/seed.h"

#include <openssl/evp.h>

#include "base/strbuf.h"

int engine_seed(uint8_t out[32], const model *m, const kv_format *format, int block_tokens, bool exact, status *st)
{
    strbuf all; /* every setting by name and whole: two settings never spell the same */
    strbuf_init(&all, 0);
    strbuf_printf(&all, "version %d\nrope context %d\nblock tokens %d\nexact %d\nkernels %s\nformat %s\nmodel ",
                  SEED_VERSION, m->rope_context, block_tokens, exact, m->ks->name, format->name);
    strbuf_add(&all, (const char *)m->fingerprint, sizeof m->fingerprint);
    int rc = strbuf_check(&all, st);
    if (rc == ST_OK && !EVP_Digest(strbuf_cstr(&all), all.n_bytes, out, NULL, EVP_sha256(), NULL))
        rc = status_nomem(st, all.n_bytes);
    strbuf_deinit(&all);
    return rc;
}
