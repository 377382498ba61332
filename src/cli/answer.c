#include "cli/answer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "bench/bench.h"
#include "fetch/progress.h"

static int read_bias(answer_options *o, const args *a, status *st)
{
    int n = args_count(a, "logit-bias");
    o->bias = mem_array((size_t)n, sizeof *o->bias);
    if (!o->bias) return status_nomem(st, (uint64_t)n * sizeof *o->bias);
    for (int i = 0; i < n; i++) {
        const char *text = args_string_at(a, "logit-bias", i);
        char *end;
        long id = strtol(text, &end, 10);
        bool ok = end != text && *end == '=' && end[1] && id >= 0 && id <= INT32_MAX;
        float bias = ok ? strtof(end + 1, &end) : 0;
        if (!ok || *end || isnan(bias))
            return status_set(st, ST_ARG, STATUS_NO_POS, "--logit-bias %s: write ID=BIAS, as in 42=-1.5 or 42=-inf",
                              text);
        o->bias[i] = (logit_bias){(int32_t)id, bias};
    }
    o->params.sampling.bias = o->bias;
    o->params.sampling.n_bias = n;
    return ST_OK;
}

static int read_breakers(answer_options *o, const args *a, const model *m, status *st)
{
    int n = args_count(a, "dry-breaker");
    for (int i = 0; i < (n ? n : 1); i++) {
        const char *text = n ? args_string_at(a, "dry-breaker", i) : "\n";
        if (tokenizer_encode(m->tok, text, strlen(text), (encode_options){0}, &o->breakers, st)) return st->code;
    }
    o->params.sampling.dry_breakers = o->breakers.ids;
    o->params.sampling.n_dry_breakers = (int)o->breakers.n;
    return ST_OK;
}

static int read_stops(answer_options *o, const args *a, status *st)
{
    int n = args_count(a, "stop"), most = (int)(sizeof o->stops / sizeof *o->stops);
    if (n > most) return status_set(st, ST_ARG, STATUS_NO_POS, "--stop was given %d times; %d are possible", n, most);
    for (int i = 0; i < n; i++) o->stops[i] = args_string_at(a, "stop", i);
    o->params.stop = o->stops;
    o->params.n_stop = n;
    return ST_OK;
}

/* The likeliest token is not drawn. */
static void tell_of_no_effect(const args *a)
{
    static const char *const names[] = {"top-k", "top-p", "min-p", "typical-p", "xtc-probability", "seed"};
    if (args_float(a, "temperature") > 0 || args_flag(a, "quiet")) return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (args_given(a, names[i]))
            fprintf(stderr, "kvasir: --%s is of no effect: with --temperature 0 no token is drawn\n", names[i]);
}

int answer_options_init(answer_options *o, const args *a, const model *m, status *st)
{
    *o = (answer_options){0};
    o->params = (generate_params){
        .sampling = {.temperature = (float)args_float(a, "temperature"),
                     .top_k = (int)args_int(a, "top-k"),
                     .top_p = (float)args_float(a, "top-p"),
                     .min_p = (float)args_float(a, "min-p"),
                     .typical_p = (float)args_float(a, "typical-p"),
                     .repeat_penalty = (float)args_float(a, "repeat-penalty"),
                     .presence_penalty = (float)args_float(a, "presence-penalty"),
                     .frequency_penalty = (float)args_float(a, "frequency-penalty"),
                     .penalty_last_n = (int)args_int(a, "penalty-last-n"),
                     .dry_multiplier = (float)args_float(a, "dry-multiplier"),
                     .dry_base = (float)args_float(a, "dry-base"),
                     .dry_allowed_length = (int)args_int(a, "dry-allowed-length"),
                     .dry_last_n = (int)args_int(a, "dry-last-n"),
                     .xtc_probability = (float)args_float(a, "xtc-probability"),
                     .xtc_threshold = (float)args_float(a, "xtc-threshold"),
                     .seed = (uint64_t)args_int(a, "seed")},
        .max_tokens = args_int(a, "max-tokens"),
        .ignore_eos = args_flag(a, "ignore-eos"),
        .n_logprobs = -1,
        .overflow = strcmp(args_string(a, "overflow"), "window") == 0 ? OVERFLOW_WINDOW : OVERFLOW_STOP,
        .keep = -1,
    };
    if (read_bias(o, a, st) || read_breakers(o, a, m, st) || read_stops(o, a, st) ||
        sampler_check(&o->params.sampling, m->params.n_vocab, st)) {
        answer_options_deinit(o);
        return st->code;
    }
    tell_of_no_effect(a);
    return ST_OK;
}

void answer_options_deinit(answer_options *o)
{
    mem_free(o->bias);
    token_list_deinit(&o->breakers);
    o->bias = NULL;
}

