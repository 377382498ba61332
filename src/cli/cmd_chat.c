#include <editline/readline.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "cli/answer.h"
#include "cli/conversation.h"

typedef struct chat {
    runtime r;
    session *session;
    conversation conversation;
    answer_options options;
    answer last;      /* figures of the newest answer */
    int64_t answered; /* tokens of all answers */
    bool tty, quiet;
    char *history; /* file of typed lines; NULL = none is kept */
} chat;

/* Ctrl-C stops the answer, not the program; between answers it is the terminal's again. */
static volatile sig_atomic_t interrupted;

static void interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

static const char help_text[] = "/reset        forget the conversation (a system message stays)\n"
                                "/system TEXT  set the system message and begin anew (no TEXT: none)\n"
                                "/save FILE    write the conversation as JSON\n"
                                "/load FILE    go on with a saved one\n"
                                "/stats        context, cache and speeds\n"
                                "/help         this\n"
                                "/quit         leave (so does Ctrl-D); Ctrl-C stops an answer\n";

/* One line and its length, NULL at the end of input; free with free(). */
static char *read_line(const chat *c, size_t *n_bytes)
{
    char *typed = c->tty ? readline("> ") : NULL;
    if (c->tty) {
        *n_bytes = typed ? strlen(typed) : 0;
        return typed;
    }
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n = getline(&line, &capacity, stdin);
    if (n < 0) {
        free(line);
        return NULL;
    }
    if (n && line[n - 1] == '\n') line[--n] = 0;
    if (n && line[n - 1] == '\r') line[--n] = 0; /* of a file from elsewhere */
    *n_bytes = (size_t)n;
    return line;
}

static void print_stats(const chat *c)
{
    const kv_cache *cache = engine_cache(c->r.e);
    for (int g = 0; g < kv_cache_n_groups(cache); g++) {
        pool_counts n = pool_count(kv_cache_pool(cache, g));
        const kv_group *group = kv_cache_group(cache, g);
        char window[32] = "all tokens";
        if (group->layout.window) snprintf(window, sizeof window, "a window of %d", group->layout.window);
        fprintf(stderr, "cache group %d: %d layers over %s, %u of %u blocks cached\n", g, group->n_layers, window,
                n.cached, n.total);
    }
    fprintf(stderr, "%zu messages, %lld tokens answered\n", c->conversation.n, (long long)c->answered);
    if (c->last.stats.prompt_tokens) answer_print_stats(&c->last, &c->r);
}

static void reset(chat *c)
{
    bool system = c->conversation.n && strcmp(c->conversation.messages[0].role, "system") == 0;
    conversation_truncate(&c->conversation, system);
}

typedef enum command_rest { REST_NONE, REST_ANY, REST_FILE } command_rest;

/* Whether `line` is this command, with what it takes behind its name. */
static bool is(const char *line, const char *name, command_rest takes, status *st)
{
    size_t n = strcspn(line, " ");
    const char *rest = line + n + strspn(line + n, " ");
    if (n != strlen(name) || memcmp(line, name, n) != 0) return false;
    if (takes == REST_NONE && *rest) status_set(st, ST_ARG, STATUS_NO_POS, "%s takes nothing; got '%s'", name, rest);
    if (takes == REST_FILE && !*rest) status_set(st, ST_ARG, STATUS_NO_POS, "%s needs a file", name);
    return true;
}

static void unknown_command(const char *line, status *st)
{
    static const char *const names[] = {"/reset", "/system", "/save", "/load", "/stats", "/help", "/quit"};
    int n = (int)strcspn(line, " ");
    nearest near;
    char word[64];
    snprintf(word, sizeof word, "%.*s", n, line);
    nearest_init(&near, word);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) nearest_offer(&near, names[i]);
    status_set(st, ST_ARG, STATUS_NO_POS, "there is no command '%s'%s%s%s; /help lists them", word,
               near.best ? "; did you mean '" : "", near.best ? near.best : "", near.best ? "'?" : "");
}

/* A line that begins with a slash. Returns false to leave. */
static bool obey(chat *c, const char *line, status *st)
{
    size_t n = strcspn(line, " ");
    const char *rest = line + n + strspn(line + n, " ");
    bool leaves = is(line, "/quit", REST_NONE, st) || is(line, "/exit", REST_NONE, st);
    if (leaves) return st->code != ST_OK;
    if (is(line, "/reset", REST_NONE, st)) {
        if (st->code == ST_OK) reset(c);
    } else if (is(line, "/system", REST_ANY, st)) {
        conversation_truncate(&c->conversation, 0);
        conversation_set_system(&c->conversation, rest, st);
    } else if (is(line, "/save", REST_FILE, st)) {
        if (st->code == ST_OK) conversation_save(&c->conversation, rest, st);
    } else if (is(line, "/load", REST_FILE, st)) {
        if (st->code == ST_OK) conversation_load(&c->conversation, rest, st);
    } else if (is(line, "/stats", REST_NONE, st)) {
        if (st->code == ST_OK) print_stats(c);
    } else if (is(line, "/help", REST_NONE, st)) {
        if (st->code == ST_OK) fputs(help_text, stderr);
    } else {
        unknown_command(line, st);
    }
    return true;
}

