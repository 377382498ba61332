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

int utf8_incomplete_tail(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;
    for (int back = 1; back <= 3 && (size_t)back <= n; back++) {
        unsigned char c = u[n - (size_t)back];
        if ((c & 0xC0) == 0x80) continue;
        int len = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC2 ? 2 : 1;
        if (len <= back || c > 0xF4) return 0;
        if (back < 2) return back;
        /* the second byte already rules out overlong forms and surrogates */
        unsigned char d = u[n - (size_t)back + 1];
        if ((c == 0xE0 && d < 0xA0) || (c == 0xED && d > 0x9F) || (c == 0xF0 && d < 0x90) || (c == 0xF4 && d > 0x8F))
            return 0;
        return back;
    }
    return 0;
}
