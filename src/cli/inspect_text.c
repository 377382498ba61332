#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/inspect.h"
#include "fetch/progress.h"
#include "kernel/dtype.h"

#define SHOWN_ELEMENTS 6
#define SHOWN_BYTES 96
#define MAX_COLUMN 44

/* Bytes from a file as a terminal may see them: control characters (C1 too, which some terminals obey) and malformed
 * UTF-8 become '?', line ends "\n". */
static void put_bytes(strbuf *b, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        bool whole;
        int len = utf8_part(s + i, n - i, &whole);
        if (whole) utf8_decode(s + i, n - i, &cp);
        if (cp == '\n') strbuf_puts(b, "\\n");
        else if (cp < 0x20 || (cp >= 0x7F && cp < 0xA0)) strbuf_putc(b, '?'); /* broken parts too */
        else strbuf_add(b, s + i, (size_t)len);
        i += (size_t)len;
    }
}

/* For "%.*s": names of architectures and tokenizers are short, or nonsense. */
static int shown(gguf_str s)
{
    return s.n < 64 ? (int)s.n : 64;
}

static void put_string(strbuf *b, gguf_str s, size_t limit)
{
    size_t n = s.n;
    if (n > limit)
        for (n = limit; n > 0 && ((unsigned char)s.data[n] & 0xC0) == 0x80;) n--; /* not inside a character */
    strbuf_putc(b, '"');
    put_bytes(b, s.data, n);
    strbuf_putc(b, '"');
    if (n < s.n) strbuf_printf(b, "... (%zu bytes)", s.n);
}

/* 46,080 */
static const char *grouped(uint64_t v, char out[28])
{
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)v), at = 0;
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0) out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = 0;
    return out;
}

static void put_number(strbuf *b, const gguf_kv *kv, uint64_t i)
{
    char text[24];
    double v = gguf_array_number(kv, i);
    switch (kv->elem_type) {
    case GGUF_BOOL: strbuf_puts(b, v != 0 ? "true" : "false"); break;
    case GGUF_F32: strbuf_puts(b, inspect_float((float)v, text)); break;
    case GGUF_F64: strbuf_printf(b, "%.15g", v); break;
    case GGUF_U64: strbuf_printf(b, "%llu", (unsigned long long)gguf_array_integer(kv, i)); break;
    default: strbuf_printf(b, "%lld", (long long)gguf_array_integer(kv, i));
    }
}

static void put_value(strbuf *b, const gguf_kv *kv, bool full)
{
    uint64_t shown = full || kv->n < SHOWN_ELEMENTS ? kv->n : SHOWN_ELEMENTS;
    size_t limit = full ? SIZE_MAX : kv->type == GGUF_ARRAY ? SHOWN_BYTES / SHOWN_ELEMENTS : SHOWN_BYTES;
    gguf_str s;
    const uint8_t *at = NULL;
    if (kv->elem_type == GGUF_ARRAY) {
        strbuf_printf(b, "arrays, %zu bytes", kv->value_bytes);
        return;
    }
    for (uint64_t i = 0; i < shown; i++) {
        if (i) strbuf_puts(b, ", ");
        if (gguf_is_number(kv)) put_number(b, kv, i);
        else if (gguf_next_str(kv, &at, &s)) put_string(b, s, limit);
    }
    if (shown < kv->n) strbuf_puts(b, ", ...");
}

/* Two spaces, the name, and blanks up to the next column. */
static void put_name(strbuf *b, gguf_str name, size_t column)
{
    strbuf_puts(b, "  ");
    size_t begin = b->n_bytes;
    put_bytes(b, name.data, name.n);
    size_t used = b->n_bytes - begin;
    strbuf_printf(b, "%*s  ", used < column ? (int)(column - used) : 0, "");
}

static size_t wider(size_t column, gguf_str name)
{
    return name.n <= column ? column : name.n < MAX_COLUMN ? name.n : MAX_COLUMN;
}

static void put_metadata(strbuf *b, const inspection *x, bool full)
{
    size_t n = gguf_kv_count(x->g), column = 0;
    for (size_t i = 0; i < n; i++) column = wider(column, gguf_kv_at(x->g, i)->key);
    strbuf_printf(b, "\nmetadata (%zu)\n", n);
    for (size_t i = 0; i < n; i++) {
        const gguf_kv *kv = gguf_kv_at(x->g, i);
        char type[40];
        if (kv->type == GGUF_ARRAY)
            snprintf(type, sizeof type, "%s[%llu]", gguf_type_name(kv->elem_type), (unsigned long long)kv->n);
        else snprintf(type, sizeof type, "%s", gguf_type_name(kv->type));
        put_name(b, kv->key, column);
        strbuf_printf(b, "%-14s  ", type);
        put_value(b, kv, full);
        strbuf_putc(b, '\n');
    }
}

