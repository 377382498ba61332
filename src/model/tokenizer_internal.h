/* tokenizer_internal.h - what the tokenizer's files share.
 *
 *      tokenizer.c          fragments: special tokens cut out, bos and eos
 *      tokenizer_vocab.c    names, pieces, types, the map piece -> id
 *      tokenizer_special.c  special ids, end set, search for special tokens in text
 *      tokenizer_split.c    pre-tokenizer patterns: fragment -> words
 *      tokenizer_merge.c    the merge loop that both kinds share     tokenizer_window.c  the same for long words
 *      tokenizer_bpe.c      merges by rank       tokenizer_spm.c   merges by score
 *      tokenizer_decode.c   ids -> text
 *
 * The map holds tokens that text may become by merging: normal and unused ones and, for BPE, user-defined ones; never
 * control, unknown or byte tokens. Nor a name that spells its piece as text is never spelled: with a character outside
 * the byte alphabet (BPE), with a plain space (SPM). Some files have such a token beside the one of the right spelling.
 */
#ifndef KVASIR_MODEL_TOKENIZER_INTERNAL_H
#define KVASIR_MODEL_TOKENIZER_INTERNAL_H

#include "model/tokenizer.h"

/* The values of tokenizer.ggml.token_type. */
typedef enum token_type {
    TOKEN_UNDEFINED,
    TOKEN_NORMAL,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER,
    TOKEN_UNUSED,
    TOKEN_BYTE,
    TOKEN_TYPES
} token_type;

typedef struct token {
    uint32_t name, n_name;   /* text + name: as the file spells it */
    uint32_t piece, n_piece; /* text + piece: as it stands in decoded text */
    uint32_t order;          /* SPM: scores as integers, the highest score first */
    uint8_t type;
    bool end;
    bool unreachable; /* no text is spelled like its name: see the map above */
} token;

typedef struct piece_slot {
    uint32_t hash;
    int32_t id; /* -1 = empty */
} piece_slot;

/* A merge of BPE: (left, right) becomes id. */
typedef struct bpe_merge {
    int32_t left, right; /* left -1 = empty slot */
    uint32_t rank;
    int32_t id;
} bpe_merge;

typedef struct splitter splitter;

struct tokenizer {
    bool spm;
    bool whole_words; /* BPE: a word that is a token is taken as it is, unmerged */
    bool add_bos, add_eos, add_space;
    int32_t n_tokens, bos, eos, unknown;
    size_t longest; /* bytes of the longest piece in the map */
    token *tokens;
    char *text; /* names, then pieces that differ from their names */
    size_t n_text;
    piece_slot *pieces; /* open addressing, at most half full */
    size_t piece_mask;
    bpe_merge *merges; /* as pieces */
    size_t merge_mask;
    int32_t bytes[256];         /* the token of a single byte, -1 = none */
    int32_t *specials;          /* sorted by name's bytes */
    int32_t special_begin[257]; /* specials whose first byte is b: [begin[b], begin[b + 1]) */
    splitter *split;            /* BPE */
};

/* ---- vocabulary ---- */
/* Loading goes vocab_read (names, scores, types), specials_read (ids; a few types change), vocab_map (pieces and their
 * map), bpe_read (merges, which speak of the map), specials_sort. */
int vocab_read(tokenizer *t, const gguf *g, status *st);
int vocab_map(tokenizer *t, status *st);
int32_t vocab_find(const tokenizer *t, const char *piece, size_t n); /* -1 = none */
static inline const char *token_name(const tokenizer *t, int32_t id)
{
    return t->text + t->tokens[id].name;
}
static inline const char *token_piece(const tokenizer *t, int32_t id)
{
    return t->text + t->tokens[id].piece;
}
/* The first power of two that leaves a table of n entries half empty. */
size_t table_size(size_t n);

/* ---- special tokens ---- */
int specials_read(tokenizer *t, const gguf *g, status *st);
int specials_sort(tokenizer *t, status *st);
/* The longest special token at the start of s: its id and length, or -1. Control tokens have to end within the first
 * n_control bytes. */
int32_t specials_match(const tokenizer *t, const char *s, size_t n, size_t n_control, size_t *n_matched);

/* ---- pre-tokenizer ---- */
typedef int split_fn(void *user, const char *word, size_t n, status *st);
/* name: tokenizer.ggml.pre. jit false interprets the patterns (where the machine has no compiler for them; tests). */
int splitter_new(splitter **out, gguf_str name, bool jit, status *st);
void splitter_free(splitter *s);
bool splitter_takes_whole_words(const splitter *s);
bool splitter_adds_bos(const splitter *s); /* unless the file says */
/* Calls fn for each word of text, in order; the words cover the text. */
int splitter_run(const splitter *s, const char *text, size_t n, split_fn *fn, void *user, status *st);

/* ---- merging ---- */
#define SWALLOWED                                                                                                      \
    (-2) /* next of a symbol that its left neighbour, prev, has taken; its other fields are as they were */

typedef struct symbol {
    int32_t prev, next; /* -1 = none */
    uint32_t start, n;  /* bytes of the text */
    int32_t id;         /* -1 = not a token */
    uint64_t time;      /* the largest key among the merges that made it, or, swallowed, up to the one that took it */
} symbol;

typedef struct candidate {
    uint64_t key; /* order << 32 | number of the left symbol in the word: the smallest goes first */
    uint32_t n;   /* bytes of both: tells whether the two have changed since */
    int32_t id;   /* what they become */
} candidate;

/* A stretch of a word, merged as if it were all. */
typedef struct merge_window {
    symbol *symbols;
    size_t n_symbols, capacity;
    candidate *heap;
    size_t n_heap, heap_capacity;
    size_t end;       /* byte of the word */
    uint32_t base;    /* number of the first symbol in the word */
    int32_t first_id; /* what it was before merging */
} merge_window;

typedef struct merger merger;

typedef struct merge_rules {
    symbol (*read)(const merger *m, size_t at); /* the character at text + at: start, n, id */
    /* Whether two neighbours merge: fills order and id. A function of their bytes and ids. */
    bool (*fits)(const merger *m, const symbol *left, const symbol *right, uint32_t *order, int32_t *id);
    int (*emit)(const merger *m, const symbol *s, token_list *out, status *st);
} merge_rules;

struct merger { /* set t and rules, zero the rest; free with merger_deinit */
    const tokenizer *t;
    const merge_rules *rules;
    const char *text;
    size_t n;
    size_t window; /* symbols; 0 = the usual number (tests) */
    merge_window windows[2];
};

/* Merges a word until nothing fits and emits what is left. */
int merger_run(merger *m, const char *text, size_t n, token_list *out, status *st);
void merger_deinit(merger *m);
/* Merges what begins at byte `begin`, symbol number `base`: up to `size` symbols. */
int merge_window_run(const merger *m, merge_window *w, uint32_t base, size_t begin, size_t size, status *st);
void merge_window_deinit(merge_window *w);

/* ---- the two kinds ---- */
/* A name in GPT-2's byte alphabet to the bytes it shows. Returns the length, at most n; 0 for a name with any other
 * character. */
size_t bpe_bytes(char *out, const char *name, size_t n);
extern const merge_rules BPE_RULES, SPM_RULES;
int bpe_read(tokenizer *t, const gguf *g, status *st);
int bpe_encode(merger *m, const char *text, size_t n, token_list *out, status *st);
/* U+2581, which stands for a space in names, to spaces. Returns the length, at most n. */
size_t spm_spaces(char *out, const char *s, size_t n);
/* space: an added space goes first. */
int spm_encode(merger *m, const char *text, size_t n, bool space, token_list *out, status *st);

#endif
