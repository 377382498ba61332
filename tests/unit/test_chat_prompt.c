/* A request's conversation as the template sees it. The template shows the messages as JSON, then what follows from
 * the case. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "serve/chat_prompt.h"

#define SHOW "{{ messages | tojson }}"

static const request_rules rules = {.n_vocab = 100};

/* One conversation through one template, for a model whose context holds 1,000 tokens of one byte. */
static int prompt_of(const char *template, const char *messages, strbuf *out, api_error *e)
{
    status st = STATUS_INIT;
    tmpl *t = NULL;
    model m = {0};
    text_ranges trusted = {0};
    served_model served = {.m = &m, .name = "test", .context = 1000, .longest_piece = 1};
    request r;
    strbuf body;
    strbuf_init(&body, 0);
    strbuf_printf(&body, "{\"messages\": %s}", messages);
    assert_int_equal(tmpl_parse(&t, template, strlen(template), &st), ST_OK);
    served.template = t;
    int rc = request_parse(&r, REQUEST_CHAT, &rules, strbuf_cstr(&body), body.n_bytes, e);
    if (rc == 0) rc = chat_prompt_text(&r, &served, out, &trusted, e);
    request_deinit(&r);
    text_ranges_deinit(&trusted);
    strbuf_deinit(&body);
    tmpl_free(t);
    return rc;
}

static void expect(const char *template, const char *messages, const char *text)
{
    strbuf out;
    api_error e = {0};
    strbuf_init(&out, 0);
    int rc = prompt_of(template, messages, &out, &e);
    assert_string_equal(e.message, "");
    assert_int_equal(rc, 0);
    assert_string_equal(strbuf_cstr(&out), text);
    strbuf_deinit(&out);
}

static void messages_reach_the_template_whole(void **state)
{
    (void)state;
    expect(SHOW, "[{\"role\": \"user\", \"content\": \"a\", \"name\": \"Jo\", \"n\": [1, 2.5, true]}]",
           "[{\"role\": \"user\", \"content\": \"a\", \"name\": \"Jo\", \"n\": [1, 2.5, true]}]");
    expect(SHOW, "[{\"role\": \"tool\", \"content\": \"4\", \"tool_call_id\": \"c1\"}]",
           "[{\"role\": \"tool\", \"content\": \"4\", \"tool_call_id\": \"c1\"}]");
    expect(SHOW, "[{\"role\": \"assistant\", \"content\": \"4\", \"reasoning_content\": \"2+2\"}]",
           "[{\"role\": \"assistant\", \"content\": \"4\", \"reasoning_content\": \"2+2\"}]");
    expect("{{ tools }} {{ documents }} {{ other is defined }}", "[{\"role\": \"user\", \"content\": \"a\"}]",
           "None None False");
}

static void parts_of_text_are_joined(void **state)
{
    (void)state;
    expect(SHOW,
           "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"text\", "
           "\"text\": \"b\\n\"}]}]",
           "[{\"role\": \"user\", \"content\": \"ab\\n\"}]");
}

static void none_stays_content_alone(void **state)
{
    (void)state;
    expect(SHOW, "[{\"role\": \"assistant\", \"content\": null, \"tool_calls\": null, \"refusal\": null}]",
           "[{\"role\": \"assistant\", \"content\": null}]");
    expect(SHOW, "[{\"role\": \"assistant\"}]", "[{\"role\": \"assistant\"}]");
    /* A template that joins it to text would fail. */
    expect("{% for m in messages %}{{ m.role + ':' + m.content + '.' }}{% endfor %}",
           "[{\"role\": \"assistant\", \"content\": null}]", "assistant:.");
}

static void arguments_become_objects(void **state)
{
    (void)state;
    static const char call[] =
        "[{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"c\", \"type\": "
        "\"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{\\\"x\\\": [1]}\"}}]}]";
    expect("{{ messages[0].tool_calls | tojson }}", call,
           "[{\"id\": \"c\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"x\": [1]}}}]");
    /* A template that takes them for text gets the text. */
    expect("{{ messages[0].tool_calls[0].function.name + messages[0].tool_calls[0].function.arguments }}", call,
           "f{\"x\": [1]}");
    expect("{{ messages[0].function_call | tojson }}",
           "[{\"role\": \"assistant\", \"function_call\": {\"name\": \"f\", \"arguments\": \"{}\"}}]",
           "{\"name\": \"f\", \"arguments\": {}}");
    /* What is no object stays as it is, malformed or not. */
    static const char *const texts[] = {"", "[1]", "{", "3", "null"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        strbuf messages, wanted;
        strbuf_init(&messages, 0);
        strbuf_init(&wanted, 0);
        strbuf_printf(&messages,
                      "[{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": "
                      "\"%s\"}}]}]",
                      texts[i]);
        strbuf_printf(&wanted, "[{\"function\": {\"name\": \"f\", \"arguments\": \"%s\"}}]", texts[i]);
        expect("{{ messages[0].tool_calls | tojson }}", messages.data, wanted.data);
        strbuf_deinit(&messages);
        strbuf_deinit(&wanted);
    }
}

static void developer_is_system_where_it_is_unknown(void **state)
{
    (void)state;
    expect("{{ messages[0].role }}", "[{\"role\": \"developer\", \"content\": \"a\"}]", "system");
}

