/* A GGUF file, then a text: a vocabulary that is accepted encodes any text, twice the same, into ids that it has; without parse_special none
 * is a control token; decoded whole and as a stream it is the same text.
 *
 *      input: file length u32 | file | text        (a length beyond the input: all of it is the file)
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) abort();
}

static void check_decoding(const tokenizer *t, const token_list *l)
{
    status st = STATUS_INIT;
    strbuf whole, stream;
    strbuf_init(&whole, 0);
    strbuf_init(&stream, 0);
    require(tokenizer_decode(t, l->ids, l->n, true, &whole, &st) == ST_OK);
    detokenizer d = {0};
    for (size_t i = 0; i < l->n; i++) require(detokenizer_push(&d, t, l->ids[i], true, &stream, &st) == ST_OK);
    require(detokenizer_flush(&d, &stream, &st) == ST_OK);
    require(whole.n_bytes == stream.n_bytes && memcmp(strbuf_cstr(&whole), strbuf_cstr(&stream), whole.n_bytes) == 0);
    strbuf_deinit(&whole);
    strbuf_deinit(&stream);
}

static void check_text(const tokenizer *t, const char *text, size_t n)
{
    for (int options = 0; options < 4; options++) {
        encode_options o = {.add_special = options & 1, .parse_special = options & 2};
        token_list a = {0}, b = {0};
        status st = STATUS_INIT;
        require(tokenizer_encode(t, text, n, o, &a, &st) == ST_OK && tokenizer_encode(t, text, n, o, &b, &st) == ST_OK);
        require(a.n == b.n && (a.n == 0 || memcmp(a.ids, b.ids, a.n * sizeof *a.ids) == 0));
        for (size_t i = 0; i < a.n; i++) {
            require(a.ids[i] >= 0 && a.ids[i] < tokenizer_vocab_size(t));
            require(options != 0 || !tokenizer_is_control(t, a.ids[i]));
        }
        check_decoding(t, &a);
        token_list_deinit(&a);
        token_list_deinit(&b);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t before = mem_stats().bytes;
    uint32_t n_file;
    if (size < sizeof n_file) return 0;
    memcpy(&n_file, data, sizeof n_file);
    data += sizeof n_file;
    size -= sizeof n_file;
    if (n_file > size) n_file = (uint32_t)size;
    gguf *g = NULL;
    tokenizer *t = NULL;
    status st = STATUS_INIT;
    if (gguf_parse(&g, data, n_file, &st) == ST_OK) {
        require((tokenizer_new(&t, g, &st) == ST_OK) == (t != NULL) && (t || st.text[0]));
        gguf_close(g);
    }
    if (t) check_text(t, (const char *)data + n_file, size - n_file);
    tokenizer_free(t);
    require(mem_stats().bytes == before);
    return 0;
}
