#include "engine/seed.h"

#include <openssl/evp.h>
#include <string.h>

int engine_seed(uint8_t out[32], const model *m, const kv_format *format, int block_tokens, bool exact, status *st)
{
    struct {
        uint32_t version, rope_context, block_tokens, exact;
        uint8_t fingerprint[32];
        char level[16], format[16];
    } all;
    memset(&all, 0, sizeof all); /* names are padded with zeros */
    all.version = SEED_VERSION;
    all.rope_context = (uint32_t)m->rope_context;
    all.block_tokens = (uint32_t)block_tokens;
    all.exact = exact;
    memcpy(all.fingerprint, m->fingerprint, sizeof all.fingerprint);
    strncpy(all.level, m->ks->name, sizeof all.level - 1);
    strncpy(all.format, format->name, sizeof all.format - 1);
    return EVP_Digest(&all, sizeof all, out, NULL, EVP_sha256(), NULL) ? ST_OK : status_nomem(st, sizeof all);
}
