#include "tiny_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "vocab_build.h"

uint64_t tiny_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

void tiny_ids(int32_t *ids, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++) ids[i] = (int32_t)(tiny_random(&seed) % TINY_TOKENS);
}

tiny_config tiny_llama(void)
{
    return (tiny_config){.arch = "llama",
                         .n_layers = 3,
                         .d_model = 64,
                         .n_heads = 4,
                         .n_kv_heads = 2,
                         .d_k = 16,
                         .d_v = 16,
                         .d_ff = 96,
                         .context = 1024,
                         .type = DTYPE_F32};
}

tiny_config tiny_gemma(void)
{
    return (tiny_config){.arch = "gemma3",
                         .n_layers = 7,
                         .d_model = 64,
                         .n_heads = 4,
                         .n_kv_heads = 1,
                         .d_k = 24,
                         .d_v = 24,
                         .d_ff = 96,
                         .window = 20,
                         .context = 1024,
                         .type = DTYPE_F32};
}

tiny_config tiny_script(const char *script)
{
    tiny_config c = tiny_llama();
    c.n_layers = 1;
    c.own_head = true;
    c.script = script;
    return c;
}

typedef struct build {
    const tiny_config *c;
    strbuf keys, tensors, data;
    uint64_t n_keys, n_tensors, random;
} build;

static bool is(const char *name, const char *which)
{
    return which && strcmp(name, which) == 0;
}

static void put_u32(build *b, const char *key, uint64_t v)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", b->c->arch, key);
    if (is(key, b->c->without_key)) return;
    put_kv_uint(&b->keys, name, GGUF_U32, is(key, b->c->key_is) ? b->c->value : v, 4);
    b->n_keys++;
}

static void put_named_str(build *b, const char *key, const char *v)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", b->c->arch, key);
    put_kv_str(&b->keys, name, v);
    b->n_keys++;
}

static void put_f32(build *b, const char *key, float v)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", b->c->arch, key);
    put_kv_uint(&b->keys, name, GGUF_F32, is(key, b->c->key_is) ? b->c->value : float_bits(v), 4);
    b->n_keys++;
}

static void put_half(strbuf *b, double x)
{
    put_uint(b, float_to_half((float)x), 2);
}

/* Offset in a block of its one or two binary16 scales. */
static int scales_at(dtype t)
{
    return t == DTYPE_Q6_K ? 208 : 0;
}

static bool has_two_scales(dtype t)
{
    return t == DTYPE_Q4_1 || t == DTYPE_Q4_K || t == DTYPE_Q5_K;
}

/* What a code counts for at most, so that weights stay within `most`. */
static double largest_code(dtype t)
{
    switch (t) {
    case DTYPE_Q8_0: return 127;
    case DTYPE_Q6_K: return 32 * 128;
    case DTYPE_Q4_K: return 15 * 63;
    case DTYPE_Q5_K: return 31 * 63;
    default: return 15;
    }
}

static void put_quantized(build *b, dtype t, uint64_t n_blocks, double most)
{
    int n_bytes = dtype_get(t)->block_bytes, at = scales_at(t);
    for (uint64_t i = 0; i < n_blocks; i++) {
        strbuf block;
        strbuf_init(&block, 0);
        while (block.n_bytes < (size_t)n_bytes) {
            if (block.n_bytes != (size_t)at) {
                strbuf_putc(&block, (char)tiny_random(&b->random));
                continue;
            }
            double d = 2 * most / largest_code(t);
            put_half(&block, d);
            if (t == DTYPE_Q4_1) put_half(&block, -most);
            else if (has_two_scales(t)) put_half(&block, most / 63);
        }
        strbuf_add(&b->data, block.data, block.n_bytes);
        strbuf_deinit(&block);
    }
}

static double uniform(build *b)
{
    return (double)(tiny_random(&b->random) >> 11) * 0x1p-52 - 1;
}

/* rows x k values of random weights (norms: around 1) in the tensor's type. */
static void put_values(build *b, dtype t, uint64_t k, uint64_t rows, double middle)
{
    double most = middle != 0 ? 0.2 : sqrt(3.0 / (double)k);
    uint64_t n = k * rows;
    if (dtype_get(t)->block_elems > 1) put_quantized(b, t, n / (uint64_t)dtype_get(t)->block_elems, most);
    else
        for (uint64_t i = 0; i < n; i++) {
            float x = (float)(middle + most * uniform(b));
            if (t == DTYPE_F16) put_half(&b->data, x);
            else put_uint(&b->data, float_bits(x), 4);
        }
}

