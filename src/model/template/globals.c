#include <stdio.h>
#include <string.h>
#include <time.h>

#include "model/template/interp.h"

/* Functions that every template may call by name. */

static int global_dict(interp *in, value self, const builtin_args *args, value *out)
{
    (void)self;
    return interp_map(in, out) ? in->code : map_fill(in, args->all, out->map);
}

static int global_namespace(interp *in, value self, const builtin_args *args, value *out)
{
    if (global_dict(in, self, args, out)) return in->code;
    out->kind = V_NAMESPACE;
    return ST_OK;
}

#define RANGE_MAX 100000 /* as Jinja's sandbox */

static int global_range(interp *in, value self, const builtin_args *args, value *out)
{
    (void)self;
    int64_t given[3] = {0, 0, 1}, n;
    const value *arg = args->arg;
    for (int i = 0; i < 3; i++)
        if (arg[i].kind != V_ABSENT && to_integer(in, arg[i], &given[i])) return in->code;
    int64_t start = given[0], stop = given[1], step = given[2];
    if (arg[1].kind == V_ABSENT) start = 0, stop = given[0];
    if (step == 0) return interp_fail(in, ST_ARG, "range with a step of zero");
    if (__builtin_sub_overflow(step > 0 ? stop : start, step > 0 ? start : stop, &n) || step == INT64_MIN)
        return interp_fail(in, ST_LIMIT, "a range has at most %d items", RANGE_MAX);
    int64_t width = step > 0 ? step : -step;
    n = n <= 0 ? 0 : (n - 1) / width + 1;
    if (n > RANGE_MAX) return interp_fail(in, ST_LIMIT, "a range has at most %d items", RANGE_MAX);
    if (interp_spend(in, (uint64_t)n / 8) || interp_list(in, LIST_RANGE, (size_t)n, out)) return in->code;
    for (int64_t i = 0; i < n; i++) interp_push(in, out->list, value_int(start + i * step));
    text t = {0};
    value label;
    text_puts(in, &t, "range(");
    text_repr(in, &t, value_int(start));
    text_puts(in, &t, ", ");
    text_repr(in, &t, value_int(stop));
    if (step != 1) {
        text_puts(in, &t, ", ");
        text_repr(in, &t, value_int(step));
    }
    text_bytes(in, &t, ")", 2, true); /* with its NUL: labels are C strings */
    text_done(in, &t, &label);
    out->list->label = label.s;
    return in->code;
}

/* One directive of strftime; false when it is not one of ours. */
static bool time_field(const struct tm *t, char c, bool bare, char *s, size_t n)
{
    static const char *const days[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
    static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                         "July",    "August",   "September", "October", "November", "December"};
    int hour12 = t->tm_hour % 12 ? t->tm_hour % 12 : 12, year = t->tm_year + 1900;
    const char *two = bare ? "%d" : "%02d", *three = bare ? "%d" : "%03d";
    switch (c) {
    case 'Y': return snprintf(s, n, "%d", year) > 0;
    case 'y': return snprintf(s, n, two, year % 100) > 0;
    case 'm': return snprintf(s, n, two, t->tm_mon + 1) > 0;
    case 'd': return snprintf(s, n, two, t->tm_mday) > 0;
    case 'H': return snprintf(s, n, two, t->tm_hour) > 0;
    case 'I': return snprintf(s, n, two, hour12) > 0;
    case 'M': return snprintf(s, n, two, t->tm_min) > 0;
    case 'S': return snprintf(s, n, two, t->tm_sec) > 0;
    case 'j': return snprintf(s, n, three, t->tm_yday + 1) > 0;
    case 'A': return snprintf(s, n, "%s", days[t->tm_wday]) > 0;
    case 'a': return snprintf(s, n, "%.3s", days[t->tm_wday]) > 0;
    case 'B': return snprintf(s, n, "%s", months[t->tm_mon]) > 0;
    case 'b': return snprintf(s, n, "%.3s", months[t->tm_mon]) > 0;
    case 'p': return snprintf(s, n, "%s", t->tm_hour < 12 ? "AM" : "PM") > 0;
    case 'e': return snprintf(s, n, "%2d", t->tm_mday) > 0;
    case 'F': return snprintf(s, n, "%d-%02d-%02d", year, t->tm_mon + 1, t->tm_mday) > 0;
    case 'T': return snprintf(s, n, "%02d:%02d:%02d", t->tm_hour, t->tm_min, t->tm_sec) > 0;
    case '%': return snprintf(s, n, "%%") > 0;
    default: return false;
    }
}

/* In English and UTC, whatever the process's locale and zone. */
static int global_strftime(interp *in, value self, const builtin_args *args, value *out)
{
    (void)self;
    value format = args->arg[0];
    time_t now = (time_t)in->limits.now_unix_s;
    struct tm t;
    text made = {0};
    if (format.kind != V_STRING)
        return interp_fail(in, ST_ARG, "strftime_now needs a string, not %s", value_type(format));
    if (!gmtime_r(&now, &t)) return interp_fail(in, ST_ARG, "the present time is out of range");
    for (size_t i = 0; i < format.n && !interp_spend(in, 1); i++) {
        char field[64];
        if (format.s[i] != '%') {
            text_add(in, &made, value_slice(format, i, 1));
            continue;
        }
        bool bare = i + 1 < format.n && format.s[i + 1] == '-';
        i += 1 + (size_t)bare;
        if (i >= format.n || !time_field(&t, format.s[i], bare, field, sizeof field))
            return interp_fail(in, ST_UNSUPPORTED, "strftime_now: the format '%%%c' is not supported",
                               i < format.n ? format.s[i] : ' ');
        text_puts(in, &made, field);
    }
    return text_done(in, &made, out);
}

static int global_raise(interp *in, value self, const builtin_args *args, value *out)
{
    (void)self;
    (void)out;
    value message;
    if (to_string(in, args->arg[0], &message)) return in->code;
    int n = message.n < 490 ? (int)message.n : 490;
    return in->code = status_set(in->st, ST_ARG, (uint64_t)in->line, "%.*s", n, message.s);
}

const builtin global_functions[] = {
    {"namespace", NULL, 0, global_namespace},
    {"dict", NULL, 0, global_dict},
    {"range", "start stop step", 1, global_range},
    {"raise_exception", "message", 1, global_raise},
    {"strftime_now", "format", 1, global_strftime},
    {"lipsum", NULL, 0, method_missing},
    {"cycler", NULL, 0, method_missing},
    {"joiner", NULL, 0, method_missing},
    {NULL, NULL, 0, NULL},
};
