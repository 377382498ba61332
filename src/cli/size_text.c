#include <string.h>

#include "cli/cli.h"
#include "cli/size.h"
#include "fetch/progress.h"

typedef unsigned long long ull;

#define BAR_COLUMNS 40

static void add_bar(strbuf *b, double value, double most)
{
    int n = most > 0 ? (int)(BAR_COLUMNS * (value / most) + 0.5) : 0;
    for (int i = 0; i < n || i == 0; i++) strbuf_putc(b, '#');
}

static void describe(const size_answer *a, strbuf *b)
{
    const model_shape *s = a->q.shape;
    strbuf_printf(b, "%s: %d layers, ", s->name, s->n_layers);
    if (s->d_c) strbuf_printf(b, "%d heads over a latent of %d + %d", s->n_heads, s->d_c, s->d_rope);
    else {
        strbuf_printf(b, "%d heads over %d of K and V, %d wide", s->n_heads, s->n_kv_heads, s->d_k);
        if (s->d_k != s->d_v) strbuf_printf(b, " (V: %d)", s->d_v);
    }
    if (s->n_windowed) strbuf_printf(b, "; %d layers see a window of %d tokens", s->n_windowed, s->window);
    strbuf_printf(b, "; made for %d tokens\nfrom %s\n", s->context_length, s->source);
    if (a->q.context > (uint64_t)s->context_length)
        strbuf_puts(b, "the context asked for is longer than the model was made for\n");
}

static void table_of_kinds(const size_answer *a, strbuf *b)
{
    strbuf_printf(b, "\nbytes per token and layer in %s, were the attention\n", a->q.format->name);
    double most = 0;
    for (int i = 0; i < SIZE_KINDS; i++)
        if (a->kinds[i].bytes_per_token_layer > most) most = a->kinds[i].bytes_per_token_layer;
    for (int i = 0; i < SIZE_KINDS; i++) {
        const size_kind *k = &a->kinds[i];
        strbuf_printf(b, "%s %s ", k->own ? "->" : "  ", k->name);
        if (k->n_kv_heads) strbuf_printf(b, "%4d KV head%s", k->n_kv_heads, k->n_kv_heads > 1 ? "s" : " ");
        else strbuf_printf(b, "%6d + %-4d", k->d_c, k->d_rope);
        strbuf_printf(b, "  %9.15g  ", k->bytes_per_token_layer);
        add_bar(b, k->bytes_per_token_layer, most);
        strbuf_putc(b, '\n');
    }
}

static void table_of_formats(const size_answer *a, strbuf *b)
{
    char size[BYTES_TEXT];
    bool any_planned = false;
    strbuf_printf(b, "\ncache of one sequence of %llu tokens (blocks of %d)\n", (ull)a->q.context, a->q.block_tokens);
    strbuf_printf(b, "   %-5s %6s %14s %20s %12s %7s %11s\n", "kv", "bits", "bytes/token", "bytes/sequence", "", "fit",
                  "contiguous");
    const kv_format *f;
    for (int i = 0; (f = size_format_at(i)) != NULL; i++) {
        size_question q = a->q;
        q.format = f;
        size_answer other = size_answer_make(&q);
        bool planned = !size_format_stored(f);
        any_planned |= planned;
        strbuf_printf(b, "%s %s%c %7g %14.15g %20llu %12s %7llu %11llu\n", f == a->q.format ? "->" : "  ", f->name,
                      planned ? '*' : ' ', f->bits, other.bytes_per_token, (ull)other.bytes_per_sequence,
                      bytes_text(size, other.bytes_per_sequence), (ull)other.fits, (ull)other.fits_contiguous);
    }
    if (any_planned) strbuf_puts(b, "   * a size for planning: Kvasir does not store this format\n");
}

/* Weights against cache, and which is more. */
static void balance(const size_answer *a, strbuf *b)
{
    const size_question *q = &a->q;
    char size[BYTES_TEXT];
    bool cache = a->cache_bytes > q->weights_bytes;
    double most = (double)(cache ? a->cache_bytes : q->weights_bytes);
    strbuf_printf(b, "\n%llu x %llu tokens in %s: the %s\n", (ull)q->batch, (ull)q->context, q->format->name,
                  cache ? "cache decides" : "weights decide");
    strbuf_printf(b, "   weights %-8s %10s  ", q->weights_type, bytes_text(size, q->weights_bytes));
    add_bar(b, (double)q->weights_bytes, most);
    strbuf_printf(b, "\n   cache            %10s  ", bytes_text(size, a->cache_bytes));
    add_bar(b, (double)a->cache_bytes, most);
    strbuf_printf(b, "\n   together         %10s\n", bytes_text(size, a->total_bytes));
}

