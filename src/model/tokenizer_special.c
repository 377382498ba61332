/* Special tokens: which ids the file names, which of them end a generation, and where they stand in text. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/tokenizer_internal.h"

/* Names that end a turn or a text in the models that have them, whatever ids their files give. */
static const char *const END_NAMES[] = {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|endoftext|>",
                                        "<end_of_turn>", "<|end|>", "</s>", "<eos>", "<EOT>", "_<EOT>", "[EOT]",
                                        "[EOS]", "<|return|>", "<|call|>", "<end_of_utterance>", "<turn|>",
                                        "<|tool_response>",
                                        /* DeepSeek's, with full-width bars */
                                        "<\xEF\xBD\x9C"
                                        "end\xE2\x96\x81"
                                        "of\xE2\x96\x81sentence\xEF\xBD\x9C>"};

static int read_id(int32_t *out, const tokenizer *t, const gguf *g, const char *key, status *st)
{
    uint32_t id = UINT32_MAX; /* which some files write for "none" */
    bool found = false;
    if (gguf_get_u32(g, key, &id, &found, st)) return st->code;
    if (!found) return ST_OK;
    if (id != UINT32_MAX && id >= (uint32_t)t->n_tokens)
        return status_set(st, ST_FORMAT, STATUS_NO_POS, "%s is %u, but there are only %d tokens", key, id, t->n_tokens);
    *out = id == UINT32_MAX ? -1 : (int32_t)id;
    return ST_OK;
}

static bool is_special(const token *k)
{
    return k->type == TOKEN_CONTROL || k->type == TOKEN_UNKNOWN || k->type == TOKEN_USER;
}

/* A token named like an end is one, and control, though some files call it user-defined. Without types the name must
 * do. */
static void mark_named_ends(tokenizer *t, bool typed)
{
    for (int32_t id = 0; id < t->n_tokens; id++) {
        token *k = &t->tokens[id];
        if (k->n_name == 0 || (typed && !is_special(k))) continue;
        const char *name = token_name(t, id);
        if (name[0] != '<' && name[0] != '[' && name[0] != '_') continue;
        for (size_t i = 0; i < sizeof END_NAMES / sizeof END_NAMES[0]; i++)
            if (strlen(END_NAMES[i]) == k->n_name && memcmp(END_NAMES[i], name, k->n_name) == 0) {
                k->end = true;
                k->type = TOKEN_CONTROL;
            }
    }
}

/* SPM puts the unknown token where nothing fits, so it may not be one that controls. */
static void keep_unknown_apart(tokenizer *t)
{
    if (t->unknown < 0 || t->tokens[t->unknown].type != TOKEN_CONTROL) return;
    if (t->tokens[t->unknown].end || t->unknown == t->bos) t->unknown = -1;
    else t->tokens[t->unknown].type = TOKEN_UNKNOWN;
}

