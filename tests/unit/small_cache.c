#include "small_cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"

const int GLOBAL_LAYERS[] = {0, 2};
static const int WINDOW_LAYERS[] = {1};
enum { MAX_D = 16 };
const kv_group GROUPS[] = {
    {.layout = {.kind = KV_GQA, .n_kv_heads = 2, .d_k = 8, .d_v = 16}, .layers = GLOBAL_LAYERS, .n_layers = 2},
    {.layout = {.kind = KV_GQA, .n_kv_heads = 1, .d_k = 16, .d_v = 8, .window = WINDOW},
     .layers = WINDOW_LAYERS,
     .n_layers = 1},
};

kv_cache_config config_of(int block_tokens, const char *format, uint64_t max_tokens, uint64_t memory_bytes)
{
    return (kv_cache_config){.groups = GROUPS,
                             .n_groups = 2,
                             .format = kv_format_get(format),
                             .block_tokens = block_tokens,
                             .max_tokens = max_tokens,
                             .step_tokens = STEP,
                             .n_seqs = 3,
                             .memory_bytes = memory_bytes};
}

kv_cache *make_cache(kv_cache_config config)
{
    kv_cache *c = NULL;
    status st = STATUS_INIT;
    if (kv_cache_new(&c, &config, &st)) fail_msg("%s", st.text);
    return c;
}

kv_seq *make_seq(kv_cache *c)
{
    kv_seq *s = NULL;
    status st = STATUS_INIT;
    if (kv_seq_new(&s, c, &st)) fail_msg("%s", st.text);
    return s;
}

void audit(const kv_cache *c)
{
    status st = STATUS_INIT;
    if (kv_cache_audit(c, &st)) fail_msg("%s", st.text);
}

void must(int rc, const status *st)
{
    if (rc) fail_msg("%s", st->text);
}

void append(kv_seq *s, int n)
{
    status st = STATUS_INIT;
    must(kv_seq_append(s, n, &st), &st);
}

void truncate_to(kv_seq *s, int64_t n)
{
    status st = STATUS_INIT;
    must(kv_seq_truncate(s, n, &st), &st);
}

kv_seq *fork_at(const kv_seq *s, int64_t n)
{
    kv_seq *f = NULL;
    status st = STATUS_INIT;
    must(kv_seq_fork(&f, s, n, &st), &st);
    return f;
}

void draft(kv_seq *s, int n)
{
    status st = STATUS_INIT;
    must(kv_seq_draft(s, n, NULL, &st), &st);
}

static void to_half(const float *x, int64_t n, uint16_t *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = float_to_half(x[i]);
}

/* What serial number `serial` puts into one head of one layer: small integers, exact in f16, that differ almost
 * everywhere. */
static void pattern(float *x, int d, uint32_t serial, int layer, int head, int is_v)
{
    uint32_t h = serial * 2654435761u + (uint32_t)(layer * 64 + head * 8 + is_v) * 40503u;
    for (int c = 0; c < d; c++) {
        h = h * 1664525u + 1013904223u;
        x[c] = (float)(int)(h >> 21) - 1024;
    }
}

void write_row(const kv_cache *c, int group, kv_place at, uint32_t serial)
{
    static const kernels ks = {.to_half = to_half};
    const kv_group *g = kv_cache_group(c, group);
    const kv_format *f = kv_cache_format(c);
    float x[MAX_D];
    for (int layer = 0; layer < g->n_layers; layer++)
        for (int head = 0; head < g->layout.n_kv_heads; head++) {
            pattern(x, g->layout.d_k, serial, g->layers[layer], head, 0);
            f->write_k(&ks, at.block + kv_k_offset(c, group, layer, head), kv_cache_block_tokens(c), at.row, x,
                       g->layout.d_k);
            pattern(x, g->layout.d_v, serial, g->layers[layer], head, 1);
            f->write_v(&ks, at.block + kv_v_offset(c, group, layer, head), kv_cache_block_tokens(c), at.row, x,
                       g->layout.d_v);
        }
}

void check_row(const kv_cache *c, int group, const uint8_t *block, int row, uint32_t serial)
{
    const kv_group *g = kv_cache_group(c, group);
    const kv_format *f = kv_cache_format(c);
    float x[MAX_D], want[MAX_D];
    for (int layer = 0; layer < g->n_layers; layer++)
        for (int head = 0; head < g->layout.n_kv_heads; head++) {
            pattern(want, g->layout.d_k, serial, g->layers[layer], head, 0);
            f->read_k(block + kv_k_offset(c, group, layer, head), kv_cache_block_tokens(c), row, x, g->layout.d_k);
            assert_memory_equal(x, want, (size_t)g->layout.d_k * sizeof *x);
            pattern(want, g->layout.d_v, serial, g->layers[layer], head, 1);
            f->read_v(block + kv_v_offset(c, group, layer, head), kv_cache_block_tokens(c), row, x, g->layout.d_v);
            assert_memory_equal(x, want, (size_t)g->layout.d_v * sizeof *x);
        }
}
