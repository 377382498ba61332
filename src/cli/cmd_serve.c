#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/mem.h"
#include "cli/conversation.h"
#include "cli/runtime.h"
#include "fetch/progress.h"
#include "serve/server.h"

#define SPARE_FILES 64 /* besides connections: standard ones, the model, epoll, ... */

typedef struct serving {
    server *server;
    runtime r;
    strbuf chat_template; /* of --chat-template */
    char *own_name;       /* the model's, without folders and ending */
    const char **names;   /* what clients call it: aliases, then its own; NULL behind the last */
    pthread_t signals;    /* the thread that waits for them */
    double drain_s;
    _Atomic bool loaded, over;
} serving;

static void write_line(void *user, log_level level, const char *line)
{
    (void)user, (void)level;
    fprintf(stderr, "kvasir: %s\n", line);
}

static const log_sink log_to_stderr = {.write = write_line, .least = LOG_LEVEL_INFO};

static sigset_t stop_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    return set;
}

static void die_of(int signal_number)
{
    sigset_t set = stop_signals();
    signal(signal_number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    raise(signal_number);
}

/* The first signal drains, the second cuts off what is left, the third ends the program as it is; before there is
 * anything to drain, the first one does that. */
static void *wait_for_signals(void *arg)
{
    serving *s = arg;
    sigset_t set = stop_signals();
    for (int n = 0;; n++) {
        int number;
        sigwait(&set, &number);
        if (atomic_load(&s->over)) return NULL;
        if (!atomic_load(&s->loaded) || n == 2) die_of(number);
        if (n == 0) fprintf(stderr, "kvasir: no new requests; waiting for those at work (again: cut them off)\n");
        server_drain(s->server, n == 0 ? s->drain_s : 0);
    }
}

/* Before there is any other thread, so that they all leave the signals to the one that waits. */
static int start_signals(serving *s, status *st)
{
    sigset_t set = stop_signals();
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    int rc = pthread_create(&s->signals, NULL, wait_for_signals, s);
    return rc ? status_set(st, ST_IO, STATUS_NO_POS, "a thread can't be started: %s", strerror(rc)) : ST_OK;
}

static void stop_signals_thread(serving *s)
{
    atomic_store(&s->over, true);
    pthread_kill(s->signals, SIGTERM);
    pthread_join(s->signals, NULL);
}

static void allow_files(int connections)
{
    struct rlimit l;
    rlim_t wanted = (rlim_t)connections + SPARE_FILES;
    if (getrlimit(RLIMIT_NOFILE, &l) || l.rlim_cur >= wanted) return;
    l.rlim_cur = wanted < l.rlim_max ? wanted : l.rlim_max;
    setrlimit(RLIMIT_NOFILE, &l);
}

static server_config configure(const args *a)
{
    server_config c = server_defaults();
    c.host = args_string(a, "host");
    c.port = (int)args_int(a, "port");
    c.api_key_file = args_string(a, "api-key-file");
    c.cors_origin = args_string(a, "cors");
    c.max_connections = (int)args_int(a, "connections");
    c.max_body_bytes = (size_t)args_bytes(a, "max-body");
    c.request_timeout_s = args_float(a, "request-timeout");
    c.comment_interval_s = args_float(a, "keep-alive");
    c.allow_parse_special = args_flag(a, "allow-parse-special");
    c.vllm_metrics = strcmp(args_string(a, "metrics-names"), "vllm") == 0;
    c.min_priority = (int)args_int(a, "min-priority");
    c.lenient = args_flag(a, "lenient");
    c.log = &log_to_stderr;
    return c;
}

static int load(serving *s, const args *a, status *st)
{
    int parallel = (int)args_int(a, "parallel");
    engine_config e = {.context = (int)args_int(a, "ctx"),
                       .n_sessions = parallel + (int)args_int(a, "queue"),
                       .n_running = parallel,
                       .itl_target_s = args_float(a, "itl-target") / 1000,
                       .evict = evict_policy_get(args_string(a, "evict"))};
    const char *file = args_string(a, "chat-template");
    if (file && chat_template_read(&s->chat_template, file, st)) return st->code;
    return runtime_open(&s->r, a, args_positional(a, 0), e, st);
}

/* Tokens that all sequences together can hold, in the group that is full first. */
static unsigned long long cache_tokens(const kv_cache *c)
{
    unsigned long long least = 0;
    for (int g = 0; g < kv_cache_n_groups(c); g++) {
        unsigned long long n =
            (unsigned long long)pool_count(kv_cache_pool(c, g)).total * (unsigned long long)kv_cache_block_tokens(c);
        if (kv_cache_group(c, g)->layout.window && kv_cache_n_groups(c) > 1) continue;
        if (!least || n < least) least = n;
    }
    return least;
}

static void print_url(FILE *to, const serving *s, const args *a)
{
    const char *host = args_string(a, "host");
    bool v6 = strchr(host, ':') != NULL;
    fprintf(to, "http://%s%s%s:%d", v6 ? "[" : "", host, v6 ? "]" : "", server_port(s->server));
}

static void print_start(const serving *s, const args *a)
{
    char bytes[BYTES_TEXT];
    const kv_cache *c = engine_cache(s->r.e);
    printf("serving %s at ", s->names[0]);
    print_url(stdout, s, a);
    printf(" | context %d | cache %llu tokens (%s) | %lld at once, %lld may wait\n", engine_context(s->r.e),
           cache_tokens(c), bytes_text(bytes, kv_cache_bytes(c)), (long long)args_int(a, "parallel"),
           (long long)args_int(a, "queue"));
    fflush(stdout);
}

static int name_model(serving *s, const args *a, status *st)
{
    const char *path = args_positional(a, 0), *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    size_t n = strlen(base);
    if (n > 5 && strcmp(base + n - 5, ".gguf") == 0) n -= 5;
    int n_aliases = args_count(a, "alias");
    s->own_name = mem_strndup(base, n);
    s->names = mem_calloc((size_t)n_aliases + 2, sizeof *s->names);
    if (!s->own_name || !s->names) return status_nomem(st, n);
    for (int i = 0; i < n_aliases; i++) s->names[i] = args_string_at(a, "alias", i);
    s->names[n_aliases] = s->own_name;
    return ST_OK;
}

static int serve(serving *s, const args *a, status *st)
{
    if (name_model(s, a, st)) return st->code;
    server_model m = {.names = s->names,
                      .chat_template =
                          s->chat_template.n_bytes ? strbuf_cstr(&s->chat_template) : s->r.m->chat_template,
                      .max_choices = (int)(args_int(a, "parallel") + args_int(a, "queue"))};
    if (server_open(s->server, s->r.e, &m, st)) return st->code;
    atomic_store(&s->loaded, true);
    print_start(s, a);
    server_run(s->server);
    return ST_OK;
}

static int run(const args *a, status *st)
{
    serving s = {.drain_s = args_float(a, "drain-timeout")};
    strbuf_init(&s.chat_template, 0);
    server_config c = configure(a);
    allow_files(c.max_connections);
    if (start_signals(&s, st)) return 1;
    if (server_new(&s.server, &c, st) == ST_OK) {
        fprintf(stderr, "kvasir: listening on ");
        print_url(stderr, &s, a);
        fprintf(stderr, ", loading %s\n", args_positional(a, 0));
        if (load(&s, a, st) == ST_OK) serve(&s, a, st);
    }
    stop_signals_thread(&s); /* it knows the server */
    server_free(s.server);
    runtime_close(&s.r);
    mem_free(s.names);
    mem_free(s.own_name);
    strbuf_deinit(&s.chat_template);
    return st->code ? 1 : 0;
}

static const option_spec options[] = {
    {.name = "host",
     .kind = OPTION_STRING,
     .arg = "ADDRESS",
     .fallback = "127.0.0.1",
     .help = "address to listen on (0.0.0.0 = all of this machine's)"},
    {.name = "port",
     .letter = 'p',
     .kind = OPTION_INT,
     .arg = "N",
     .fallback = "8080",
     .min = 0,
     .max = 65535,
     .help = "port to listen on (0 = any that is free)"},
    {.name = "alias",
     .kind = OPTION_STRING,
     .arg = "NAME",
     .repeats = true,
     .help = "a name of the model for clients, besides its own; the first one is its id"},
    {.name = "ctx",
     .letter = 'c',
     .kind = OPTION_INT,
     .arg = "N",
     .min = 1,
     .max = 1 << 24,
     .help = "most tokens of a prompt and its answer (default: the model's, less where memory is short)"},
    {.name = "parallel",
     .kind = OPTION_INT,
     .arg = "N",
     .fallback = "32",
     .min = 1,
     .max = 256,
     .help = "most answers that are made at once"},
    {.name = "queue",
     .kind = OPTION_INT,
     .arg = "N",
     .fallback = "512",
     .min = 0,
     .max = 768,
     .help = "most answers that wait; more are refused (429)"},
    {.name = "itl-target",
     .kind = OPTION_FLOAT,
     .arg = "MS",
     .fallback = "150",
     .min = 0,
     .max = 60000,
     .help = "time between an answer's tokens that new prompts shall not break (0 = none)"},
    {.name = "evict",
     .kind = OPTION_CHOICE,
     .arg = "POLICY",
     .fallback = "lru",
     .choices = EVICT_NAMES,
     .help = "which cached prefix makes room first"},
    {.name = "chat-template",
     .kind = OPTION_FILE,
     .arg = "FILE",
     .help = "a Jinja template instead of the model's own"},
    {.name = "api-key-file",
     .kind = OPTION_FILE,
     .arg = "FILE",
     .help = "clients must present one of its keys: one a line, # begins a comment"},
    {.name = "cors",
     .kind = OPTION_STRING,
     .arg = "ORIGIN",
     .help = "pages of this origin may use the server (* = all pages)"},
    {.name = "min-priority",
     .kind = OPTION_INT,
     .arg = "N",
     .fallback = "0",
     .min = -INT32_MAX,
     .max = INT32_MAX,
     .help = "least 'priority' of a request; lower numbers, which go first, are refused"},
    {.name = "lenient",
     .kind = OPTION_FLAG,
     .help =
         "ignore fields that aren't supported, and name them in the header X-Kvasir-Ignored, instead of refusing them"},
    {.name = "connections",
     .kind = OPTION_INT,
     .arg = "N",
     .fallback = "1024",
     .min = 1,
     .max = 65536,
     .help = "most open connections"},
    {.name = "max-body",
     .kind = OPTION_BYTES,
     .arg = "BYTES",
     .fallback = "16M",
     .help = "largest body of a request; larger ones are refused (413)"},
    {.name = "request-timeout",
     .kind = OPTION_FLOAT,
     .arg = "S",
     .fallback = "60",
     .min = 0.1,
     .max = 86400,
     .help = "seconds for a request to come in, an answer to be fetched, a connection to be idle"},
    {.name = "keep-alive",
     .kind = OPTION_FLOAT,
     .arg = "S",
     .fallback = "5",
     .min = 0.1,
     .max = 86400,
     .help = "seconds of silence after which a stream gets a comment"},
    {.name = "drain-timeout",
     .kind = OPTION_FLOAT,
     .arg = "S",
     .fallback = "30",
     .min = 0,
     .max = 86400,
     .help = "seconds that answers may go on after SIGTERM or Ctrl-C"},
    {.name = "allow-parse-special",
     .kind = OPTION_FLAG,
     .help = "requests may say \"parse_special\": true: control tokens that their texts name are those tokens"},
    {.name = "metrics-names",
     .kind = OPTION_CHOICE,
     .arg = "NAMES",
     .fallback = "kvasir",
     .choices = "kvasir|vllm",
     .help = "names of the metrics: kvasir_*, or vLLM's"},
    RUNTIME_OPTIONS,
    CACHE_OPTIONS,
    {0},
};

const command cmd_serve = {
    .name = "serve",
    .positional = "MODEL",
    .min_positional = 1,
    .max_positional = 1,
    .summary = "Serve a model over HTTP, with OpenAI's interface",
    .details = "Answers /v1/chat/completions and /v1/completions, whole or as a stream, and /v1/models, "
               "/apply-template, /tokenize, /detokenize, /health, /ready, /metrics and /v1/kv. Prompts that begin alike "
               "share their cache. "
               "SIGTERM or Ctrl-C ends it when the answers at work are done; the second one cuts them off.\n\n"
               "  kvasir serve smollm2-135m-instruct\n"
               "  curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\": \"The sky is\", \"max_tokens\": 8}'",
    .options = options,
    .run = run,
};
