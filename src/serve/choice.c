#include "serve/choice.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

static bool grow(void **p, size_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity) return true;
    size_t n = *capacity ? 2 * *capacity : 32;
    if (n < need) n = need;
    void *q = mem_resize(*p, n, size);
    if (!q) return false;
    *p = q;
    *capacity = n;
    return true;
}

bool token_record_add(token_record *r, const token_event *t)
{
    size_t n_top = (size_t)t->n_top;
    void *tokens = r->tokens, *tops = r->tops;
    bool fits = grow(&tokens, &r->capacity, r->n + 1, sizeof *r->tokens);
    r->tokens = tokens;
    fits = fits && grow(&tops, &r->tops_capacity, r->n_tops + n_top, sizeof *r->tops);
    r->tops = tops;
    if (!fits) return false;
    if (n_top) memcpy(r->tops + r->n_tops, t->top, n_top * sizeof *r->tops);
    r->tokens[r->n++] = (recorded_token){t->token, t->logprob, r->n_tops, t->n_top};
    r->n_tops += n_top;
    return true;
}

void token_record_deinit(token_record *r)
{
    mem_free(r->tokens);
    mem_free(r->tops);
    *r = (token_record){0};
}

void choice_deinit(choice *c)
{
    strbuf_deinit(&c->text);
    token_record_deinit(&c->tokens);
}

bool choice_add(choice *c, const token_event *t, bool record)
{
    strbuf_add(&c->text, t->text, t->n_bytes);
    c->logprob_sum += (double)t->logprob;
    c->stats.generated_tokens++;
    return (!record || token_record_add(&c->tokens, t)) && !c->text.failed;
}

double choice_score(const choice *c)
{
    return c->stats.generated_tokens ? c->logprob_sum / (double)c->stats.generated_tokens : -INFINITY;
}
