#include <assert.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/threads.h"
#include "vocab_build.h"

static vocab V; /* too large for some stacks */

static tokenizer *open_vocab(void)
{
    status st = STATUS_INIT;
    tokenizer *t = vocab_open(&V, &st);
    if (!t) fail_msg("%s", st.text);
    return t;
}

static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

#define ADD 1
#define PARSE 2

/* want[0] is the options, the ids follow. */
static void check_ids(const tokenizer *t, const char *text, size_t n_bytes, int n_want, const int32_t *want)
{
    status st = STATUS_INIT;
    token_list l = {0};
    encode_options o = {.add_special = want[0] & ADD, .parse_special = want[0] & PARSE};
    assert_int_equal(tokenizer_encode(t, text, n_bytes, o, &l, &st), ST_OK);
    for (size_t i = 0; i < l.n; i++)
        if ((int)i + 1 >= n_want || l.ids[i] != want[i + 1]) fail_msg("\"%s\": entry %zu is %d", text, i, l.ids[i]);
    assert_int_equal(l.n + 1, n_want);
    token_list_deinit(&l);
}

#define IDS(t, text, ...)                                                                                              \
    check_ids(t, text, sizeof text - 1, (int)(sizeof((int32_t[]){__VA_ARGS__}) / 4), (int32_t[]){__VA_ARGS__})

static void check_text(const tokenizer *t, const int32_t *ids, size_t n, bool special, const char *want)
{
    status st = STATUS_INIT;
    strbuf b;
    strbuf_init(&b, 0);
    assert_int_equal(tokenizer_decode(t, ids, n, special, &b, &st), ST_OK);
    assert_string_equal(strbuf_cstr(&b), want);
    strbuf_deinit(&b);
}

