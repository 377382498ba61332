/* Any bytes as a template, over a fixed conversation and under small limits: text or an error, within the limits,
 * the same twice, and nothing leaks. A character that only the input has is never trusted. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/template/template.h"

#define MARK "\xEE\x80\x80"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static tmpl_value *text(tmpl_data *d, const char *s)
{
    return tmpl_string(d, s, strlen(s));
}

static tmpl_value *context(tmpl_data *d)
{
    tmpl_value *root = tmpl_map(d), *messages = tmpl_list(d);
    static const char *const roles[] = {"system", "user", "assistant"};
    for (size_t i = 0; i < 3; i++) {
        tmpl_value *m = tmpl_map(d);
        tmpl_map_set(d, m, "role", text(d, roles[i]));
        tmpl_map_set(d, m, "content", text(d, "Hällo <think>x</think> 'q' \"r\"\n" MARK "\n"));
        tmpl_list_add(d, messages, m);
    }
    tmpl_map_set(d, root, "messages", messages);
    tmpl_map_set(d, root, "tools", tmpl_none(d));
    tmpl_map_set(d, root, "n", tmpl_int(d, 7));
    tmpl_map_set(d, root, "f", tmpl_float(d, 2.5));
    tmpl_map_set(d, root, "add_generation_prompt", tmpl_bool(d, true));
    tmpl_map_set(d, root, "bos_token", text(d, "<s>"));
    return root;
}

static void check_ranges(const strbuf *out, const text_ranges *r, bool marks_are_input)
{
    for (size_t i = 0; i < r->n; i++) {
        size_t from = r->at[i].from, to = r->at[i].to;
        if (from >= to || to > out->n_bytes || (i && from <= r->at[i - 1].to)) abort();
        if (marks_are_input && memchr(out->data + from, MARK[0], to - from)) abort();
    }
}

static int render(const tmpl *t, strbuf *out, bool marks_are_input)
{
    status st = STATUS_INIT;
    tmpl_limits limits = {.max_depth = 30,
                          .max_steps = 20000,
                          .max_output_bytes = 1 << 16,
                          .max_memory_bytes = 1 << 20};
    tmpl_data *d = tmpl_data_new();
    text_ranges trusted = {0};
    int code = tmpl_render(t, d, context(d), &limits, out, &trusted, &st);
    tmpl_data_free(d);
    check_ranges(out, &trusted, marks_are_input);
    text_ranges_deinit(&trusted);
    if (code != st.code || (code && (!st.text[0] || out->n_bytes)) || out->n_bytes > limits.max_output_bytes) abort();
    return code;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t before = mem_stats().bytes;
    tmpl *t = NULL;
    status st = STATUS_INIT;
    int code = tmpl_parse(&t, (const char *)data, size, &st);
    if ((code == ST_OK) != (t != NULL) || code != st.code || (code && !st.text[0])) abort();
    if (t) {
        bool marks_are_input = !memchr(data, MARK[0], size) && !memchr(data, '\\', size);
        strbuf a, b;
        strbuf_init(&a, 0);
        strbuf_init(&b, 0);
        if (render(t, &a, marks_are_input) != render(t, &b, marks_are_input) || a.n_bytes != b.n_bytes ||
            (a.n_bytes && memcmp(a.data, b.data, a.n_bytes)))
            abort();
        strbuf_deinit(&a);
        strbuf_deinit(&b);
    }
    tmpl_free(t);
    if (mem_stats().bytes != before) abort();
    return 0;
}