/* How many sequences the memory holds. */
static void budget(const size_answer *a, strbuf *b)
{
    const size_question *q = &a->q;
    char memory[BYTES_TEXT], size[BYTES_TEXT];
    bytes_text(memory, q->memory_bytes);
    if (q->memory_bytes <= q->weights_bytes) {
        strbuf_printf(b, "\nthe weights alone leave nothing of %s: no sequence fits\n", memory);
        return;
    }
    strbuf_printf(b, "\nof %s the weights take %.1f%% and leave %s:\n", memory,
                  100 * (double)q->weights_bytes / (double)q->memory_bytes,
                  bytes_text(size, q->memory_bytes - q->weights_bytes));
    strbuf_printf(b, "   %llu x %llu tokens fit in blocks, %s each\n", (ull)a->fits, (ull)q->context,
                  bytes_text(size, a->bytes_per_sequence));
    strbuf_printf(b, "   %llu fit where each reserves %llu tokens in one piece, %s each\n", (ull)a->fits_contiguous,
                  (ull)a->longest, bytes_text(size, a->bytes_contiguous));
}

void size_text(const size_answer *a, strbuf *out)
{
    describe(a, out);
    table_of_kinds(a, out);
    table_of_formats(a, out);
    balance(a, out);
    budget(a, out);
}

static void json_text(strbuf *b, const char *key, const char *text)
{
    strbuf_printf(b, ", \"%s\": ", key);
    strbuf_json(b, text, strlen(text));
}

void size_json(const size_answer *a, strbuf *b)
{
    const size_question *q = &a->q;
    const model_shape *s = q->shape;
    strbuf_puts(b, "{\"model\": ");
    strbuf_json(b, s->name, strlen(s->name));
    json_text(b, "source", s->source);
    strbuf_printf(b, ", \"layers\": %d, \"windowed_layers\": %d, \"window\": %d, \"heads\": %d, \"context_length\": %d",
                  s->n_layers, s->n_windowed, s->window, s->n_heads, s->context_length);
    json_text(b, "kv", q->format->name);
    strbuf_printf(b,
                  ", \"kv_bits\": %.15g, \"kv_stored\": %s, \"block_tokens\": %d, \"context\": %llu, \"batch\": %llu",
                  q->format->bits, size_format_stored(q->format) ? "true" : "false", q->block_tokens, (ull)q->context,
                  (ull)q->batch);
    strbuf_printf(b, ", \"bytes_per_token\": %.17g, \"bytes_per_token_layer\": %.17g", a->bytes_per_token,
                  a->bytes_per_token_layer);
    static const char *const keys[SIZE_KINDS] = {"mha", "gqa", "mqa", "mla"};
    for (int i = 0; i < SIZE_KINDS; i++)
        strbuf_printf(b, ", \"%s_bytes_per_token_layer\": %.17g", keys[i], a->kinds[i].bytes_per_token_layer);
    strbuf_printf(b, ", \"bytes_per_sequence\": %llu, \"cache_bytes\": %llu, \"weights_bytes\": %llu",
                  (ull)a->bytes_per_sequence, (ull)a->cache_bytes, (ull)q->weights_bytes);
    json_text(b, "weights_type", q->weights_type);
    strbuf_printf(b, ", \"total_bytes\": %llu, \"decides\": \"%s\", \"memory_bytes\": %llu, \"fits\": %llu",
                  (ull)a->total_bytes, a->cache_bytes > q->weights_bytes ? "cache" : "weights", (ull)q->memory_bytes,
                  (ull)a->fits);
    strbuf_printf(
        b, ", \"contiguous_tokens\": %llu, \"bytes_per_sequence_contiguous\": %llu, \"fits_contiguous\": %llu}\n",
        (ull)a->longest, (ull)a->bytes_contiguous, (ull)a->fits_contiguous);
}