static int answer_line(chat *c, const char *line, size_t n_bytes, status *st)
{
    size_t before = c->conversation.n;
    token_list ids = {0};
    answer a = {.stream = true, .quiet = c->quiet || !c->tty, .interrupted = &interrupted};
    if (conversation_add(&c->conversation, "user", line, n_bytes, st) == ST_OK &&
        conversation_encode(&c->conversation, c->r.m, &ids, st) == ST_OK &&
        answer_check_prompt(&ids, c->quiet, st) == ST_OK) {
        struct sigaction catch = {.sa_handler = interrupt}, before_it;
        interrupted = 0;
        sigaction(SIGINT, &catch, &before_it);
        answer_run(&a, &c->r, c->session, ids.ids, ids.n, &c->options.params, st);
        sigaction(SIGINT, &before_it, NULL);
        putchar('\n');
        fflush(stdout);
    }
    if (st->code == ST_OK) conversation_add(&c->conversation, "assistant", strbuf_cstr(&a.text), a.text.n_bytes, st);
    if (st->code) conversation_truncate(&c->conversation, before);
    else {
        if (!c->quiet) answer_print_stats(&a, &c->r);
        c->answered += a.stats.generated_tokens;
        c->last = (answer){.stats = a.stats, .finish = a.finish};
    }
    answer_deinit(&a);
    token_list_deinit(&ids);
    return st->code;
}

/* At a terminal an error is told, and the conversation goes on without that line; lines of a script were written for
 * what the one before them did, so there it is the end. */
static int talk(chat *c, status *st)
{
    char *line;
    size_t n = 0;
    bool go_on = true;
    while (go_on && !ferror(stdout) && (line = read_line(c, &n))) {
        if (c->tty && n) add_history(line);
        if (*line == '/') go_on = obey(c, line, st);
        else if (n) answer_line(c, line, n, st);
        free(line);
        if (st->code && !c->tty) return st->code;
        if (st->code) {
            fflush(stdout);
            fprintf(stderr, "kvasir: %s\n", st->text);
        }
        *st = (status)STATUS_INIT;
    }
    if (c->tty) fputc('\n', stderr);
    if (!c->tty && ferror(stdin))
        status_set(st, ST_IO, STATUS_NO_POS, "standard input can't be read: %s", strerror(errno));
    return st->code;
}

/* Lines typed are kept in $XDG_STATE_HOME/kvasir, else in ~/.local/state/kvasir, which others can't read; NULL when
 * there is no place for them. */
static char *history_path(void)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    strbuf b;
    strbuf_init(&b, 0);
    if (state && *state == '/') strbuf_printf(&b, "%s/kvasir", state);
    else if (home && *home) strbuf_printf(&b, "%s/.local/state/kvasir", home);
    bool there = strbuf_cstr(&b)[0] && directory_create(strbuf_cstr(&b), 0700);
    strbuf_puts(&b, "/chat-history");
    char *path = there ? strbuf_take(&b, NULL) : NULL;
    strbuf_deinit(&b);
    return path;
}

static int open_chat(chat *c, const args *a, status *st)
{
    engine_config e = {.context = (int)args_int(a, "ctx")};
    const char *system = args_string(a, "system");
    if (runtime_open(&c->r, a, args_positional(a, 0), e, st) || session_new(&c->session, c->r.e, st) ||
        conversation_init(&c->conversation, c->r.m, args_string(a, "chat-template"), st) ||
        answer_options_init(&c->options, a, c->r.m, st) ||
        (system && conversation_set_system(&c->conversation, system, st)))
        return st->code;
    c->conversation.parse_special = args_flag(a, "parse-special");
    if (!c->conversation.template)
        fprintf(stderr,
                "%s has no chat template (a base model?): it goes on where your text stops. --chat-template FILE gives "
                "it one.\n",
                c->r.m->name);
    return ST_OK;
}

static int run(const args *a, status *st)
{
    chat c = {.tty = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO), .quiet = args_flag(a, "quiet")};
    int rc = 1;
    if (open_chat(&c, a, st) == ST_OK) {
        if (c.tty) {
            c.history = history_path();
            using_history();
            if (c.history) read_history(c.history);
            fprintf(stderr, "%s, context %d. /help lists commands, Ctrl-D leaves.\n", c.r.m->name,
                    engine_context(c.r.e));
        }
        rc = talk(&c, st) ? 1 : 0;
        if (c.history) write_history(c.history);
    }
    mem_free(c.history);
    answer_options_deinit(&c.options);
    conversation_deinit(&c.conversation);
    session_free(c.session);
    runtime_close(&c.r);
    return rc;
}

static const option_spec options[] = {
    {.name = "system",
     .letter = 's',
     .kind = OPTION_STRING,
     .arg = "TEXT",
     .help = "a system message before the conversation"},
    PARSE_SPECIAL_OPTION,
    {.name = "quiet", .letter = 'q', .kind = OPTION_FLAG, .help = "no closing lines"},
    ANSWER_OPTIONS,
    RUNTIME_OPTIONS,
    CACHE_OPTIONS,
    {0},
};

const command cmd_chat = {
    .name = "chat",
    .positional = "MODEL",
    .min_positional = 1,
    .max_positional = 1,
    .summary = "Talk with a model",
    .details = "A conversation on the terminal, with line editing and a history of the lines typed "
               "(~/.local/state/kvasir/chat-history). What was said before stays in the cache: each turn computes its "
               "new tokens only. Lines that begin with a slash are commands; /help "
               "lists them. When standard input is not a terminal, every line is a turn, and the first that fails is "
               "the last.\n\n"
               "  kvasir chat smollm2-135m-instruct --system \"You answer in one sentence.\"",
    .options = options,
    .run = run,
};
