/* Chat templates against what Python's jinja2 gave for the same source and context (tests/data/templates, which
 * tests/tools/jinja_reference.py --update writes), and what it cannot tell: errors, limits, short memory, leaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "../tools/json_data.h"
#include "base/file.h"
#include "base/mem.h"
#include "model/chat.h"

#define NOW 1718454896 /* as in jinja_reference.py */

static json_t *load(const char *path)
{
    json_error_t error;
    json_t *cases = json_load_file(path, JSON_ALLOW_NUL, &error);
    if (!cases) fail_msg("%s: %s", path, error.text);
    return cases;
}

static int render(const char *source, size_t n, json_t *context, const tmpl_limits *limits, strbuf *out, status *st)
{
    tmpl *t = NULL;
    if (tmpl_parse(&t, source, n, st)) return st->code;
    tmpl_data *d = tmpl_data_new();
    int code = ST_NOMEM;
    if (d) code = tmpl_render(t, d, context ? json_data(d, context) : tmpl_map(d), limits, out, NULL, st);
    else status_nomem(st, 1);
    tmpl_data_free(d);
    tmpl_free(t);
    return code;
}

static int render_text(const char *source, const tmpl_limits *limits, strbuf *out, status *st)
{
    return render(source, strlen(source), NULL, limits, out, st);
}

/* The template of a case: in the case itself, or in a file beside it. */
static void read_source(json_t *one, strbuf *source)
{
    json_t *file = json_object_get(one, "file"), *text = json_object_get(one, "template");
    if (!file) {
        strbuf_add(source, json_string_value(text), json_string_length(text));
        return;
    }
    char path[256];
    status st = STATUS_INIT;
    snprintf(path, sizeof path, "tests/data/templates/%s", json_string_value(file));
    if (file_read(source, path, 1 << 20, &st)) fail_msg("%s", st.text);
}

static void check_case(json_t *one)
{
    const char *name = json_string_value(json_object_get(one, "name"));
    const char *code_name = json_string_value(json_object_get(one, "code"));
    const char *refused = json_string_value(json_object_get(one, "refused"));
    json_t *expected = json_object_get(one, "expected");
    strbuf source, out;
    strbuf_init(&source, 0);
    strbuf_init(&out, 0);
    strbuf_puts(&out, "kept");
    read_source(one, &source);
    status st = STATUS_INIT;
    tmpl_limits limits = {.now_unix_s = NOW};
    int code = render(strbuf_cstr(&source), source.n_bytes, json_object_get(one, "context"), &limits, &out, &st);
    if (json_is_string(expected)) {
        if (code) fail_msg("%s: %s", name, st.text);
        if (out.n_bytes - 4 != json_string_length(expected) ||
            memcmp(out.data + 4, json_string_value(expected), out.n_bytes - 4))
            fail_msg("%s: \"%s\" instead of \"%s\"", name, out.data + 4, json_string_value(expected));
    } else {
        if (!code || code != st.code || !st.text[0]) fail_msg("%s: no error", name);
        if (refused && (code != ST_ARG || strcmp(st.text, refused))) fail_msg("%s: %s", name, st.text);
        if (!refused && st.pos == STATUS_NO_POS) fail_msg("%s: no line in: %s", name, st.text);
        if (code_name && strcmp(status_name(code), code_name)) fail_msg("%s: %s: %s", name, status_name(code), st.text);
        json_t *line = json_object_get(one, "line");
        if (line && (uint64_t)json_integer_value(line) != st.pos) fail_msg("%s: %s", name, st.text);
        assert_string_equal(out.data, "kept");
    }
    strbuf_deinit(&source);
    strbuf_deinit(&out);
}

static void check_file(const char *path, size_t at_least)
{
    json_t *cases = load(path), *one;
    size_t i;
    assert_true(json_array_size(cases) >= at_least);
    uint64_t before = mem_stats().bytes;
    json_array_foreach(cases, i, one) check_case(one);
    assert_int_equal(mem_stats().bytes, before);
    json_decref(cases);
}

static void as_jinja_renders(void **state)
{
    (void)state;
    check_file("tests/data/templates/cases.json", 300);
}

static void conversations_in_models_styles(void **state)
{
    (void)state;
    check_file("tests/data/templates/conversations.json", 100);
}

