/* Ids to text: whole lists, and streams that come out in whole UTF-8 characters. */
#include <string.h>

#include "base/utf8.h"
#include "model/tokenizer_internal.h"

static bool in_vocabulary(const tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->n_tokens;
}

gguf_str tokenizer_name(const tokenizer *t, int32_t id)
{
    if (!in_vocabulary(t, id)) return (gguf_str){"", 0};
    return (gguf_str){token_name(t, id), t->tokens[id].n_name};
}

gguf_str tokenizer_piece(const tokenizer *t, int32_t id, bool with_special)
{
    if (!in_vocabulary(t, id)) return (gguf_str){"", 0};
    const token *k = &t->tokens[id];
    if (!with_special && (k->type == TOKEN_CONTROL || k->type == TOKEN_UNKNOWN)) return (gguf_str){"", 0};
    return (gguf_str){token_piece(t, id), k->n_piece};
}

/* The bytes of id after what *started says: the encoder adds a space at the start of the text and after each special
 * token, and here it goes again. */
static gguf_str next_piece(const tokenizer *t, int32_t id, bool with_special, bool *started)
{
    gguf_str s = tokenizer_piece(t, id, with_special);
    uint8_t type = t->tokens[id].type;
    if (type == TOKEN_CONTROL || type == TOKEN_UNKNOWN || type == TOKEN_USER) {
        *started = false;
        return s;
    }
    if (t->add_space && !*started && s.n > 0 && s.data[0] == ' ') s = (gguf_str){s.data + 1, s.n - 1};
    *started = true;
    return s;
}

static int bad_id(const tokenizer *t, int32_t id, uint64_t pos, status *st)
{
    return status_set(st, ST_ARG, pos, "%d is no token: the vocabulary has %d", id, t->n_tokens);
}

int tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n, bool with_special, strbuf *out, status *st)
{
    for (size_t i = 0; i < n; i++)
        if (!in_vocabulary(t, ids[i])) return bad_id(t, ids[i], i, st);
    size_t before = out->n_bytes;
    bool started = false;
    for (size_t i = 0; i < n; i++) {
        gguf_str s = next_piece(t, ids[i], with_special, &started);
        strbuf_add(out, s.data, s.n);
    }
    if (strbuf_check(out, st) == ST_OK) return ST_OK;
    out->n_bytes = before;
    if (out->data) out->data[before] = 0;
    return st->code;
}

int detokenizer_push(detokenizer *d, const tokenizer *t, int32_t id, bool with_special, strbuf *out, status *st)
{
    if (!in_vocabulary(t, id)) return bad_id(t, id, STATUS_NO_POS, st);
    detokenizer next = *d;
    gguf_str s = next_piece(t, id, with_special, &next.started);
    /* the last bytes of held + piece decide how much of them waits: a character takes at most 4 */
    char tail[8];
    size_t from_piece = s.n < 4 ? s.n : 4, n_tail = (size_t)d->n_held + from_piece;
    memcpy(tail, d->held, (size_t)d->n_held);
    if (from_piece) memcpy(tail + d->n_held, s.data + s.n - from_piece, from_piece);
    size_t skip = s.n > 4 ? (size_t)d->n_held : 0; /* held bytes don't touch the end of a long piece */
    next.n_held = utf8_incomplete_tail(tail + skip, n_tail - skip);
    memcpy(next.held, tail + n_tail - (size_t)next.n_held, (size_t)next.n_held);

    size_t whole = (size_t)d->n_held + s.n - (size_t)next.n_held;
    size_t of_held = whole < (size_t)d->n_held ? whole : (size_t)d->n_held;
    strbuf_add(out, d->held, of_held);
    strbuf_add(out, s.data, whole - of_held);
    if (strbuf_check(out, st)) return st->code;
    *d = next;
    return ST_OK;
}

int detokenizer_flush(detokenizer *d, strbuf *out, status *st)
{
    strbuf_add(out, d->held, (size_t)d->n_held);
    if (strbuf_check(out, st)) return st->code;
    d->n_held = 0;
    return ST_OK;
}
