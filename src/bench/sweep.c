#include "bench/bench.h"

#include <stdlib.h>
#include <string.h>

/* "A..B" at the start of s; *length = its characters. */
static bool range_at(const char *s, int64_t *a, int64_t *b, size_t *length)
{
    const char *digits = "0123456789";
    size_t n = strspn(s, digits), m;
    if (n == 0 || n > 7 || strncmp(s + n, "..", 2) != 0 || (m = strspn(s + n + 2, digits)) == 0 || m > 7) return false;
    *a = atoll(s);
    *b = atoll(s + n + 2);
    *length = n + 2 + m;
    return true;
}

/* Appends the words that one word with `head` already settled stands for. */
static int expand_word(strbuf *out, const char *head, size_t n_head, const char *rest, size_t n_rest, status *st)
{
    for (size_t i = 0; i < n_rest; i++) {
        int64_t a, b;
        size_t length;
        bool starts = i == 0 || rest[i - 1] < '0' || rest[i - 1] > '9';
        if (!starts || !range_at(rest + i, &a, &b, &length)) continue;
        if (a < 1 || b < a)
            return status_set(st, ST_ARG, STATUS_NO_POS, "the range %.*s in a test must begin above 0 and end no lower",
                              (int)length, rest + i);
        int rc = ST_OK;
        for (int64_t v = a; rc == ST_OK; v = 2 * v < b ? 2 * v : b) {
            strbuf word = {0};
            strbuf_init(&word, 0);
            strbuf_add(&word, head, n_head);
            strbuf_add(&word, rest, i);
            strbuf_printf(&word, "%lld", (long long)v);
            rc = strbuf_check(&word, st);
            if (rc == ST_OK) rc = expand_word(out, word.data, word.n_bytes, rest + i + length, n_rest - i - length, st);
            strbuf_deinit(&word);
            if (v == b) break;
        }
        return rc;
    }
    if (out->n_bytes) strbuf_putc(out, ',');
    strbuf_add(out, head, n_head);
    strbuf_add(out, rest, n_rest);
    return strbuf_check(out, st);
}

int bench_expand(strbuf *out, const char *text, status *st)
{
    for (const char *word = text; *word;) {
        size_t length = strcspn(word, ",");
        if (expand_word(out, "", 0, word, length, st)) return st->code;
        word += length + (word[length] == ',');
    }
    return ST_OK;
}
