#include "model/arch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const arch_traits table[] = {
    {"llama", "Llama 2, 3, 3.1, 3.2, Mistral, SmolLM2", FAMILY_LLAMA, ROPE_PAIRS, false, false, 0, 0, 0, 10000.0f, 0},
    {"qwen2", "Qwen2, Qwen2.5", FAMILY_LLAMA, ROPE_HALVES, true, false, 0, 0, 0, 10000.0f, 0},
    {"qwen3", "Qwen3", FAMILY_LLAMA, ROPE_HALVES, false, true, 0, 0, 0, 10000.0f, 0},
    {"phi3", "Phi-3, Phi-3.5, Phi-4", FAMILY_LLAMA, ROPE_HALVES, false, false, 0, 0, 0, 10000.0f, 0},
    {"smollm3", "SmolLM3", FAMILY_LLAMA, ROPE_PAIRS, false, false, 0, 4, 0, 10000.0f, 0},
    {"gemma2", "Gemma 2", FAMILY_GEMMA, ROPE_HALVES, false, false, 2, 0, 4096, 10000.0f, 0},
    {"gemma3", "Gemma 3", FAMILY_GEMMA, ROPE_HALVES, false, true, 6, 0, 0, 1000000.0f, 10000.0f},
};

const arch_traits *arch_traits_at(int i)
{
    return i >= 0 && i < (int)(sizeof table / sizeof *table) ? &table[i] : NULL;
}

bool arch_layer_windowed(const arch_params *p, int layer)
{
    if (!p->window) return false;
    int every = p->traits->window_every;
    return every == 0 || (layer + 1) % every != 0;
}

bool arch_layer_has_rope(const arch_params *p, int layer)
{
    int every = p->traits->nope_every;
    return every == 0 || (layer + 1) % every != 0;
}

/* Reads "{arch}.key" with bounds; `fallback` < 0 makes the key required. */
typedef struct reader {
    const gguf *g;
    const char *arch;
    status *st;
} reader;

static const char *full_key(const reader *r, const char *key, char buffer[static 128])
{
    snprintf(buffer, 128, "%s.%s", r->arch, key);
    return buffer;
}

static int read_int(const reader *r, const char *key, int64_t fallback, int64_t least, int64_t most, int *out)
{
    char name[128];
    uint32_t v = 0;
    bool found;
    if (gguf_get_u32(r->g, full_key(r, key, name), &v, &found, r->st)) return r->st->code;
    if (!found && fallback < 0)
        return status_set(r->st, ST_FORMAT, STATUS_NO_POS, "the file lacks the key %s, which the model needs", name);
    int64_t value = found ? (int64_t)v : fallback;
    if (value < least || value > most)
        return status_set(r->st, ST_FORMAT, STATUS_NO_POS, "%s is %lld; %lld to %lld is possible", name,
                          (long long)value, (long long)least, (long long)most);
    *out = (int)value;
    return ST_OK;
}

static int read_float(const reader *r, const char *key, float fallback, float least, float most, float *out)
{
    char name[128];
    float v = fallback;
    bool found;
    if (gguf_get_f32(r->g, full_key(r, key, name), &v, &found, r->st)) return r->st->code;
    if (found && !(v >= least && v <= most))
        return status_set(r->st, ST_FORMAT, STATUS_NO_POS, "%s is %g; %g to %g is possible", name, (double)v,
                          (double)least, (double)most);
    *out = v;
    return ST_OK;
}

static int read_rope_scaling(const reader *r, rope_params *rope)
{
    static const struct {
        const char *name;
        rope_scaling scaling;
    } kinds[] = {{"none", ROPE_SCALING_NONE},
                 {"linear", ROPE_SCALING_LINEAR},
                 {"yarn", ROPE_SCALING_YARN},
                 {"longrope", ROPE_SCALING_LONGROPE}};
    char name[128];
    gguf_str kind = {"none", 4};
    if (gguf_get_str(r->g, full_key(r, "rope.scaling.type", name), &kind, NULL, r->st)) return r->st->code;
    size_t i = 0, n = sizeof kinds / sizeof *kinds;
    while (i < n && !(strlen(kinds[i].name) == kind.n && memcmp(kinds[i].name, kind.data, kind.n) == 0)) i++;
    if (i == n)
        return status_set(r->st, ST_UNSUPPORTED, STATUS_NO_POS, "RoPE scaling '%.*s' is not one that Kvasir computes",
                          (int)(kind.n < 64 ? kind.n : 64), kind.data);
    rope->scaling = kinds[i].scaling;
    if (read_float(r, "rope.scaling.factor", 1.0f, 1.0f, 1e6f, &rope->factor) ||
        read_int(r, "rope.scaling.original_context_length", 0, 0, INT32_MAX, &rope->original_context) ||
        read_float(r, "rope.scaling.attn_factor", 0.0f, 0.0f, 1e3f, &rope->attn_factor) ||
        read_float(r, "rope.scaling.yarn_attn_factor", 0.0f, 0.0f, 1e3f, &rope->yarn_attn_factor) ||
        read_float(r, "rope.scaling.yarn_beta_fast", 32.0f, 1e-3f, 1e6f, &rope->yarn_beta_fast) ||
        read_float(r, "rope.scaling.yarn_beta_slow", 1.0f, 1e-3f, 1e6f, &rope->yarn_beta_slow))
        return r->st->code;
    return ST_OK;
}