static void errors_name_line_and_construct(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        int code;
        uint64_t line;
        const char *says;
    } cases[] = {
        {"a\n\n{% include 'x' %}", ST_UNSUPPORTED, 3, "line 3: the statement 'include' is not supported"},
        {"{{ 1 }}\n{{ x | xmlattr }}", ST_UNSUPPORTED, 2, "line 2: the filter 'xmlattr' is not supported"},
        {"{% for x in y recursive %}", ST_UNSUPPORTED, 1, "line 1: a recursive for loop is not supported"},
        {"{% if x %}\n{% for a in b %}{% endfor %}\n", ST_FORMAT, 1,
         "line 1: the block that begins here has no 'endif'"},
        {"{{ x }\n", ST_FORMAT, 1, "line 1: unexpected '}'"},
        {"\n\n\n{{ nothing.inside }}", ST_ARG, 4, "line 4: 'nothing' is undefined"},
        {"{% set a = {} %}\n{{ a.b.c }}", ST_ARG, 2, "line 2: there is no member 'b'"},
        {"{{\n1 +\n'a' }}", ST_ARG, 2, "line 2: '+' does not work between int and str"},
        {"{{ raise_exception('no\ttools') }}", ST_ARG, 1, "no?tools"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        status st = STATUS_INIT;
        strbuf out;
        strbuf_init(&out, 0);
        assert_int_equal(render_text(cases[i].source, NULL, &out, &st), cases[i].code);
        assert_string_equal(st.text, cases[i].says);
        assert_int_equal(st.pos, cases[i].line);
        strbuf_deinit(&out);
    }
}

static void limits_hold(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        tmpl_limits limits;
    } cases[] = {
        {"{% for i in range(100) %}{% endfor %}", {.max_steps = 50}},
        {"{{ 'abcdefgh' }}", {.max_output_bytes = 7}},
        {"{% set a %}{{ 'x' * 100 }}{% endset %}", {.max_output_bytes = 99}},
        {"{{ range(1000) | list | length }}", {.max_memory_bytes = 10000}},
        {"{% macro m(n) %}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(5) }}", {.max_depth = 5}},
        {"{{ [[[[1]]]] }}", {.max_depth = 3}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        status st = STATUS_INIT;
        strbuf out;
        strbuf_init(&out, 0);
        assert_int_equal(render_text(cases[i].source, &cases[i].limits, &out, &st), ST_LIMIT);
        assert_int_equal(out.n_bytes, 0);
        st = (status)STATUS_INIT;
        assert_int_equal(render_text(cases[i].source, NULL, &out, &st), ST_OK);
        strbuf_deinit(&out);
    }
    status st = STATUS_INIT;
    strbuf small;
    strbuf_init(&small, 10);
    strbuf_puts(&small, "abcdefg");
    assert_int_equal(render_text("0123456789", NULL, &small, &st), ST_LIMIT);
    assert_string_equal(small.data, "abcdefg");
    strbuf_deinit(&small);
}

static void a_long_source_is_refused(void **state)
{
    (void)state;
    tmpl *t = NULL;
    status st = STATUS_INIT;
    size_t n = ((size_t)1 << 20) + 1;
    char *source = mem_calloc(n, 1);
    assert_int_equal(tmpl_parse(&t, source, n, &st), ST_LIMIT);
    assert_null(t);
    mem_free(source);
}

static void bytes_pass_through(void **state)
{
    (void)state;
    status st = STATUS_INIT;
    strbuf out;
    strbuf_init(&out, 0);
    static const char source[] = "\xff\0{{ '\xc3' ~ 'a\xe2\x82'|upper }}{{ '\xf0\x9f'|length }}{{ 'a\xff'|reverse }}";
    assert_int_equal(render(source, sizeof source - 1, NULL, NULL, &out, &st), ST_OK);
    static const char expected[] = "\xff\0\xc3"
                                   "A\xe2\x82"
                                   "2\xff"
                                   "a";
    assert_int_equal(out.n_bytes, sizeof expected - 1);
    assert_memory_equal(out.data, expected, out.n_bytes);
    strbuf_deinit(&out);
}

/* Every allocation of a parse and a render fails once: the answer is "out of memory", the output is as before, and
 * nothing is lost. */
