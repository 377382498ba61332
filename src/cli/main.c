#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/help.h"
#include "cli/options.h"

/* A file opened while 0, 1 or 2 is closed would get that number, and the answer be written into it. What stands in for
 * a closed descriptor fails as the closed one would. */
static void occupy_standard_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) == -1 && errno == EBADF && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            _exit(1);
}

static int finish_stdout(int exit_status)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return exit_status;
    if (errno == EPIPE) return exit_status ? exit_status : 1; /* the reader left: there is nobody to tell */
    fprintf(stderr, "kvasir: standard output could not be written: %s\n", strerror(errno));
    return 1;
}

static int usage_error(const char *command_name, const status *st)
{
    fprintf(stderr, "kvasir%s%s: %s\ntry 'kvasir%s%s --help'\n", *command_name ? " " : "", command_name, st->text,
            *command_name ? " " : "", command_name);
    return 2;
}

static int show(void (*text)(strbuf *, const command *), const command *c, FILE *to)
{
    strbuf b;
    status st = STATUS_INIT;
    strbuf_init(&b, 0);
    text(&b, c);
    int failed = strbuf_check(&b, &st);
    fputs(failed ? st.text : strbuf_cstr(&b), failed ? stderr : to);
    strbuf_deinit(&b);
    return failed ? 1 : 0;
}

static void overview(strbuf *b, const command *c)
{
    (void)c;
    help_overview(b);
}

static int run_command(const command *c, int argc, char *const *argv)
{
    status st = STATUS_INIT;
    args *a = NULL;
    if (args_parse(&a, c, argc, argv, &st)) {
        if (st.code == ST_ARG) return usage_error(c->name, &st);
        fprintf(stderr, "kvasir: %s\n", st.text);
        return 1;
    }
    int rc = args_flag(a, "help") ? show(help_command, c, stdout) : c->run(a, &st);
    args_free(a);
    if (rc == 2) return usage_error(c->name, &st);
    if (rc != 0 && *st.text) {
        fflush(stdout);
        fprintf(stderr, "kvasir: %s\n", st.text);
    }
    return rc == 0 ? 0 : 1;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        int rc = show(overview, NULL, stderr);
        return rc ? rc : 2;
    }
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return show(overview, NULL, stdout);
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) word = "version";
    int n_words;
    const command *c = command_find(word, argv[2], &n_words);
    if (c) return run_command(c, argc - 1 - n_words, argv + 1 + n_words);
    status st = STATUS_INIT;
    command_unknown(word, &st);
    return usage_error("", &st);
}

/* A variable that nobody reads is a wish that nobody grants. Those of the tests are theirs. */
static void name_unknown_variables(void)
{
    static const char *const known[] = {"KVASIR_MODELS=", "KVASIR_TESTS_", "KVASIR_TRACES="};
    for (char **v = environ; *v; v++) {
        bool ours = strncmp(*v, "KVASIR_", 7) == 0;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            ours = ours && strncmp(*v, known[i], strlen(known[i])) != 0;
        if (ours)
            fprintf(stderr, "kvasir: the variable %.*s is of no effect; the one there is is KVASIR_MODELS\n",
                    (int)strcspn(*v, "="), *v);
    }
}

int main(int argc, char **argv)
{
    occupy_standard_descriptors();
    signal(SIGXFSZ, SIG_IGN); /* a file that reaches its limit is an error to tell, with the half of it removed */
    signal(SIGPIPE, SIG_DFL); /* whoever started us may have ignored it; then a reader that left would not stop us */
    name_unknown_variables();
    return finish_stdout(dispatch(argc, argv));
}
