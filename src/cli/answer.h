/* answer.h - one answer from prompt to closing line: sampling options, streaming to stdout, figures to stderr. For run
 * and chat. */
#ifndef KVASIR_CLI_ANSWER_H
#define KVASIR_CLI_ANSWER_H

#include <signal.h>

#include "base/strbuf.h"
#include "cli/runtime.h"
#include "fetch/progress.h"

/* For commands that make prompts of texts. */
#define PARSE_SPECIAL_OPTION                                                                                           \
    {                                                                                                                  \
        .name = "parse-special", .kind = OPTION_FLAG,                                                                  \
        .help = "control tokens that the texts name are those tokens, not letters"                                     \
    }
#define ANSWER_OPTIONS                                                                                                 \
    {.name = "ctx",                                                                                                    \
     .letter = 'c',                                                                                                    \
     .kind = OPTION_INT,                                                                                               \
     .arg = "N",                                                                                                       \
     .min = 1,                                                                                                         \
     .max = 1 << 30,                                                                                                   \
     .help = "tokens of context (default: the model's, less where memory is short)"},                                  \
        {.name = "overflow",                                                                                           \
         .kind = OPTION_CHOICE,                                                                                        \
         .arg = "POLICY",                                                                                              \
         .fallback = "stop",                                                                                           \
         .choices = "stop|window",                                                                                     \
         .help = "when the context is full: end the answer, or keep its beginning and newest half and compute those "  \
                 "anew"},                                                                                              \
        {.name = "max-tokens",                                                                                         \
         .letter = 'n',                                                                                                \
         .kind = OPTION_INT,                                                                                           \
         .arg = "N",                                                                                                   \
         .fallback = "-1",                                                                                             \
         .min = -1,                                                                                                    \
         .max = 1e9,                                                                                                   \
         .help = "most tokens of the answer (-1 = until the context is full)"},                                        \
        {.name = "temperature",                                                                                        \
         .kind = OPTION_FLOAT,                                                                                         \
         .arg = "T",                                                                                                   \
         .fallback = "0.8",                                                                                            \
         .min = 0,                                                                                                     \
         .max = 100,                                                                                                   \
         .help = "0 = the likeliest token always"},                                                                    \
        {.name = "top-k",                                                                                              \
         .kind = OPTION_INT,                                                                                           \
         .arg = "K",                                                                                                   \
         .fallback = "40",                                                                                             \
         .min = 0,                                                                                                     \
         .max = 1e9,                                                                                                   \
         .help = "of the K likeliest tokens (0 = off)"},                                                               \
        {.name = "top-p",                                                                                              \
         .kind = OPTION_FLOAT,                                                                                         \
         .arg = "P",                                                                                                   \
         .fallback = "0.95",                                                                                           \
         .min = 0,                                                                                                     \
         .max = 1,                                                                                                     \
         .help = "of the likeliest that make up P (1 = off)"},                                                         \
        {.name = "min-p",                                                                                              \
         .kind = OPTION_FLOAT,                                                                                         \
         .arg = "P",                                                                                                   \
         .fallback = "0.05",                                                                                           \
         .min = 0,                                                                                                     \
         .max = 1,                                                                                                     \
         .help = "of those at least P times as likely as the first (0 = off)"},                                        \
        {.name = "typical-p",                                                                                          \
         .kind = OPTION_FLOAT,                                                                                         \
         .arg = "P",                                                                                                   \
         .fallback = "1",                                                                                              \
         .min = 0,                                                                                                     \
         .max = 1,                                                                                                     \
         .help = "locally typical sampling (1 = off)"},                                                                \
        {.name = "repeat-penalty",                                                                                     \
         .kind = OPTION_FLOAT,                                                                                         \
         .arg = "X",                                                                                                   \
         .fallback = "1",                                                                                              \
         .min = 0.01,                                                                                                  \
         .max = 100,                                                                                                   \
         .help = "divides the logits of recent tokens (1 = off)"},                                                     \
        {.name = "presence-penalty",                                                                                   \
         .kind = OPTION_FLOAT,                                                                                         \
         .arg = "X",                                                                                                   \
         .fallback = "0",                                                                                              \
         .min = -100,                                                                                                  \
         .max = 100,                                                                                                   \
         .help = "taken from the logits of recent tokens"},                                                            \
        {.name = "frequency-penalty",                                                                                  \
         .kind = OPTION_FLOAT,                                                                                         \
         .arg = "X",                                                                                                   \
         .fallback = "0",                                                                                              \
         .min = -100,                                                                                                  \
         .max = 100,                                                                                                   \
         .help = "the same, for each time they occur"},                                                                \
        {.name = "penalty-last-n", .needs = "repeat-penalty|presence-penalty|frequency-penalty",                       \
         .kind = OPTION_INT,                                                                                           \
         .arg = "N",                                                                                                   \
         .fallback = "64",                                                                                             \
         .min = -1,                                                                                                    \
         .max = 1e9,                                                                                                   \
         .help = "how many tokens count as recent (-1 = all)"},                                                        \
        {.name = "dry-multiplier",                                                                                     \
         .kind = OPTION_FLOAT,                                                                                         \
         .arg = "X",                                                                                                   \
         .fallback = "0",                                                                                              \
         .min = 0,                                                                                                     \
         .max = 100,                                                                                                   \
         .help = "DRY: penalty on continuing a repeated run (0 = off)"},                                               \
        {.name = "dry-base", .needs = "dry-multiplier",                                                                \
         .kind = OPTION_FLOAT,                                                                                         \
         .arg = "X",                                                                                                   \
         .fallback = "1.75",                                                                                           \
         .min = 1,                                                                                                     \
         .max = 100,                                                                                                   \
         .help = "DRY: grows by this factor with each token of the run"},                                              \
        {.name = "dry-allowed-length", .needs = "dry-multiplier",                                                      \
         .kind = OPTION_INT,                                                                                           \
         .arg = "N",                                                                                                   \
         .fallback = "2",                                                                                              \
         .min = 0,                                                                                                     \
         .max = 1e9,                                                                                                   \
         .help = "DRY: runs shorter than this are free"},                                                              \
        {.name = "dry-last-n", .needs = "dry-multiplier",                                                              \
         .kind = OPTION_INT,                                                                                           \
         .arg = "N",                                                                                                   \
         .fallback = "-1",                                                                                             \
         .min = -1,                                                                                                    \
         .max = 1e9,                                                                                                   \
         .help = "DRY: looks back this far (-1 = all)"},                                                               \
        {.name = "dry-breaker", .needs = "dry-multiplier",                                                             \
         .kind = OPTION_STRING,                                                                                        \
         .arg = "TEXT",                                                                                                \
         .repeats = true,                                                                                              \
         .help = "DRY: runs don't reach across the tokens of this text"},                                              \
        {.name = "xtc-probability",                                                                                    \
         .kind = OPTION_FLOAT,                                                                                         \
         .arg = "P",                                                                                                   \
         .fallback = "0",                                                                                              \
         .min = 0,                                                                                                     \
         .max = 1,                                                                                                     \
         .help = "XTC: chance to drop the likeliest tokens (0 = off)"},                                                \
        {.name = "xtc-threshold", .needs = "xtc-probability",                                                          \
         .kind = OPTION_FLOAT,                                                                                         \
         .arg = "P",                                                                                                   \
         .fallback = "0.1",                                                                                            \
         .min = 0,                                                                                                     \
         .max = 1,                                                                                                     \
         .help = "XTC: of those at least this likely, all but the last"},                                              \
        {.name = "logit-bias",                                                                                         \
         .kind = OPTION_STRING,                                                                                        \
         .arg = "ID=BIAS",                                                                                             \
         .repeats = true,                                                                                              \
         .help = "added to a token's logit (-inf bans it)"},                                                           \
        {.name = "seed", .kind = OPTION_INT, .arg = "N", .fallback = "0", .help = "of the random draws"},              \
        {.name = "stop",                                                                                               \
         .kind = OPTION_STRING,                                                                                        \
         .arg = "TEXT",                                                                                                \
         .repeats = true,                                                                                              \
         .help = "the answer ends before this text"},                                                                  \
        {.name = "ignore-eos", .kind = OPTION_FLAG, .help = "go on after the end-of-text token"},                      \
    {                                                                                                                  \
        .name = "chat-template", .kind = OPTION_FILE, .arg = "FILE",                                                   \
        .help = "a Jinja template instead of the model's own"                                                          \
    }

