/* Logprobs of an answer: a chat's list of tokens, a completion's four parallel lists. */
#include <math.h>

#include <string.h>

#include "base/utf8.h"
#include "serve/answer_json.h"

static void number(strbuf *out, float logprob)
{
    if (isfinite(logprob)) strbuf_printf(out, "%.9g", (double)logprob);
    else strbuf_puts(out, "-9999");
}

/* A completion names tokens by their text alone, so one that isn't whole characters is spelled: "bytes:\xe2\x82". */
static void token_name(strbuf *out, gguf_str s)
{
    if (utf8_valid(s.data, s.n)) {
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

/* Where tokens stand in the text that is sent: in the prompt's, or (prompt NULL) in the answer's. */
typedef struct walk {
    const job_prompt *prompt;
    size_t at; /* bytes of the prompt that have been passed */
    bool show_special;
    utf8_counter *place;
} walk;

#define MAX_GAP 8 /* bytes of a prompt that no token stands for, or an unknown one */

/* The piece as it stands in the prompt's text, where the walk moves to. A bos that was added does not stand there, nor does
 * the space that an SPM vocabulary adds. */
static gguf_str find_in_prompt(walk *w, gguf_str s, bool control)
{
    const char *text = w->prompt->text + w->at;
    size_t left = w->prompt->n_bytes - w->at;
    for (size_t gap = 0; gap <= (control ? 0 : MAX_GAP) && gap <= left; gap++)
        for (size_t skip = 0; skip <= (s.n > 1 && s.data[0] == ' '); skip++) {
            size_t n = s.n - skip;
            if (n == 0 || n > left - gap || memcmp(text + gap, s.data + skip, n) != 0) continue;
            utf8_count(w->place, text, gap);
            w->at += gap + n;
            return (gguf_str){s.data + skip, n};
        }
    return (gguf_str){"", 0};
}

static void add_place(lists *l, walk *w, const tokenizer *tok, int32_t id)
{
    gguf_str s = tokenizer_piece(tok, id, true);
    gguf_str shown =
        w->prompt ? find_in_prompt(w, s, tokenizer_is_control(tok, id)) : tokenizer_piece(tok, id, w->show_special);
    strbuf_puts(&l->tokens, l->comma);
    token_name(&l->tokens, s);
    strbuf_printf(&l->offsets, "%s%zu", l->comma, w->place->n);
    strbuf_puts(&l->logprobs, l->comma);
    strbuf_puts(&l->tops, l->comma);
    l->comma = ",";
    utf8_count(w->place, shown.data, shown.n);
}

static void add_tokens(lists *l, walk *w, const token_record *r, size_t first, const tokenizer *tok)
{
    for (size_t i = first; i < r->n; i++) {
        add_place(l, w, tok, r->tokens[i].id);
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

void logprobs_json(strbuf *out, const job *j, const choice *c, size_t first, utf8_counter *place, const tokenizer *tok)
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
    walk w = {.show_special = !r->skip_special, .place = place};
    if (r->echo && first == 0 && !c->opened) {
        w.prompt = p;
        add_place(&l, &w, tok, p->ids.ids[0]); /* nothing comes before it that could make it likely */
        strbuf_puts(&l.logprobs, "null");
        strbuf_puts(&l.tops, "null");
        add_tokens(&l, &w, &p->tokens, 0, tok);
        utf8_count(place, p->text + w.at, p->n_bytes - w.at);
        place->missing = 0; /* the answer's bytes don't go on with it */
        w.prompt = NULL;
    }
    add_tokens(&l, &w, &c->tokens, first, tok);
    join(out, "{\"tokens\":[", &l.tokens);
    join(out, ",\"token_logprobs\":[", &l.logprobs);
    join(out, ",\"top_logprobs\":[", &l.tops);
    join(out, ",\"text_offset\":[", &l.offsets);
    strbuf_putc(out, '}');
}
