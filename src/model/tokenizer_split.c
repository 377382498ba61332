/* Pre-tokenizers: how text is cut into words before merging, as the models' own tokenizers do it.
 *
 *      "ab 12"  --\p{N}-->  "ab " "1" "2"  --GPT-2's pattern-->  "ab" " " "1" "2"
 *
 * A rule is a list of patterns. Each cuts the pieces that the one before left: what it matches is a piece, and so is
 * what lies between. A piece is matched as a text of its own, so lookarounds end at its ends. Every pattern moves over
 * a run of like characters in one match, or looks at it from one place only, so that time is linear in the text.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <assert.h>
#include <pcre2.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "model/tokenizer_internal.h"

#define MAX_PATTERNS 6

/* Unicode's White_Space, to stand in a class: PCRE2's \s also takes U+180E, which the models' tokenizers don't. */
#define SPACE "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define SPACES "[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|" SPACES
/* Llama 3's pattern, with the number of digits that make a word */
#define LLAMA3(digits)                                                                                                 \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n]*|[" SPACE               \
                "]*[\\r\\n]+|" SPACES
/* letters that have case, as DeepSeek-LLM lists them */
#define CASED                                                                                                          \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}"   \
    "\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}"     \
    "\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}"       \
    "\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}"                  \
    "\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}"                  \
    "\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}" \
    "\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}"                  \
    "\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}" \
    "\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}" \
    "\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}" \
    "\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}"                  \
    "\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}"                \
    "\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}"        \
    "\\x{1E900}-\\x{1E943}"

typedef struct rule {
    const char *names; /* as in tokenizer.ggml.pre, a space after each */
    const char *patterns[MAX_PATTERNS];
    bool whole_words, add_bos;
} rule;

static const rule RULES[] = {
    {"default ", {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}, false, false},
    {"gpt-2 phi-2 mpt olmo jais exaone4 mellum modern-bert trillion granite-docling ", {GPT2}, false, false},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2 ", {LLAMA3("\\p{N}{1,3}")}, true, true},
    {"smaug-bpe dbrx ", {LLAMA3("\\p{N}{1,3}")}, false, false},
    {"qwen2 deepseek-r1-qwen megrez stablelm2 hunyuan solar-open ", {LLAMA3("\\p{N}")}, false, false},
    {"smollm starcoder refact command-r codeshell exaone minerva-7b ", {"\\p{N}", GPT2}, false, false},
    {"deepseek-llm ",
     {"[\\r\\n]", "[" SPACE "]?[" CASED "]+",
      "[" SPACE "]?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
      "(?<![" SPACE "])[" SPACE "]++\\z", /* looks at a run from its start only */
      "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+", "\\p{N}+"},
     false,
     false},
    {"deepseek-v3 hunyuan-dense joyai-llm ",
     {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+",
      "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|[" SPACE
      "]*[\\r\\n]+|" SPACES},
     false,
     false},
};

struct splitter {
    const rule *rule;
    pcre2_general_context *memory;
    pcre2_match_context *limits;
    int n_codes;
    pcre2_code *codes[MAX_PATTERNS];
};

static void *regex_alloc(size_t n, void *user)
{
    (void)user;
    return mem_alloc(n);
}

static void regex_free(void *p, void *user)
{
    (void)user;
    mem_free(p);
}

static const rule *find_rule(gguf_str name)
{
    for (size_t i = 0; i < sizeof RULES / sizeof RULES[0]; i++)
        for (const char *at = RULES[i].names, *end; (end = strchr(at, ' ')); at = end + 1)
            if ((size_t)(end - at) == name.n && memcmp(at, name.data, name.n) == 0) return &RULES[i];
    return NULL;
}

static int compile(splitter *s, bool jit, status *st)
{
    pcre2_compile_context *context = pcre2_compile_context_create(s->memory);
    if (!context) return status_nomem(st, 256);
    for (int i = 0; i < MAX_PATTERNS && s->rule->patterns[i]; i++) {
        int error;
        size_t at;
        pcre2_code *code = pcre2_compile((PCRE2_SPTR)s->rule->patterns[i], PCRE2_ZERO_TERMINATED,
                                         PCRE2_UTF | PCRE2_UCP | PCRE2_NO_AUTO_CAPTURE, &error, &at, context);
        if (!code) {
            char text[128];
            pcre2_get_error_message(error, (PCRE2_UCHAR *)text, sizeof text);
            if (error == PCRE2_ERROR_HEAP_FAILED) status_nomem(st, 4096);
            else status_set(st, ST_UNSUPPORTED, at, "PCRE2 refuses a pre-tokenizer's pattern: %s", text);
            break;
        }
        if (jit) pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* where it can't, the pattern is interpreted */
        s->codes[s->n_codes++] = code;
    }
    pcre2_compile_context_free(context);
    return st->code;
}

