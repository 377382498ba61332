/* kvasir tokenize, kvasir detokenize: text to token ids and back. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "fetch/model_dir.h"
#include "model/gguf.h"
#include "model/tokenizer.h"

#define MAX_INPUT ((size_t)1 << 30)

static int load(tokenizer **out, const char *name, status *st)
{
    char *path = NULL;
    gguf *g = NULL;
    if (model_path(&path, name, st)) return st->code;
    if (gguf_open(&g, path, st) == ST_OK) {
        if (tokenizer_new(out, g, st)) status_prefix(st, "%s", path);
        gguf_close(g);
    }
    mem_free(path);
    return st->code;
}

static int write_out(const strbuf *b, status *st)
{
    if (strbuf_check(b, st)) return st->code;
    fwrite(strbuf_cstr(b), 1, b->n_bytes, stdout);
    fflush(stdout); /* a failure is told once, at the end of the program */
    return ST_OK;
}

/* What is done with one line of --jsonl: value to a JSON text in out. */
typedef int line_fn(const tokenizer *t, const json_t *value, bool option, strbuf *out, status *st);

static int one_line(const tokenizer *t, const char *line, size_t n, bool option, line_fn *fn, status *st)
{
    json_error_t error;
    if (memchr(line, 0, n)) return status_set(st, ST_FORMAT, STATUS_NO_POS, "not JSON (a zero byte)");
    json_t *value = json_loadb(line, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    if (!value)
        return status_set(st, ST_FORMAT, STATUS_NO_POS, "not JSON (%s)", *error.text ? error.text : "out of memory");
    strbuf out;
    strbuf_init(&out, 0);
    if (fn(t, value, option, &out, st) == ST_OK) {
        strbuf_putc(&out, '\n');
        write_out(&out, st);
    }
    strbuf_deinit(&out);
    json_decref(value);
    return st->code;
}

/* Answers line by line, so that another program may ask and wait. */
static int each_line(const tokenizer *t, bool option, line_fn *fn, status *st)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    for (uint64_t number = 1; st->code == ST_OK && !ferror(stdout) && (n = getline(&line, &capacity, stdin)) >= 0;
         number++)
        if (one_line(t, line, (size_t)n, option, fn, st)) {
            status_prefix(st, "line %llu of standard input", (unsigned long long)number);
            st->pos = number;
        }
    if (st->code == ST_OK && ferror(stdin))
        status_set(st, ST_IO, STATUS_NO_POS, "standard input can't be read: %s", strerror(errno));
    free(line);
    return st->code;
}

static void tell_dropped(const token_list *ids)
{
    if (ids->n_dropped)
        fprintf(stderr, "kvasir: bytes that have no token in this vocabulary were left out: %zu\n", ids->n_dropped);
}

static void print_ids(strbuf *out, const token_list *ids)
{
    strbuf_putc(out, '[');
    for (size_t i = 0; i < ids->n; i++) strbuf_printf(out, "%s%d", i ? ", " : "", ids->ids[i]);
    strbuf_putc(out, ']');
}

static int tokenize_line(const tokenizer *t, const json_t *value, bool special, strbuf *out, status *st)
{
    if (!json_is_string(value)) return status_set(st, ST_FORMAT, STATUS_NO_POS, "not a JSON string");
    token_list ids = {0};
    encode_options o = {.add_special = special, .parse_special = special};
    if (tokenizer_encode(t, json_string_value(value), json_string_length(value), o, &ids, st) == ST_OK)
        print_ids(out, &ids);
    tell_dropped(&ids);
    token_list_deinit(&ids);
    return st->code;
}

/* The piece between quotes; what is no character, or could steer a terminal, as \xNN. */
static void print_piece(strbuf *out, gguf_str s)
{
    strbuf_putc(out, '"');
    for (size_t i = 0; i < s.n;) {
        uint32_t cp;
        int len = utf8_decode(s.data + i, s.n - i, &cp);
        if (len == 0) len = 1, cp = 0;
        if (cp == '\n') strbuf_puts(out, "\\n");
        else if (cp == '\t') strbuf_puts(out, "\\t");
        else if (cp == '"' || cp == '\\') strbuf_printf(out, "\\%c", (char)cp);
        else if (cp < 0x20 || (cp >= 0x7F && cp < 0xA0))
            for (int j = 0; j < len; j++) strbuf_printf(out, "\\x%02X", (uint8_t)s.data[i + (size_t)j]);
        else strbuf_add(out, s.data + i, (size_t)len);
        i += (size_t)len;
    }
    strbuf_puts(out, "\"\n");
}

