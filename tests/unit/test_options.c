/* The option table: parsing of every kind, what is refused and how, help texts, nearest words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/nearest.h"
#include "cli/cli.h"
#include "cli/help.h"
#include "cli/options.h"
#include "fetch/progress.h"

static int nothing(const args *a, status *st)
{
    (void)a, (void)st;
    return 0;
}

static const option_spec options[] = {
    {.name = "threads",
     .letter = 't',
     .kind = OPTION_INT,
     .arg = "N",
     .fallback = "4",
     .min = 1,
     .max = 256,
     .help = "how many threads"},
    {.name = "seed", .kind = OPTION_INT, .arg = "N", .help = "any whole number"},
    {.name = "temp", .kind = OPTION_FLOAT, .arg = "X", .fallback = "0.8", .min = 0, .max = 2, .help = "temperature"},
    {.name = "prompt", .letter = 'p', .kind = OPTION_STRING, .arg = "TEXT", .help = "a text"},
    {.name = "file", .kind = OPTION_FILE, .arg = "FILE", .help = "a file"},
    {.name = "memory", .letter = 'm', .kind = OPTION_BYTES, .arg = "BYTES", .fallback = "1K", .help = "a size"},
    {.name = "kv", .kind = OPTION_CHOICE, .arg = "F", .fallback = "f16", .choices = "f32|f16|q8", .help = "a format"},
    {.name = "stop", .letter = 's', .kind = OPTION_STRING, .arg = "TEXT", .repeats = true, .help = "stop at this"},
    {.name = "json", .letter = 'j', .kind = OPTION_FLAG, .help = "as JSON"},
    {.name = "verbose", .letter = 'v', .kind = OPTION_FLAG, .help = "say more"},
    {.name = "stream", .kind = OPTION_FLAG, .fallback = "on", .help = "as it comes"},
    {.name = NULL},
};
static const command probe = {
    .name = "probe",
    .positional = "MODEL [TEXT]",
    .min_positional = 1,
    .max_positional = 2,
    .summary = "Try the parser",
    .details = "A first paragraph of some words, which is long enough that it has to be broken into two "
               "lines.\n\nExamples:\n\n"
               "  kvasir probe a\\b --json\n  .dot\n",
    .options = options,
    .run = nothing,
};
static const command bare = {.name = "bare",
                             .summary = "Has neither options nor arguments",
                             .max_positional = -1,
                             .run = nothing};
static const command bare_bone = {.name = "bare bone", .summary = "Beside the shorter name", .run = nothing};
static const command odd_pair = {.name = "odd pair", .summary = "Without a shorter name", .run = nothing};
const command *const commands[] = {&probe, &bare, &bare_bone, &odd_pair, NULL};

enum { WORDS_MAX = 16 };

/* Parses the words of a line that are one blank apart; '_' stands for a blank inside a word. */
static char line[256];