static void short_memory_is_reported(void **state)
{
    (void)state;
    static const char source[] = "{% macro m(a, b=2) %}<{{ a }}{{ caller() if caller is defined }}>{% endmacro %}{% "
                                 "call m('x') %}in{% endcall %}"
                                 "{% set ns = namespace(n=0) %}{% for i in range(3000) if i % 3 %}{% set ns.n = ns.n + "
                                 "i %}{{ i ~ ',' }}{% endfor %}"
                                 "{{ {'b': [1, 2.5], 'a': ns.n} | tojson(indent=1, sort_keys=true) }}{{ 'a b "
                                 "c'.split() | map('upper') | join('\\n') }}"
                                 "{{ ('x' * 5000)[10:4000:2] | length }}{{ '%5d' % 3 }}{% set q | upper %}{{ [3, 1, 2] "
                                 "| sort }}{% endset %}{{ q }}";
    strbuf out;
    strbuf_init(&out, 0);
    uint64_t before = mem_stats().bytes;
    int code = ST_NOMEM, n = 0;
    for (n = 1; code != ST_OK && n < 1000; n++) {
        status st = STATUS_INIT;
        mem_fail_after(n);
        code = render(source, sizeof source - 1, NULL, NULL, &out, &st);
        mem_fail_after(0);
        if (code != ST_OK) {
            assert_int_equal(code, ST_NOMEM);
            assert_int_equal(st.code, ST_NOMEM);
            assert_int_equal(out.n_bytes, 0);
        }
        strbuf_deinit(&out);
        assert_int_equal(mem_stats().bytes, before);
    }
    assert_int_equal(code, ST_OK);
    assert_true(n > 10);
}

static int render_chat(const tmpl *t, const chat_message *messages, size_t n, const chat_options *o, strbuf *out,
                       status *st)
{
    tmpl_data *d = tmpl_data_new();
    if (!d) return status_nomem(st, sizeof(void *));
    tmpl_value *root = tmpl_map(d);
    tmpl_map_set(d, root, "messages", chat_messages(d, messages, n));
    text_ranges trusted = {0};
    int code = chat_render(t, NULL, d, root, o, out, &trusted, st);
    text_ranges_deinit(&trusted);
    tmpl_data_free(d);
    return code;
}

static void one_template_renders_again_and_again(void **state)
{
    (void)state;
    tmpl *t = NULL;
    status st = STATUS_INIT;
    static const char source[] =
        "{% for m in messages %}[{{ m.role }}:{{ m.content | trim }}]{% endfor %}"
        "{{ bos_token ~ eos_token }}{{ '>' if add_generation_prompt }}{{ strftime_now('%Y') }}";
    assert_int_equal(tmpl_parse(&t, source, sizeof source - 1, &st), ST_OK);
    const chat_message messages[] = {{"user", " hi\0there ", 10}, {"assistant", "yes", 3}};
    const chat_options open = {.add_generation_prompt = true, .now_unix_s = NOW}, closed = {.now_unix_s = 0};
    strbuf out;
    strbuf_init(&out, 0);
    for (int i = 0; i < 2; i++) {
        strbuf_clear(&out);
        assert_int_equal(render_chat(t, messages, 2, &open, &out, &st), ST_OK);
        assert_int_equal(out.n_bytes, 35);
        assert_memory_equal(out.data, "[user:hi\0there][assistant:yes]>2024", 35);
    }
    strbuf_clear(&out);
    assert_int_equal(render_chat(t, messages + 1, 1, &closed, &out, &st), ST_OK);
    assert_string_equal(out.data, "[assistant:yes]1970");
    strbuf_clear(&out);
    assert_int_equal(render_chat(t, NULL, 0, &closed, &out, &st), ST_OK);
    assert_string_equal(out.data, "1970");
    uint64_t before = mem_stats().bytes;
    strbuf fresh;
    strbuf_init(&fresh, 0);
    for (int n = 1; n < 200; n++) {
        mem_fail_after(n);
        int code = render_chat(t, messages, 2, &open, &fresh, &st);
        mem_fail_after(0);
        strbuf_deinit(&fresh);
        assert_int_equal(mem_stats().bytes, before);
        if (code == ST_OK) break;
        assert_int_equal(code, ST_NOMEM);
        assert_true(n < 100);
    }
    strbuf_deinit(&out);
    tmpl_free(t);
}

