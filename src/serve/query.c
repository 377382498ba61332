/* What a request says beside its body: the parameters of its address, the encoding of what follows. The same rule as for
 * fields: obeyed, or refused by name. */
#include <string.h>
#include <strings.h>

#include "serve/http.h"

typedef struct query {
    const exchange *x;
    api_error *e;
    int rc;
} query;

static enum MHD_Result check_parameter(void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
    query *q = cls;
    (void)kind, (void)value;
    bool known = strcmp(name, "api-version") == 0 || /* OpenAI's clients for Azure add it to every address */
                 (strcmp(name, "audit") == 0 && q->x->route->handle == handle_kv);
    if (known) return MHD_YES;
    q->rc = api_error_set(q->e, 400, "unknown_parameter", name, "%s has no parameter '%.60s'%s", q->x->route->path,
                          name, q->x->route->handle == handle_kv ? "; there is audit" : "");
    return MHD_NO;
}

static const char *header(const exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

int query_check(const exchange *x, api_error *e)
{
    const char *coding = header(x, "Content-Encoding"), *type = header(x, "Content-Type");
    const char *charset = type ? strcasestr(type, "charset=") : NULL;
    if (coding && strcasecmp(coding, "identity") != 0)
        return api_error_set(e, 415, "unsupported_encoding", "Content-Encoding",
                             "bodies with Content-Encoding %.40s are not taken; send it as it is", coding);
    if (charset) charset += strlen("charset=") + (charset[strlen("charset=")] == '"');
    if (charset && strncasecmp(charset, "utf-8", 5) != 0 && strncasecmp(charset, "utf8", 4) != 0 &&
        strncasecmp(charset, "us-ascii", 8) != 0)
        return api_error_set(e, 415, "unsupported_encoding", "Content-Type",
                             "bodies are JSON in UTF-8; the charset %.40s is not taken", charset);
    query q = {x, e, 0};
    if (!x->route->open) MHD_get_connection_values(x->connection, MHD_GET_ARGUMENT_KIND, check_parameter, &q);
    return q.rc;
}

int query_flag(const exchange *x, const char *name, bool *out, api_error *e)
{
    const char *value = NULL;
    size_t n = 0;
    bool given =
        MHD_lookup_connection_value_n(x->connection, MHD_GET_ARGUMENT_KIND, name, strlen(name), &value, &n) == MHD_YES;
    *out = given && (!value || !*value || strcmp(value, "1") == 0 || strcmp(value, "true") == 0);
    if (!given || *out || strcmp(value, "0") == 0 || strcmp(value, "false") == 0) return 0;
    return api_error_set(e, 400, "invalid_value", name, "'%s' must be 1 or 0; got %.40s", name, value);
}
