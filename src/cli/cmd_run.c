#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/answer.h"
#include "cli/conversation.h"

#define MAX_PROMPT_BYTES ((size_t)256 << 20)

/* The prompt: the positional argument, --file, or standard input. */
static int read_prompt(strbuf *out, const args *a, status *st)
{
    const char *text = args_positional(a, 1), *file = args_string(a, "file");
    if (text && file)
        return status_set(st, ST_ARG, STATUS_NO_POS, "give the prompt as an argument or with --file, not both");
    if (text) strbuf_puts(out, text);
    else if (file || !isatty(STDIN_FILENO)) file_read(out, file ? file : "-", MAX_PROMPT_BYTES, st);
    else
        return status_set(st, ST_ARG, STATUS_NO_POS,
                          "no prompt: give it as an argument, with --file, or on standard input");
    if (st->code || strbuf_check(out, st)) return st->code;
    return out->n_bytes ? ST_OK : status_set(st, ST_ARG, STATUS_NO_POS, "the prompt is empty; give it some text");
}

/* Without a template, or with --raw, the model goes on where the text stops. */
static int encode(token_list *ids, const args *a, const model *m, const strbuf *prompt, status *st)
{
    const char *system = args_string(a, "system");
    const encode_options raw = {.add_special = true, .parse_special = args_flag(a, "parse-special")};
    conversation c;
    if (system && *system && !m->chat_template && !args_given(a, "chat-template"))
        return status_set(st, ST_ARG, STATUS_NO_POS,
                          "%s has no chat template (a base model?), so a system message has no place; "
                          "--chat-template FILE gives it one",
                          m->name);
    if (args_flag(a, "raw") || (!m->chat_template && !args_given(a, "chat-template")))
        return tokenizer_encode(m->tok, strbuf_cstr(prompt), prompt->n_bytes, raw, ids, st);
    int rc = conversation_init(&c, m, args_string(a, "chat-template"), st);
    c.parse_special = raw.parse_special;
    if (rc == ST_OK && (!system || conversation_add(&c, "system", system, strlen(system), st) == ST_OK) &&
        conversation_add(&c, "user", strbuf_cstr(prompt), prompt->n_bytes, st) == ST_OK)
        conversation_encode(&c, m, ids, st);
    conversation_deinit(&c);
    return st->code;
}

static int print_json(const answer *n, const runtime *r, status *st)
{
    const session_stats *s = &n->stats;
    strbuf b;
    strbuf_init(&b, 0);
    strbuf_puts(&b, "{\"text\": ");
    strbuf_json(&b, strbuf_cstr(&n->text), n->text.n_bytes);
    strbuf_printf(&b,
                  ", \"finish\": \"%s\", \"prompt_tokens\": %lld, \"generated_tokens\": %lld, \"prefill_s\": %.6f, "
                  "\"decode_s\": %.6f, "
                  "\"first_token_s\": %.6f, \"context_used\": %lld, \"context\": %d, \"cache_bytes\": %llu, "
                  "\"read_gb_s\": %.2f}\n",
                  finish_name(n->finish), (long long)s->prompt_tokens, (long long)s->generated_tokens, s->prefill_s,
                  s->decode_s, s->first_token_s, (long long)s->context_used, engine_context(r->e),
                  (unsigned long long)answer_cache_bytes(r, s->stored_tokens), answer_read_rate(n, r));
    int rc = strbuf_check(&b, st);
    if (rc == ST_OK) fwrite(b.data, 1, b.n_bytes, stdout);
    strbuf_deinit(&b);
    return rc;
}

static int generate(runtime *r, const args *a, const token_list *ids, const generate_params *p, status *st)
{
    session *s;
    if (session_new(&s, r->e, st)) return st->code;
    bool json = args_flag(a, "json"), quiet = args_flag(a, "quiet");
    answer n = {.stream = !json, .quiet = quiet};
    int rc = answer_run(&n, r, s, ids->ids, ids->n, p, st);
    if (rc == ST_OK && json) rc = print_json(&n, r, st);
    if (!json && n.text.n_bytes && n.text.data[n.text.n_bytes - 1] != '\n') putchar('\n');
    fflush(stdout);
    if (rc == ST_OK && !quiet) answer_print_stats(&n, r);
    answer_deinit(&n);
    session_free(s);
    return rc;
}

static int run(const args *a, status *st)
{
    runtime r = {0};
    strbuf prompt;
    token_list ids = {0};
    answer_options o = {0};
    strbuf_init(&prompt, 0);
    engine_config c = {.context = (int)args_int(a, "ctx")};
    if (read_prompt(&prompt, a, st) == ST_OK && runtime_open(&r, a, args_positional(a, 0), c, st) == ST_OK &&
        encode(&ids, a, r.m, &prompt, st) == ST_OK && answer_check_prompt(&ids, args_flag(a, "quiet"), st) == ST_OK &&
        answer_options_init(&o, a, r.m, st) == ST_OK)
        generate(&r, a, &ids, &o.params, st);
    answer_options_deinit(&o);
    token_list_deinit(&ids);
    strbuf_deinit(&prompt);
    runtime_close(&r);
    return st->code ? 1 : 0;
}

static const option_spec options[] = {
    {.name = "file",
     .letter = 'f',
     .kind = OPTION_FILE,
     .arg = "FILE",
     .help = "read the prompt from a file (- = standard input)"},
    {.name = "raw", .excludes = "system|chat-template", .kind = OPTION_FLAG,
     .help = "no chat template: the model goes on where the text stops"},
    PARSE_SPECIAL_OPTION,
    {.name = "system",
     .letter = 's',
     .kind = OPTION_STRING,
     .arg = "TEXT",
     .help = "a system message before the prompt"},
    {.name = "quiet", .letter = 'q', .kind = OPTION_FLAG, .help = "nothing on standard error but errors"},
    {.name = "json", .kind = OPTION_FLAG, .help = "one JSON object with text and figures, at the end"},
    ANSWER_OPTIONS,
    RUNTIME_OPTIONS,
    CACHE_OPTIONS,
    {0},
};

const command cmd_run = {
    .name = "run",
    .positional = "MODEL [PROMPT]",
    .min_positional = 1,
    .max_positional = 2,
    .summary = "Answer one prompt",
    .details = "The prompt is the argument, the file of --file, or standard input. It is put into the model's chat "
               "template; with --raw, or for a model without a template, the model goes on where the text stops. The "
               "answer streams to standard output; a closing line on standard error tells speeds, time to first "
               "token, context and the cache's bytes.\n\n"
               "  kvasir run smollm2-135m-instruct \"Why is the sky blue?\"\n"
               "  kvasir run gemma-3-270m --raw \"The capital of France is\" -n 16 --temperature 0",
    .options = options,
    .run = run,
};