/* A template's text and, below each of its bytes, 1 where it is trusted. x is input: "ab<|Z|>", l the list of its halves,
 * m a dict of it, n an integer. */
static void origin(const char *source, const char *text, const char *mask)
{
    status st = STATUS_INIT;
    tmpl *t = NULL;
    strbuf out;
    text_ranges trusted = {0};
    strbuf_init(&out, 0);
    json_t *context = json_loads("{\"x\": \"ab<|Z|>\", \"l\": [\"ab<\", \"|Z|>\"], \"m\": {\"k\": \"v\", \"i\": 7}, "
                                 "\"n\": 42, \"lines\": \"p\\nq\\n\", \"f\": \"%s|{}\"}",
                                 0, NULL);
    tmpl_data *d = tmpl_data_new();
    assert_int_equal(tmpl_parse(&t, source, strlen(source), &st), ST_OK);
    int code = tmpl_render(t, d, json_data(d, context), NULL, &out, &trusted, &st);
    if (code) fail_msg("%s: %s", source, st.text);
    if (strcmp(strbuf_cstr(&out), text) != 0) fail_msg("%s: %s", source, strbuf_cstr(&out));
    char got[256] = {0};
    memset(got, '0', out.n_bytes);
    for (size_t i = 0; i < trusted.n; i++) memset(got + trusted.at[i].from, '1', trusted.at[i].to - trusted.at[i].from);
    if (strcmp(got, mask) != 0) fail_msg("%s: %s is %s, not %s", source, text, got, mask);
    text_ranges_deinit(&trusted);
    strbuf_deinit(&out);
    tmpl_data_free(d);
    tmpl_free(t);
    json_decref(context);
}