static int read_rope(const reader *r, arch_params *p)
{
    if (read_int(r, "rope.dimension_count", p->d_k, 2, p->d_k, &p->n_rot)) return r->st->code;
    if (p->n_rot % 2)
        return status_set(r->st, ST_FORMAT, STATUS_NO_POS, "%s.rope.dimension_count is %d; it must be even", r->arch,
                          p->n_rot);
    if (read_float(r, "rope.freq_base", p->traits->rope_base, 1.0f, 1e12f, &p->rope.base) ||
        read_rope_scaling(r, &p->rope))
        return r->st->code;
    if (p->rope.original_context == 0) p->rope.original_context = p->context_length;
    if (p->rope.scaling == ROPE_SCALING_LONGROPE && p->rope.factor == 1.0f)
        p->rope.factor = (float)p->context_length / (float)p->rope.original_context;
    p->rope_window = p->rope;
    if (p->traits->window_rope_base == 0) return ST_OK;
    p->rope_window = (rope_params){.factor = 1.0f};
    return read_float(r, "rope.freq_base_swa", p->traits->window_rope_base, 1.0f, 1e12f, &p->rope_window.base);
}

static int read_attention(const reader *r, arch_params *p)
{
    if (read_int(r, "attention.head_count", -1, 1, 1024, &p->n_heads) ||
        read_int(r, "attention.head_count_kv", p->n_heads, 1, p->n_heads, &p->n_kv_heads))
        return r->st->code;
    if (p->n_heads % p->n_kv_heads)
        return status_set(r->st, ST_FORMAT, STATUS_NO_POS, "%d heads can't be shared by %d KV heads evenly", p->n_heads,
                          p->n_kv_heads);
    if (read_int(r, "attention.key_length", p->d_model / p->n_heads, 8, 576, &p->d_k) ||
        read_int(r, "attention.value_length", p->d_k, 8, 576, &p->d_v) ||
        read_int(r, "attention.sliding_window", p->traits->window, 0, INT32_MAX, &p->window))
        return r->st->code;
    if (p->d_k % 8 || p->d_v % 8)
        return status_set(r->st, ST_UNSUPPORTED, STATUS_NO_POS,
                          "heads of %d and %d elements: Kvasir needs multiples of 8", p->d_k, p->d_v);
    return read_float(r, "attention.layer_norm_rms_epsilon", 1e-5f, 0.0f, 1.0f, &p->norm_eps);
}

/* The largest members of two Gemma families scale by the width of a head as d_model / n_heads, the others by d_k. */
static float gemma_attn_scale(const arch_params *p)
{
    bool by_model = strcmp(p->traits->name, "gemma2") == 0 ? p->n_layers == 46 : p->n_layers == 62;
    return 1.0f / sqrtf(by_model ? (float)p->d_model / (float)p->n_heads : (float)p->d_k);
}

static int read_scales(const reader *r, arch_params *p)
{
    bool gemma = p->traits->family == FAMILY_GEMMA;
    bool gemma2 = strcmp(p->traits->name, "gemma2") == 0;
    p->embed_scale = gemma ? sqrtf((float)p->d_model) : 1.0f;
    float scale = gemma ? gemma_attn_scale(p) : 1.0f / sqrtf((float)p->d_k);
    if (read_float(r, "attention.scale", scale, 1e-6f, 1e3f, &p->attn_scale) ||
        read_float(r, "attn_logit_softcapping", gemma2 ? 50.0f : 0.0f, 0.0f, 1e6f, &p->attn_softcap) ||
        read_float(r, "final_logit_softcapping", gemma2 ? 30.0f : 0.0f, 0.0f, 1e6f, &p->logit_softcap))
        return r->st->code;
    return ST_OK;
}

static int read_vocab(const reader *r, arch_params *p)
{
    const gguf_kv *tokens = gguf_find(r->g, "tokenizer.ggml.tokens");
    const gguf_tensor *embd = gguf_find_tensor(r->g, "token_embd.weight");
    int64_t n = embd ? embd->dims[1] : tokens ? (int64_t)tokens->n : 0;
    if (n < 1 || n > 1 << 24)
        return status_set(r->st, ST_FORMAT, STATUS_NO_POS,
                          "a vocabulary of %lld tokens is not possible; is this a language model?", (long long)n);
    p->n_vocab = (int)n;
    return ST_OK;
}

int arch_read(arch_params *out, const gguf *g, status *st)
{
    gguf_str name = {"", 0};
    bool found;
    if (gguf_get_str(g, "general.architecture", &name, &found, st)) return st->code;
    if (!found)
        return status_set(st, ST_FORMAT, STATUS_NO_POS,
                          "the file doesn't name its architecture (general.architecture)");
    arch_params p = {0};
    for (int i = 0; (p.traits = arch_traits_at(i)); i++)
        if (strlen(p.traits->name) == name.n && memcmp(p.traits->name, name.data, name.n) == 0) break;
    if (!p.traits)
        return status_set(st, ST_UNSUPPORTED, STATUS_NO_POS,
                          "architecture '%.*s' is not one that Kvasir runs (llama, qwen2, qwen3, phi3, smollm3, "
                          "gemma2, gemma3)",
                          (int)(name.n < 64 ? name.n : 64), name.data);
    reader r = {g, p.traits->name, st};
    if (read_int(&r, "block_count", -1, 1, ARCH_MAX_LAYERS, &p.n_layers) ||
        read_int(&r, "embedding_length", -1, 8, 1 << 20, &p.d_model) ||
        read_int(&r, "feed_forward_length", -1, 8, 1 << 22, &p.d_ff) ||
        read_int(&r, "context_length", -1, 1, INT32_MAX, &p.context_length) || read_attention(&r, &p) ||
        read_rope(&r, &p) || read_scales(&r, &p) || read_vocab(&r, &p))
        return st->code;
    *out = p;
    return ST_OK;
}
