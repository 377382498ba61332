/* How fast text becomes tokens, above all text without a break, and what it takes to do so: one line for each hard text
 * with MB/s, tokens, and the most bytes of memory that a byte of text needed. Linear is what a second size shows.
 *
 *      bench_tokenizer [MODEL.gguf [MiB]]     SmolLM2 and 16 MiB unless said otherwise; a quarter of it for comparison
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "model/gguf.h"
#include "model/tokenizer.h"

static void die(const char *what)
{
    fprintf(stderr, "bench_tokenizer: %s\n", what);
    exit(1);
}

static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* Texts: units repeated, or drawn at random where there are several. */
static const struct {
    const char *name;
    const char *units[28];
} texts[] = {
    {"a", {"a"}},
    {"random letters", {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m",
                        "n", "o", "p", "q", "r", "s", "t", "u", "v", "w", "x", "y", "z"}},
    {"random a and e", {"a", "e"}},
    {"abc", {"abc"}},
    {"words", {"the ", "cat ", "sat ", "on ", "a ", "mat, ", "and ", "slept.\n"}},
    {"spaces", {" "}},
    {"spaces and newlines", {" ", "\n"}},
    {"newlines", {"\n"}},
    {"tabs", {"\t"}},
    {"digits", {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}},
    {"CJK", {"\u4E2D", "\u6587", "\u65E5", "\u672C", "\u8A9E"}},
    {"emoji", {"\U0001F600", "\U0001F44D"}},
    {"combining marks", {"\u0301"}},
    {"no UTF-8", {"\xFF", "\x80", "\xC3", "\xE4\xB8"}},
    {"a and no UTF-8", {"a", "\xFF"}},
    {"<", {"<"}},
    {"<|im_", {"<|im_"}},
    {"<|im_start|>", {"<|im_start|>"}},
    {"quotes", {"'"}},
    {"punctuation", {"!", "?", "-", "=", "#"}},
};

static void fill(char *out, size_t n, int which)
{
    int n_units = 0;
    uint64_t state = 1;
    while (n_units < 28 && texts[which].units[n_units]) n_units++;
    for (size_t i = 0; i < n;) {
        const char *unit = texts[which].units[n_units > 1 ? next_random(&state) % (uint32_t)n_units : 0];
        for (size_t k = strlen(unit); k && i < n; k--) out[i++] = *unit++;
    }
}

static double encode_seconds(const tokenizer *t, const char *text, size_t n, size_t *n_tokens)
{
    status st = STATUS_INIT;
    token_list ids = {0};
    clock_t start = clock(); /* of the processor: one thread, and machines are shared */
    if (tokenizer_encode(t, text, n, (encode_options){.parse_special = true}, &ids, &st)) die(st.text);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    *n_tokens = ids.n;
    token_list_deinit(&ids);
    return seconds;
}

/* A process of its own, since the peak of memory is one number a process. */
static void measure(const tokenizer *t, char *text, size_t n, int which)
{
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) die("fork failed");
    if (child == 0) {
        size_t n_tokens;
        uint64_t before = mem_stats().bytes;
        fill(text, n, which);
        double part = encode_seconds(t, text, n / 4, &n_tokens), all = encode_seconds(t, text, n, &n_tokens);
        printf("%-20s %10zu %7.2f %7.1f %7.1f %14.1f\n", texts[which].name, n_tokens, all, (double)n / all / 1e6,
               (double)(mem_stats().peak_bytes - before) / (double)n, (double)(n / 4) / part / 1e6);
        fflush(stdout);
        _exit(0);
    }
    int how;
    if (waitpid(child, &how, 0) != child || how) die("a measurement failed");
}

int main(int argc, char **argv)
{
    char path[4096];
    const char *home = getenv("HOME");
    snprintf(path, sizeof path, "%s/.local/share/kvasir/models/smollm2-135m-instruct.gguf", home ? home : "");
    size_t n = (size_t)(argc > 2 ? atoi(argv[2]) : 16) << 20;
    status st = STATUS_INIT;
    gguf *g = NULL;
    tokenizer *t = NULL;
    char *text = malloc(n);
    if (!text || n == 0) die("out of memory");
    if (gguf_open(&g, argc > 1 ? argv[1] : path, &st) || tokenizer_new(&t, g, &st)) die(st.text);
    printf("%-20s %10s %7s %7s %7s %14s\n", "text", "tokens", "s", "MB/s", "bytes", "MB/s of n / 4");
    for (int i = 0; i < (int)(sizeof texts / sizeof texts[0]); i++) measure(t, text, n, i);
    tokenizer_free(t);
    gguf_close(g);
    free(text);
    return 0;
}
