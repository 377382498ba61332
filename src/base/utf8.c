#include "base/utf8.h"

int utf8_decode(const char *s, size_t n, uint32_t *cp)
{
    const unsigned char *u = (const unsigned char *)s;
    if (n == 0) return 0;
    if (u[0] < 0x80) {
        *cp = u[0];
        return 1;
    }
    int len = u[0] >= 0xF0 ? 4 : u[0] >= 0xE0 ? 3 : 2;
    if (u[0] < 0xC2 || u[0] > 0xF4 || n < (size_t)len) return 0;
    uint32_t c = u[0] & (0x7F >> len);
    for (int i = 1; i < len; i++) {
        if ((u[i] & 0xC0) != 0x80) return 0;
        c = c << 6 | (u[i] & 0x3F);
    }
    if ((len == 3 && c < 0x800) || (len == 4 && c < 0x10000) || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return 0;
    *cp = c;
    return len;
}

int utf8_length(const char *s, size_t n)
{
    uint32_t cp;
    return utf8_decode(s, n, &cp);
}

int utf8_encode(uint32_t cp, char *out)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    int len = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (int i = len - 1; i > 0; i--, cp >>= 6) out[i] = (char)(0x80 | (cp & 0x3F));
    out[0] = (char)((0xF00 >> len & 0xFF) | cp);
    return len;
}

/* The bytes that follow a lead byte, 0 if c is none, and the range of the first of them, which rules out overlong forms,
 * surrogates and what lies beyond U+10FFFF; the others are 80 to BF. */
static int n_following(unsigned char c, unsigned char *low, unsigned char *high)
{
    *low = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
    *high = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    return c < 0xC2 || c > 0xF4 ? 0 : c < 0xE0 ? 1 : c < 0xF0 ? 2 : 3;
}

int utf8_part(const char *s, size_t n, bool *whole)
{
    const unsigned char *u = (const unsigned char *)s;
    unsigned char low, high;
    int len = 1, end = 1 + n_following(u[0], &low, &high);
    while (len < end && (size_t)len < n && u[len] >= low && u[len] <= high) {
        low = 0x80;
        high = 0xBF;
        len++;
    }
    *whole = len == end && (len > 1 || u[0] < 0x80);
    return len;
}

bool utf8_valid(const char *s, size_t n)
{
    bool whole = true;
    for (size_t i = 0; i < n && whole;) i += (size_t)utf8_part(s + i, n - i, &whole);
    return whole;
}

void utf8_count(utf8_counter *c, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char b = (unsigned char)s[i];
        if (c->missing && b >= c->low && b <= c->high) {
            c->missing--;
            c->low = 0x80;
            c->high = 0xBF;
        } else {
            c->n++;
            c->missing = (unsigned char)n_following(b, &c->low, &c->high);
        }
    }
}

int utf8_incomplete_tail(const char *s, size_t n)
{
    for (int back = 1; back <= 3 && (size_t)back <= n; back++) {
        const char *at = s + n - back;
        unsigned char low, high;
        bool whole;
        if (((unsigned char)*at & 0xC0) == 0x80) continue;
        return back <= n_following((unsigned char)*at, &low, &high) && utf8_part(at, (size_t)back, &whole) == back
                   ? back
                   : 0;
    }
    return 0;
}