static int parse_as(const command *c, args **a, const char *text, status *st)
{
    char *argv[WORDS_MAX], *save = NULL;
    int argc = 0;
    snprintf(line, sizeof line, "%s", text);
    for (char *w = strtok_r(line, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        for (char *u = w; (u = strchr(u, '_')); u++) *u = ' ';
        assert_true(argc < WORDS_MAX);
        argv[argc++] = w;
    }
    *a = NULL;
    *st = (status)STATUS_INIT;
    return args_parse(a, c, argc, argv, st);
}

static args *parse(const char *text)
{
    status st;
    args *a;
    if (parse_as(&probe, &a, text, &st)) fail_msg("%s: %s", text, st.text);
    return a;
}

static void refuses(const char *text, const char *expected)
{
    status st;
    args *a;
    assert_int_equal(parse_as(&probe, &a, text, &st), ST_ARG);
    assert_null(a);
    assert_string_equal(st.text, expected);
}

static void defaults(void **state)
{
    (void)state;
    args *a = parse("m");
    assert_int_equal(args_int(a, "threads"), 4);
    assert_int_equal(args_int(a, "seed"), 0);
    assert_true(args_float(a, "temp") == 0.8);
    assert_null(args_string(a, "prompt"));
    assert_null(args_string(a, "file"));
    assert_int_equal(args_bytes(a, "memory"), 1024);
    assert_string_equal(args_string(a, "kv"), "f16");
    assert_int_equal(args_count(a, "stop"), 0);
    assert_null(args_string_at(a, "stop", 0));
    assert_false(args_flag(a, "json"));
    assert_true(args_flag(a, "stream"));
    assert_false(args_given(a, "threads"));
    assert_false(args_flag(a, "help"));
    args_free(a);
}

static void spellings(void **state)
{
    (void)state;
    const char *const lines[] = {
        "m --threads 2 --json", "--threads=2 m --json", "-t 2 -j m", "-t2 m -j", "-jt2 m", "-jvt 2 m"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        args *a = parse(lines[i]);
        assert_int_equal(args_int(a, "threads"), 2);
        assert_true(args_given(a, "threads"));
        assert_true(args_flag(a, "json"));
        assert_int_equal(args_n_positional(a), 1);
        assert_string_equal(args_positional(a, 0), "m");
        assert_null(args_positional(a, 1));
        assert_null(args_positional(a, -1));
        args_free(a);
    }
}

static void values_of_each_kind(void **state)
{
    (void)state;
    args *a = parse("m --seed -7 --temp 1e-1 --prompt= --file a.txt -m2G --kv q8 -s a --stop=b_c -s --odd");
    assert_int_equal(args_int(a, "seed"), -7);
    assert_true(args_float(a, "temp") == 0.1);
    assert_string_equal(args_string(a, "prompt"), "");
    assert_string_equal(args_string(a, "file"), "a.txt");
    assert_int_equal(args_bytes(a, "memory"), (uint64_t)2 << 30);
    assert_string_equal(args_string(a, "kv"), "q8");
    assert_int_equal(args_count(a, "stop"), 3);
    assert_string_equal(args_string_at(a, "stop", 0), "a");
    assert_string_equal(args_string_at(a, "stop", 1), "b c");
    assert_string_equal(args_string_at(a, "stop", 2), "--odd");
    assert_null(args_string_at(a, "stop", 3));
    args_free(a);
    a = parse("m --seed 9223372036854775807 --threads 256");
    assert_int_equal(args_int(a, "seed"), INT64_MAX);
    assert_int_equal(args_int(a, "threads"), 256);
    args_free(a);
}

static void sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t n;
    } good[] = {
        {"0", 0},
        {"4096", 4096},
        {"512M", 512 << 20},
        {"2g", (uint64_t)2 << 30},
        {"1.5GiB", (uint64_t)3 << 29},
        {"2GB", 2000000000},
        {"3kb", 3000},
        {"7B", 7},
        {"1T", (uint64_t)1 << 40},
        {"0.5K", 512},
        {"16777215T", (uint64_t)16777215 << 40},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        char text[64];
        snprintf(text, sizeof text, "m --memory=%s", good[i].text);
        args *a = parse(text);
        assert_int_equal(args_bytes(a, "memory"), good[i].n);
        args_free(a);
    }
    const char *const bad[] = {"",      "-1",        "G",   "1X",  "1GX", "1GiBs",
                               "1.2.3", "16777216T", "1e9", "1Bi", "nan", "99999999999999999999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[96], expected[160];
        snprintf(text, sizeof text, "m --memory=%s", bad[i]);
        snprintf(expected, sizeof expected, "--memory takes a size such as 4096, 512M or 1.5GiB, not '%s'", bad[i]);
        refuses(text, expected);
    }
}

static void the_last_one_counts(void **state)
{
    (void)state;
    args *a = parse("m -t 2 --threads 3 --kv f32 --kv=q8 --no-stream --stream");
    assert_int_equal(args_int(a, "threads"), 3);
    assert_string_equal(args_string(a, "kv"), "q8");
    assert_true(args_flag(a, "stream"));
    args_free(a);
    a = parse("m --stream --no-stream");
    assert_false(args_flag(a, "stream"));
    assert_true(args_given(a, "stream"));
    args_free(a);
}