static void hide_bar(answer *a)
{
    if (a->bar_shown) progress_end(&a->bar);
    a->bar_shown = false;
}

static void on_token(void *user, const token_event *t)
{
    answer *a = user;
    hide_bar(a);
    strbuf_add(&a->text, t->text, t->n_bytes);
    if (a->stream && t->n_bytes) {
        fwrite(t->text, 1, t->n_bytes, stdout);
        fflush(stdout);
    }
    if ((a->interrupted && *a->interrupted) || ferror(stdout)) session_cancel(a->session);
}

static void on_progress(void *user, int64_t done, int64_t total)
{
    answer *a = user;
    if (a->bar_shown) {
        a->bar.total = (uint64_t)total;
        progress_update(&a->bar, (uint64_t)done);
    }
    if (a->interrupted && *a->interrupted) session_cancel(a->session);
}

static void on_drop(void *user, int64_t n_dropped)
{
    answer *a = user;
    if (!a->quiet)
        fprintf(stderr,
                "\n[the context is full: %lld tokens were dropped after its beginning, the rest is computed anew]\n",
                (long long)n_dropped);
}

int answer_check_prompt(const token_list *ids, bool quiet, status *st)
{
    if (ids->n == 0 && ids->n_dropped)
        return status_set(st, ST_ARG, STATUS_NO_POS,
                          "the prompt is empty: none of its %zu bytes has a token in this model's vocabulary",
                          ids->n_dropped);
    if (ids->n_dropped && !quiet)
        fprintf(stderr, "kvasir: bytes of the prompt that have no token in this vocabulary were left out: %zu\n",
                ids->n_dropped);
    return ST_OK;
}

int answer_run(answer *a, runtime *r, session *s, const int32_t *ids, size_t n, const generate_params *p, status *st)
{
    session_callbacks cb = {.on_token = on_token, .on_progress = on_progress, .on_drop = on_drop, .user = a};
    a->session = s;
    if (session_start(s, ids, n, p, &cb, st)) return st->code;
    a->bar_shown = !a->quiet;
    if (a->bar_shown) progress_begin(&a->bar, "reading the prompt", n, "tokens");
    int rc = ST_OK;
    while (session_active(s) && rc == ST_OK) rc = engine_step(r->e, st);
    hide_bar(a);
    a->finish = session_finish(s);
    a->stats = session_get_stats(s);
    if (rc == ST_OK && a->finish == FINISH_ERROR) {
        *st = *session_error(s);
        rc = st->code;
    }
    return rc ? rc : strbuf_check(&a->text, st);
}

void answer_deinit(answer *a)
{
    strbuf_deinit(&a->text);
}

uint64_t answer_cache_bytes(const runtime *r, int64_t n_tokens)
{
    const kv_cache *c = engine_cache(r->e);
    uint64_t total = 0;
    for (int g = 0; g < kv_cache_n_groups(c); g++)
        total += kv_bytes(kv_cache_group(c, g), kv_cache_format(c), kv_cache_block_tokens(c), (uint64_t)n_tokens, 1);
    return total;
}

double answer_read_rate(const answer *a, const runtime *r)
{
    int64_t steps = a->stats.generated_tokens - 1;
    if (steps < 1 || a->stats.decode_s <= 0) return 0;
    double bytes = (double)r->m->step_bytes * (double)steps;
    for (int64_t i = 0; i < steps; i++) {
        int64_t before = a->stats.prompt_tokens + i;
        bytes += bench_cache_read(r->e, (double)(before < engine_context(r->e) ? before : engine_context(r->e)));
    }
    return bytes / a->stats.decode_s * 1e-9;
}

void answer_print_stats(const answer *a, const runtime *r)
{
    const session_stats *s = &a->stats;
    int64_t computed = s->prompt_tokens - s->reused_tokens, steps = s->generated_tokens - 1;
    char cache[BYTES_TEXT];
    fprintf(stderr, "prompt %lld tokens", (long long)s->prompt_tokens);
    if (s->reused_tokens) fprintf(stderr, " (%lld from the cache)", (long long)s->reused_tokens);
    if (s->prefill_s > 0) fprintf(stderr, ", %.0f tokens/s", (double)computed / s->prefill_s);
    fprintf(stderr, " | answer %lld tokens", (long long)s->generated_tokens);
    if (steps > 0 && s->decode_s > 0) fprintf(stderr, ", %.1f tokens/s", (double)steps / s->decode_s);
    fprintf(stderr, " | first token %.3f s | context %lld / %d | cache %s", s->first_token_s,
            (long long)s->context_used, engine_context(r->e),
            bytes_text(cache, answer_cache_bytes(r, s->stored_tokens)));
    double rate = answer_read_rate(a, r);
    if (rate > 0) fprintf(stderr, " | %.1f GB/s", rate);
    fprintf(stderr, " | %s\n", finish_name(a->finish));
}
