#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/mem.h"
#include "fetch/fetch.h"
#include "fetch/interrupt.h"
#include "fetch/progress.h"

enum { REDIRECTS_MAX = 8, CONNECT_S = 30, STALL_S = 60, STALLED_TRIES = 3 };

typedef struct transfer {
    part_file *part;
    const char *url;
    http_result *result;
    CURL *curl;
    part_origin origin;   /* validator "" = the server gave none: no resuming */
    bool begun;           /* the answer's head was looked at */
    uint64_t total_bytes; /* of the whole file; 0 = unknown */
    progress bar;
    char error[CURL_ERROR_SIZE];
    status *st; /* code != ST_OK: our own failure, which curl only sees as a refused write */
} transfer;

const char *hub_endpoint(void)
{
    const char *own = getenv("HF_ENDPOINT");
    return own && *own ? own : "https://huggingface.co";
}

/* Scheme, host and port alike. */
static bool same_origin(const char *a, const char *b)
{
    static const CURLUPart parts[] = {CURLUPART_SCHEME, CURLUPART_HOST, CURLUPART_PORT};
    CURLU *ua = curl_url(), *ub = curl_url();
    bool same = ua && ub && curl_url_set(ua, CURLUPART_URL, a, 0) == CURLUE_OK &&
                curl_url_set(ub, CURLUPART_URL, b, 0) == CURLUE_OK;
    for (size_t i = 0; same && i < sizeof parts / sizeof parts[0]; i++) {
        char *pa = NULL, *pb = NULL;
        same = curl_url_get(ua, parts[i], &pa, CURLU_DEFAULT_PORT) == CURLUE_OK &&
               curl_url_get(ub, parts[i], &pb, CURLU_DEFAULT_PORT) == CURLUE_OK && strcasecmp(pa, pb) == 0;
        curl_free(pa);
        curl_free(pb);
    }
    curl_url_cleanup(ua);
    curl_url_cleanup(ub);
    return same;
}

/* The token that this URL may see, or NULL. */
static const char *token_for(const char *url)
{
    const char *token = getenv("HF_TOKEN");
    return token && *token && same_origin(url, hub_endpoint()) ? token : NULL;
}

/* Of the last answer, or with request >= 0 of that one in a chain of redirects; NULL when it has no such header. */
static const char *header(const transfer *t, const char *name, int request)
{
    struct curl_header *h = NULL;
    return curl_easy_header(t->curl, name, 0, CURLH_HEADER, request, &h) == CURLHE_OK ? h->value : NULL;
}

/* What If-Range may carry: a strong ETag, or a date. "" when the answer has neither. */
static const char *answer_validator(const transfer *t)
{
    const char *etag = header(t, "ETag", -1), *date = header(t, "Last-Modified", -1);
    const char *v = etag && *etag == '"' ? etag : date;
    return v && strlen(v) < sizeof t->origin.validator ? v : "";
}

/* The hub's first answer, a redirect to its storage, has the file's SHA-256. */
static void read_linked_sha(transfer *t)
{
    for (int r = 0; r <= REDIRECTS_MAX; r++) {
        const char *v = header(t, "X-Linked-Etag", r);
        if (!v) continue;
        v += *v == '"';
        if (strspn(v, "0123456789abcdef") == SHA256_HEX - 1) snprintf(t->result->sha256, SHA256_HEX, "%s", v);
    }
}

/* 206: the bytes must go on where the part ends, and be of the same version. A server that got this wrong is asked
 * again (ST_TIMEOUT), for the whole file. */
static int begin_range(transfer *t)
{
    const char *range = header(t, "Content-Range", -1), *validator = answer_validator(t);
    unsigned long long first = 0, last = 0, total = 0;
    bool fits = range && sscanf(range, "bytes %llu-%llu/%llu", &first, &last, &total) == 3 &&
                first == t->part->n_bytes && total > last;
    if (!fits || (*validator && strcmp(validator, t->origin.validator) != 0)) {
        if (part_restart(t->part, t->st)) return t->st->code;
        return status_set(t->st, ST_TIMEOUT, STATUS_NO_POS, "the server does not resume downloads as it should");
    }
    t->total_bytes = total;
    return ST_OK;
}

