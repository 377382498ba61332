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

static symbol read_char(const merger *m, size_t at)
{
    int len = utf8_length(m->text + at, m->n - at);
    if (len == 0) return (symbol){.start = (uint32_t)at, .n = 1, .id = -1};
    return (symbol){.start = (uint32_t)at, .n = (uint32_t)len, .id = vocab_find(m->t, m->text + at, (size_t)len)};
}

static bool fits(const merger *m, const symbol *left, const symbol *right, uint32_t *order, int32_t *id)
{
    *id = vocab_find(m->t, m->text + left->start, (size_t)left->n + right->n);
    if (*id < 0) return false;
    *order = m->t->tokens[*id].order;
    return true;
}

/* A character that is no token: its bytes, or else the unknown token, or else nothing. */
static int emit(const merger *m, const symbol *c, token_list *out, status *st)
{
    if (c->id >= 0) return token_list_add(out, c->id, st);
    const tokenizer *t = m->t;
    const char *s = m->text + c->start;
    bool all = true;
    for (size_t i = 0; i < c->n; i++) all = all && t->bytes[(uint8_t)s[i]] >= 0;
    if (!all && t->unknown >= 0) return token_list_add(out, t->unknown, st);
    if (!all) {
        out->n_dropped += c->n;
        return ST_OK;
    }
    int rc = ST_OK;
    for (size_t i = 0; !rc && i < c->n; i++) rc = token_list_add(out, t->bytes[(uint8_t)s[i]], st);
    return rc;
}

const merge_rules SPM_RULES = {read_char, fits, emit};

int spm_encode(merger *m, const char *text, size_t n, bool space, token_list *out, status *st)
{
    char *copy = mem_alloc(n + 1);
    if (!copy) return status_nomem(st, n + 1);
    if (space) copy[0] = ' ';
    int rc = merger_run(m, copy, space + spm_spaces(copy + space, text, n), out, st); /* as the map's pieces have it */
    mem_free(copy);
    return rc;
}