static void put_tensors(strbuf *b, const inspection *x)
{
    size_t n = gguf_tensor_count(x->g), column = 0;
    for (size_t i = 0; i < n; i++) column = wider(column, gguf_tensor_at(x->g, i)->name);
    strbuf_printf(b, "\ntensors (%zu): name, row length x rows, type, bytes\n", n);
    for (size_t i = 0; i < n; i++) {
        const gguf_tensor *t = gguf_tensor_at(x->g, i);
        char shape[96], type[24], bytes[28];
        int at = 0;
        for (int d = 0; d < t->n_dims; d++)
            at += snprintf(shape + at, sizeof shape - (size_t)at, "%s%lld", d ? " x " : "", (long long)t->dims[d]);
        put_name(b, t->name, column);
        strbuf_printf(b, "%-16s  %-7s  %14s\n", shape, inspect_type_name(t->type, type),
                      t->data ? grouped(t->n_bytes, bytes) : "unknown");
    }
}

static void put_types(strbuf *b, const inspection *x)
{
    uint64_t total = 0;
    for (int i = 0; i < INSPECT_TYPES; i++) total += x->types[i].n_bytes;
    strbuf_puts(b, "\nby type\n");
    for (uint32_t i = 0; i < INSPECT_TYPES; i++) {
        const type_sum *sum = &x->types[i];
        char bytes[28];
        if (!sum->n_tensors) continue;
        strbuf_printf(b, "  %-10s  %5llu tensor%s", sum->name, (unsigned long long)sum->n_tensors,
                      sum->n_tensors == 1 ? " " : "s");
        if (!dtype_get(i)) strbuf_puts(b, "  of unknown size");
        else
            strbuf_printf(b, "  %15s bytes  %5.1f%%", grouped(sum->n_bytes, bytes),
                          100.0 * (double)sum->n_bytes / (double)total);
        strbuf_putc(b, '\n');
    }
}

static void put_kv_line(strbuf *b, const inspection *x)
{
    const arch_params *a = &x->arch;
    char bytes[28];
    strbuf_printf(b, "  KV cache      %d layers", a->n_layers);
    if (x->n_windowed) strbuf_printf(b, " (%d with a window of %d tokens)", x->n_windowed, a->window);
    strbuf_printf(b, ", %d heads over %d KV head%s of %d", a->n_heads, a->n_kv_heads, a->n_kv_heads == 1 ? "" : "s",
                  a->d_k);
    if (a->d_v != a->d_k) strbuf_printf(b, " (K) and %d (V)", a->d_v);
    strbuf_printf(b, ": %s bytes per token in f16\n", grouped((uint64_t)x->kv_bytes_per_token, bytes));
}

/* "  because       the text": texts may quote the file. */
static void put_line(strbuf *b, const char *label, const char *line)
{
    strbuf_printf(b, "  %-12s  ", label);
    put_bytes(b, line, strlen(line));
    strbuf_putc(b, '\n');
}

static void put_verdict(strbuf *b, const inspection *x)
{
    char line[512], number[28];
    strbuf_printf(b, "\nKvasir %s this model\n", x->n_reasons ? "can't run" : "runs");
    for (int i = 0; i < x->n_reasons; i++) put_line(b, "because", x->reasons[i]);
    snprintf(line, sizeof line, "%.*s%s%s%s", shown(x->architecture), x->architecture.data, x->arch_ok ? " (" : "",
             x->arch_ok ? x->arch.traits->models : "",
             x->arch_ok          ? ")"
             : x->architecture.n ? ", not supported"
                                 : "none");
    put_line(b, "architecture", line);
    put_line(b, "tensor types", x->types_ok ? "all supported" : "not all supported");
    snprintf(line, sizeof line, "%.*s%s%.*s%s", shown(x->tokenizer), x->tokenizer.data,
             x->pre.n ? ", pre-tokenizer " : "", shown(x->pre), x->pre.data,
             x->tokenizer_ok  ? ""
             : x->tokenizer.n ? ", not supported"
                              : "none");
    put_line(b, "tokenizer", line);
    put_line(b, "chat", x->note[0] ? x->note : "template supported");
    if (!x->arch_ok) return;
    strbuf_printf(b, "  context       %s tokens\n", grouped((uint64_t)x->arch.context_length, number));
    put_kv_line(b, x);
}

void inspection_text(const inspection *x, bool full, strbuf *b)
{
    char number[28], size[BYTES_TEXT];
    size_t bytes = gguf_file_bytes(x->g), parts = gguf_part_count(x->g);
    put_bytes(b, x->path, strlen(x->path));
    strbuf_printf(b, ": GGUF version %u, %s bytes (%s)", gguf_version(x->g), grouped(bytes, number),
                  bytes_text(size, bytes));
    if (parts > 1) strbuf_printf(b, " in %zu parts", parts);
    strbuf_putc(b, '\n');
    put_metadata(b, x, full);
    put_tensors(b, x);
    if (gguf_tensor_count(x->g)) put_types(b, x);
    put_verdict(b, x);
}