/* The code of a token in a scripted model: d_model signs. */
static float sign_of(int token, int i)
{
    uint64_t state = (uint64_t)token * 7919 + (uint64_t)i;
    return tiny_random(&state) & 1 ? 1.0f : -1.0f;
}

/* The token that the script gives after `token`; -1 = none. */
static int after(const char *script, int token)
{
    const char *at = token < 256 ? memchr(script, token, strlen(script)) : NULL;
    if (!at) return -1;
    return at[1] ? (unsigned char)at[1] : TINY_END;
}

/* Embedding: each token its code. Head: a token's row is the code of the one that it follows. Other matrices: nothing.
 * */
static void put_script(build *b, const char *name, uint64_t k, uint64_t rows)
{
    int from[TINY_VOCAB];
    for (int t = 0; t < TINY_VOCAB; t++) from[t] = -1;
    for (int t = 0; t < TINY_VOCAB; t++)
        if (after(b->c->script, t) >= 0) from[after(b->c->script, t)] = t;
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t i = 0; i < k; i++) {
            float x = 0;
            if (is(name, "token_embd.weight")) x = sign_of((int)r, (int)i);
            else if (is(name, "output.weight") && from[r] >= 0) x = sign_of(from[r], (int)i);
            put_uint(&b->data, float_bits(x), 4);
        }
}

static void put_weight(build *b, const char *name, uint64_t k, uint64_t rows, double middle)
{
    const tiny_config *c = b->c;
    if (is(name, c->without_tensor)) return;
    dtype t = middle != 0 ? DTYPE_F32 : c->type;
    put_padding(&b->data, 32);
    uint64_t dims[4] = {k, rows + is(name, c->misshapen), 1, 1};
    bool flat = middle != 0 && !is(name, c->misshapen);
    uint32_t n_dims = is(name, c->deep) ? 4 : flat ? 1 : 2;
    put_tensor(&b->tensors, name, n_dims, dims, is(name, c->unknown) ? 16 : t, b->data.n_bytes);
    b->n_tensors++;
    if (c->script && middle == 0) put_script(b, name, k, dims[1]);
    else put_values(b, t, k, dims[1], middle);
}

static void put_layer_weight(build *b, int layer, const char *what, uint64_t k, uint64_t rows, double middle)
{
    char name[96];
    snprintf(name, sizeof name, "blk.%d.%s", layer, what);
    put_weight(b, name, k, rows, middle);
}

static void put_layer(build *b, int i)
{
    const tiny_config *c = b->c;
    uint64_t d = (uint64_t)c->d_model, ff = (uint64_t)c->d_ff, q = (uint64_t)(c->n_heads * c->d_k),
             k = (uint64_t)(c->n_kv_heads * c->d_k), v = (uint64_t)(c->n_kv_heads * c->d_v),
             o = (uint64_t)(c->n_heads * c->d_v);
    bool gemma = strncmp(c->arch, "gemma", 5) == 0;
    put_layer_weight(b, i, "attn_norm.weight", d, 1, 1);
    if (c->fused) put_layer_weight(b, i, "attn_qkv.weight", d, q + k + v, 0);
    else {
        put_layer_weight(b, i, "attn_q.weight", d, q, 0);
        put_layer_weight(b, i, "attn_k.weight", d, k, 0);
        put_layer_weight(b, i, "attn_v.weight", d, v, 0);
    }
    if (is(c->arch, "qwen2")) {
        put_layer_weight(b, i, "attn_q.bias", q, 1, 0.1);
        put_layer_weight(b, i, "attn_k.bias", k, 1, 0.1);
        put_layer_weight(b, i, "attn_v.bias", v, 1, 0.1);
    }
    put_layer_weight(b, i, "attn_output.weight", o, d, 0);
    put_layer_weight(b, i, "ffn_norm.weight", d, 1, 1);
    if (!c->fused) put_layer_weight(b, i, "ffn_gate.weight", d, ff, 0);
    put_layer_weight(b, i, "ffn_up.weight", d, c->fused ? 2 * ff : ff, 0);
    put_layer_weight(b, i, "ffn_down.weight", ff, d, 0);
    if (gemma) {
        put_layer_weight(b, i, "post_attention_norm.weight", d, 1, 1);
        put_layer_weight(b, i, "post_ffw_norm.weight", d, 1, 1);
    }
    if (is(c->arch, "gemma3") || is(c->arch, "qwen3")) {
        put_layer_weight(b, i, "attn_q_norm.weight", (uint64_t)c->d_k, 1, 1);
        put_layer_weight(b, i, "attn_k_norm.weight", (uint64_t)c->d_k, 1, 1);
    }
}