static void print_json(strbuf *out, const tokenizer *t, const token_list *ids)
{
    strbuf_printf(out, "{\"count\": %zu, \"ids\": ", ids->n);
    print_ids(out, ids);
    strbuf_puts(out, ", \"pieces\": [");
    for (size_t i = 0; i < ids->n; i++) {
        gguf_str s = tokenizer_piece(t, ids->ids[i], true);
        if (i) strbuf_puts(out, ", ");
        strbuf_json(out, s.data, s.n);
    }
    strbuf_printf(out, "], \"dropped_bytes\": %zu}\n", ids->n_dropped);
}

static void print_tokens(strbuf *out, const args *a, const tokenizer *t, const token_list *ids)
{
    if (args_flag(a, "count")) {
        strbuf_printf(out, "%zu\n", ids->n);
    } else if (args_flag(a, "json")) {
        print_json(out, t, ids);
    } else {
        for (size_t i = 0; i < ids->n; i++) {
            strbuf_printf(out, "%7d  ", ids->ids[i]);
            print_piece(out, tokenizer_piece(t, ids->ids[i], true));
        }
    }
}

static int tokenize_text(const args *a, const tokenizer *t, status *st)
{
    const char *given = args_positional(a, 1);
    strbuf text, out;
    strbuf_init(&text, 0);
    strbuf_init(&out, 0);
    token_list ids = {0};
    bool special = args_flag(a, "special");
    const encode_options o = {.add_special = special, .parse_special = special};
    if (given) strbuf_puts(&text, given);
    else file_read(&text, "-", MAX_INPUT, st);
    if (st->code == ST_OK && strbuf_check(&text, st) == ST_OK &&
        tokenizer_encode(t, strbuf_cstr(&text), text.n_bytes, o, &ids, st) == ST_OK) {
        print_tokens(&out, a, t, &ids);
        write_out(&out, st);
        tell_dropped(&ids);
    }
    token_list_deinit(&ids);
    strbuf_deinit(&text);
    strbuf_deinit(&out);
    return st->code;
}

static int run_tokenize(const args *a, status *st)
{
    if (args_flag(a, "jsonl") && (args_n_positional(a) > 1 || args_flag(a, "json") || args_flag(a, "count"))) {
        status_set(st, ST_ARG, STATUS_NO_POS,
                   "--jsonl reads standard input; it goes with neither TEXT nor --json nor --count");
        return 2;
    }
    tokenizer *t = NULL;
    if (load(&t, args_positional(a, 0), st)) return 1;
    int rc = args_flag(a, "jsonl") ? each_line(t, args_flag(a, "special"), tokenize_line, st) : tokenize_text(a, t, st);
    tokenizer_free(t);
    return rc ? 1 : 0;
}

/* The text of ids, without the bos and eos that the encoder adds: what was encoded comes back, with or without
 * --special. */
static int decode(const tokenizer *t, const token_list *ids, bool all, strbuf *out, status *st)
{
    size_t begin = 0, end = ids->n;
    if (!all && tokenizer_adds_bos(t) && begin < end && ids->ids[begin] == tokenizer_bos(t)) begin++;
    if (!all && tokenizer_adds_eos(t) && begin < end && ids->ids[end - 1] == tokenizer_eos(t)) end--;
    return tokenizer_decode(t, ids->ids ? ids->ids + begin : NULL, end - begin, true, out, st);
}

static int detokenize_line(const tokenizer *t, const json_t *value, bool all, strbuf *out, status *st)
{
    if (!json_is_array(value)) return status_set(st, ST_FORMAT, STATUS_NO_POS, "not a JSON array of token ids");
    token_list ids = {0};
    size_t i;
    const json_t *id;
    json_array_foreach(value, i, id)
    {
        json_int_t v = json_integer_value(id);
        if (!json_is_integer(id) || v < 0 || v >= tokenizer_vocab_size(t)) {
            status_set(st, ST_FORMAT, i, "entry %zu is no token id (0 to %d)", i, tokenizer_vocab_size(t) - 1);
            break;
        }
        if (token_list_add(&ids, (int32_t)v, st)) break;
    }
    strbuf text;
    strbuf_init(&text, 0);
    if (st->code == ST_OK && decode(t, &ids, all, &text, st) == ST_OK)
        strbuf_json(out, strbuf_cstr(&text), text.n_bytes);
    strbuf_deinit(&text);
    token_list_deinit(&ids);
    return st->code;
}

