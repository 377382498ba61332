#include "serve/answer_json.h"

#include <string.h>

#define ENOUGH_BYTES ((size_t)256 << 10) /* of events at a time: logprobs of long prompts are large */

/* OpenAI knows two ways to end; a deadline is Kvasir's. */
static const char *finish_word(finish_reason r)
{
    switch (r) {
    case FINISH_EOS:
    case FINISH_STOP: return "stop";
    case FINISH_LENGTH:
    case FINISH_CONTEXT: return "length";
    default: return finish_name(r);
    }
}

static void head(strbuf *out, const job *j, const served_model *m, const char *object)
{
    strbuf_printf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", j->id, object,
                  (long long)j->created_unix_s);
    strbuf_json(out, m->name, strlen(m->name));
    strbuf_puts(out, ",\"choices\":[");
}

/* Each prompt counts once, however many answers it got; every answer that was made counts. */
static void usage(strbuf *out, const job *j, bool so_far)
{
    long long prompt = 0, cached = 0, answer = 0, pinned = 0;
    size_t dropped = 0;
    for (size_t i = 0; i < j->n_choices; i++) {
        const choice *c = &j->choices[i];
        answer += c->stats.generated_tokens;
        if (c->number != 0) continue;
        prompt += (long long)j->prompts[c->prompt].ids.n;
        cached += c->stats.reused_tokens;
        pinned += c->stats.pinned_tokens;
        dropped += j->prompts[c->prompt].ids.n_dropped;
    }
    strbuf_printf(out, "\"usage\":{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld", prompt,
                  answer, prompt + answer);
    if (!so_far) {
        strbuf_printf(out, ",\"prompt_tokens_details\":{\"cached_tokens\":%lld", cached);
        if (j->request.params.pin_s > 0) strbuf_printf(out, ",\"pinned_tokens\":%lld", pinned);
        if (dropped) strbuf_printf(out, ",\"dropped_bytes\":%zu", dropped);
        strbuf_putc(out, '}');
    }
    strbuf_putc(out, '}');
}

/* The text from byte `from` on; of a completion with echo, the prompt stands before it. Bytes of the two don't join to a
 * character, as they don't in a stream. */
static void text_json(strbuf *out, const job *j, const choice *c, size_t from)
{
    const job_prompt *p = &j->prompts[c->prompt];
    if (!j->request.echo || from > 0 || c->opened) {
        strbuf_json(out, strbuf_cstr(&c->text) + from, c->text.n_bytes - from);
        return;
    }
    strbuf both;
    strbuf_init(&both, 0);
    strbuf_utf8(&both, p->text, p->n_bytes);
    strbuf_utf8(&both, strbuf_cstr(&c->text), c->text.n_bytes);
    strbuf_json(out, strbuf_cstr(&both), both.n_bytes);
    out->failed |= both.failed;
    strbuf_deinit(&both);
}

static void finish_json(strbuf *out, finish_reason r)
{
    if (r == FINISH_NONE) strbuf_puts(out, ",\"finish_reason\":null}");
    else strbuf_printf(out, ",\"finish_reason\":\"%s\"}", finish_word(r));
}

static void whole_choice(strbuf *out, const job *j, const choice *c, size_t index, const served_model *m)
{
    utf8_counter place = {0};
    strbuf_printf(out, index ? ",{\"index\":%zu," : "{\"index\":%zu,", index);
    strbuf_puts(out, j->request.chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":");
    text_json(out, j, c, 0);
    strbuf_puts(out, j->request.chat ? "},\"logprobs\":" : ",\"logprobs\":");
    logprobs_json(out, j, c, 0, &place, m->m->tok);
    finish_json(out, c->finish);
}

/* The best of a prompt's choices that `taken` leaves; the first of equals. */
static size_t best_left(const choice *choices, size_t n, const bool *taken)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++)
        if (!taken[i] && (best == n || choice_score(&choices[i]) > choice_score(&choices[best]))) best = i;
    return best;
}

void answer_whole(strbuf *out, const job *j, const served_model *m)
{
    const request *r = &j->request;
    head(out, j, m, r->chat ? "chat.completion" : "text_completion");
    size_t best_of = (size_t)r->best_of, n = (size_t)r->n;
    for (size_t p = 0; p < j->n_prompts; p++) {
        const choice *choices = j->choices + p * best_of;
        bool taken[REQUEST_MAX_CHOICES] = {false};
        for (size_t i = 0; i < n; i++) {
            size_t k = best_of > n ? best_left(choices, best_of, taken) : i;
            taken[k] = true;
            whole_choice(out, j, &choices[k], p * n + i, m);
        }
    }
    strbuf_puts(out, "],");
    usage(out, j, false);
    strbuf_putc(out, '}');
}

