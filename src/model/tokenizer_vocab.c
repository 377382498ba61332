/* The vocabulary: names as the file spells them, pieces as text has them, and the map from a piece to its token. */
#include <string.h>

#include "base/mem.h"
#include "model/tokenizer_internal.h"

size_t table_size(size_t n)
{
    size_t size = 16;
    while (size < 2 * n) size *= 2;
    return size;
}

static uint64_t hash_bytes(const char *s, size_t n)
{
    const uint64_t k = 0x9E3779B97F4A7C15u;
    uint64_t h = (n + 1) * k, w;
    for (; n >= 8; s += 8, n -= 8) {
        memcpy(&w, s, 8);
        h = (h ^ w) * k;
        h ^= h >> 29;
    }
    w = 0;
    for (size_t i = 0; i < n; i++) w = w << 8 | (uint8_t)s[i];
    h = (h ^ w) * k;
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93u;
    return h ^ h >> 32;
}

/* The slot that holds the piece, or the empty one where it would go. */
static piece_slot *find_slot(const tokenizer *t, const char *s, size_t n, uint32_t hash)
{
    for (size_t i = hash & t->piece_mask;; i = (i + 1) & t->piece_mask) {
        piece_slot *slot = &t->pieces[i];
        if (slot->id < 0) return slot;
        const token *k = &t->tokens[slot->id];
        if (slot->hash == hash && k->n_piece == n && memcmp(t->text + k->piece, s, n) == 0) return slot;
    }
}

int32_t vocab_find(const tokenizer *t, const char *s, size_t n)
{
    return n > t->longest ? -1 : find_slot(t, s, n, (uint32_t)hash_bytes(s, n))->id;
}

/* Higher scores get lower numbers; any bits, NaN too, have their one place. */
static uint32_t score_order(float score)
{
    float f = score + 0.0f; /* -0 and 0 are equal */
    uint32_t u;
    memcpy(&u, &f, 4);
    return u >> 31 ? u : ~(u | 0x80000000u);
}