/* Numbers with spaces, commas or brackets between them. */
static int parse_ids(token_list *ids, const char *s, const tokenizer *t, status *st)
{
    while (*(s += strspn(s, " \t\r\n,[]"))) {
        char *end;
        errno = 0;
        long v = strtol(s, &end, 10);
        if (end == s || errno || v < 0 || v >= tokenizer_vocab_size(t) || !strchr(" \t\r\n,[]", *end))
            return status_set(st, ST_ARG, STATUS_NO_POS, "\"%.40s\" is no token id (0 to %d)", s,
                              tokenizer_vocab_size(t) - 1);
        if (token_list_add(ids, (int32_t)v, st)) return st->code;
        s = end;
    }
    return ST_OK;
}

static int detokenize_ids(const args *a, const tokenizer *t, status *st)
{
    strbuf text;
    strbuf_init(&text, 0);
    token_list ids = {0};
    if (args_n_positional(a) == 1) {
        if (file_read(&text, "-", MAX_INPUT, st) == ST_OK) parse_ids(&ids, strbuf_cstr(&text), t, st);
        strbuf_clear(&text);
    }
    for (int i = 1; st->code == ST_OK && i < args_n_positional(a); i++) parse_ids(&ids, args_positional(a, i), t, st);
    if (st->code == ST_OK && decode(t, &ids, args_flag(a, "all"), &text, st) == ST_OK) write_out(&text, st);
    token_list_deinit(&ids);
    strbuf_deinit(&text);
    return st->code;
}

static int run_detokenize(const args *a, status *st)
{
    if (args_flag(a, "jsonl") && args_n_positional(a) > 1) {
        status_set(st, ST_ARG, STATUS_NO_POS, "--jsonl reads standard input; it goes with no ids in the command line");
        return 2;
    }
    tokenizer *t = NULL;
    if (load(&t, args_positional(a, 0), st)) return 1;
    int rc = args_flag(a, "jsonl") ? each_line(t, args_flag(a, "all"), detokenize_line, st) : detokenize_ids(a, t, st);
    tokenizer_free(t);
    return rc ? 1 : 0;
}

static const option_spec tokenize_options[] = {
    {.name = "jsonl", .excludes = "json|count", .kind = OPTION_FLAG,
     .help = "read one JSON string a line, print one JSON array of ids a line"},
    {.name = "special",
     .kind = OPTION_FLAG,
     .help = "add bos and eos as the model wants, recognize control tokens in the text"},
    {.name = "json", .kind = OPTION_FLAG, .help = "print one object: count, ids, pieces, dropped_bytes"},
    {.name = "count", .excludes = "json", .kind = OPTION_FLAG, .help = "print only the number of tokens"},
    {0},
};

const command cmd_tokenize = {
    .name = "tokenize",
    .positional = "MODEL [TEXT]",
    .min_positional = 1,
    .max_positional = 2,
    .summary = "Turn text into token ids",
    .details = "Encodes TEXT, or standard input, and prints each token's id and its piece of the text. Bytes that are "
               "not valid UTF-8 are encoded as bytes, as far as the vocabulary has them; how many it lacks is told on "
               "standard error.\n\n"
               "  kvasir tokenize smollm2-135m-instruct 'Hello world'\n"
               "  kvasir tokenize smollm2-135m-instruct --count < README.md",
    .options = tokenize_options,
    .run = run_tokenize,
};

static const option_spec detokenize_options[] = {
    {.name = "jsonl", .kind = OPTION_FLAG, .help = "read one JSON array of ids a line, print one JSON string a line"},
    {.name = "all", .kind = OPTION_FLAG, .help = "show also the bos and eos that the model's tokenizer adds"},
    {0},
};

const command cmd_detokenize = {
    .name = "detokenize",
    .positional = "MODEL [ID...]",
    .min_positional = 1,
    .max_positional = -1,
    .summary = "Turn token ids into text",
    .details = "Prints the bytes of the ids given, or of those on standard input (numbers with spaces or commas "
               "between them). With "
               "--jsonl, each broken part of UTF-8 becomes U+FFFD, since JSON can't hold it.\n\n"
               "  kvasir detokenize smollm2-135m-instruct 19556 905",
    .options = detokenize_options,
    .run = run_detokenize,
};