static void text_knows_where_it_is_from(void **state)
{
    (void)state;
    origin("<|Z|>{{ x }}<|Z|>", "<|Z|>ab<|Z|><|Z|>", "11111000000011111");
    /* operators */
    origin("{{ '<' + x + '>' }}", "<ab<|Z|>>", "100000001");
    origin("{{ '<' ~ x ~ n ~ 1 ~ none }}", "<ab<|Z|>421None", "100000000011111");
    origin("{{ ('-' + x) * 2 }}", "-ab<|Z|>-ab<|Z|>", "1000000010000000");
    origin("{{ '<%s|%4d%%>' % (x, n) }}", "<ab<|Z|>|  42%>", "100000001110011");
    origin("{{ f % 'in' }}", "in|{}", "11000");
    origin("{{ n + 1 }} {{ 1 + 1 }} {{ -n }}", "43 2 -42", "00111000");
    /* slices and members */
    origin("{{ ('<<' + x)[1:4] }}", "<ab", "100");
    origin("{{ ('<<' + x)[::-1] }}", ">|Z|<ba<<", "000000011");
    origin("{{ ('<' + x)[1] }}{{ ('<' + x)[0] }}{{ x[-1] }}", "a<>", "010");
    origin("{{ m.k }}{{ m['i'] }}", "v7", "00");
    origin("{{ m }}", "{'k': 'v', 'i': 7}", "110111101111011101");
    /* loops, macros, blocks, variables */
    origin("{% for c in '<' + x %}{{ c }}.{% endfor %}", "<.a.b.<.|.Z.|.>.", "1101010101010101");
    origin("{% for k, v in m.items() %}{{ k }}={{ v }}{{ loop.index }};{% endfor %}", "k=v1;i=72;", "0101101011");
    origin("{% macro q(t) %}<{{ t }}>{% endmacro %}{{ q(x[:2]) }}", "<ab>", "1001");
    origin("{% set y %}<{{ x[:2] }}{% endset %}{{ y }}", "<ab", "100");
    origin("{% set ns = namespace(t='<') %}{% set ns.t = ns.t + x[:2] %}{{ ns.t }}", "<ab", "100");
    origin("{% filter upper %}<b{{ x[:2] }}{% endfilter %}", "<BAB", "1100");
    origin("{% generation %}<{{ x[:2] }}{% endgeneration %}", "<ab", "100");
    origin("{{ x if x else '' }}{{ nothing | default('<') }}{{ '' or x[:1] }}", "ab<|Z|><a", "000000010");
    /* filters */
    origin("{{ ('q' + x) | upper }}", "QAB<|Z|>", "10000000");
    origin("{{ ('Q' + x) | lower }}", "qab<|z|>", "10000000");
    origin("{{ (x + 'Q') | capitalize }}", "Ab<|z|>q", "00000001");
    origin("{{ (x[:2] + ' q') | title }}", "Ab Q", "0011");
    origin("{{ (' ' + x + ' ') | trim }}", "ab<|Z|>", "0000000");
    origin("{{ ('<' + x) | replace('a', '!') }}", "<!b<|Z|>", "11000000");
    origin("{{ 'a-b' | replace('-', x) }}", "aab<|Z|>b", "100000001");
    origin("{{ 'ab' | replace('', x[0]) }}", "aaaba", "01010");
    origin("{{ l | join('-') }}", "ab<-|Z|>", "00010000");
    origin("{{ ['<', '>'] | join(x[:2]) }}", "<ab>", "1001");
    origin("{{ x | list | join }}{{ x | first }}{{ '<' ~ x | last }}", "ab<|Z|>a<>", "0000000010");
    origin("{{ ('<' + x) | reverse }}", ">|Z|<ba<", "00000001");
    origin("{{ ('<\n' + x[:1] + '\n') | indent(2, true) }}", "  <\n  a\n", "11111101");
    origin("{{ lines | indent(x[:1]) }}", "p\naq\n", "01001");
    origin("{{ ('<' + x) | escape }}", "&lt;ab&lt;|Z|&gt;", "11110000000000000");
    origin("{{ ('<' + x[:2]) | safe }}", "<ab", "100");
    origin("{{ ('<' + x) | string | tojson }}", "\"<ab<|Z|>\"", "1100000001");
    origin("{{ [x, '<', n, none, lines] | tojson }}", "[\"ab<|Z|>\", \"<\", 42, null, \"p\\nq\\n\"]",
           "11000000011111111001111111110000001"
           "1");
    origin("{{ m | tojson }}", "{\"k\": \"v\", \"i\": 7}", "110111101111011101");
    origin("{{ m | tojson(separators=(x[:1], '=')) }}", "{\"k\"=\"v\"a\"i\"=7}", "110111010101101");
    origin("{{ '<%s>' | format(x[:2]) }}", "<ab>", "1001");
    origin("{{ '12' | int }} {{ '4' ~ n | int }} {{ n | float }} {{ n | abs }}", "12 442 42.0 42", "11110010000100");
    origin("{{ m | dictsort | join(',') }}", "('i', 7),('k', 'v')", "1101110111101111011");
    origin("{{ m.keys() | list }}{{ m.values() | sum(start=0) if false }}", "['k', 'i']", "1101111011");
    origin("{{ l | map('upper') | join }}{{ l | sort | first }}", "AB<|Z|>ab<", "0000000000");
    origin("{{ [x[:1], 'a'] | unique | join }}{{ ['a', x[:1]] | unique | join }}", "aa", "01");
    origin("{{ l | length }}{{ l | select('string') | list | length }}{{ x | wordcount }}", "222", "111");
    origin("{{ (m | tojson) | from_json }}{{ ('[1, ' ~ n ~ ', \"<' ~ x[0] ~ '\"]') | from_json | join }}",
           "{'k': 'v', 'i': 7}142<a", "11011110111101110110010");
    origin("{{ ('<' | safe) + x[:1] + '<' }}{{ (x[:1] | safe) + '<' }}", "<a&lt;a&lt;", "10111101111");
    /* methods */
    origin("{{ ('q' + x).upper() }}{{ ('Q' + x[:1]).lower() }}", "QAB<|Z|>qa", "1000000010");
    origin("{{ (x[:2] + 'Q').capitalize() }}{{ (x[:2] + ' q').title() }}", "AbqAb Q", "0010011");
    origin("{{ ('-' + x + '-').strip('-') }}{{ ('-' + x[:1]).lstrip('a') }}", "ab<|Z|>-a", "000000010");
    origin("{{ ('<' + x).replace('<', '(') }}", "(ab(|Z|>", "10010000");
    origin("{{ ('<,' + x).split(',') | join('') }}", "<ab<|Z|>", "10000000");
    origin("{{ ('< ' + x).split() | join('') }}{{ ('<,' + x[:2]).rsplit(',', 1)[1] }}", "<ab<|Z|>ab", "1000000000");
    origin("{{ ('<\n' + lines).splitlines() | join('') }}", "<pq", "100");
    origin("{{ ('<-' + x[:1]).partition('-') | join('') }}", "<-a", "110");
    origin("{{ ('<' + x).removeprefix('<') }}{{ ('<' + x).removesuffix('|>') }}", "ab<|Z|><ab<|Z", "0000000100000");
    origin("{{ '-'.join(l) }}{{ '<{}>{a}'.format(x[:1], a=n) }}", "ab<-|Z|><a>42", "0001000010100");
    origin("{{ f.format('in') }}", "%s|in", "00011");
    origin("{{ m.get('k') }}{{ m.get('z', '<') }}", "v<", "01");
    origin("{{ dict(a=x[:1]).a }}{{ {'<': 1}.keys() | first }}", "a<", "01");
    origin("{{ strftime_now('%Y') }}", "1970", "1111");
}