static int find_array(const gguf_kv **out, const gguf *g, const char *key, size_t n, status *st)
{
    const gguf_kv *kv = gguf_find(g, key);
    if (kv && (kv->type != GGUF_ARRAY || kv->elem_type == GGUF_STRING || kv->elem_type == GGUF_ARRAY))
        return status_set(st, ST_FORMAT, STATUS_NO_POS, "%s is no array of numbers", key);
    if (kv && kv->n != n)
        return status_set(st, ST_FORMAT, STATUS_NO_POS, "%s has %llu entries for %zu tokens", key,
                          (unsigned long long)kv->n, n);
    *out = kv;
    return ST_OK;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* The byte of a name <0xNN>, or -1. */
static int named_byte(const char *s, size_t n)
{
    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>') return -1;
    int high = hex_digit(s[3]), low = hex_digit(s[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static int set_type(tokenizer *t, int32_t id, const gguf_kv *types, status *st)
{
    token *k = &t->tokens[id];
    if (types) {
        double type = gguf_array_number(types, (uint64_t)id);
        if (!(type >= 0 && type < TOKEN_TYPES))
            return status_set(st, ST_FORMAT, (uint64_t)id,
                              "tokenizer.ggml.token_type: token %d has the unknown type %g", id, type);
        k->type = (uint8_t)type;
    } else {
        k->type = t->spm && named_byte(t->text + k->name, k->n_name) >= 0 ? TOKEN_BYTE : TOKEN_NORMAL;
    }
    return ST_OK;
}

/* Copies names to the front of the text and sums up their lengths. */
static int copy_names(tokenizer *t, const gguf_kv *kv, status *st)
{
    gguf_str s;
    size_t total = 0;
    for (const uint8_t *at = NULL; gguf_next_str(kv, &at, &s);) total += s.n;
    if (total > UINT32_MAX / 4)
        return status_set(st, ST_LIMIT, STATUS_NO_POS, "tokenizer.ggml.tokens: the names take %zu bytes", total);
    /* pieces follow: none is longer than its name or one byte */
    t->text = mem_alloc(2 * total + (size_t)t->n_tokens + 1);
    if (!t->text) return status_nomem(st, 2 * total + (size_t)t->n_tokens + 1);
    int32_t id = 0;
    for (const uint8_t *at = NULL; id < t->n_tokens && gguf_next_str(kv, &at, &s); id++) {
        t->tokens[id] = (token){.name = (uint32_t)t->n_text, .n_name = (uint32_t)s.n};
        memcpy(t->text + t->n_text, s.data, s.n);
        t->n_text += s.n;
    }
    return id == t->n_tokens ? ST_OK : status_set(st, ST_FORMAT, (uint64_t)id, "tokenizer.ggml.tokens ends early");
}

int vocab_read(tokenizer *t, const gguf *g, status *st)
{
    const gguf_kv *names = gguf_find(g, "tokenizer.ggml.tokens"), *scores = NULL, *types = NULL;
    if (!names || names->type != GGUF_ARRAY || names->elem_type != GGUF_STRING || names->n == 0)
        return status_set(st, ST_FORMAT, STATUS_NO_POS,
                          "tokenizer.ggml.tokens is missing, empty or no array of strings");
    if (names->n > INT32_MAX / 4)
        return status_set(st, ST_LIMIT, STATUS_NO_POS, "tokenizer.ggml.tokens has too many entries");
    t->n_tokens = (int32_t)names->n;
    if (find_array(&scores, g, "tokenizer.ggml.scores", (size_t)t->n_tokens, st)) return st->code;
    if (find_array(&types, g, "tokenizer.ggml.token_type", (size_t)t->n_tokens, st)) return st->code;
    if (t->spm && !scores) return status_set(st, ST_FORMAT, STATUS_NO_POS, "tokenizer.ggml.scores is missing");
    t->tokens = mem_array((size_t)t->n_tokens, sizeof *t->tokens);
    if (!t->tokens) return status_nomem(st, (size_t)t->n_tokens * sizeof *t->tokens);
    int rc = copy_names(t, names, st);
    for (int32_t id = 0; !rc && id < t->n_tokens; id++) {
        if (scores) t->tokens[id].order = score_order((float)gguf_array_number(scores, (uint64_t)id));
        rc = set_type(t, id, types, st);
    }
    return rc;
}

/* Appends token id's piece to the text, or lets it share the name. */
static int set_piece(tokenizer *t, int32_t id, status *st)
{
    token *k = &t->tokens[id];
    const char *name = t->text + k->name;
    char *out = t->text + t->n_text;
    k->piece = k->name;
    k->n_piece = k->n_name;
    size_t n;
    if (k->type == TOKEN_BYTE) {
        int byte = named_byte(name, k->n_name);
        if (byte < 0)
            return status_set(st, ST_FORMAT, (uint64_t)id,
                              "token %d is a byte, but its name is not of the form <0xNN>: %.*s", id,
                              (int)(k->n_name < 40 ? k->n_name : 40), name);
        out[0] = (char)byte;
        n = 1;
        if (t->spm && t->bytes[byte] < 0) t->bytes[byte] = id;
    } else if (k->type == TOKEN_CONTROL || k->type == TOKEN_UNKNOWN || k->type == TOKEN_USER) {
        return ST_OK;
    } else {
        n = t->spm ? spm_spaces(out, name, k->n_name) : bpe_bytes(out, name, k->n_name);
        k->unreachable = t->spm ? memchr(name, ' ', k->n_name) != NULL : n == 0;
        if (n == 0 || (n == k->n_name && memcmp(out, name, n) == 0)) return ST_OK; /* the name stands for itself */
    }
    k->piece = (uint32_t)t->n_text;
    k->n_piece = (uint32_t)n;
    t->n_text += n;
    return ST_OK;
}

static int map_token(tokenizer *t, int32_t id, status *st)
{
    const token *k = &t->tokens[id];
    if (k->n_piece == 0 || k->unreachable) return ST_OK;
    uint32_t hash = (uint32_t)hash_bytes(token_piece(t, id), k->n_piece);
    piece_slot *slot = find_slot(t, token_piece(t, id), k->n_piece, hash);
    if (slot->id < 0) {
        *slot = (piece_slot){hash, id};
        if (k->n_piece > t->longest) t->longest = k->n_piece;
    } else if (t->tokens[slot->id].n_name == k->n_name &&
               memcmp(token_name(t, slot->id), token_name(t, id), k->n_name) == 0) {
        return status_set(st, ST_FORMAT, (uint64_t)id, "tokenizer.ggml.tokens: tokens %d and %d have the same name",
                          slot->id, id);
    } /* else two spellings of one piece: the first is the one that text becomes */
    return ST_OK;
}

/* User-defined tokens come last, so that a normal one of the same piece goes before them. */
int vocab_map(tokenizer *t, status *st)
{
    for (int b = 0; b < 256; b++) t->bytes[b] = -1;
    for (int32_t id = 0; id < t->n_tokens; id++)
        if (set_piece(t, id, st)) return st->code;
    size_t size = table_size((size_t)t->n_tokens);
    t->pieces = mem_array(size, sizeof *t->pieces);
    if (!t->pieces) return status_nomem(st, size * sizeof *t->pieces);
    for (size_t i = 0; i < size; i++) t->pieces[i].id = -1;
    t->piece_mask = size - 1;
    int rc = ST_OK;
    for (int32_t id = 0; !rc && id < t->n_tokens; id++) {
        uint8_t type = t->tokens[id].type;
        if (type == TOKEN_NORMAL || type == TOKEN_UNUSED || type == TOKEN_UNDEFINED) rc = map_token(t, id, st);
    }
    for (int32_t id = 0; !rc && !t->spm && id < t->n_tokens; id++)
        if (t->tokens[id].type == TOKEN_USER) rc = map_token(t, id, st);
    for (int b = 0; !rc && !t->spm && b < 256; b++) t->bytes[b] = vocab_find(t, &(char){(char)b}, 1);
    return rc;
}