static void positionals(void **state)
{
    (void)state;
    args *a = parse("m --json -- --json");
    assert_true(args_flag(a, "json"));
    assert_int_equal(args_n_positional(a), 2);
    assert_string_equal(args_positional(a, 1), "--json");
    args_free(a);
    a = parse("m -");
    assert_string_equal(args_positional(a, 1), "-");
    args_free(a);
    status st;
    assert_int_equal(parse_as(&bare, &a, "a b c d", &st), ST_OK);
    assert_int_equal(args_n_positional(a), 4);
    args_free(a);
    assert_int_equal(parse_as(&bare, &a, "", &st), ST_OK);
    args_free(a);
    refuses("", "MODEL is missing: kvasir probe MODEL [TEXT]");
    refuses("m text more", "'more' is one argument too many");
    a = parse("--help"); /* asks for help about what is missing */
    assert_true(args_flag(a, "help"));
    args_free(a);
}

static void refusals(void **state)
{
    (void)state;
    refuses("m --threads 0", "--threads takes a whole number from 1 to 256, not '0'");
    refuses("m --threads 257", "--threads takes a whole number from 1 to 256, not '257'");
    refuses("m --threads two", "--threads takes a whole number from 1 to 256, not 'two'");
    refuses("m --threads=", "--threads takes a whole number from 1 to 256, not ''");
    refuses("m -t2x", "--threads takes a whole number from 1 to 256, not '2x'");
    refuses("m -t_2", "--threads takes a whole number from 1 to 256, not ' 2'");
    refuses("m --seed 9223372036854775808", "--seed takes a whole number, not '9223372036854775808'");
    refuses("m --seed 1.5", "--seed takes a whole number, not '1.5'");
    refuses("m --temp 2.1", "--temp takes a number from 0 to 2, not '2.1'");
    refuses("m --temp nan", "--temp takes a number from 0 to 2, not 'nan'");
    refuses("m --temp inf", "--temp takes a number from 0 to 2, not 'inf'");
    refuses("m --temp 0x1", "--temp takes a number from 0 to 2, not '0x1'");
    refuses("m --kv f8", "--kv is one of f32|f16|q8, not 'f8'");
    refuses("m --kv f", "--kv is one of f32|f16|q8, not 'f'");
    refuses("m --kv f32|f16", "--kv is one of f32|f16|q8, not 'f32|f16'");
    refuses("m --file=", "--file takes a file's name, which is empty here");
    refuses("m --json=yes", "--json takes no value, but was given 'yes'");
    refuses("m --no-stream=1", "--no-stream takes no value, but was given '1'");
    refuses("m --threads", "--threads needs a value: --threads N");
    refuses("m --threads --json", "--threads needs a value: --threads N");
    refuses("m -t", "--threads needs a value: --threads N");
    refuses("m --thread 2", "there is no option '--thread'; did you mean '--threads'?");
    refuses("m --jsno", "there is no option '--jsno'; did you mean '--json'?");
    refuses("m --xyzzyx", "there is no option '--xyzzyx'");
    refuses("m --no-json", "there is no option '--no-json'");
    refuses("m -x", "there is no option '-x' (an argument that starts with '-' goes after '--')");
}

static void every_default_passes_its_own_check(void **state)
{
    (void)state;
    for (const option_spec *o = options; o->name; o++) {
        status st = STATUS_INIT;
        if (o->fallback) assert_int_equal(option_check(o, o->fallback, &st), ST_OK);
    }
}

static const char *nearest_of(const char *word, const char *const *candidates)
{
    nearest n;
    nearest_init(&n, word);
    for (; *candidates; candidates++) nearest_offer(&n, *candidates);
    return n.best;
}

static void nearest_words(void **state)
{
    (void)state;
    const char *const words[] = {"tokenize", "detokenize", "run", "rm", "ls", "bench", NULL};
    assert_string_equal(nearest_of("tokenise", words), "tokenize");
    assert_string_equal(nearest_of("otkenize", words), "tokenize");
    assert_string_equal(nearest_of("TOKENIZE", words), "tokenize");
    assert_string_equal(nearest_of("detok", words), "detokenize");
    assert_string_equal(nearest_of("rn", words), "run");
    assert_string_equal(nearest_of("l", words), "ls");
    assert_string_equal(nearest_of("bnech", words), "bench");
    assert_null(nearest_of("completely", words));
    assert_null(nearest_of("", words));
    char longest[300];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_null(nearest_of(longest, words));
}

static void finds(const char *first, const char *second, const command *want, int want_words)
{
    int n_words = -1;
    assert_ptr_equal(command_find(first, second, &n_words), want);
    assert_int_equal(n_words, want_words);
}

