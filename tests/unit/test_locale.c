/* A program around the library may have set a locale whose decimal point is a comma: texts stay as they are. Without such
 * a locale on the machine the test is skipped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <locale.h>
#include <string.h>

#include "model/template/template.h"

static bool comma_locale(void)
{
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "pl_PL.UTF-8", "ru_RU.UTF-8", "es_ES.UTF-8",
                                        "it_IT.UTF-8", "pt_BR.UTF-8", "nl_NL.UTF-8", "sv_SE.UTF-8", "de_DE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (setlocale(LC_ALL, names[i]) && strcmp(localeconv()->decimal_point, ",") == 0) return true;
    return false;
}

static void numbers_of_templates_keep_their_point(void **state)
{
    (void)state;
    if (!comma_locale()) {
        print_message("no locale with a decimal comma is installed (Debian's locales has de_DE.UTF-8)\n");
        skip();
    }
    static const char source[] = "{{ 1.5 + 0.25 }} {{ '%.2f' % 2.5 }} {{ 2.345|round(2) }} {{ '1.25'|float }} "
                                 "{{ [0.1, 1e21]|tojson }} {{ 1.5 }}";
    status st = STATUS_INIT;
    strbuf out;
    strbuf_init(&out, 0);
    tmpl *t = NULL;
    assert_int_equal(tmpl_parse(&t, source, strlen(source), &st), ST_OK);
    tmpl_data *d = tmpl_data_new();
    if (tmpl_render(t, d, tmpl_map(d), NULL, &out, NULL, &st)) fail_msg("%s", st.text);
    assert_string_equal(strbuf_cstr(&out), "1.75 2.50 2.35 1.25 [0.1, 1e+21] 1.5");
    tmpl_data_free(d);
    tmpl_free(t);
    strbuf_deinit(&out);
    setlocale(LC_ALL, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers_of_templates_keep_their_point)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
