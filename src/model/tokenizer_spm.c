/* SentencePiece-style merging: of all neighbours that form a token, the pair with the highest score merges first. */
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "model/tokenizer_internal.h"

static const char LOWER_BLOCK[] = "\xE2\x96\x81"; /* U+2581 */

size_t spm_spaces(char *out, const char *s, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n;) {
        if (s[i] == LOWER_BLOCK[0] && n - i >= 3 && memcmp(s + i, LOWER_BLOCK, 3) == 0) {
            out[k++] = ' ';
            i += 3;
        } else {
            out[k++] = s[i++];
        }
    }
    return k;
}

static bool fits(const merger *m, const symbol *left, const symbol *right, uint32_t *order, int32_t *id)
{
    *id = vocab_find(m->t, m->text + left->start, (size_t)left->n + right->n);
    if (*id < 0) return false;
    *order = m->t->tokens[*id].order;
    return true;
}

/* A character that is no token: its bytes, or else the unknown token, or else nothing. */
static int add_bytes(const tokenizer *t, const char *s, size_t n, token_list *out, status *st)
{
    bool all = true;
    for (size_t i = 0; i < n; i++) all = all && t->bytes[(uint8_t)s[i]] >= 0;
    if (!all && t->unknown >= 0) return token_list_add(out, t->unknown, st);
    if (!all) {
        out->n_dropped += n;
        return ST_OK;
    }
    int rc = ST_OK;
    for (size_t i = 0; !rc && i < n; i++) rc = token_list_add(out, t->bytes[(uint8_t)s[i]], st);
    return rc;
}

static int merge_text(merger *m, const char *text, size_t n, token_list *out, status *st)
{
    const tokenizer *t = m->t;
    int rc = merger_reserve(m, n, st);
    if (rc) return rc;
    m->text = text;
    for (size_t i = 0; i < n;) {
        int len = utf8_length(text + i, n - i);
        if (len == 0) merger_push(m, i, 1, -1);
        else merger_push(m, i, (size_t)len, vocab_find(t, text + i, (size_t)len));
        i += len ? (size_t)len : 1;
    }
    rc = merger_run(m, fits, st);
    for (int32_t i = 0; !rc && i >= 0; i = m->symbols[i].next) {
        const symbol *s = &m->symbols[i];
        rc = s->id >= 0 ? token_list_add(out, s->id, st) : add_bytes(t, text + s->start, s->n, out, st);
    }
    return rc;
}

int spm_encode(merger *m, const char *text, size_t n, bool space, token_list *out, status *st)
{
    char *copy = mem_alloc(n + 1);
    if (!copy) return status_nomem(st, n + 1);
    if (space) copy[0] = ' ';
    int rc = merge_text(m, copy, space + spm_spaces(copy + space, text, n), out, st); /* as the map's pieces have it */
    mem_free(copy);
    return rc;
}
