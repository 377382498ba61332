#include "serve/auth.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/mem.h"

#define MAX_FILE_BYTES ((size_t)1 << 20)

typedef struct key_hash {
    uint8_t bytes[SHA256_DIGEST_LENGTH];
} key_hash;

struct auth {
    key_hash *keys;
    size_t n, capacity;
};

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static int add_key(auth *a, const char *key, size_t n, status *st)
{
    if (a->n == a->capacity) {
        size_t capacity = a->capacity ? 2 * a->capacity : 8;
        key_hash *p = mem_resize(a->keys, capacity, sizeof *p);
        if (!p) return status_nomem(st, capacity * sizeof *p);
        a->keys = p;
        a->capacity = capacity;
    }
    SHA256((const uint8_t *)key, n, a->keys[a->n++].bytes);
    return ST_OK;
}

static int add_lines(auth *a, const char *text, size_t n, status *st)
{
    for (size_t i = 0; i < n;) {
        const char *nl = memchr(text + i, '\n', n - i);
        size_t end = nl ? (size_t)(nl - text) : n, from = i, to = end;
        while (from < to && is_space(text[from])) from++;
        while (to > from && is_space(text[to - 1])) to--;
        if (to > from && text[from] != '#' && add_key(a, text + from, to - from, st)) return st->code;
        i = end + 1;
    }
    return ST_OK;
}

int auth_load(auth **out, const char *path, status *st)
{
    strbuf text;
    strbuf_init(&text, 0);
    auth *a = mem_calloc(1, sizeof *a);
    if (!a) status_nomem(st, sizeof *a);
    else if (file_read(&text, path, MAX_FILE_BYTES, st) == ST_OK &&
             add_lines(a, strbuf_cstr(&text), text.n_bytes, st) == ST_OK && a->n == 0)
        status_set(st, ST_FORMAT, STATUS_NO_POS, "%s has no key; write one a line", path);
    if (text.n_bytes) OPENSSL_cleanse(text.data, text.n_bytes);
    strbuf_deinit(&text);
    if (st->code) auth_free(a);
    else *out = a;
    return st->code;
}

void auth_free(auth *a)
{
    if (!a) return;
    mem_free(a->keys);
    mem_free(a);
}

bool auth_allows(const auth *a, const char *header)
{
    if (!a) return true;
    if (!header || strncasecmp(header, "Bearer ", 7) != 0) return false;
    const char *key = header + 7;
    while (is_space(*key)) key++;
    key_hash h;
    SHA256((const uint8_t *)key, strlen(key), h.bytes);
    int found = 0;
    for (size_t i = 0; i < a->n; i++) found |= CRYPTO_memcmp(h.bytes, a->keys[i].bytes, sizeof h.bytes) == 0;
    return found;
}
