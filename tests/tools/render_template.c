/* render_template - renders templates for tests that compare with Python.
 *
 * One job a line: {"template": text, "context": {...}, "now": seconds}
 *              -> {"text": ..., "trusted": [[from, to], ...]} or {"error", "code", "line"} */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_data.h"

static int render(json_t *job, strbuf *out, text_ranges *trusted, status *st)
{
    json_t *source = json_object_get(job, "template"), *context = json_object_get(job, "context");
    if (!json_is_string(source)) return status_set(st, ST_ARG, STATUS_NO_POS, "a job needs a template");
    tmpl *t = NULL;
    if (tmpl_parse(&t, json_string_value(source), json_string_length(source), st)) return st->code;
    tmpl_data *d = tmpl_data_new();
    int code = ST_NOMEM;
    if (d) {
        tmpl_value *root = json_is_object(context) ? json_data(d, context) : tmpl_map(d);
        tmpl_limits limits = {.now_unix_s = json_integer_value(json_object_get(job, "now"))};
        code = tmpl_render(t, d, root, &limits, out, trusted, st);
    }
    tmpl_data_free(d);
    tmpl_free(t);
    return code;
}

int main(void)
{
    char *line = NULL;
    size_t capacity = 0;
    while (getline(&line, &capacity, stdin) > 0) {
        json_error_t error;
        json_t *job = json_loads(line, JSON_ALLOW_NUL, &error), *reply;
        if (!job) {
            fprintf(stderr, "not JSON: %s\n", error.text);
            return 1;
        }
        strbuf out;
        strbuf_init(&out, 0);
        status st = STATUS_INIT;
        text_ranges trusted = {0};
        if (render(job, &out, &trusted, &st) == ST_OK) {
            json_t *ranges = json_array();
            for (size_t i = 0; i < trusted.n; i++)
                json_array_append_new(ranges, json_pack("[I, I]", (json_int_t)trusted.at[i].from,
                                                        (json_int_t)trusted.at[i].to));
            reply = json_pack("{s:s%, s:o}", "text", strbuf_cstr(&out), out.n_bytes, "trusted", ranges);
        } else
            reply = json_pack("{s:s, s:s, s:I}", "error", st.text, "code", status_name(st.code), "line",
                              (json_int_t)st.pos);
        char *text = reply ? json_dumps(reply, JSON_ENSURE_ASCII) : NULL;
        puts(text ? text : "{\"error\": \"the result is not UTF-8\", \"code\": \"format\", \"line\": 0}");
        free(text);
        json_decref(reply);
        json_decref(job);
        text_ranges_deinit(&trusted);
        strbuf_deinit(&out);
    }
    free(line);
    return 0;
}