int specials_read(tokenizer *t, const gguf *g, status *st)
{
    int32_t eot = -1, eom = -1;
    t->bos = t->spm && t->n_tokens > 2 ? 1 : -1; /* SentencePiece's usual ids, where the file is silent */
    t->eos = t->spm && t->n_tokens > 2 ? 2 : -1;
    t->unknown = t->spm ? 0 : -1;
    if (read_id(&t->bos, t, g, "tokenizer.ggml.bos_token_id", st) ||
        read_id(&t->eos, t, g, "tokenizer.ggml.eos_token_id", st) ||
        read_id(&t->unknown, t, g, "tokenizer.ggml.unknown_token_id", st) ||
        read_id(&eot, t, g, "tokenizer.ggml.eot_token_id", st) ||
        read_id(&eom, t, g, "tokenizer.ggml.eom_token_id", st))
        return st->code;
    t->add_space = t->spm;
    t->add_bos = t->spm || splitter_adds_bos(t->split);
    if (gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &t->add_bos, NULL, st) ||
        gguf_get_bool(g, "tokenizer.ggml.add_eos_token", &t->add_eos, NULL, st) ||
        (t->spm && gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", &t->add_space, NULL, st)))
        return st->code;
    bool typed = gguf_find(g, "tokenizer.ggml.token_type") != NULL;
    if (!typed && t->unknown >= 0) t->tokens[t->unknown].type = TOKEN_UNKNOWN;
    if (!typed && t->bos >= 0) t->tokens[t->bos].type = TOKEN_CONTROL;
    if (!typed && t->eos >= 0) t->tokens[t->eos].type = TOKEN_CONTROL;
    mark_named_ends(t, typed);
    const int32_t ends[] = {t->eos, eot, eom};
    for (int i = 0; i < 3; i++)
        if (ends[i] >= 0) t->tokens[ends[i]].end = true;
    keep_unknown_apart(t);
    return ST_OK;
}

static int compare_names(const void *a, const void *b, void *arg)
{
    const tokenizer *t = arg;
    const token *x = &t->tokens[*(const int32_t *)a], *y = &t->tokens[*(const int32_t *)b];
    size_t n = x->n_name < y->n_name ? x->n_name : y->n_name;
    int order = memcmp(t->text + x->name, t->text + y->name, n);
    return order ? order : (x->n_name > y->n_name) - (x->n_name < y->n_name);
}

int specials_sort(tokenizer *t, status *st)
{
    int32_t n = 0;
    for (int32_t id = 0; id < t->n_tokens; id++) n += is_special(&t->tokens[id]) && t->tokens[id].n_name > 0;
    t->specials = mem_array((size_t)n, sizeof *t->specials);
    if (!t->specials) return status_nomem(st, (size_t)n * sizeof *t->specials);
    n = 0;
    for (int32_t id = 0; id < t->n_tokens; id++)
        if (is_special(&t->tokens[id]) && t->tokens[id].n_name > 0) t->specials[n++] = id;
    qsort_r(t->specials, (size_t)n, sizeof *t->specials, compare_names, t);
    for (int32_t i = 1; i < n; i++)
        if (compare_names(&t->specials[i - 1], &t->specials[i], t) == 0)
            return status_set(st, ST_FORMAT, (uint64_t)t->specials[i],
                              "tokenizer.ggml.tokens: tokens %d and %d have the same name", t->specials[i - 1],
                              t->specials[i]);
    int32_t i = 0;
    for (int b = 0; b <= 256; b++) {
        while (i < n && (uint8_t)token_name(t, t->specials[i])[0] < b) i++;
        t->special_begin[b] = i;
    }
    return ST_OK;
}

/* The first of specials[lo..hi), which share `depth` bytes and are longer than that, whose next byte is at least b. */
static int32_t lower_bound(const tokenizer *t, int32_t lo, int32_t hi, size_t depth, int b)
{
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if ((uint8_t)token_name(t, t->specials[mid])[depth] < b) lo = mid + 1;
        else hi = mid;
    }
    return lo;
}

/* Walks the sorted names like a tree: [lo, hi) are those that begin with the depth bytes seen so far. */
int32_t specials_match(const tokenizer *t, const char *s, size_t n, size_t n_control, size_t *n_matched)
{
    int32_t best = -1, lo = t->special_begin[(uint8_t)s[0]], hi = t->special_begin[(uint8_t)s[0] + 1];
    for (size_t depth = 1; lo < hi; depth++) {
        int32_t id = t->specials[lo];
        if (t->tokens[id].n_name == depth) {
            if (depth <= n_control || t->tokens[id].type == TOKEN_USER) {
                best = id;
                *n_matched = depth;
            }
            lo++;
        }
        if (depth == n) break;
        int b = (uint8_t)s[depth];
        lo = lower_bound(t, lo, hi, depth, b);
        hi = lower_bound(t, lo, hi, depth, b + 1);
    }
    return best;
}