static void put_params(build *b)
{
    const tiny_config *c = b->c;
    if (!is("general.architecture", c->without_key)) put_kv_str(&b->keys, "general.architecture", c->arch), b->n_keys++;
    put_u32(b, "block_count", (uint64_t)c->n_layers);
    put_u32(b, "embedding_length", (uint64_t)c->d_model);
    put_u32(b, "feed_forward_length", (uint64_t)c->d_ff);
    put_u32(b, "context_length", (uint64_t)c->context);
    put_u32(b, "attention.head_count", (uint64_t)c->n_heads);
    put_u32(b, "attention.head_count_kv", (uint64_t)c->n_kv_heads);
    put_u32(b, "attention.key_length", (uint64_t)c->d_k);
    put_u32(b, "attention.value_length", (uint64_t)c->d_v);
    put_u32(b, "rope.dimension_count", (uint64_t)c->d_k);
    if (c->scaling) {
        put_named_str(b, "rope.scaling.type", c->scaling);
        put_f32(b, "rope.scaling.factor", 4);
        put_u32(b, "rope.scaling.original_context_length", 256);
    }
    if (c->window) put_u32(b, "attention.sliding_window", (uint64_t)c->window);
    if (c->chat_template) put_kv_str(&b->keys, "tokenizer.chat_template", c->chat_template), b->n_keys++;
}

/* The key-value pairs of a small byte-level tokenizer, without the header that put_vocab begins with. */
static void put_tokens(build *b)
{
    vocab *v = malloc(sizeof *v);
    vocab_bpe(v, "gpt-2");
    v->eos = vocab_add(v, "<|end|>", 3, 0);
    vocab_add(v, "ab", 1, 0);
    vocab_merge(v, "a b");
    strbuf s;
    strbuf_init(&s, 0);
    put_vocab(&s, v);
    uint64_t n;
    memcpy(&n, s.data + 16, 8);
    b->n_keys += n;
    strbuf_add(&b->keys, s.data + 24, s.n_bytes - 24);
    strbuf_deinit(&s);
    free(v);
}

static void put_factors(build *b)
{
    uint64_t n = (uint64_t)b->c->d_k / 2;
    put_padding(&b->data, 32);
    put_tensor(&b->tensors, b->c->factors, 1, &n, DTYPE_F32, b->data.n_bytes);
    b->n_tensors++;
    for (uint64_t i = 0; i < n; i++) put_uint(&b->data, float_bits((float)(i + 1) * b->c->factor), 4);
}

void tiny_gguf(strbuf *out, const tiny_config *c)
{
    build b = {.c = c, .random = 42};
    uint64_t d = (uint64_t)c->d_model;
    put_params(&b);
    put_tokens(&b);
    put_weight(&b, "token_embd.weight", d, TINY_VOCAB, 0);
    if (c->own_head) put_weight(&b, "output.weight", d, TINY_VOCAB, 0);
    put_weight(&b, "output_norm.weight", d, 1, 1);
    if (c->factors) put_factors(&b);
    for (int i = 0; i < c->n_layers; i++) put_layer(&b, i);
    put_header(out, 3, b.n_tensors, b.n_keys);
    strbuf_add(out, b.keys.data, b.keys.n_bytes);
    strbuf_add(out, b.tensors.data, b.tensors.n_bytes);
    put_padding(out, 32);
    strbuf_add(out, b.data.data, b.data.n_bytes);
    strbuf_deinit(&b.keys);
    strbuf_deinit(&b.tensors);
    strbuf_deinit(&b.data);
}

char *tiny_write(const char *bytes, size_t n)
{
    char path[] = "/tmp/kvasir-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    for (size_t at = 0; at < n;) {
        ssize_t wrote = write(fd, bytes + at, n - at);
        assert_true(wrote > 0);
        at += (size_t)wrote;
    }
    close(fd);
    return strdup(path);
}

void tiny_remove(char *path)
{
    unlink(path);
    free(path);
}

int tiny_try_load(model **out, const tiny_config *c, const kernels *ks, threads *team, status *st)
{
    strbuf b;
    strbuf_init(&b, 0);
    tiny_gguf(&b, c);
    char *path = tiny_write(b.data, b.n_bytes);
    strbuf_deinit(&b);
    model_options o = {.ks = ks, .team = team};
    int rc = model_load(out, path, &o, st);
    tiny_remove(path);
    return rc;
}

model *tiny_load(const tiny_config *c, const kernels *ks, threads *team)
{
    status st = STATUS_INIT;
    model *m = NULL;
    if (tiny_try_load(&m, c, ks, team, &st)) fail_msg("%s", st.text);
    return m;
}
