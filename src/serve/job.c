#include "serve/job.h"

#include <stddef.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "serve/chat_prompt.h"

job *job_new(void (*resume)(void *connection))
{
    job *j = mem_calloc(1, sizeof *j);
    if (!j) return NULL;
    pthread_mutex_init(&j->lock, NULL);
    j->resume = resume;
    j->created_unix_s = (int64_t)time(NULL);
    j->submitted_ns = j->last_output_ns = clock_ns();
    atomic_init(&j->refs, 1);
    return j;
}

job *job_ref(job *j)
{
    atomic_fetch_add(&j->refs, 1);
    return j;
}

void job_unref(job *j)
{
    if (!j || atomic_fetch_sub(&j->refs, 1) > 1) return;
    for (size_t i = 0; i < j->n_choices; i++) choice_deinit(&j->choices[i]);
    for (size_t i = 0; i < j->n_prompts; i++) {
        token_list_deinit(&j->prompts[i].ids);
        token_record_deinit(&j->prompts[i].tokens);
    }
    strbuf_deinit(&j->body);
    strbuf_deinit(&j->answer);
    request_deinit(&j->request);
    mem_free(j->choices);
    mem_free(j->prompts);
    pthread_mutex_destroy(&j->lock);
    mem_free(j);
}

void job_wake(job *j)
{
    pthread_mutex_lock(&j->lock);
    void *connection = j->waiting;
    j->waiting = NULL;
    if (connection) j->resume(connection);
    pthread_mutex_unlock(&j->lock);
}

void job_unpark(job *j)
{
    pthread_mutex_lock(&j->lock);
    if (j->parked) j->waiting = j->parked;
    j->parked = NULL;
    pthread_mutex_unlock(&j->lock);
}

void job_fail_locked(job *j, const api_error *e)
{
    if (j->state == JOB_FAILED) return;
    j->state = JOB_FAILED;
    j->error = *e;
}

void job_fail(job *j, const api_error *e)
{
    pthread_mutex_lock(&j->lock);
    job_fail_locked(j, e);
    pthread_mutex_unlock(&j->lock);
}

int job_take_answer(job *j, strbuf *answer, const char *advice, api_error *e)
{
    if (answer->failed) {
        if (answer->over_limit)
            api_error_set(e, 400, "answer_too_large", NULL, "the answer is larger than %zu MiB; %s",
                          JOB_MAX_ANSWER_BYTES >> 20, advice);
        else api_error_nomem(e);
        strbuf_deinit(answer);
        return e->http_status;
    }
    pthread_mutex_lock(&j->lock);
    j->answer = *answer;
    j->state = JOB_ANSWERED;
    pthread_mutex_unlock(&j->lock);
    return 0;
}

void job_set_state(job *j, job_state state)
{
    pthread_mutex_lock(&j->lock);
    j->state = state;
    pthread_mutex_unlock(&j->lock);
}

/* A text that can't fit isn't even tokenized. */
static int check_length(size_t n_bytes, const served_model *m, api_error *e)
{
    if (n_bytes / m->longest_piece <= (size_t)m->context) return 0;
    return api_error_set(
        e, 400, "context_length_exceeded", "prompt",
        "the prompt's %zu bytes are more than %zu tokens, but the context holds %d; shorten the prompt", n_bytes,
        n_bytes / m->longest_piece, m->context);
}

/* What echo shows outlives the JSON. */
static int keep_text(job_prompt *p, request *r, const char *text, size_t n_bytes, api_error *e)
{
    p->text = arena_strndup(&r->arena, text, n_bytes);
    p->n_bytes = n_bytes;
    return p->text ? 0 : api_error_nomem(e);
}

static int encode_text(job_prompt *p, request *r, const prompt_source *s, const served_model *m, api_error *e)
{
    encode_options o = {.add_special = r->add_special, .parse_special = r->parse_special};
    if (check_length(s->n_bytes, m, e)) return e->http_status;
    if (prompt_encode(m, s->text, s->n_bytes, o, "prompt", &p->ids, e)) return e->http_status;
    return r->echo ? keep_text(p, r, s->text, s->n_bytes, e) : 0;
}

