/* Logprobs of an answer: a chat's list of tokens, a completion's four parallel lists. */
#include <math.h>

#include "base/utf8.h"
#include "serve/answer_json.h"

static void number(strbuf *out, float logprob)
{
    if (isfinite(logprob)) strbuf_printf(out, "%.9g", (double)logprob);
    else strbuf_puts(out, "-9999");
}

static bool is_text(gguf_str s)
{
    for (size_t i = 0; i < s.n;) {
        int len = utf8_length(s.data + i, s.n - i);
        if (len == 0) return false;
        i += (size_t)len;
    }
    return true;
}

/* A completion names tokens by their text alone, so one that isn't whole characters is spelled: "bytes:\xe2\x82". */
static void token_name(strbuf *out, gguf_str s)
{
    if (is_text(s)) {
        strbuf_json(out, s.data, s.n);
        return;
    }
    strbuf_puts(out, "\"bytes:");
    for (size_t i = 0; i < s.n; i++) strbuf_printf(out, "\\\\x%02x", (unsigned char)s.data[i]);
    strbuf_putc(out, '"');
}

static void chat_token(strbuf *out, const tokenizer *tok, int32_t id, float logprob)
{
    gguf_str s = tokenizer_piece(tok, id, true);
    strbuf_puts(out, "{\"token\":");
    strbuf_json(out, s.data, s.n);
    strbuf_puts(out, ",\"logprob\":");
    number(out, logprob);
    strbuf_puts(out, ",\"bytes\":[");
    for (size_t i = 0; i < s.n; i++) strbuf_printf(out, i ? ",%d" : "%d", (unsigned char)s.data[i]);
    strbuf_putc(out, ']');
}

static void chat_logprobs(strbuf *out, const token_record *r, size_t first, const tokenizer *tok)
{
    strbuf_puts(out, "{\"content\":[");
    for (size_t i = first; i < r->n; i++) {
        const recorded_token *t = &r->tokens[i];
        if (i > first) strbuf_putc(out, ',');
        chat_token(out, tok, t->id, t->logprob);
        strbuf_puts(out, ",\"top_logprobs\":[");
        for (int k = 0; k < t->n_top; k++) {
            const token_logprob *top = &r->tops[t->first_top + (size_t)k];
            if (k) strbuf_putc(out, ',');
            chat_token(out, tok, top->token, top->logprob);
            strbuf_putc(out, '}');
        }
        strbuf_puts(out, "]}");
    }
    strbuf_puts(out, "],\"refusal\":null}");
}

/* The lists of a completion, side by side in the making. */
typedef struct lists {
    strbuf tokens, logprobs, tops, offsets;
    const char *comma;
} lists;

static void add_pair(strbuf *out, const tokenizer *tok, int32_t id, float logprob)
{
    token_name(out, tokenizer_piece(tok, id, true));
    strbuf_putc(out, ':');
    number(out, logprob);
}

static void add_tops(strbuf *out, const token_record *r, const recorded_token *t, const tokenizer *tok)
{
    bool chosen = false;
    strbuf_putc(out, '{');
    for (int k = 0; k < t->n_top; k++) {
        const token_logprob *top = &r->tops[t->first_top + (size_t)k];
        chosen |= top->token == t->id;
        if (k) strbuf_putc(out, ',');
        add_pair(out, tok, top->token, top->logprob);
    }
    if (!chosen) {
        if (t->n_top) strbuf_putc(out, ',');
        add_pair(out, tok, t->id, t->logprob);
    }
    strbuf_putc(out, '}');
}

static void add_place(lists *l, const tokenizer *tok, int32_t id, size_t *characters)
{
    gguf_str s = tokenizer_piece(tok, id, true);
    strbuf_puts(&l->tokens, l->comma);
    token_name(&l->tokens, s);
    strbuf_printf(&l->offsets, "%s%zu", l->comma, *characters);
    strbuf_puts(&l->logprobs, l->comma);
    strbuf_puts(&l->tops, l->comma);
    l->comma = ",";
    for (size_t i = 0; i < s.n; i++) *characters += ((unsigned char)s.data[i] & 0xC0) != 0x80;
}

static void add_tokens(lists *l, const token_record *r, size_t first, size_t *characters, const tokenizer *tok)
{
    for (size_t i = first; i < r->n; i++) {
        add_place(l, tok, r->tokens[i].id, characters);
        number(&l->logprobs, r->tokens[i].logprob);
        add_tops(&l->tops, r, &r->tokens[i], tok);
    }
}

static void join(strbuf *out, const char *opening, strbuf *list)
{
    strbuf_puts(out, opening);
    strbuf_add(out, strbuf_cstr(list), list->n_bytes);
    strbuf_putc(out, ']');
    out->failed |= list->failed;
    strbuf_deinit(list);
}

void logprobs_json(strbuf *out, const job *j, const choice *c, size_t first, size_t *characters, const tokenizer *tok)
{
    const request *r = &j->request;
    const job_prompt *p = &j->prompts[c->prompt];
    if (!r->logprobs) {
        strbuf_puts(out, "null");
        return;
    }
    if (r->chat) {
        chat_logprobs(out, &c->tokens, first, tok);
        return;
    }
    lists l = {.comma = ""};
    if (r->echo && first == 0 && !c->opened) {
        add_place(&l, tok, p->ids.ids[0], characters); /* nothing comes before it that could make it likely */
        strbuf_puts(&l.logprobs, "null");
        strbuf_puts(&l.tops, "null");
        add_tokens(&l, &p->tokens, 0, characters, tok);
    }
    add_tokens(&l, &c->tokens, first, characters, tok);
    join(out, "{\"tokens\":[", &l.tokens);
    join(out, ",\"token_logprobs\":[", &l.logprobs);
    join(out, ",\"top_logprobs\":[", &l.tops);
    join(out, ",\"text_offset\":[", &l.offsets);
    strbuf_putc(out, '}');
}
