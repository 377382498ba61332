#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

static void make_printable(char *s)
{
    for (size_t i = 0, n = strlen(s); i < n;) {
        int len = utf8_length(s + i, n - i);
        if (len == 0 || (len == 1 && ((unsigned char)s[i] < 0x20 || s[i] == 0x7f))) {
            s[i] = s[i] == '\n' ? ' ' : '?';
            len = 1;
        }
        i += (size_t)len;
    }
}

/* A cut at the buffer's end may have split a character: drop its stump. */
static void drop_stump(char *s, size_t n)
{
    size_t i = n;
    while (i > 0 && ((unsigned char)s[i - 1] & 0xC0) == 0x80) i--;
    if (i > 0 && ((unsigned char)s[i - 1] & 0xC0) == 0xC0 && utf8_length(s + i - 1, n - i + 1) == 0) s[i - 1] = 0;
}

int status_set(status *st, int code, uint64_t pos, const char *fmt, ...)
{
    st->code = code;
    st->pos = pos;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(st->text, sizeof st->text, fmt, ap);
    va_end(ap);
    if (n >= (int)sizeof st->text) drop_stump(st->text, sizeof st->text - 1);
    make_printable(st->text);
    return code;
}

int status_prefix(status *st, const char *fmt, ...)
{
    char old[sizeof st->text];
    memcpy(old, st->text, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(st->text, sizeof st->text, fmt, ap);
    va_end(ap);
    if (n < 0) n = 0;
    if ((size_t)n < sizeof st->text) {
        size_t room = sizeof st->text - (size_t)n;
        int m = snprintf(st->text + n, room, ": %s", old);
        if (m >= (int)room) drop_stump(st->text, sizeof st->text - 1);
    }
    make_printable(st->text);
    return st->code;
}

int status_nomem(status *st, uint64_t n_bytes)
{
    return status_set(st, ST_NOMEM, STATUS_NO_POS, "out of memory: %llu bytes could not be allocated",
                      (unsigned long long)n_bytes);
}

const char *status_name(int code)
{
    switch (code) {
    case ST_OK: return "ok";
    case ST_NOMEM: return "out of memory";
    case ST_IO: return "input/output";
    case ST_NOT_FOUND: return "not found";
    case ST_FORMAT: return "format";
    case ST_UNSUPPORTED: return "unsupported";
    case ST_ARG: return "argument";
    case ST_LIMIT: return "limit";
    case ST_CANCELLED: return "cancelled";
    case ST_TIMEOUT: return "timeout";
    default: return "unknown";
    }
}
