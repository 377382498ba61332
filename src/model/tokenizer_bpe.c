/* Byte-level BPE: a word's bytes merge in the order in which the merges were learned. */
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "model/tokenizer_internal.h"

/* GPT-2's alphabet shows each byte as a printable character: visible Latin-1 bytes stand for themselves, the other 68,
 * in ascending order, are U+0100, U+0101, ... */
static bool is_visible(int b)
{
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
}

static int byte_of_char(uint32_t cp)
{
    if (cp < 0x100) return is_visible((int)cp) ? (int)cp : -1;
    if (cp <= 0x120) return (int)cp - 0x100;        /* bytes 00..20 */
    if (cp <= 0x142) return (int)cp - 0x121 + 0x7F; /* 7F..A0 */
    return cp == 0x143 ? 0xAD : -1;
}

size_t bpe_bytes(char *out, const char *name, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = utf8_decode(name + i, n - i, &cp), byte = len ? byte_of_char(cp) : -1;
        if (byte < 0) return 0;
        out[k++] = (char)byte;
        i += (size_t)len;
    }
    return k;
}

static size_t merge_slot(const tokenizer *t, int32_t left, int32_t right)
{
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
    size_t i = (size_t)(h >> 32) & t->merge_mask;
    while (t->merges[i].left >= 0 && (t->merges[i].left != left || t->merges[i].right != right))
        i = (i + 1) & t->merge_mask;
    return i;
}

/* "left right" to the three ids; buf holds at least s.n bytes. */
static int read_merge(tokenizer *t, gguf_str s, uint32_t rank, char *buf, status *st)
{
    const char *space = s.n > 1 ? memchr(s.data + 1, ' ', s.n - 1) : NULL;
    if (!space || space + 1 == s.data + s.n)
        return status_set(st, ST_FORMAT, rank,
                          "tokenizer.ggml.merges: merge %u is not two names with a space between them", rank);
    size_t n_left = bpe_bytes(buf, s.data, (size_t)(space - s.data));
    size_t n_right = bpe_bytes(buf + n_left, space + 1, (size_t)(s.data + s.n - space - 1));
    if (n_left == 0 || n_right == 0) return ST_OK; /* beyond the alphabet: no text gets there */
    int32_t left = vocab_find(t, buf, n_left), right = vocab_find(t, buf + n_left, n_right);
    int32_t id = vocab_find(t, buf, n_left + n_right);
    if (left < 0 || right < 0 || id < 0)
        return status_set(st, ST_FORMAT, rank,
                          "tokenizer.ggml.merges: merge %u (%.*s) names a token that the vocabulary lacks", rank,
                          (int)(s.n < 80 ? s.n : 80), s.data);
    bpe_merge *m = &t->merges[merge_slot(t, left, right)];
    if (m->left < 0) *m = (bpe_merge){left, right, rank, id}; /* of two alike the first counts */
    return ST_OK;
}

static int read_merges(tokenizer *t, const gguf_kv *kv, char *buf, status *st)
{
    gguf_str s;
    const uint8_t *at = NULL;
    int rc = ST_OK;
    for (uint32_t rank = 0; !rc && gguf_next_str(kv, &at, &s); rank++) rc = read_merge(t, s, rank, buf, st);
    return rc;
}

int bpe_read(tokenizer *t, const gguf *g, status *st)
{
    const gguf_kv *kv = gguf_find(g, "tokenizer.ggml.merges");
    if (!kv || kv->type != GGUF_ARRAY || kv->elem_type != GGUF_STRING)
        return status_set(st, ST_FORMAT, STATUS_NO_POS, "tokenizer.ggml.merges is missing or is no array of strings");
    if (kv->n > UINT32_MAX / 4)
        return status_set(st, ST_LIMIT, STATUS_NO_POS, "tokenizer.ggml.merges has too many entries");
    size_t size = table_size((size_t)kv->n), longest = 1;
    gguf_str s;
    for (const uint8_t *at = NULL; gguf_next_str(kv, &at, &s);) longest = s.n > longest ? s.n : longest;
    t->merges = mem_array(size, sizeof *t->merges);
    if (!t->merges) return status_nomem(st, size * sizeof *t->merges);
    t->merge_mask = size - 1;
    for (size_t i = 0; i < size; i++) t->merges[i].left = -1;
    char *buf = mem_alloc(longest);
    if (!buf) return status_nomem(st, longest);
    int rc = read_merges(t, kv, buf, st);
    mem_free(buf);
    return rc;
}

static symbol read_byte(const merger *m, size_t at)
{
    return (symbol){.start = (uint32_t)at, .n = 1, .id = m->t->bytes[(uint8_t)m->text[at]]};
}

static bool fits(const merger *m, const symbol *left, const symbol *right, uint32_t *order, int32_t *id)
{
    if (left->id < 0 || right->id < 0) return false;
    const bpe_merge *found = &m->t->merges[merge_slot(m->t, left->id, right->id)];
    *order = found->rank;
    *id = found->id;
    return found->left >= 0;
}

static int emit(const merger *m, const symbol *s, token_list *out, status *st)
{
    (void)m;
    if (s->id >= 0) return token_list_add(out, s->id, st);
    out->n_dropped += s->n;
    return ST_OK;
}

const merge_rules BPE_RULES = {read_byte, fits, emit};

typedef struct word_target {
    merger *m;
    token_list *out;
} word_target;

static int encode_word(void *user, const char *word, size_t n, status *st)
{
    word_target *w = user;
    const tokenizer *t = w->m->t;
    int32_t id = n == 1 ? t->bytes[(uint8_t)word[0]] : t->whole_words ? vocab_find(t, word, n) : -1;
    return id >= 0 ? token_list_add(w->out, id, st) : merger_run(w->m, word, n, w->out, st);
}

int bpe_encode(merger *m, const char *text, size_t n, token_list *out, status *st)
{
    word_target w = {m, out};
    return splitter_run(m->t->split, text, n, encode_word, &w, st);
}
