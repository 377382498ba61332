/* vocab_build.h - small vocabularies as GGUF bytes, right ones and wrong ones, and tokenizers made from them. */
#ifndef KVASIR_TESTS_VOCAB_BUILD_H
#define KVASIR_TESTS_VOCAB_BUILD_H

#include <stdio.h>

#include "base/half.h"
#include "base/utf8.h"
#include "gguf_build.h"
#include "model/tokenizer.h"

#define MAX_VOCAB 512
#define ABSENT (-2)

typedef struct vocab {
    const char *model, *pre;                   /* pre NULL = no such key */
    int n_tokens, n_types, n_scores, n_merges; /* n_types, n_scores, n_merges -1 = no such key */
    char names[MAX_VOCAB][96];
    int types[MAX_VOCAB];
    float scores[MAX_VOCAB];
    const char *merges[64];
    long bos, eos, unknown, eot, eom; /* ABSENT = no such key */
    int add_bos, add_eos, add_space_prefix;
} vocab;

static inline int vocab_add(vocab *v, const char *name, int type, float score)
{
    int id = v->n_tokens++;
    snprintf(v->names[id], sizeof v->names[id], "%s", name);
    v->types[id] = type;
    v->scores[id] = score;
    v->n_types += v->n_types >= 0;
    v->n_scores += v->n_scores >= 0;
    return id;
}

static inline void vocab_merge(vocab *v, const char *merge)
{
    v->merges[v->n_merges++] = merge;
}

/* The 256 bytes in GPT-2's alphabet are tokens 0 to 255. */
static inline void vocab_bpe(vocab *v, const char *pre)
{
    *v = (vocab){.model = "gpt2", .pre = pre, .n_scores = -1};
    v->bos = v->eos = v->unknown = v->eot = v->eom = v->add_bos = v->add_eos = v->add_space_prefix = ABSENT;
    uint32_t other = 0x100;
    for (int b = 0; b < 256; b++) {
        char name[5] = {0};
        utf8_encode((b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD) ? (uint32_t)b : other++, name);
        vocab_add(v, name, 1, 0);
    }
}

/* <unk>, <s>, </s>, then the bytes: token 3 + b is byte b. */
static inline void vocab_spm(vocab *v)
{
    *v = (vocab){.model = "llama", .n_merges = -1};
    v->bos = v->eos = v->unknown = v->eot = v->eom = v->add_bos = v->add_eos = v->add_space_prefix = ABSENT;
    vocab_add(v, "<unk>", 2, 0), vocab_add(v, "<s>", 3, 0), vocab_add(v, "</s>", 3, 0);
    for (int b = 0; b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", b);
        vocab_add(v, name, 6, 0);
    }
}

/* Either kind, with merges, special tokens and bytes for all else. */
static inline void vocab_mixed(vocab *v, bool spm)
{
    if (spm) vocab_spm(v);
    else vocab_bpe(v, "qwen2");
    vocab_add(v, spm ? "\u2581a" : "\u0120a", 1, -1), vocab_add(v, spm ? "\u2581" : "zzz", 1, -3);
    vocab_add(v, spm ? "\xC3\xA9" : "\u00C3\u00A9", 1, -2), vocab_add(v, spm ? "a" : "yyy", 1, -4);
    vocab_add(v, "<u>", 4, 0), vocab_add(v, "<control>", 3, 0), vocab_add(v, "\n\n", 4, 0),
        vocab_add(v, "\u4E2D\u6587", 4, 0);
    if (!spm) vocab_merge(v, "\u0120 a"), vocab_merge(v, "\u00C3 \u00A9");
}

static inline int put_optional(strbuf *b, const char *key, gguf_type type, long v, int n_bytes)
{
    if (v == ABSENT) return 0;
    put_kv_uint(b, key, type, (uint64_t)v, n_bytes);
    return 1;
}

static inline void put_vocab(strbuf *b, const vocab *v)
{
    strbuf body;
    strbuf_init(&body, 0);
    int n = 2;
    put_kv_str(&body, "tokenizer.ggml.model", v->model);
    if (v->pre) n++, put_kv_str(&body, "tokenizer.ggml.pre", v->pre);
    put_key(&body, "tokenizer.ggml.tokens", GGUF_ARRAY), put_array(&body, GGUF_STRING, (uint64_t)v->n_tokens);
    for (int i = 0; i < v->n_tokens; i++) put_str(&body, v->names[i]);
    if (v->n_types >= 0)
        n++, put_key(&body, "tokenizer.ggml.token_type", GGUF_ARRAY), put_array(&body, GGUF_I32, (uint64_t)v->n_types);
    for (int i = 0; i < v->n_types; i++) put_uint(&body, (uint32_t)v->types[i], 4);
    if (v->n_scores >= 0)
        n++, put_key(&body, "tokenizer.ggml.scores", GGUF_ARRAY), put_array(&body, GGUF_F32, (uint64_t)v->n_scores);
    for (int i = 0; i < v->n_scores; i++) put_uint(&body, float_bits(v->scores[i]), 4);
    if (v->n_merges >= 0)
        n++, put_key(&body, "tokenizer.ggml.merges", GGUF_ARRAY), put_array(&body, GGUF_STRING, (uint64_t)v->n_merges);
    for (int i = 0; i < v->n_merges; i++) put_str(&body, v->merges[i]);
    n += put_optional(&body, "tokenizer.ggml.bos_token_id", GGUF_U32, v->bos, 4);
    n += put_optional(&body, "tokenizer.ggml.eos_token_id", GGUF_U32, v->eos, 4);
    n += put_optional(&body, "tokenizer.ggml.unknown_token_id", GGUF_U32, v->unknown, 4);
    n += put_optional(&body, "tokenizer.ggml.eot_token_id", GGUF_U32, v->eot, 4);
    n += put_optional(&body, "tokenizer.ggml.eom_token_id", GGUF_U32, v->eom, 4);
    n += put_optional(&body, "tokenizer.ggml.add_bos_token", GGUF_BOOL, v->add_bos, 1);
    n += put_optional(&body, "tokenizer.ggml.add_eos_token", GGUF_BOOL, v->add_eos, 1);
    n += put_optional(&body, "tokenizer.ggml.add_space_prefix", GGUF_BOOL, v->add_space_prefix, 1);
    put_header(b, 3, 0, (uint64_t)n);
    strbuf_add(b, body.data, body.n_bytes);
    strbuf_deinit(&body);
}

/* The tokenizer of v, or NULL and why not. The file's bytes are gone when it returns. */
static inline tokenizer *vocab_open(const vocab *v, status *st)
{
    strbuf b;
    gguf *g = NULL;
    tokenizer *t = NULL;
    strbuf_init(&b, 0);
    put_vocab(&b, v);
    if (gguf_parse(&g, (const uint8_t *)b.data, b.n_bytes, st) == ST_OK) tokenizer_new(&t, g, st);
    gguf_close(g);
    strbuf_deinit(&b);
    return t;
}

#endif