static void values_are_never_changed(void **state)
{
    (void)state;
    tmpl *t = NULL;
    status st = STATUS_INIT;
    strbuf out;
    strbuf_init(&out, 0);
    static const char *const sources[] = {"{{ x.append(1) }}",
                                          "{{ d.update(a=1) }}",
                                          "{{ x.pop() }}",
                                          "{{ d.setdefault('q', 1) }}",
                                          "{% set l = [1] %}{{ l.append(2) }}",
                                          "{% set e = {} %}{{ e.update(a=1) }}"};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        tmpl_data *d = tmpl_data_new();
        tmpl_value *root = tmpl_map(d), *x = tmpl_list(d);
        tmpl_list_add(d, x, tmpl_float(d, 0.5));
        tmpl_map_set(d, root, "x", x);
        tmpl_map_set(d, root, "d", tmpl_map(d));
        assert_int_equal(tmpl_parse(&t, sources[i], strlen(sources[i]), &st), ST_OK);
        assert_int_equal(tmpl_render(t, d, root, NULL, &out, NULL, &st), ST_ARG);
        tmpl_free(t);
        assert_int_equal(tmpl_parse(&t, "{{ x }}{{ d }}", 14, &st), ST_OK);
        assert_int_equal(tmpl_render(t, d, root, NULL, &out, NULL, &st), ST_OK);
        assert_string_equal(out.data, "[0.5]{}");
        strbuf_clear(&out);
        tmpl_free(t);
        tmpl_data_free(d);
    }
    strbuf_deinit(&out);
}

static void maps_of_any_size_find_their_keys(void **state)
{
    (void)state;
    status st = STATUS_INIT;
    strbuf out, source;
    strbuf_init(&out, 0);
    strbuf_init(&source, 0);
    strbuf_puts(&source, "{% set d = {");
    for (int i = 0; i < 1000; i++) strbuf_printf(&source, "%d: %d, '%d': %d, ", i, i * i, i, i);
    strbuf_puts(&source,
                "} %}{% for i in range(0, 1000, 7) %}{% if d[i] != i * i or d[i|string] != i or d[i * 1.0] != i * i %}"
                "bad{% endif %}{% endfor %}{{ d|length }},{{ 1000 in d }},{{ 8 in d }},{{ '7' in d }}");
    assert_int_equal(render_text(strbuf_cstr(&source), NULL, &out, &st), ST_OK);
    assert_string_equal(out.data, "2000,False,True,True");
    strbuf_deinit(&source);
    strbuf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_jinja_renders),
        cmocka_unit_test(conversations_in_models_styles),
        cmocka_unit_test(errors_name_line_and_construct),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(a_long_source_is_refused),
        cmocka_unit_test(bytes_pass_through),
        cmocka_unit_test(short_memory_is_reported),
        cmocka_unit_test(one_template_renders_again_and_again),
        cmocka_unit_test(text_knows_where_it_is_from),
        cmocka_unit_test(values_are_never_changed),
        cmocka_unit_test(maps_of_any_size_find_their_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