static int begin_whole(transfer *t)
{
    curl_off_t length = -1;
    curl_easy_getinfo(t->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    t->total_bytes = length > 0 ? (uint64_t)length : 0;
    if (part_restart(t->part, t->st)) return t->st->code;
    snprintf(t->origin.validator, sizeof t->origin.validator, "%s", answer_validator(t));
    return *t->origin.validator ? part_origin_write(t->part, &t->origin, t->st) : ST_OK;
}

static int begin_answer(transfer *t, long code)
{
    t->begun = true;
    read_linked_sha(t);
    if (code == 206 ? begin_range(t) : begin_whole(t)) return t->st->code;
    if (t->total_bytes > t->part->n_bytes && part_check_room(t->part, t->total_bytes - t->part->n_bytes, t->st))
        return t->st->code;
    progress_begin(&t->bar, t->part->name, t->total_bytes, "B");
    t->bar.first = t->part->n_bytes;
    return ST_OK;
}

static long answer_code(const transfer *t)
{
    long code = 0;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &code);
    return code;
}

static size_t on_body(char *data, size_t size, size_t n, void *user)
{
    transfer *t = user;
    long code = answer_code(t);
    if (code != 200 && code != 206) return CURL_WRITEFUNC_ERROR; /* an error's text: the code says it all */
    if (!t->begun && begin_answer(t, code)) return CURL_WRITEFUNC_ERROR;
    if (part_write(t->part, data, size * n, t->st)) return CURL_WRITEFUNC_ERROR;
    progress_update(&t->bar, t->part->n_bytes);
    return size * n;
}

static int on_tick(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void)a, (void)b, (void)c, (void)d;
    transfer *t = user;
    if (t->begun && !t->st->code)
        progress_update(&t->bar, t->part->n_bytes); /* a rate that falls while nothing comes */
    return interrupt_pending();
}

/* The options that hold for every attempt; NULL when memory is short. */
static CURL *new_handle(transfer *t)
{
    CURL *c = curl_easy_init();
    if (!c) return NULL;
    const char *protocols = strncasecmp(t->url, "https:", 6) == 0 ? "https" : "http,https";
    bool ok = curl_easy_setopt(c, CURLOPT_URL, t->url) == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, protocols) == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, protocols) == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_USERAGENT, "kvasir/" KVASIR_VERSION) == CURLE_OK;
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(c, CURLOPT_MAXREDIRS, (long)REDIRECTS_MAX);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)STALL_S);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_tick);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, t);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, t->error);
    const char *token = token_for(t->url);
    if (token) { /* as a bearer curl keeps it from other hosts and ports that a redirect names */
        curl_easy_setopt(c, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        ok = ok && curl_easy_setopt(c, CURLOPT_XOAUTH2_BEARER, token) == CURLE_OK;
    }
    if (!ok) curl_easy_cleanup(c);
    return ok ? c : NULL;
}

/* One request, with a range if the part has bytes. */
static CURLcode attempt(transfer *t)
{
    struct curl_slist *headers = NULL;
    char line[300], range[32];
    if (t->part->n_bytes > 0) {
        snprintf(line, sizeof line, "If-Range: %s", t->origin.validator);
        snprintf(range, sizeof range, "%llu-", (unsigned long long)t->part->n_bytes);
        if (!(headers = curl_slist_append(NULL, line))) return CURLE_OUT_OF_MEMORY;
    }
    curl_easy_setopt(t->curl, CURLOPT_HTTPHEADER, headers);
    CURLcode rc = curl_easy_setopt(t->curl, CURLOPT_RANGE, headers ? range : NULL);
    t->begun = false;
    t->error[0] = 0;
    if (rc == CURLE_OK) rc = curl_easy_perform(t->curl);
    if (t->begun) progress_end(&t->bar);
    curl_easy_setopt(t->curl, CURLOPT_HTTPHEADER, NULL);
    curl_slist_free_all(headers);
    return rc;
}

static int login_needed(const transfer *t, long code, status *st)
{
    if (token_for(t->url))
        return status_set(st, ST_IO, STATUS_NO_POS,
                          "the server refused HF_TOKEN (HTTP %ld): check the token, that its account may read this "
                          "repository and has accepted the model's terms",
                          code);
    if (same_origin(t->url, hub_endpoint()))
        return status_set(st, ST_IO, STATUS_NO_POS,
                          "the hub wants a login, or there is no such repository (HTTP %ld): check the name, or set "
                          "HF_TOKEN to an access token",
                          code);
    return status_set(st, ST_IO, STATUS_NO_POS, "the server wants a login (HTTP %ld), which a plain download has not",
                      code);
}

