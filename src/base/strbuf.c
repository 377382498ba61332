#include "base/strbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

void strbuf_init(strbuf *b, size_t limit_bytes)
{
    *b = (strbuf){.limit_bytes = limit_bytes};
}

void strbuf_deinit(strbuf *b)
{
    mem_free(b->data);
    *b = (strbuf){.limit_bytes = b->limit_bytes};
}

void strbuf_clear(strbuf *b)
{
    b->n_bytes = 0;
    b->failed = b->over_limit = false;
    if (b->data) b->data[0] = 0;
}

/* Makes room for n more bytes and the NUL. */
static bool reserve(strbuf *b, size_t n)
{
    if (b->failed) return false;
    size_t need;
    bool overflow = __builtin_add_overflow(b->n_bytes, n, &need) || need == SIZE_MAX;
    if (overflow || (b->limit_bytes && need > b->limit_bytes)) {
        b->failed = true;
        b->over_limit = b->limit_bytes != 0;
        return false;
    }
    if (need + 1 <= b->capacity) return true;
    size_t capacity = b->capacity ? b->capacity : 64;
    while (capacity < need + 1) capacity = capacity > SIZE_MAX / 2 ? need + 1 : capacity * 2;
    char *p = mem_resize(b->data, capacity, 1);
    if (!p) {
        b->failed = true;
        return false;
    }
    b->data = p;
    b->capacity = capacity;
    return true;
}

void strbuf_add(strbuf *b, const char *s, size_t n)
{
    if (!reserve(b, n)) return;
    if (n) memcpy(b->data + b->n_bytes, s, n);
    b->n_bytes += n;
    b->data[b->n_bytes] = 0;
}

void strbuf_puts(strbuf *b, const char *s)
{
    strbuf_add(b, s, strlen(s));
}

void strbuf_putc(strbuf *b, char c)
{
    strbuf_add(b, &c, 1);
}

void strbuf_printf(strbuf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) b->failed = true;
    else if (reserve(b, (size_t)n)) {
        vsnprintf(b->data + b->n_bytes, (size_t)n + 1, fmt, again);
        b->n_bytes += (size_t)n;
    }
    va_end(again);
}

void strbuf_json(strbuf *b, const char *s, size_t n)
{
    strbuf_putc(b, '"');
    for (size_t i = 0; i < n;) {
        bool whole;
        int len = utf8_part(s + i, n - i, &whole);
        unsigned char c = (unsigned char)s[i];
        if (!whole) strbuf_puts(b, UTF8_REPLACEMENT);
        else if (c == '"' || c == '\\') strbuf_printf(b, "\\%c", c);
        else if (c == '\n') strbuf_puts(b, "\\n");
        else if (c < 0x20 || c == 0x7f) strbuf_printf(b, "\\u%04x", c);
        else strbuf_add(b, s + i, (size_t)len);
        i += (size_t)len;
    }
    strbuf_putc(b, '"');
}

void strbuf_utf8(strbuf *b, const char *s, size_t n)
{
    for (size_t i = 0, len; i < n; i += len) {
        bool whole;
        len = (size_t)utf8_part(s + i, n - i, &whole);
        if (whole) strbuf_add(b, s + i, len);
        else strbuf_puts(b, UTF8_REPLACEMENT);
    }
}

const char *strbuf_cstr(const strbuf *b)
{
    return b->data ? b->data : "";
}

int strbuf_check(const strbuf *b, status *st)
{
    if (!b->failed) return ST_OK;
    if (b->over_limit)
        return status_set(st, ST_LIMIT, STATUS_NO_POS, "output would pass its limit of %zu bytes", b->limit_bytes);
    return status_nomem(st, b->capacity * 2);
}

char *strbuf_take(strbuf *b, size_t *n_bytes)
{
    if (b->failed || !reserve(b, 0)) return NULL;
    char *p = b->data;
    p[b->n_bytes] = 0;
    if (n_bytes) *n_bytes = b->n_bytes;
    *b = (strbuf){.limit_bytes = b->limit_bytes};
    return p;
}