#define TEXT(t, special, want, ...)                                                                                    \
    check_text(t, (int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / 4, special, want)

/* ---- BPE ---- */

static void bpe_merges_by_rank(void **state)
{
    (void)state;
    vocab_bpe(&V, "gpt-2");
    vocab_merge(&V, "h e"), vocab_merge(&V, "l l"), vocab_merge(&V, "l o"), vocab_merge(&V, "he ll"),
        vocab_merge(&V, "\u0120 w");
    vocab_merge(&V, "a a"), vocab_merge(&V, "aa aa");
    int he = vocab_add(&V, "he", 1, 0), ll = vocab_add(&V, "ll", 1, 0), lo = vocab_add(&V, "lo", 1, 0),
        hell = vocab_add(&V, "hell", 1, 0);
    int w = vocab_add(&V, "\u0120w", 1, 0), aa = vocab_add(&V, "aa", 1, 0), aaaa = vocab_add(&V, "aaaa", 1, 0);
    tokenizer *t = open_vocab();
    assert_int_equal(tokenizer_vocab_size(t), V.n_tokens);
    IDS(t, "", 0);
    IDS(t, "hello", 0, hell, 'o');
    IDS(t, "helo", 0, he, lo); /* "l l" goes before "l o" only where there are two l */
    IDS(t, "lll", 0, ll, 'l'); /* of equal ranks the left one goes first */
    IDS(t, "he w we", 0, he, w, w, 'e');
    IDS(t, "aaaaaaa", 0, aaaa, aa, 'a');
    IDS(t, "\xC3\xA9", 0, 0xC3, 0xA9);
    IDS(t, "a\xFFh\xC3", 0, 'a', 0xFF, 'h', 0xC3); /* what is not UTF-8 goes by bytes */
    TEXT(t, false, "hello w\xC3", hell, 'o', w, 0xC3);
    assert_memory_equal(tokenizer_name(t, w).data, "\u0120w", 3);
    assert_int_equal(tokenizer_piece(t, w, false).n, 2);
    assert_memory_equal(tokenizer_piece(t, w, false).data, " w", 2);
    tokenizer_free(t);
}

static void bpe_whole_words(void **state)
{
    (void)state;
    vocab_bpe(&V, "llama-bpe");
    vocab_merge(&V, "x y");
    int xy = vocab_add(&V, "xy", 1, 0), xyz = vocab_add(&V, "xyz", 1, 0), bos = vocab_add(&V, "<bos>", 3, 0);
    V.bos = bos;
    tokenizer *t = open_vocab();
    IDS(t, "xyz", ADD, bos, xyz); /* no merge leads to it; bos is this pre-tokenizer's default */
    IDS(t, "xyzz", 0, xy, 'z', 'z');
    tokenizer_free(t);
    V.pre = "smaug-bpe";
    t = open_vocab();
    IDS(t, "xyz", ADD, xy, 'z');
    tokenizer_free(t);
}

static void bpe_bytes_without_a_token_are_left_out(void **state)
{
    (void)state;
    vocab_bpe(&V, NULL); /* no pre-tokenizer named: the default one */
    strcpy(V.names['x'], "other");
    tokenizer *t = open_vocab();
    IDS(t, "axb", 0, 'a', 'b');
    IDS(t, "x", 0);
    status st = STATUS_INIT;
    token_list l = {.n_dropped = 1};
    assert_int_equal(tokenizer_encode(t, "axb x xx\xFFx", 10, (encode_options){0}, &l, &st), ST_OK);
    assert_int_equal(l.n, 5);
    assert_int_equal(l.n_dropped, 1 + 5);
    l.limit = 7;
    assert_int_equal(tokenizer_encode(t, "xaaa", 4, (encode_options){0}, &l, &st), ST_LIMIT);
    assert_true(l.n == 5 && l.n_dropped == 6);
    assert_int_equal(tokenizer_encode(t, "xaa", 3, (encode_options){0}, &l, &st), ST_OK);
    assert_true(l.n == 7 && l.n_dropped == 7);
    token_list_deinit(&l);
    tokenizer_free(t);
}

static void bpe_normal_tokens_go_before_user_defined_ones_of_the_same_piece(void **state)
{
    (void)state;
    vocab_bpe(&V, "gpt-2");
    int user = vocab_add(&V, "  ", 4, 0), normal = vocab_add(&V, "\u0120\u0120", 1, 0),
        odd = vocab_add(&V, "\u4E2D", 1, 0);
    vocab_merge(&V, "\u0120 \u0120");
    tokenizer *t = open_vocab();
    IDS(t, "a  ", 0, 'a', user);                     /* in the text it is cut out first */
    TEXT(t, false, "    \u4E2D", user, normal, odd); /* a name beyond the alphabet stands for itself */
    tokenizer_free(t);
}

/* Text is spelled in the byte alphabet, so a name that spells the same bytes as they are never comes from it, whatever
 * its id: Command R's vocabulary has a U+200D before the one that is meant. */
static void bpe_names_beyond_the_alphabet_never_come_from_text(void **state)
{
    (void)state;
    vocab_bpe(&V, "llama-bpe");
    int bare = vocab_add(&V, "\u200D", 1, 0), alone = vocab_add(&V, "\u4E2D", 1, 0),
        half = vocab_add(&V, "\u00E2\u0122", 1, 0), joiner = vocab_add(&V, "\u00E2\u0122\u012F", 1, 0);
    vocab_merge(&V, "\u00E2 \u0122"), vocab_merge(&V, "\u00E2\u0122 \u012F"), vocab_merge(&V, "\u4E2D \u4E2D");
    tokenizer *t = open_vocab();
    IDS(t, "\u200D", 0, joiner);
    IDS(t, "!\u200D!\u200D", 0, '!', joiner, '!', joiner);
    IDS(t, "\u2009", 0, half, 0x89);
    IDS(t, "\u4E2D", 0, 0xE4, 0xB8, 0xAD);
    TEXT(t, false, "\u200D\u4E2D\u200D", bare, alone, joiner);
    tokenizer_free(t);
}

static void spm_names_with_a_plain_space_never_come_from_text(void **state)
{
    (void)state;
    vocab_spm(&V);
    int a = vocab_add(&V, "a", 1, -1), plain = vocab_add(&V, " a", 1, -1), meant = vocab_add(&V, "\u2581a", 1, -2),
        space = vocab_add(&V, "\u2581", 1, -3);
    tokenizer *t = open_vocab();
    IDS(t, "a a", 0, meant, meant);
    IDS(t, "aa ", 0, meant, a, space);
    TEXT(t, false, "a a", plain, plain); /* the first without the space that the encoder adds */
    tokenizer_free(t);
}

/* ---- special tokens ---- */

/* The ids of a text in which trusted bytes are those below which the mask has a 1. */
static void check_masked(const tokenizer *t, const char *text, const char *mask, int n_want, const int32_t *want)
{
    status st = STATUS_INIT;
    token_list l = {0};
    text_ranges trusted = {0};
    for (size_t i = 0; mask[i]; i++)
        if (mask[i] == '1') assert_int_equal(text_ranges_add(&trusted, i, i + 1, &st), ST_OK);
    const encode_options o = {.trusted = &trusted};
    assert_int_equal(tokenizer_encode(t, text, strlen(text), o, &l, &st), ST_OK);
    for (size_t i = 0; i < l.n; i++)
        if ((int)i >= n_want || l.ids[i] != want[i]) fail_msg("\"%s\" %s: entry %zu is %d", text, mask, i, l.ids[i]);
    assert_int_equal(l.n, n_want);
    text_ranges_deinit(&trusted);
    token_list_deinit(&l);
}

#define MASKED(t, text, mask, ...)                                                                                     \
    check_masked(t, text, mask, (int)(sizeof((int32_t[]){__VA_ARGS__}) / 4), (int32_t[]){__VA_ARGS__})

static void control_tokens_of_trusted_bytes(void **state)
{
    (void)state;
    vocab_bpe(&V, "gpt-2");
    int user = vocab_add(&V, "<u>", 4, 0), c = vocab_add(&V, "<c>", 3, 0), longer = vocab_add(&V, "<c><u>!", 3, 0);
    tokenizer *t = open_vocab();
    MASKED(t, "<c><c>", "111111", c, c);
    MASKED(t, "<c><c>", "111000", c, '<', 'c', '>');
    MASKED(t, "<c><c>", "000111", '<', 'c', '>', c);
    MASKED(t, "<c><c>", "110111", '<', 'c', '>', c); /* one that only begins, or ends, in trusted bytes is text */
    MASKED(t, "<c><c>", "011111", '<', 'c', '>', c);
    MASKED(t, "<c>", "101", '<', 'c', '>');
    MASKED(t, "a<c>b", "01110", 'a', c, 'b');
    MASKED(t, "a<c>b", "11111", 'a', c, 'b');
    MASKED(t, "<c><u>!", "1111111", longer);
    MASKED(t, "<c><u>!", "1111110", c, user, '!'); /* the longest that is wholly trusted */
    MASKED(t, "<c><u>!", "0000000", '<', 'c', '>', user, '!');
    MASKED(t, "<u><c>", "000111", user, c); /* user-defined tokens don't control */
    tokenizer_free(t);
}

static void special_tokens(void **state)
{
    (void)state;
    vocab_bpe(&V, "gpt-2");
    int user = vocab_add(&V, "<u>", 4, 0), control = vocab_add(&V, "<c>", 3, 0),
        longer = vocab_add(&V, "<c><u>!", 3, 0);
    int a = vocab_add(&V, "abab", 4, 0), b = vocab_add(&V, "babc", 4, 0), unknown = vocab_add(&V, "<unk>", 2, 0);
    int eos = vocab_add(&V, "<e>", 3, 0), prefix = vocab_add(&V, "<u>>", 3, 0);
    V.bos = control, V.eos = eos, V.add_bos = V.add_eos = 1;
    tokenizer *t = open_vocab();
    IDS(t, "x<u>y<c>", 0, 'x', user, 'y', '<', 'c', '>');
    IDS(t, "x<u>y<c>", PARSE, 'x', user, 'y', control);
    IDS(t, "<c><u>!<c><u>?", PARSE, longer, control, user, '?'); /* the longest at each place */
    IDS(t, "<c><u>!", 0, '<', 'c', '>', user, '!');
    IDS(t, "<u>>", 0, user, '>'); /* control names don't hide shorter ones when they don't count */
    IDS(t, "<u>>", PARSE, prefix);
    IDS(t, "ababc", 0, a, 'c'); /* the leftmost goes first */
    IDS(t, "babc", 0, b);
    IDS(t, "<unk", PARSE, '<', 'u', 'n', 'k');
    IDS(t, "<unk>", PARSE, unknown);
    IDS(t, "", ADD, control, eos);
    IDS(t, "<c>", ADD | PARSE, control, control, eos);
    TEXT(t, false, "x<u>", 'x', control, user, unknown);
    TEXT(t, true, "x<c><u><unk>", 'x', control, user, unknown);
    assert_true(tokenizer_is_control(t, control) && !tokenizer_is_control(t, user) && !tokenizer_is_control(t, 'x'));
    assert_true(tokenizer_adds_bos(t) && tokenizer_adds_eos(t));
    assert_int_equal(tokenizer_bos(t), control);
    assert_int_equal(tokenizer_eos(t), eos);
    tokenizer_free(t);
}

static void ends_of_generation(void **state)
{
    (void)state;
    vocab_bpe(&V, "gpt-2");
    int eos = vocab_add(&V, "<e>", 3, 0), eot = vocab_add(&V, "<t>", 3, 0), eom = vocab_add(&V, "<m>", 3, 0);
    int named = vocab_add(&V, "<|im_end|>", 3, 0), user = vocab_add(&V, "<end_of_turn>", 4, 0),
        plain = vocab_add(&V, "</s>", 1, 0);
    int start = vocab_add(&V, "<|im_start|>", 3, 0);
    V.eos = eos, V.eot = eot, V.eom = eom, V.bos = UINT32_MAX; /* written for "none" */
    V.add_bos = 1;
    tokenizer *t = open_vocab();
    assert_true(tokenizer_is_end(t, eos) && tokenizer_is_end(t, eot) && tokenizer_is_end(t, eom));
    assert_true(tokenizer_is_end(t, named) && tokenizer_is_end(t, user));
    assert_true(tokenizer_is_control(t, user)); /* an end is never plain text */
    assert_false(tokenizer_is_end(t, plain) || tokenizer_is_end(t, start) || tokenizer_is_end(t, -1) ||
                 tokenizer_is_end(t, V.n_tokens));
    assert_int_equal(tokenizer_bos(t), -1);
    assert_false(tokenizer_adds_bos(t));
    IDS(t, "", ADD);
    tokenizer_free(t);

    V.n_types = -1; /* a file without types: names and ids tell */
    t = open_vocab();
    assert_true(tokenizer_is_end(t, named) && tokenizer_is_end(t, plain) && tokenizer_is_control(t, eos));
    assert_false(tokenizer_is_control(t, start));
    tokenizer_free(t);
}

/* Whatever a file says of its tokens, text that is not parsed for them gives none that controls. */
static void text_gives_no_control_token(void **state)
{
    (void)state;
    vocab_bpe(&V, "gpt-2");
    V.n_types = -1, V.bos = 'b';
    tokenizer *t = open_vocab();
    IDS(t, "abc", 0, 'a', 'c');
    IDS(t, "abc", PARSE, 'a', 'b', 'c');
    tokenizer_free(t);
    vocab_spm(&V);
    V.n_tokens = V.n_types = V.n_scores = 3; /* no bytes: what fits nowhere is unknown */
    int a = vocab_add(&V, "a", 1, 0), ab = vocab_add(&V, "ab", 3, 0);
    vocab_add(&V, "b", 1, 0);
    V.add_space_prefix = 0;
    V.types[0] = 3; /* as Gemma's file has it */
    t = open_vocab();
    IDS(t, "abz", 0, a, ab + 1, 0);
    assert_false(tokenizer_is_control(t, 0));
    tokenizer_free(t);
    V.unknown = 2;
    t = open_vocab();
    IDS(t, "az", 0, a);
    assert_true(tokenizer_is_control(t, 2));
    tokenizer_free(t);
}

/* ---- SPM ---- */

static void spm_merges_by_score(void **state)
{
    (void)state;
    vocab_spm(&V);
    int space = vocab_add(&V, "\u2581", 1, -9), a = vocab_add(&V, "a", 1, -10), b = vocab_add(&V, "b", 1, -11);
    int ab = vocab_add(&V, "ab", 1, -3), ba = vocab_add(&V, "ba", 1, -2), sa = vocab_add(&V, "\u2581a", 1, -5);
    int aba = vocab_add(&V, "aba", 1, -8), e = vocab_add(&V, "\xC3\xA9", 5, -12), user = vocab_add(&V, "<u>", 4, 0);
    V.add_space_prefix = 0;
    tokenizer *t = open_vocab();
    IDS(t, "ab", 0, ab);
    IDS(t, "aba", 0, aba); /* a + ba: then that is a token too */
    IDS(t, "abab", 0, aba, b);
    IDS(t, "a a", 0, a, sa);
    IDS(t, "a\u2581b ", 0, a, space, b, space);
    IDS(t, "\xC3\xA9", 0, e);
    IDS(t, "z\xE4\xB8\xAD\xFF", 0, 3 + 'z', 3 + 0xE4, 3 + 0xB8, 3 + 0xAD, 3 + 0xFF);
    IDS(t, "<s>", 0, 3 + '<', 3 + 's', 3 + '>');
    IDS(t, "<s>a</s>", PARSE | ADD, 1, 1, a, 2);
    IDS(t, "<0x41>b", PARSE, 3 + '<', 3 + '0', 3 + 'x', 3 + '4', 3 + '1', 3 + '>', b);
    TEXT(t, false, " a b", sa, space, b);
    TEXT(t, true, "<s>z<u>", 1, 3 + 'z', user);
    assert_true(tokenizer_is_end(t, 2));
    tokenizer_free(t);

    V.add_space_prefix =
        ABSENT; /* then spaces are added: at the start and after each special token, and taken off again */
    t = open_vocab();
    IDS(t, "ab<u>b", ADD, 1, space, ab, user, space, b);
    TEXT(t, false, "ab<u>b", 1, space, ab, user, space, b);
    IDS(t, " ab", 0, space, space, ab);
    TEXT(t, true, "<s> ab a", 1, space, space, ab, sa);
    IDS(t, "", 0);
    (void)ba;
    tokenizer_free(t);
}

static void spm_without_bytes(void **state)
{
    (void)state;
    vocab_spm(&V);
    V.n_tokens = V.n_types = V.n_scores = 3;
    int a = vocab_add(&V, "a", 1, 0);
    V.add_space_prefix = 0;
    tokenizer *t = open_vocab();
    IDS(t, "a\xE4\xB8\xAD", 0, a, 0); /* one unknown token a character */
    tokenizer_free(t);
    V.unknown = UINT32_MAX;
    t = open_vocab();
    IDS(t, "az", 0, a);
    tokenizer_free(t);
}

/* ---- against the definition, on random texts ---- */

typedef struct naive {
    const char *text;
    int start[42], n; /* symbol i is text[start[i] .. start[i + 1]) */
} naive;

/* The token that symbols i to j make, or -1. */
static int naive_find(const naive *x, int i, int j)
{
    int n = x->start[j + 1] - x->start[i];
    for (int id = 3 + 256; id < V.n_tokens; id++)
        if ((int)strlen(V.names[id]) == n && memcmp(V.names[id], x->text + x->start[i], (size_t)n) == 0) return id;
    return -1;
}

/* Looks through all pairs for the best one, again and again. */
static void naive_merge(naive *x)
{
    for (;;) {
        int best = -1, best_id = -1;
        for (int i = 0; i + 1 < x->n; i++) {
            int id = naive_find(x, i, i + 1);
            if (id >= 0 && (best < 0 || V.scores[id] > V.scores[best_id])) best = i, best_id = id;
        }
        if (best < 0) return;
        for (int j = best + 1; j < x->n; j++) x->start[j] = x->start[j + 1];
        x->n--;
    }
}

static void spm_equals_the_naive_loop(void **state)
{
    (void)state;
    vocab_spm(&V);
    V.add_space_prefix = 0;
    const char *const names[] = {"a",   "b",   "c",  "ab",   "bc",  "ca",   "aa",  "abc",
                                 "bca", "aab", "bb", "abab", "cab", "aaaa", "bcab"};
    uint64_t seed = 5;
    for (int i = 0; i < 15; i++) vocab_add(&V, names[i], 1, -(float)(next_random(&seed) % 9));
    tokenizer *t = open_vocab();
    for (int round = 0; round < 3000; round++) {
        char text[41] = "";
        naive x = {.text = text, .n = 1 + (int)(next_random(&seed) % 40)};
        for (int i = 0; i < x.n; i++) text[i] = (char)('a' + next_random(&seed) % 3);
        for (int i = 0; i <= x.n; i++) x.start[i] = i;
        naive_merge(&x);
        int32_t want[41] = {0};
        for (int i = 0; i < x.n; i++) want[i + 1] = naive_find(&x, i, i);
        check_ids(t, text, strlen(text), x.n + 1, want);
    }
    tokenizer_free(t);
}

static tokenizer *open_mixed(bool spm)
{
    vocab_mixed(&V, spm);
    return open_vocab();
}

static size_t random_text(char *out, uint64_t *seed)
{
    static const char *const parts[] = {"a",
                                        " ",
                                        " a",
                                        "\xC3\xA9",
                                        "\xC3",
                                        "\xA9",
                                        "<u>",
                                        "<control>",
                                        "\n\n",
                                        "\n",
                                        "1",
                                        "\u4E2D\u6587",
                                        "\xE4\xB8",
                                        "\xF0\x9F\x98\x80",
                                        "\xED\xA0\x80",
                                        "\xC0\xAF",
                                        "<",
                                        "\xFF\xFE",
                                        "it's",
                                        "\xF4\x90\x80\x80"};
    size_t n = 0;
    for (uint32_t k = next_random(seed) % 12; k; k--) {
        const char *part = parts[next_random(seed) % 20];
        memcpy(out + n, part, strlen(part));
        n += strlen(part);
        if (next_random(seed) % 4 == 0) out[n++] = (char)next_random(seed);
    }
    return n;
}

/* "\xE2\x96\x81" is the one text that SPM turns into another; the parts can't make it but by chance. */
static void any_bytes_come_back(void **state)
{
    (void)state;
    for (int spm = 0; spm < 2; spm++) {
        tokenizer *t = open_mixed(spm);
        uint64_t seed = 11;
        for (int round = 0; round < 4000; round++) {
            char text[256];
            size_t n = random_text(text, &seed);
            status st = STATUS_INIT;
            token_list l = {0};
            strbuf b;
            strbuf_init(&b, 0);
            assert_int_equal(tokenizer_encode(t, text, n, (encode_options){.parse_special = round % 2}, &l, &st),
                             ST_OK);
            for (size_t i = 0; i < l.n; i++) assert_true(round % 2 || !tokenizer_is_control(t, l.ids[i]));
            assert_int_equal(tokenizer_decode(t, l.ids, l.n, true, &b, &st), ST_OK);
            assert_int_equal(b.n_bytes, n);
            assert_memory_equal(strbuf_cstr(&b), text, n);
            strbuf_deinit(&b);
            token_list_deinit(&l);
        }
        tokenizer_free(t);
    }
}

/* ---- streams ---- */

static bool is_utf8(const char *s, size_t n)
{
    for (int len; n; s += len, n -= (size_t)len)
        if ((len = utf8_length(s, n)) == 0) return false;
    return true;
}

static void stream(const tokenizer *t, const int32_t *ids, size_t n, bool special)
{
    status st = STATUS_INIT;
    strbuf whole, part, shown, want;
    strbuf_init(&whole, 0), strbuf_init(&part, 0), strbuf_init(&shown, 0), strbuf_init(&want, 0);
    assert_int_equal(tokenizer_decode(t, ids, n, special, &whole, &st), ST_OK);
    bool valid = is_utf8(strbuf_cstr(&whole), whole.n_bytes);
    detokenizer d = {0};
    for (size_t i = 0; i < n; i++) {
        size_t before = part.n_bytes;
        assert_int_equal(detokenizer_push(&d, t, ids[i], special, &part, &st), ST_OK);
        if (valid) assert_true(is_utf8(part.data + before, part.n_bytes - before));
        if (valid && d.n_held == 0) assert_true(is_utf8(part.data, part.n_bytes)); /* nothing waits without need */
        strbuf_utf8(&shown, strbuf_cstr(&part) + before, part.n_bytes - before);
    }
    if (valid) assert_int_equal(d.n_held, 0);
    size_t before = part.n_bytes;
    assert_int_equal(detokenizer_flush(&d, &part, &st), ST_OK);
    strbuf_utf8(&shown, strbuf_cstr(&part) + before, part.n_bytes - before);
    strbuf_utf8(&want, strbuf_cstr(&whole), whole.n_bytes);
    assert_string_equal(strbuf_cstr(&shown), strbuf_cstr(&want)); /* chunks break no broken part in two */
    assert_int_equal(d.n_held, 0);
    assert_int_equal(part.n_bytes, whole.n_bytes);
    if (whole.n_bytes) assert_memory_equal(part.data, whole.data, whole.n_bytes);
    strbuf_deinit(&whole), strbuf_deinit(&part), strbuf_deinit(&shown), strbuf_deinit(&want);
}

static void streams_equal_whole_texts(void **state)
{
    (void)state;
    for (int spm = 0; spm < 2; spm++) {
        tokenizer *t = open_mixed(spm);
        uint64_t seed = 3;
        int32_t ids[256];
        for (int round = 0; round < 2000; round++) {
            size_t n = next_random(&seed) % 20;
            for (size_t i = 0; i < n; i++) ids[i] = (int32_t)(next_random(&seed) % (uint32_t)V.n_tokens);
            stream(t, ids, n, round % 2);
            n = 0; /* bytes of valid text, cut anywhere */
            for (int k = 0; k < 8; k++) {
                char c[4];
                int len =
                    utf8_encode((uint32_t[]){'a', 0xE9, 0x4E2D, 0x1F600, 0x7FF, 0xFFFD}[next_random(&seed) % 6], c);
                for (int j = 0; j < len; j++) ids[n++] = (spm ? 3 : 0) + (uint8_t)c[j];
            }
            stream(t, ids, n, round % 2);
        }
        tokenizer_free(t);
    }
}

static void stream_details(void **state)
{
    (void)state;
    tokenizer *t = open_mixed(true);
    status st = STATUS_INIT;
    strbuf b;
    strbuf_init(&b, 0);
    detokenizer d = {.started = true}; /* goes on from other text: its first space stays */
    int sa = 3 + 256;
    assert_int_equal(detokenizer_push(&d, t, sa, false, &b, &st), ST_OK);
    assert_string_equal(b.data, " a");
    assert_int_equal(detokenizer_push(&d, t, 3 + 0xF0, false, &b, &st), ST_OK);
    assert_int_equal(detokenizer_push(&d, t, 3 + 0x9F, false, &b, &st), ST_OK);
    assert_string_equal(b.data, " a"); /* waits */
    assert_int_equal(d.n_held, 2);
    assert_int_equal(detokenizer_push(&d, t, sa, false, &b, &st), ST_OK);
    assert_string_equal(b.data, " a\xF0\x9F a"); /* can no longer become a character */
    assert_int_equal(detokenizer_push(&d, t, V.n_tokens, false, &b, &st), ST_ARG);
    assert_int_equal(detokenizer_push(&d, t, -1, false, &b, &st), ST_ARG);
    assert_int_equal(tokenizer_decode(t, (int32_t[]){3, V.n_tokens}, 2, false, &b, &st), ST_ARG);
    assert_int_equal(st.pos, 1);
    assert_string_equal(b.data, " a\xF0\x9F a");
    assert_int_equal(tokenizer_piece(t, -1, true).n + tokenizer_name(t, V.n_tokens).n, 0);
    strbuf_deinit(&b);
    tokenizer_free(t);
}

/* ---- threads ---- */

typedef struct shared {
    const tokenizer *t;
    char text[64][256];
    size_t n[64];
    token_list ids[64];
} shared;

static void encode_some(void *arg, int begin, int end, int worker)
{
    (void)worker;
    shared *s = arg;
    status st = STATUS_INIT;
    for (int i = begin; i < end; i++) {
        int rc = tokenizer_encode(s->t, s->text[i], s->n[i],
                                  (encode_options){.add_special = true, .parse_special = true}, &s->ids[i], &st);
        assert(rc == ST_OK);
    }
}

/* One tokenizer, many threads: each gets what one thread alone gets. */
static void threads_share_a_tokenizer(void **state)
{
    (void)state;
    static shared s;
    status st = STATUS_INIT;
    threads *team = NULL;
    assert_int_equal(threads_new(&team, 3, &st), ST_OK);
    for (int spm = 0; spm < 2; spm++) {
        tokenizer *t = open_mixed(spm);
        uint64_t seed = 21;
        s = (shared){.t = t};
        for (int i = 0; i < 64; i++) s.n[i] = random_text(s.text[i], &seed);
        threads_run(team, encode_some, &s, 64, 1);
        for (int i = 0; i < 64; i++) {
            token_list l = {0};
            assert_int_equal(tokenizer_encode(t, s.text[i], s.n[i],
                                              (encode_options){.add_special = true, .parse_special = true}, &l, &st),
                             ST_OK);
            assert_int_equal(l.n, s.ids[i].n);
            if (l.n) assert_memory_equal(l.ids, s.ids[i].ids, l.n * sizeof *l.ids);
            token_list_deinit(&l);
            token_list_deinit(&s.ids[i]);
        }
        tokenizer_free(t);
    }
    threads_free(team);
}

static void odd_files_that_work(void **state)
{
    (void)state;
    vocab_bpe(&V, "gpt-2"); /* empty names, more than one; the same merge twice; a name that is not UTF-8 */
    int ab = vocab_add(&V, "ab", 1, 0);
    vocab_add(&V, "", 1, 0), vocab_add(&V, "", 3, 0), vocab_add(&V, "", 4, 0), vocab_add(&V, "\xFF\xFE", 4, 0);
    vocab_merge(&V, "a b"), vocab_merge(&V, "a b");
    tokenizer *t = open_vocab();
    IDS(t, "ab\xFF\xFE", PARSE, ab, V.n_tokens - 1);
    assert_int_equal(tokenizer_piece(t, ab + 1, true).n, 0);
    tokenizer_free(t);

    vocab_spm(&V); /* scores that are no numbers; two tokens; no special ones */
    for (int i = 0; i < 6; i++)
        vocab_add(&V, (const char *[]){"a", "aa", "aaa", "aaaa", "b", "ab"}[i], 1, i % 2 ? NAN : INFINITY);
    t = open_vocab();
    status st = STATUS_INIT;
    token_list l = {0};
    assert_int_equal(tokenizer_encode(t, "aaaaaaabab", 10, (encode_options){0}, &l, &st), ST_OK);
    assert_true(l.n > 0);
    token_list_deinit(&l);
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bpe_merges_by_rank),
        cmocka_unit_test(bpe_whole_words),
        cmocka_unit_test(bpe_bytes_without_a_token_are_left_out),
        cmocka_unit_test(bpe_normal_tokens_go_before_user_defined_ones_of_the_same_piece),
        cmocka_unit_test(bpe_names_beyond_the_alphabet_never_come_from_text),
        cmocka_unit_test(spm_names_with_a_plain_space_never_come_from_text),
        cmocka_unit_test(special_tokens),
        cmocka_unit_test(control_tokens_of_trusted_bytes),
        cmocka_unit_test(ends_of_generation),
        cmocka_unit_test(text_gives_no_control_token),
        cmocka_unit_test(spm_merges_by_score),
        cmocka_unit_test(spm_without_bytes),
        cmocka_unit_test(spm_equals_the_naive_loop),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(streams_equal_whole_texts),
        cmocka_unit_test(stream_details),
        cmocka_unit_test(threads_share_a_tokenizer),
        cmocka_unit_test(odd_files_that_work),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
