#include "cli/size.h"

/* Bits per element with the scales: q8 one 16-bit scale for 32 values of 8 bits (8 + 16/32), q4 the same for 4 bits (4
 * + 16/32), q2 a scale and a minimum of 16 bits for 64 values of 2 bits (2 + 32/64). */
static const kv_format sizes_only[] = {
    {.name = "q8", .bits = 8.5, .group_tokens = 1},
    {.name = "q4", .bits = 4.5, .group_tokens = 1},
    {.name = "q2", .bits = 2.5, .group_tokens = 1},
};

bool size_format_stored(const kv_format *f)
{
    return kv_format_get(f->name) != NULL;
}

const kv_format *size_format_at(int i)
{
    int n_stored = 0;
    for (; kv_format_at(n_stored); n_stored++)
        if (n_stored == i) return kv_format_at(i);
    i -= n_stored;
    return i >= 0 && i < (int)(sizeof sizes_only / sizeof *sizes_only) ? &sizes_only[i] : NULL;
}

static kv_layout heads_layout(const model_shape *s, int n_kv_heads)
{
    return (kv_layout){.kind = KV_GQA, .n_kv_heads = n_kv_heads, .d_k = s->d_k, .d_v = s->d_v};
}

static kv_layout latent_layout(int d_c, int d_rope)
{
    return (kv_layout){.kind = KV_MLA, .d_c = d_c, .d_rope = d_rope};
}

static kv_layout own_layout(const model_shape *s)
{
    return s->d_c ? latent_layout(s->d_c, s->d_rope) : heads_layout(s, s->n_kv_heads);
}

/* KV heads of a grouped variant: the model's own, or what is usual: eight, of eight heads or fewer half. */
static int grouped_heads(const model_shape *s)
{
    if (!s->d_c && s->n_kv_heads > 1 && s->n_kv_heads < s->n_heads) return s->n_kv_heads;
    return s->n_heads > 8 ? 8 : (s->n_heads + 1) / 2;
}

static void compare_kinds(size_answer *a)
{
    const model_shape *s = a->q.shape;
    int own = s->d_c ? SIZE_MLA : s->n_kv_heads == s->n_heads ? SIZE_MHA : s->n_kv_heads == 1 ? SIZE_MQA : SIZE_GQA;
    /* the latent that DeepSeek-V2's authors recommend: four heads wide, and half a head that turns */
    int d_c = s->d_c ? s->d_c : 4 * s->d_k, d_rope = s->d_c ? s->d_rope : s->d_k / 2;
    a->kinds[SIZE_MHA] = (size_kind){.name = "MHA", .n_kv_heads = s->n_heads};
    a->kinds[SIZE_GQA] = (size_kind){.name = "GQA", .n_kv_heads = grouped_heads(s)};
    a->kinds[SIZE_MQA] = (size_kind){.name = "MQA", .n_kv_heads = 1};
    a->kinds[SIZE_MLA] = (size_kind){.name = "MLA", .d_c = d_c, .d_rope = d_rope};
    for (int i = 0; i < SIZE_KINDS; i++) {
        size_kind *k = &a->kinds[i];
        kv_layout l = i == SIZE_MLA ? latent_layout(d_c, d_rope) : heads_layout(s, k->n_kv_heads);
        k->bytes_per_token_layer = kv_bytes_per_token_layer(&l, a->q.format);
        k->own = i == own;
    }
}

static uint64_t add_sat(uint64_t x, uint64_t y)
{
    uint64_t z;
    return __builtin_add_overflow(x, y, &z) ? UINT64_MAX : z;
}

/* Bytes of one sequence: what it holds while it grows by a token at a time. */
static uint64_t sequence_bytes(const size_question *q, uint64_t n_tokens, bool windows)
{
    const model_shape *s = q->shape;
    int n_windowed = windows ? s->n_windowed : 0;
    kv_group global = {.layout = own_layout(s), .n_layers = s->n_layers - n_windowed};
    kv_group windowed = {.layout = own_layout(s), .n_layers = n_windowed};
    windowed.layout.window = s->window;
    return add_sat(kv_bytes(&global, q->format, q->block_tokens, n_tokens, 1),
                   kv_bytes(&windowed, q->format, q->block_tokens, n_tokens, 1));
}

size_answer size_answer_make(const size_question *q)
{
    size_answer a = {.q = *q};
    compare_kinds(&a);
    kv_layout own = own_layout(q->shape);
    a.bytes_per_token_layer = kv_bytes_per_token_layer(&own, q->format);
    a.bytes_per_token = a.bytes_per_token_layer * q->shape->n_layers;
    a.bytes_per_sequence = sequence_bytes(q, q->context, true);
    a.longest = q->context > (uint64_t)q->shape->context_length ? q->context : (uint64_t)q->shape->context_length;
    a.bytes_contiguous = sequence_bytes(q, a.longest, false);
    if (__builtin_mul_overflow(a.bytes_per_sequence, q->batch, &a.cache_bytes)) a.cache_bytes = UINT64_MAX;
    a.total_bytes = add_sat(a.cache_bytes, q->weights_bytes);
    uint64_t left = q->memory_bytes > q->weights_bytes ? q->memory_bytes - q->weights_bytes : 0;
    a.fits = left / a.bytes_per_sequence;
    a.fits_contiguous = left / a.bytes_contiguous;
    return a;
}