/* A name of one word or two; the longer one counts. */
static void names_of_commands(void **state)
{
    (void)state;
    finds("probe", NULL, &probe, 1);
    finds("probe", "bone", &probe, 1);
    finds("bare", NULL, &bare, 1);
    finds("bare", "bones", &bare, 1);
    finds("bare", "bone", &bare_bone, 2);
    finds("odd", "pair", &odd_pair, 2);
    finds("bare bone", NULL, &bare_bone, 1);
    finds("odd", NULL, NULL, 0);
    finds("odd", "pai", NULL, 0);
    finds("bar", NULL, NULL, 0);
    finds("", "", NULL, 0);
    finds(NULL, NULL, NULL, 0);
    status st = STATUS_INIT;
    assert_int_equal(command_unknown("odd", &st), ST_ARG);
    assert_non_null(strstr(st.text, "did you mean 'odd pair'?"));
    assert_int_equal(command_unknown("pro", &st), ST_ARG);
    assert_null(strstr(st.text, "odd"));
}

static void help_shows_the_table(void **state)
{
    (void)state;
    strbuf b;
    strbuf_init(&b, 0);
    help_command(&b, &probe);
    const char *text = strbuf_cstr(&b);
    assert_non_null(strstr(text, "usage: kvasir probe [OPTIONS] MODEL [TEXT]\n"));
    assert_non_null(strstr(text, "  -t, --threads N           how many threads (default 4)\n"));
    assert_non_null(strstr(text, "      --kv F                a format (f32, f16, q8; default f16)\n"));
    assert_non_null(strstr(text, "  -s, --stop TEXT           stop at this (may be repeated)\n"));
    assert_non_null(strstr(text, "      --[no-]stream         as it comes (default on)\n"));
    assert_non_null(strstr(text, "  -h, --help                show this text\n"));
    assert_non_null(strstr(text, "  kvasir probe a\\b --json\n"));
    for (const char *s = text; *s;) {
        size_t n = strcspn(s, "\n");
        assert_true(n <= 80);
        s += n + 1;
    }
    strbuf_deinit(&b);
}

static void man_escapes(void **state)
{
    (void)state;
    strbuf b;
    strbuf_init(&b, 0);
    help_man(&b);
    const char *text = strbuf_cstr(&b);
    assert_non_null(strstr(text, "  kvasir probe a\\(rsb \\-\\-json\n"));
    assert_non_null(strstr(text, ".B \\-t, \\-\\-threads N\n"));
    strbuf_deinit(&b);
}

/* Every allocation in turn fails: a status, and nothing is left behind. */
static void short_of_memory(void **state)
{
    (void)state;
    uint64_t live = mem_stats().live;
    int failures = 0;
    for (int64_t n = 1;; n++) {
        args *a;
        status st;
        mem_fail_after(n);
        int rc = parse_as(&probe, &a, "m -t2 --json", &st);
        mem_fail_after(0);
        args_free(a);
        assert_int_equal(mem_stats().live, live);
        if (rc == ST_OK) break;
        assert_int_equal(rc, ST_NOMEM);
        failures++;
    }
    assert_int_equal(failures, 3);
}

static void byte_texts(void **state)
{
    (void)state;
    static const struct {
        uint64_t n;
        const char *text;
    } cases[] = {
        {0, "0 B"},           {1023, "1023 B"},       {1024, "1.0 KiB"},
        {1048575, "1.0 MiB"}, {98362432, "93.8 MiB"}, {UINT64_MAX, "16.0 EiB"},
    };
    char out[BYTES_TEXT];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(bytes_text(out, cases[i].n), cases[i].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(spellings),
        cmocka_unit_test(values_of_each_kind),
        cmocka_unit_test(sizes),
        cmocka_unit_test(the_last_one_counts),
        cmocka_unit_test(positionals),
        cmocka_unit_test(refusals),
        cmocka_unit_test(every_default_passes_its_own_check),
        cmocka_unit_test(nearest_words),
        cmocka_unit_test(names_of_commands),
        cmocka_unit_test(help_shows_the_table),
        cmocka_unit_test(man_escapes),
        cmocka_unit_test(short_of_memory),
        cmocka_unit_test(byte_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
