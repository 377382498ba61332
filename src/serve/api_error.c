#include "serve/api_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int api_error_set(api_error *e, int http_status, const char *code, const char *param, const char *fmt, ...)
{
    *e = (api_error){.http_status = http_status, .code = code};
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->message, sizeof e->message, fmt, ap);
    va_end(ap);
    return http_status;
}

int api_error_from_status(api_error *e, const status *st)
{
    switch (st->code) {
    case ST_ARG:
    case ST_FORMAT:
    case ST_UNSUPPORTED:
    case ST_LIMIT: return api_error_set(e, 400, NULL, NULL, "%s", st->text);
    case ST_NOMEM: return api_error_set(e, 503, "out_of_memory", NULL, "%s", st->text);
    default: return api_error_set(e, 500, NULL, NULL, "%s", st->text);
    }
}

int api_error_nomem(api_error *e)
{
    return api_error_set(e, 503, "out_of_memory", NULL, "the server is out of memory; try again later");
}

static const char *type_of(int http_status)
{
    if (http_status == 401) return "authentication_error";
    if (http_status == 429) return "rate_limit_error";
    return http_status < 500 ? "invalid_request_error" : "server_error";
}

static void text_or_null(strbuf *out, const char *name, const char *text)
{
    strbuf_printf(out, ",\"%s\":", name);
    if (text && *text) strbuf_json(out, text, strlen(text));
    else strbuf_puts(out, "null");
}

void api_error_json(const api_error *e, strbuf *out)
{
    strbuf_puts(out, "{\"error\":{\"message\":");
    strbuf_json(out, e->message, strlen(e->message));
    text_or_null(out, "type", type_of(e->http_status));
    text_or_null(out, "param", e->param);
    text_or_null(out, "code", e->code);
    strbuf_puts(out, "}}");
}