static void begin_chunk(strbuf *out, const job *j, const served_model *m)
{
    strbuf_puts(out, "data: ");
    head(out, j, m, j->request.chat ? "chat.completion.chunk" : "text_completion");
}

static void end_chunk(strbuf *out, const job *j)
{
    strbuf_putc(out, ']');
    if (j->request.usage_in_chunks) {
        strbuf_putc(out, ',');
        usage(out, j, true);
    } else if (j->request.include_usage) {
        strbuf_puts(out, ",\"usage\":null");
    }
    strbuf_puts(out, "}\n\n");
}

/* What is new of a choice, or with `ends` its end. */
static void chunk(strbuf *out, job *j, choice *c, bool ends, const served_model *m)
{
    bool chat = j->request.chat;
    begin_chunk(out, j, m);
    strbuf_printf(out, "{\"index\":%zu,", c->prompt * (size_t)j->request.n + c->number);
    if (chat && ends) strbuf_puts(out, "\"delta\":{},\"logprobs\":null");
    else {
        strbuf_puts(out, !chat       ? "\"text\":"
                         : c->opened ? "\"delta\":{\"content\":"
                                     : "\"delta\":{\"role\":\"assistant\",\"content\":");
        text_json(out, j, c, c->sent_bytes);
        strbuf_puts(out, chat ? "},\"logprobs\":" : ",\"logprobs\":");
        logprobs_json(out, j, c, c->opened ? c->sent_tokens : 0, &c->sent_text, m->m->tok);
        c->sent_bytes = c->text.n_bytes;
        c->sent_tokens = c->tokens.n;
        c->opened = true;
    }
    finish_json(out, ends ? c->finish : FINISH_NONE);
    end_chunk(out, j);
}

/* Choices that have nothing to say may end before the one that computes the prompt has all of its logprobs. */
static bool lacks_prompt(const job *j, const choice *c)
{
    const job_prompt *p = &j->prompts[c->prompt];
    return j->request.params.prompt_logprobs && p->tokens.n + 1 < p->ids.n && j->state != JOB_DONE;
}

static bool has_grown(const choice *c)
{
    return c->text.n_bytes > c->sent_bytes || c->tokens.n > c->sent_tokens;
}

size_t answer_chunks_bytes(const job *j)
{
    const request *r = &j->request;
    size_t n = 0, token_bytes = r->logprobs ? 32 * (size_t)(r->params.n_logprobs + 2) : 0;
    for (size_t i = 0; i < j->n_choices; i++) {
        const choice *c = &j->choices[i];
        const job_prompt *p = &j->prompts[c->prompt];
        bool opens = !c->opened && (has_grown(c) || c->finish != FINISH_NONE);
        if (lacks_prompt(j, c)) continue;
        if (opens && r->echo) n += p->n_bytes + p->tokens.n * token_bytes;
        n += c->text.n_bytes - c->sent_bytes + (c->tokens.n - c->sent_tokens) * token_bytes;
    }
    return n;
}

bool answer_chunks(strbuf *out, job *j, const served_model *m)
{
    for (size_t i = 0; i < j->n_choices; i++) {
        if (out->n_bytes >= ENOUGH_BYTES) return false;
        choice *c = &j->choices[i];
        if (lacks_prompt(j, c)) continue;
        bool over = c->finish != FINISH_NONE && !c->closed;
        bool grew = has_grown(c) || (over && !c->opened);
        /* A chat ends with a chunk of its own, a completion with its last text. */
        if (grew && (j->request.chat || !over)) chunk(out, j, c, false, m);
        if (!over) continue;
        chunk(out, j, c, true, m);
        c->closed = true;
    }
    return true;
}

void answer_last(strbuf *out, const job *j, const served_model *m)
{
    if (j->state == JOB_FAILED) {
        strbuf_puts(out, "data: ");
        api_error_json(&j->error, out);
        strbuf_puts(out, "\n\n");
        return;
    }
    if (j->request.include_usage) {
        begin_chunk(out, j, m);
        strbuf_puts(out, "],");
        usage(out, j, false);
        strbuf_puts(out, "}\n\n");
    }
    strbuf_puts(out, "data: [DONE]\n\n");
}