typedef struct answer_options {
    generate_params params;
    logit_bias *bias;
    token_list breakers;
    const char *stops[16];
} answer_options;

/* Reads the options; deinit frees what params point to. */
int answer_options_init(answer_options *o, const args *a, const model *m, status *st);
void answer_options_deinit(answer_options *o);

/* ST_ARG where the text gave no tokens, and why; a note on stderr where bytes of it gave none, unless quiet. */
int answer_check_prompt(const token_list *ids, bool quiet, status *st);

typedef struct answer {
    strbuf text;                              /* what was said */
    bool stream;                              /* to stdout as it comes */
    bool quiet;                               /* no progress, no notices */
    const volatile sig_atomic_t *interrupted; /* set by a signal: the answer ends; NULL = never */
    finish_reason finish;
    session_stats stats;
    /* In the making. */
    session *session;
    progress bar;
    bool bar_shown;
} answer;

/* Runs one answer of the session to its end. The text is in a->text (answer_deinit frees it), whatever the outcome. */
int answer_run(answer *a, runtime *r, session *s, const int32_t *ids, size_t n, const generate_params *p, status *st);
void answer_deinit(answer *a);
/* The closing line on stderr: speeds, time to first token, context, cache bytes, GB/s. */
void answer_print_stats(const answer *a, const runtime *r);

/* Bytes of the blocks that n stored tokens of a sequence take. */
uint64_t answer_cache_bytes(const runtime *r, int64_t n_tokens);
/* GB/s of weights and cache that the answer's decode steps read; what a full context makes them compute anew is left
 * out. */
double answer_read_rate(const answer *a, const runtime *r);

#endif
