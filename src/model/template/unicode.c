#include "model/template/unicode.h"

#include "base/utf8.h"

size_t char_next(const char *s, size_t n, uint32_t *cp)
{
    int len = utf8_decode(s, n, cp);
    if (len) return (size_t)len;
    *cp = 0xDC00u + (unsigned char)s[0];
    return 1;
}

size_t char_count(const char *s, size_t n)
{
    size_t count = 0;
    uint32_t cp;
    for (size_t i = 0; i < n; count++) i += char_next(s + i, n - i, &cp);
    return count;
}

size_t char_offset(const char *s, size_t n, size_t i)
{
    size_t at = 0;
    uint32_t cp;
    for (; i > 0 && at < n; i--) at += char_next(s + at, n - at, &cp);
    return at;
}

bool cp_is_space(uint32_t cp)
{
    if (cp < 0x80) return cp == ' ' || (cp >= 9 && cp <= 13) || (cp >= 28 && cp <= 31);
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

bool cp_is_alpha(uint32_t cp)
{
    if (cp < 0x80) return (cp >= 'a' && cp <= 'z') || (cp >= 'A' && cp <= 'Z');
    if (cp < 0xC0) return cp == 0xAA || cp == 0xB5 || cp == 0xBA;
    if (cp == 0xD7 || cp == 0xF7) return false;
    if (cp >= 0x300 && cp <= 0x36F) return false;   /* combining marks */
    if (cp >= 0x2000 && cp <= 0x2BFF) return false; /* punctuation and symbols */
    if (cp >= 0x3000 && cp <= 0x3020) return cp == 0x3005 || cp == 0x3006;
    if (cp >= 0xDC00 && cp <= 0xF8FF) return false;
    if (cp >= 0xFF00 && cp <= 0xFF20) return false;
    return cp < 0x1F000 || (cp >= 0x20000 && cp < 0xE0000);
}

bool cp_is_word(uint32_t cp)
{
    return cp == '_' || (cp >= '0' && cp <= '9') || cp_is_alpha(cp) || cp == 0xB2 || cp == 0xB3 || cp == 0xB9 ||
           (cp >= 0xBC && cp <= 0xBE);
}

bool cp_is_printable(uint32_t cp)
{
    if (cp < 0x7F) return cp >= 0x20;
    if (cp <= 0xA0 || cp == 0xAD) return false;
    if (cp_is_space(cp) || (cp >= 0x200B && cp <= 0x200F) || (cp >= 0x202A && cp <= 0x202E)) return false;
    if ((cp >= 0x2060 && cp <= 0x206F) || cp == 0xFEFF || (cp >= 0xFFF0 && cp <= 0xFFFB)) return false;
    return !(cp >= 0xD800 && cp <= 0xF8FF) && (cp & 0xFFFE) != 0xFFFE && cp < 0xE0000;
}

/* Blocks where upper and lower letters alternate, upper first. */
static bool alternating(uint32_t cp, bool *upper_is_odd)
{
    *upper_is_odd = (cp >= 0x139 && cp <= 0x148) || (cp >= 0x179 && cp <= 0x17E) || (cp >= 0x4C1 && cp <= 0x4CE);
    if (*upper_is_odd) return true;
    return (cp >= 0x100 && cp <= 0x12F) || (cp >= 0x132 && cp <= 0x137) || (cp >= 0x14A && cp <= 0x177) ||
           (cp >= 0x370 && cp <= 0x373) || (cp >= 0x460 && cp <= 0x481) || (cp >= 0x48A && cp <= 0x4BF) ||
           (cp >= 0x4D0 && cp <= 0x52F) || (cp >= 0x1E00 && cp <= 0x1E95) || (cp >= 0x1EA0 && cp <= 0x1EFF);
}

/* Blocks where the lower letter lies at a fixed distance behind the upper one. */
static const struct shifted {
    uint32_t first, last, distance;
} shifted[] = {
    {'A', 'Z', 32},     {0xC0, 0xD6, 32},   {0xD8, 0xDE, 32},   {0x386, 0x386, 38},   {0x388, 0x38A, 37},
    {0x38C, 0x38C, 64}, {0x38E, 0x38F, 63}, {0x391, 0x3A1, 32}, {0x3A3, 0x3AB, 32},   {0x400, 0x40F, 80},
    {0x410, 0x42F, 32}, {0x4C0, 0x4C0, 15}, {0x531, 0x556, 48}, {0xFF21, 0xFF3A, 32},
};

uint32_t cp_upper(uint32_t cp)
{
    bool odd;
    if (cp == 0xB5) return 0x39C;
    if (cp == 0xFF) return 0x178;
    if (cp == 0x131) return 'I';
    if (cp == 0x17F) return 'S';
    if (cp == 0x3C2) return 0x3A3;
    if (cp == 0x1E9B) return 0x1E60;
    if (alternating(cp, &odd)) return (cp & 1) == odd ? cp : cp - 1;
    for (size_t i = 0; i < sizeof shifted / sizeof *shifted; i++) {
        const struct shifted *b = &shifted[i];
        if (cp >= b->first + b->distance && cp <= b->last + b->distance) return cp - b->distance;
    }
    return cp;
}

uint32_t cp_lower(uint32_t cp)
{
    bool odd;
    if (cp == 0x178) return 0xFF;
    if (cp == 0x1E9E) return 0xDF;
    if (alternating(cp, &odd)) return (cp & 1) == odd ? cp + 1 : cp;
    for (size_t i = 0; i < sizeof shifted / sizeof *shifted; i++)
        if (cp >= shifted[i].first && cp <= shifted[i].last) return cp + shifted[i].distance;
    return cp;
}

void trim_left(const char **s, size_t *n)
{
    uint32_t cp;
    while (*n) {
        size_t len = char_next(*s, *n, &cp);
        if (!cp_is_space(cp)) return;
        *s += len;
        *n -= len;
    }
}

void trim_right(const char *s, size_t *n)
{
    while (*n) {
        size_t at = *n - 1;
        while (at > 0 && *n - at < 4 && ((unsigned char)s[at] & 0xC0) == 0x80) at--;
        uint32_t cp;
        if (char_next(s + at, *n - at, &cp) != *n - at || !cp_is_space(cp)) return;
        *n = at;
    }
}