/* Templates make control tokens of roles; of what else a message holds they make text. */
static void known_roles_are_trusted(void **state)
{
    (void)state;
    status st = STATUS_INIT;
    tmpl *t = NULL;
    static const char source[] = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}";
    const chat_message messages[] = {{"user", "a|>", 3}, {"x|><|user", "b", 1}};
    const chat_options plain = {.now_unix_s = 0}, old = {.parse_special = true};
    strbuf out;
    text_ranges trusted = {0};
    strbuf_init(&out, 0);
    tmpl_data *d = tmpl_data_new();
    tmpl_value *root = tmpl_map(d);
    tmpl_map_set(d, root, "messages", chat_messages(d, messages, 2));
    assert_int_equal(tmpl_parse(&t, source, sizeof source - 1, &st), ST_OK);
    assert_int_equal(chat_render(t, NULL, d, root, &plain, &out, &trusted, &st), ST_OK);
    assert_string_equal(out.data, "<|user|>a|><|x|><|user|>b");
    assert_int_equal(trusted.n, 3); /* <|user|>, <|, |> */
    assert_true(trusted.at[0].from == 0 && trusted.at[0].to == 8);
    assert_true(trusted.at[1].from == 11 && trusted.at[1].to == 13);
    assert_true(trusted.at[2].from == 22 && trusted.at[2].to == 24);
    assert_int_equal(chat_render(t, NULL, d, root, &old, &out, &trusted, &st), ST_OK);
    assert_int_equal(trusted.n, 4);
    assert_true(trusted.at[3].from == 25 && trusted.at[3].to == 50);
    strbuf_deinit(&out);
    text_ranges_deinit(&trusted);
    tmpl_data_free(d);
    tmpl_free(t);
}

static void refused(const char *template, const char *messages, const char *message)
{
    strbuf out;
    api_error e = {0};
    strbuf_init(&out, 0);
    assert_int_equal(prompt_of(template, messages, &out, &e), 400);
    assert_string_equal(e.param, "messages");
    assert_string_equal(e.message, message);
    assert_int_equal(out.n_bytes, 0);
    strbuf_deinit(&out);
}

static void what_is_too_much_is_refused(void **state)
{
    (void)state;
    strbuf b;
    strbuf_init(&b, 0);
    strbuf_puts(&b, "[{\"role\": \"user\", \"content\": \"\", \"x\": ");
    for (int i = 0; i < CHAT_MAX_DEPTH; i++) strbuf_putc(&b, '[');
    for (int i = 0; i < CHAT_MAX_DEPTH; i++) strbuf_putc(&b, ']');
    strbuf_puts(&b, "}]");
    refused(SHOW, b.data, "the conversation's values are nested too deep");
    strbuf_clear(&b);
    strbuf_puts(&b, "[{\"role\": \"user\", \"content\": \"\", \"x\": [0");
    for (int i = 0; i < CHAT_MAX_VALUES; i++) strbuf_puts(&b, ",0");
    strbuf_puts(&b, "]}]");
    refused(SHOW, b.data, "the conversation has too many values");
    strbuf_clear(&b);
    strbuf_puts(&b, "[{\"role\": \"user\", \"content\": \"");
    for (int i = 0; i < 1001; i++) strbuf_putc(&b, 'a');
    strbuf_puts(&b, "\"}]");
    refused(SHOW, b.data,
            "the prompt's 1001 bytes are more than 1001 tokens, but the context holds 1000; shorten the prompt");
    strbuf_deinit(&b);
    refused("{{ raise_exception('no') }}", "[{\"role\": \"assistant\", \"content\": null}]", "no");
}

static void failing_allocations(void **state)
{
    (void)state;
    uint64_t before = mem_stats().bytes;
    for (int n = 1;; n++) {
        strbuf out;
        api_error e = {0};
        strbuf_init(&out, 0);
        status st = STATUS_INIT;
        tmpl *t = NULL;
        model m = {0};
        request r;
        text_ranges trusted = {0};
        static const char body[] =
            "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"abc\"}]}, {\"role\": "
            "\"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"arguments\": \"{}\"}}]}]}";
        assert_int_equal(tmpl_parse(&t, SHOW, sizeof SHOW - 1, &st), ST_OK);
        served_model served = {.m = &m, .template = t, .name = "test", .context = 1000, .longest_piece = 1};
        assert_int_equal(request_parse(&r, REQUEST_CHAT, &rules, body, sizeof body - 1, &e), 0);
        mem_fail_after(n);
        int rc = chat_prompt_text(&r, &served, &out, &trusted, &e);
        mem_fail_after(0);
        strbuf_deinit(&out);
        text_ranges_deinit(&trusted);
        request_deinit(&r);
        tmpl_free(t);
        assert_int_equal(mem_stats().bytes, before);
        if (rc == 0) break;
        assert_int_equal(rc, 503);
        assert_true(n < 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_reach_the_template_whole),
        cmocka_unit_test(parts_of_text_are_joined),
        cmocka_unit_test(none_stays_content_alone),
        cmocka_unit_test(arguments_become_objects),
        cmocka_unit_test(developer_is_system_where_it_is_unknown),
        cmocka_unit_test(known_roles_are_trusted),
        cmocka_unit_test(what_is_too_much_is_refused),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