/* Ids as they came, with their text for echo. */
static int take_ids(job_prompt *p, request *r, const prompt_source *s, const served_model *m, api_error *e)
{
    status st = STATUS_INIT;
    for (size_t i = 0; i < s->n_ids; i++)
        if (token_list_add(&p->ids, s->ids[i], &st)) return api_error_from_status(e, &st);
    if (!r->echo) return 0;
    strbuf text;
    strbuf_init(&text, 0);
    int rc = tokenizer_decode(m->m->tok, s->ids, s->n_ids, !r->skip_special, &text, &st);
    rc = rc ? api_error_from_status(e, &st) : keep_text(p, r, strbuf_cstr(&text), text.n_bytes, e);
    strbuf_deinit(&text);
    return rc;
}

/* Refuses what can't fit even alone, with the numbers. */
static int check_fit(const job_prompt *p, request *r, const served_model *m, api_error *e)
{
    const char *field_name = r->chat ? "messages" : "prompt";
    size_t n = p->ids.n;
    if (n == 0 && p->ids.n_dropped)
        return api_error_set(e, 400, "invalid_value", field_name,
                             "the prompt is empty: none of its %zu bytes has a token in this model's vocabulary",
                             p->ids.n_dropped);
    status st = STATUS_INIT;
    bool open_end = r->max_tokens < 0;
    int64_t n_answer = open_end ? max_i64(1, r->params.min_tokens) : r->max_tokens;
    if (context_check(m->context, n, n_answer, &st) == ST_OK) return 0;
    if (st.code == ST_ARG) return api_error_set(e, 400, "invalid_value", field_name, "%s", st.text);
    if (n < (size_t)m->context)
        field_name = open_end ? "min_tokens" : request_name_given(r, offsetof(request, max_tokens));
    return api_error_set(e, 400, "context_length_exceeded", field_name, "%s", st.text);
}

static int prepare_prompt(job *j, size_t i, const served_model *m, api_error *e)
{
    request *r = &j->request;
    job_prompt *p = &j->prompts[i];
    int rc;
    if (r->chat) rc = chat_prompt_ids(r, m, &p->ids, e);
    else {
        const prompt_source *s = &r->prompts[i];
        rc = s->text ? encode_text(p, r, s, m, e) : take_ids(p, r, s, m, e);
    }
    return rc ? rc : check_fit(p, r, m, e);
}

int job_prepare(job *j, const served_model *m, api_error *e)
{
    request *r = &j->request;
    size_t n_choices = r->n_prompts * (size_t)r->best_of;
    if (n_choices > (size_t)m->max_choices)
        return api_error_set(e, 400, "invalid_value", r->best_of > r->n ? "best_of" : "n",
                             "%zu choices are asked for; this server makes %d at once: ask for fewer", n_choices, m->max_choices);
    if (r->parse_special && !m->allow_parse_special)
        return api_error_set(e, 400, "unsupported_value", "parse_special",
                             "this server takes no control tokens from texts; leave 'parse_special' out, or have it started "
                             "with --allow-parse-special");
    j->prompts = mem_calloc(r->n_prompts, sizeof *j->prompts);
    j->choices = mem_calloc(n_choices, sizeof *j->choices);
    if (!j->prompts || !j->choices) return api_error_nomem(e);
    j->n_prompts = r->n_prompts;
    for (size_t i = 0; i < r->n_prompts; i++)
        if (prepare_prompt(j, i, m, e)) return e->http_status;
    request_forget_json(r);
    for (size_t i = 0; i < n_choices; i++)
        j->choices[i] =
            (choice){.job = j, .prompt = i / (size_t)r->best_of, .number = (uint32_t)i % (uint32_t)r->best_of};
    j->n_choices = j->n_open = n_choices;
    return 0;
}