int splitter_new(splitter **out, gguf_str name, bool jit, status *st)
{
    const rule *found = find_rule(name);
    if (!found)
        return status_set(st, ST_UNSUPPORTED, STATUS_NO_POS,
                          "the pre-tokenizer \"%.*s\" (tokenizer.ggml.pre) is not one that Kvasir knows, and another "
                          "would give wrong tokens",
                          (int)(name.n < 80 ? name.n : 80), name.data);
    splitter *s = mem_calloc(1, sizeof *s);
    if (!s) return status_nomem(st, sizeof *s);
    s->rule = found;
    s->memory = pcre2_general_context_create(regex_alloc, regex_free, NULL);
    s->limits = s->memory ? pcre2_match_context_create(s->memory) : NULL;
    if (s->limits) compile(s, jit, st);
    else status_nomem(st, 256);
    if (st->code) return splitter_free(s), st->code;
    pcre2_set_match_limit(s->limits, UINT32_MAX); /* a run of n spaces takes n steps */
    *out = s;
    return ST_OK;
}

void splitter_free(splitter *s)
{
    if (!s) return;
    for (int i = 0; i < s->n_codes; i++) pcre2_code_free(s->codes[i]);
    pcre2_match_context_free(s->limits);
    pcre2_general_context_free(s->memory);
    mem_free(s);
}

bool splitter_takes_whole_words(const splitter *s)
{
    return s->rule->whole_words;
}

bool splitter_adds_bos(const splitter *s)
{
    return s->rule->add_bos;
}

typedef struct cutting {
    const splitter *s;
    pcre2_match_data *match;
    split_fn *fn;
    void *user;
    status *st;
} cutting;

/* Finds pattern i in piece[at..n): 1 and the range, 0 for none, negative for a failure in st. */
static int find(const cutting *c, int i, const char *piece, size_t n, size_t at, size_t *begin, size_t *end)
{
    PCRE2_SPTR subject = (PCRE2_SPTR)piece;
    int rc = pcre2_match(c->s->codes[i], subject, n, at, PCRE2_NO_UTF_CHECK, c->match, c->s->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(c->s->codes[i], subject, n, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, c->match, c->s->limits);
    if (rc == PCRE2_ERROR_NOMATCH) return 0;
    if (rc < 0) {
        char text[128];
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)text, sizeof text);
        if (rc == PCRE2_ERROR_NOMEMORY) status_nomem(c->st, n);
        else status_set(c->st, ST_LIMIT, at, "the pre-tokenizer failed on this text: %s", text);
        return -1;
    }
    const size_t *range = pcre2_get_ovector_pointer(c->match);
    *begin = range[0];
    *end = range[1];
    assert(*end > *begin); /* no pattern matches the empty string */
    return 1;
}

/* Cuts a piece of valid UTF-8 by patterns i and up. */
static int cut(const cutting *c, int i, const char *piece, size_t n)
{
    if (i == c->s->n_codes) return c->fn(c->user, piece, n, c->st);
    int rc = ST_OK;
    for (size_t at = 0, begin, end; !rc && at < n; at = end) {
        int found = find(c, i, piece, n, at, &begin, &end);
        if (found < 0) return c->st->code;
        if (!found) return cut(c, i + 1, piece + at, n - at);
        if (begin > at) rc = cut(c, i + 1, piece + at, begin - at);
        if (!rc) rc = cut(c, i + 1, piece + begin, end - begin);
    }
    return rc;
}

/* The length of the longest prefix that is valid UTF-8, or, if valid is false, of the longest one in which no character
 * is. */
static size_t run_length(const char *s, size_t n, bool valid)
{
    size_t i = 0;
    while (i < n) {
        int len = utf8_length(s + i, n - i);
        if ((len > 0) != valid) break;
        i += len ? (size_t)len : 1;
    }
    return i;
}

int splitter_run(const splitter *s, const char *text, size_t n, split_fn *fn, void *user, status *st)
{
    cutting c = {s, pcre2_match_data_create(1, s->memory), fn, user, st};
    if (!c.match) return status_nomem(st, 256);
    int rc = ST_OK;
    for (size_t at = 0; !rc && at < n;) {
        size_t valid = run_length(text + at, n - at, true);
        if (valid) rc = cut(&c, 0, text + at, valid);
        at += valid;
        size_t other = run_length(text + at, n - at, false); /* bytes that are no characters: PCRE2 never sees them */
        if (!rc && other) rc = fn(user, text + at, other, st);
        at += other;
    }
    pcre2_match_data_free(c.match);
    return rc;
}
