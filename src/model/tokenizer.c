#include "model/tokenizer.h"

#include <string.h>

#include "base/mem.h"
#include "model/tokenizer_internal.h"

static int read_all(tokenizer *t, const gguf *g, status *st)
{
    gguf_str model = {"", 0}, pre = {"default", 7};
    if (gguf_get_str(g, "tokenizer.ggml.model", &model, NULL, st) ||
        gguf_get_str(g, "tokenizer.ggml.pre", &pre, NULL, st))
        return st->code;
    t->spm = model.n == 5 && memcmp(model.data, "llama", 5) == 0;
    if (!t->spm && !(model.n == 4 && memcmp(model.data, "gpt2", 4) == 0))
        return status_set(
            st, ST_UNSUPPORTED, STATUS_NO_POS,
            "tokenizer.ggml.model is \"%.*s\"; Kvasir knows \"gpt2\" (byte-level BPE) and \"llama\" (SentencePiece)",
            (int)(model.n < 80 ? model.n : 80), model.data);
    int rc = ST_OK;
    if (!t->spm) rc = splitter_new(&t->split, pre, true, st);
    if (!rc) rc = vocab_read(t, g, st);
    if (!rc) rc = specials_read(t, g, st);
    if (!rc) rc = vocab_map(t, st);
    if (!rc && !t->spm) rc = bpe_read(t, g, st);
    if (!rc) rc = specials_sort(t, st);
    if (!rc && !t->spm) t->whole_words = splitter_takes_whole_words(t->split);
    return rc;
}

int tokenizer_new(tokenizer **out, const gguf *g, status *st)
{
    tokenizer *t = mem_calloc(1, sizeof *t);
    if (!t) return status_nomem(st, sizeof *t);
    if (read_all(t, g, st)) return tokenizer_free(t), st->code;
    *out = t;
    return ST_OK;
}

void tokenizer_free(tokenizer *t)
{
    if (!t) return;
    splitter_free(t->split);
    mem_free(t->tokens);
    mem_free(t->text);
    mem_free(t->pieces);
    mem_free(t->merges);
    mem_free(t->specials);
    mem_free(t);
}

int32_t tokenizer_vocab_size(const tokenizer *t)
{
    return t->n_tokens;
}

int32_t tokenizer_bos(const tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const tokenizer *t)
{
    return t->eos;
}

bool tokenizer_adds_bos(const tokenizer *t)
{
    return t->add_bos && t->bos >= 0;
}

bool tokenizer_adds_eos(const tokenizer *t)
{
    return t->add_eos && t->eos >= 0;
}

bool tokenizer_is_end(const tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->n_tokens && t->tokens[id].end;
}

bool tokenizer_is_control(const tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->n_tokens && t->tokens[id].type == TOKEN_CONTROL;
}

void token_list_deinit(token_list *l)
{
    mem_free(l->ids);
    *l = (token_list){0};
}

int token_list_add(token_list *l, int32_t id, status *st)
{
    if (l->limit && l->n >= l->limit)
        return status_set(st, ST_LIMIT, STATUS_NO_POS, "these are more than %zu tokens", l->limit);
    if (l->n == l->capacity) {
        size_t capacity = l->capacity ? l->capacity * 2 : 32;
        int32_t *p = mem_resize(l->ids, capacity, sizeof *p);
        if (!p) return status_nomem(st, capacity * sizeof *p);
        l->ids = p;
        l->capacity = capacity;
    }
    l->ids[l->n++] = id;
    return ST_OK;
}

/* Bytes from `at` on in which control tokens may be: [*range] is the first range that ends behind `at`. */
static size_t control_bytes(const encode_options *o, size_t at, size_t n, size_t *range)
{
    if (o->parse_special) return n - at;
    if (!o->trusted) return 0;
    while (*range < o->trusted->n && o->trusted->at[*range].to <= at) ++*range;
    if (*range == o->trusted->n || o->trusted->at[*range].from > at) return 0;
    return o->trusted->at[*range].to - at;
}

/* Cuts special tokens out of the text and encodes what lies between them. */
static int encode_text(merger *m, const char *text, size_t n, const encode_options *o, token_list *out, status *st)
{
    const tokenizer *t = m->t;
    size_t range = 0;
    bool space = t->add_space; /* goes before a fragment at the start and after each special token */
    int rc = ST_OK;
    for (size_t at = 0; !rc && at < n;) {
        size_t end = at, length = 0;
        int32_t id = -1;
        for (; end < n; end++)
            if ((id = specials_match(t, text + end, n - end, control_bytes(o, end, n, &range), &length)) >= 0) break;
        if (end > at)
            rc = t->spm ? spm_encode(m, text + at, end - at, space, out, st)
                        : bpe_encode(m, text + at, end - at, out, st);
        if (!rc && id >= 0) rc = token_list_add(out, id, st);
        at = end + length;
    }
    return rc;
}

int tokenizer_encode(const tokenizer *t, const char *text, size_t n, encode_options o, token_list *out, status *st)
{
    if (n >= INT32_MAX)
        return status_set(st, ST_LIMIT, STATUS_NO_POS, "a text of %zu bytes is too long to encode at once; cut it up",
                          n);
    size_t before = out->n, dropped = out->n_dropped;
    merger m = {.t = t, .rules = t->spm ? &SPM_RULES : &BPE_RULES};
    int rc = ST_OK;
    if (o.add_special && tokenizer_adds_bos(t)) rc = token_list_add(out, t->bos, st);
    if (!rc) rc = encode_text(&m, text, n, &o, out, st);
    if (!rc && o.add_special && tokenizer_adds_eos(t)) rc = token_list_add(out, t->eos, st);
    merger_deinit(&m);
    if (rc) {
        out->n = before;
        out->n_dropped = dropped;
    }
    return rc;
}
