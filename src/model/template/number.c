#include "model/template/number.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "model/template/unicode.h"

static int digit_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'z' ? (c | 32) - 'a' + 10 : 99;
}

static int prefix_base(const char *s, size_t n)
{
    if (n < 2 || s[0] != '0') return 0;
    char c = (char)(s[1] | 32);
    return c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
}

int number_parse_int(const char *s, size_t n, int base, int64_t *out)
{
    trim_left(&s, &n);
    trim_right(s, &n);
    bool negative = n && s[0] == '-', zeros_only = false;
    if (n && (s[0] == '-' || s[0] == '+')) s++, n--;
    int prefix = prefix_base(s, n);
    if (prefix && (base == 0 || base == prefix)) {
        base = prefix;
        s += 2;
        n -= 2;
        if (n && s[0] == '_') s++, n--;
    } else if (base == 0) {
        base = 10;
        zeros_only = n > 1 && s[0] == '0';
    }
    if (n == 0) return ST_FORMAT;
    int64_t v = 0;
    bool digit_before = false, over = false;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '_' && digit_before && i + 1 < n) {
            digit_before = false;
            continue;
        }
        int d = digit_value(s[i]);
        if (d >= base || (zeros_only && d)) return ST_FORMAT;
        digit_before = true;
        over = over || __builtin_mul_overflow(v, base, &v) || __builtin_sub_overflow(v, d, &v);
    }
    if (over || (!negative && v == INT64_MIN)) return ST_LIMIT;
    *out = negative ? v : -v;
    return ST_OK;
}

static bool same_word(const char *s, size_t n, const char *word)
{
    if (n != strlen(word)) return false;
    for (size_t i = 0; i < n; i++)
        if ((s[i] | 32) != word[i]) return false;
    return true;
}

#define DIGITS_MAX 800 /* more than any double needs */

int number_parse_float(const char *s, size_t n, double *out)
{
    trim_left(&s, &n);
    trim_right(s, &n);
    bool negative = n && s[0] == '-', any = false, point = false;
    if (n && (s[0] == '-' || s[0] == '+')) s++, n--;
    if (same_word(s, n, "inf") || same_word(s, n, "infinity") || same_word(s, n, "nan")) {
        *out = (s[0] | 32) == 'n' ? NAN : negative ? -INFINITY : INFINITY;
        return ST_OK;
    }
    char text[DIGITS_MAX + 32]; /* the digits as one whole number, then e and the exponent: no point, so no locale */
    size_t m = 0, i = 0;
    int64_t exponent = 0, written = 0;
    for (; i < n; i++) {
        if (s[i] == '_' && i > 0 && i + 1 < n && digit_value(s[i - 1]) < 10 && digit_value(s[i + 1]) < 10) continue;
        if (s[i] == '.' && !point) point = true;
        else if (digit_value(s[i]) < 10) {
            any = true;
            if (m < DIGITS_MAX) {
                text[m++] = s[i];
                exponent -= point;
            } else exponent += !point;
        } else break;
    }
    if (!any) return ST_FORMAT;
    if (i < n && (s[i] | 32) == 'e' && number_parse_int(s + i + 1, n - i - 1, 10, &written)) return ST_FORMAT;
    if (i < n && ((s[i] | 32) != 'e' || cp_is_space((unsigned char)s[i + 1]))) return ST_FORMAT;
    if (written > 100000) written = 100000;
    if (written < -100000) written = -100000;
    snprintf(text + m, 32, "e%lld", (long long)(exponent + written));
    *out = strtod(text, NULL) * (negative ? -1 : 1);
    return ST_OK;
}

size_t float_text(double f, char out[FLOAT_TEXT_MAX])
{
    if (isnan(f)) return (size_t)snprintf(out, FLOAT_TEXT_MAX, "nan");
    if (isinf(f)) return (size_t)snprintf(out, FLOAT_TEXT_MAX, f < 0 ? "-inf" : "inf");
    char text[FLOAT_TEXT_MAX], digits[20];
    int n_digits = 1;
    for (; n_digits <= 17; n_digits++) {
        snprintf(text, sizeof text, "%.*e", n_digits - 1, f);
        if (strtod(text, NULL) == f) break;
    }
    size_t n = 0;
    char *e = strchr(text, 'e');
    for (char *c = text; c < e; c++)
        if (*c >= '0' && *c <= '9') digits[n++] = *c;
    int exponent = atoi(e + 1), at = 0;
    while (n > 1 && digits[n - 1] == '0') n--;
    if (signbit(f)) out[at++] = '-';
    if (exponent < -4 || exponent >= 16) {
        out[at++] = digits[0];
        if (n > 1) out[at++] = '.';
        memcpy(out + at, digits + 1, n - 1);
        at += (int)n - 1;
        return (size_t)(at + snprintf(out + at, 8, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent)));
    }
    for (int i = exponent < 0 ? exponent : 0; i < (int)n || i <= exponent + 1; i++) {
        if (i == exponent + 1) out[at++] = '.';
        out[at++] = i >= 0 && i < (int)n ? digits[i] : '0';
    }
    out[at] = 0;
    return (size_t)at;
}

double float_round(double f, int decimals)
{
    if (!isfinite(f) || decimals > 300) return f;
    char text[700];
    int n = snprintf(text, sizeof text, "%.*f", decimals, f);
    for (int i = 0; i < n; i++)
        if (text[i] != '-' && digit_value(text[i]) > 9) text[i] = '.';
    number_parse_float(text, (size_t)n, &f);
    return f;
}
