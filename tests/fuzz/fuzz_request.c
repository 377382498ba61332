/* The body of a request: the first byte chooses completion, chat, tokenize or detokenize, and how strict. What is accepted, the sampler, the stop strings and the vocabulary accept
 * too; what is refused is refused with an error that is itself JSON. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/stop.h"
#include "serve/request.h"

#define N_VOCAB 1000
#define HEADER_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.?, "

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool holds)
{
    if (!holds) abort();
}

static void check_ids(const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) check(ids[i] >= 0 && ids[i] < N_VOCAB);
}

static void check_prompts(const request *r)
{
    check(r->n_prompts >= 1 && r->n_prompts * (size_t)r->best_of <= REQUEST_MAX_CHOICES);
    for (size_t i = 0; i < r->n_prompts && !r->chat; i++) {
        const prompt_source *p = &r->prompts[i];
        check((p->text != NULL) != (p->ids != NULL));
        check_ids(p->ids, p->n_ids);
    }
    for (size_t i = 0; i < r->n_messages; i++)
        check(json_is_string(json_object_get(json_array_get(r->messages, i), "role")));
}

static void check_accepted(const request *r)
{
    status st = STATUS_INIT;
    stop_set stops;
    const generate_params *p = &r->params;
    check(r->n >= 1 && r->best_of >= r->n && r->best_of <= REQUEST_MAX_CHOICES);
    check(!r->chat == (r->prompts != NULL) && r->chat == (r->messages != NULL));
    check(strlen(r->ignored) < sizeof r->ignored && strspn(r->ignored, HEADER_CHARACTERS) == strlen(r->ignored));
    check(sampler_check(&p->sampling, N_VOCAB, &st) == ST_OK);
    check(stop_init(&stops, p->stop, p->n_stop, &st) == ST_OK);
    stop_deinit(&stops);
    check(p->n_logprobs >= -1 && p->n_logprobs <= MAX_LOGPROBS && p->max_tokens >= -1);
    check(p->deadline_s >= 0 && p->deadline_s <= MAX_SECONDS && p->pin_s >= 0 && p->pin_s <= MAX_SECONDS);
    check_ids(p->stop_tokens, (size_t)p->n_stop_tokens);
    check_prompts(r);
}

static void check_refused(const api_error *e, int code)
{
    strbuf b;
    strbuf_init(&b, 0);
    check(code == e->http_status && (code == 400 || code == 404 || code == 503) && e->message[0]);
    api_error_json(e, &b);
    json_t *v = json_loadb(strbuf_cstr(&b), b.n_bytes, 0, NULL);
    check(json_is_string(json_object_get(json_object_get(v, "error"), "message")));
    json_decref(v);
    strbuf_deinit(&b);
}

/* Capitals are strict. */
static request_kind kind_of(uint8_t letter)
{
    switch (letter | 0x20) {
    case 'c': return REQUEST_CHAT;
    case 'o': return REQUEST_TOKENIZE;
    case 'd': return REQUEST_DETOKENIZE;
    default: return REQUEST_COMPLETION;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0) return 0;
    uint64_t live = mem_stats().live;
    request r;
    api_error e = {0};
    static const char *const names[] = {"m", NULL};
    const request_rules rules = {.n_vocab = N_VOCAB, .names = names, .lenient = data[0] & 0x20};
    int code = request_parse(&r, kind_of(data[0]), &rules, (const char *)data + 1, n - 1, &e);
    if (code) check_refused(&e, code);
    else check_accepted(&r);
    request_deinit(&r);
    check(mem_stats().live == live);
    return 0;
}