static int answer_failed(const transfer *t, long code, status *st)
{
    if (code == 401 || code == 403) return login_needed(t, code, st);
    if (code == 404 || code == 410)
        return status_set(st, ST_NOT_FOUND, STATUS_NO_POS,
                          "the server has no such file (HTTP %ld): check the address, letter case included", code);
    if (code == 429 || code >= 500)
        return status_set(st, ST_IO, STATUS_NO_POS, "the server can't answer now (HTTP %ld): try again later", code);
    return status_set(st, ST_IO, STATUS_NO_POS, "the server answered HTTP %ld instead of the file", code);
}

static bool may_pass(CURLcode rc)
{
    return rc == CURLE_PARTIAL_FILE || rc == CURLE_RECV_ERROR || rc == CURLE_SEND_ERROR || rc == CURLE_GOT_NOTHING ||
           rc == CURLE_OPERATION_TIMEDOUT || rc == CURLE_HTTP2_STREAM || rc == CURLE_HTTP2;
}

static int transport_failed(const transfer *t, CURLcode rc, status *st)
{
    char have[BYTES_TEXT];
    const char *why = *t->error ? t->error : curl_easy_strerror(rc);
    if (rc == CURLE_OUT_OF_MEMORY) return status_nomem(st, 0);
    if (rc == CURLE_TOO_MANY_REDIRECTS)
        return status_set(st, ST_IO, STATUS_NO_POS, "the server redirects in a circle (more than %d times)",
                          REDIRECTS_MAX);
    if (rc == CURLE_UNSUPPORTED_PROTOCOL)
        return status_set(st, ST_IO, STATUS_NO_POS,
                          "the server redirects to an address that is neither https nor as safe as the one asked for");
    if (may_pass(rc) && t->part->n_bytes > 0)
        return status_set(st, ST_IO, STATUS_NO_POS, "the connection broke after %s (%s)%s",
                          bytes_text(have, t->part->n_bytes), why,
                          t->result->resumable ? ": the same command goes on from there" : "");
    return status_set(st, ST_IO, STATUS_NO_POS, "the download failed: %s", why);
}

/* One attempt and what it means: ST_OK done, ST_TIMEOUT worth another attempt, anything else final. */
static int step(transfer *t, status *st)
{
    CURLcode rc = attempt(t);
    long code = answer_code(t);
    t->result->resumable = *t->origin.validator && t->part->n_bytes > 0;
    if (interrupt_pending()) return interrupt_status(st);
    if (st->code) return st->code;             /* our own callback failed */
    if (code == 416 && t->part->n_bytes > 0) { /* the file is shorter than the part: it was another one */
        if (part_restart(t->part, st)) return st->code;
        return status_set(st, ST_TIMEOUT, STATUS_NO_POS, "the server refused to resume");
    }
    if (code >= 400 || (code >= 300 && rc == CURLE_OK)) return answer_failed(t, code, st);
    if (rc == CURLE_OK && !t->begun && begin_answer(t, code)) return st->code; /* an empty file */
    if (rc == CURLE_OK) return ST_OK;
    transport_failed(t, rc, st);
    if (may_pass(rc) && t->result->resumable) st->code = ST_TIMEOUT;
    return st->code;
}

int http_fetch(part_file *p, const char *url, http_result *r, status *st)
{
    transfer t = {.part = p, .url = url, .result = r, .st = st};
    *r = (http_result){.resumable = false};
    part_origin before;
    char source[SHA256_HEX];
    if (sha256_text(source, url, st)) return st->code;
    bool same = part_origin_read(p, &before) && strcmp(before.source, source) == 0;
    if (same) t.origin = before;
    else memcpy(t.origin.source, source, sizeof source);
    if (same ? part_resume(p, st) : part_restart(p, st)) {
        r->resumable = same && st->code == ST_CANCELLED;
        return st->code;
    }
    if (!(t.curl = new_handle(&t))) return status_nomem(st, 0);
    int rc;
    for (int stalled = 0;;) {
        uint64_t had = p->n_bytes;
        rc = step(&t, st);
        if (rc != ST_TIMEOUT) break;
        stalled = p->n_bytes > had ? 0 : stalled + 1;
        if (stalled == STALLED_TRIES) break;
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL); /* less if a signal comes */
        *st = (status)STATUS_INIT;
    }
    curl_easy_cleanup(t.curl);
    return rc;
}
