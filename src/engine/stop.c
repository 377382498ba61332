#include "engine/stop.h"

#include <string.h>

#include "base/mem.h"

int stop_init(stop_set *s, const char *const *strings, int n, status *st)
{
    *s = (stop_set){.hit = -1};
    strbuf_init(&s->held, 0);
    if (n > STOP_MAX_STRINGS)
        return status_set(st, ST_ARG, STATUS_NO_POS, "%d stop strings; at most %d are possible", n, STOP_MAX_STRINGS);
    for (int i = 0; i < n; i++) {
        size_t length = strlen(strings[i]);
        if (length == 0 || length > STOP_MAX_BYTES) {
            stop_deinit(s);
            return status_set(st, ST_ARG, (uint64_t)i, "stop string %d has %zu bytes; 1 to %d are possible", i + 1,
                              length, STOP_MAX_BYTES);
        }
        s->strings[i] = mem_strndup(strings[i], length);
        if (!s->strings[i]) {
            stop_deinit(s);
            return status_nomem(st, length);
        }
        s->lengths[i] = length;
        s->n = i + 1;
    }
    return ST_OK;
}

void stop_deinit(stop_set *s)
{
    for (int i = 0; i < s->n; i++) mem_free(s->strings[i]);
    s->n = 0;
    strbuf_deinit(&s->held);
}

/* The longest string that stands complete at `at`, and ends behind the first n_barred of the n bytes there; -1. */
static int complete_at(const stop_set *s, const char *at, size_t n, size_t n_barred)
{
    int best = -1;
    for (int i = 0; i < s->n; i++)
        if (s->lengths[i] <= n && s->lengths[i] > n_barred && memcmp(at, s->strings[i], s->lengths[i]) == 0 &&
            (best < 0 || s->lengths[i] > s->lengths[best]))
            best = i;
    return best;
}

/* Whether the n bytes at `at`, the last of the stream so far, could be the start of a string. */
static bool may_start_at(const stop_set *s, const char *at, size_t n)
{
    for (int i = 0; i < s->n; i++)
        if (n < s->lengths[i] && memcmp(at, s->strings[i], n) == 0) return true;
    return false;
}

/* Shows what is held up to a complete string or, while more may come, the start of one. */
static bool show(stop_set *s, bool more, strbuf *out)
{
    const char *text = strbuf_cstr(&s->held);
    size_t at = 0;
    if (s->barred) s->n_barred = s->held.n_bytes;
    for (; at < s->held.n_bytes; at++) {
        size_t left = s->held.n_bytes - at;
        s->hit = complete_at(s, text + at, left, s->n_barred > at ? s->n_barred - at : 0);
        if (s->hit >= 0 || (more && may_start_at(s, text + at, left))) break;
    }
    strbuf_add(out, text, at);
    if (s->hit >= 0) return true;
    size_t left = s->held.n_bytes - at;
    if (left) memmove(s->held.data, s->held.data + at, left);
    if (s->held.data) s->held.data[left] = 0;
    s->held.n_bytes = left;
    s->n_barred = s->n_barred > at ? s->n_barred - at : 0;
    return false;
}

bool stop_push(stop_set *s, const char *bytes, size_t n, strbuf *out)
{
    strbuf_add(&s->held, bytes, n);
    if (!s->held.failed) return show(s, true, out);
    out->failed = true;
    return false;
}

bool stop_flush(stop_set *s, strbuf *out)
{
    return show(s, false, out);
}
