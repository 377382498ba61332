#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/strbuf.h"
#include "cli/cli.h"
#include "fetch/model_dir.h"
#include "fetch/progress.h"

typedef struct listing {
    char *dir;
    model_info *models;
    int n;
} listing;

static bool is_here(const listing *l, const char *name)
{
    for (int i = 0; i < l->n; i++)
        if (strcmp(l->models[i].name, name) == 0) return true;
    return false;
}

static void put_table(strbuf *b, const listing *l)
{
    char size[BYTES_TEXT], day[16];
    size_t width = 4;
    for (int i = 0; i < l->n; i++) width = strlen(l->models[i].name) > width ? strlen(l->models[i].name) : width;
    for (const catalogue_entry *e = catalogue; e->name; e++) width = strlen(e->name) > width ? strlen(e->name) : width;
    strbuf_printf(b, "%-*s  %10s  %s\n", (int)width, "NAME", "SIZE", "SINCE");
    for (int i = 0; i < l->n; i++) {
        struct tm t;
        const model_info *m = &l->models[i];
        bool dated = localtime_r(&m->modified, &t) && strftime(day, sizeof day, "%Y-%m-%d", &t) > 0;
        strbuf_printf(b, "%-*s  %10s  %s\n", (int)width, m->name, bytes_text(size, m->n_bytes), dated ? day : "?");
    }
    for (const catalogue_entry *e = catalogue; e->name; e++)
        if (!is_here(l, e->name))
            strbuf_printf(b, "%-*s  %10s  not pulled\n", (int)width, e->name, bytes_text(size, e->n_bytes));
}

static void put_json(strbuf *b, const listing *l)
{
    strbuf_puts(b, "{\"directory\": ");
    strbuf_json(b, l->dir, strlen(l->dir));
    strbuf_puts(b, ", \"models\": [");
    for (int i = 0; i < l->n; i++) {
        const model_info *m = &l->models[i];
        strbuf_puts(b, i ? ", {\"name\": " : "{\"name\": ");
        strbuf_json(b, m->name, strlen(m->name));
        strbuf_printf(b, ", \"bytes\": %llu, \"modified\": %lld}", (unsigned long long)m->n_bytes,
                      (long long)m->modified);
    }
    strbuf_puts(b, "], \"catalogue\": [");
    for (const catalogue_entry *e = catalogue; e->name; e++) {
        strbuf_puts(b, e == catalogue ? "{\"name\": " : ", {\"name\": ");
        strbuf_json(b, e->name, strlen(e->name));
        strbuf_puts(b, ", \"about\": ");
        strbuf_json(b, e->about, strlen(e->about));
        strbuf_printf(b, ", \"bytes\": %llu, \"sha256\": \"%s\", \"pulled\": %s}", (unsigned long long)e->n_bytes,
                      e->sha256, is_here(l, e->name) ? "true" : "false");
    }
    strbuf_puts(b, "]}\n");
}

static int run(const args *a, status *st)
{
    listing l = {.dir = NULL};
    strbuf b;
    strbuf_init(&b, 0);
    int rc = model_dir(&l.dir, st);
    if (!rc) rc = model_list(&l.models, &l.n, l.dir, st);
    if (!rc) {
        if (args_flag(a, "json")) put_json(&b, &l);
        else if (!args_flag(a, "names")) put_table(&b, &l);
        else
            for (int i = 0; i < l.n; i++) strbuf_printf(&b, "%s\n", l.models[i].name);
        rc = strbuf_check(&b, st);
    }
    if (!rc) fputs(strbuf_cstr(&b), stdout);
    strbuf_deinit(&b);
    model_list_free(l.models, l.n);
    mem_free(l.dir);
    return rc ? 1 : 0;
}

static const option_spec options[] = {
    {.name = "names", .excludes = "json", .kind = OPTION_FLAG,
     .help = "print only the names of the models that are here, one a line"},
    {.name = "json", .kind = OPTION_FLAG, .help = "print one JSON object: directory, models, catalogue"},
    {.name = NULL},
};

const command cmd_ls = {
    .name = "ls",
    .positional = "",
    .summary = "List the models that are here, and those of the catalogue",
    .details = "Examples:\n\n  kvasir ls\n  kvasir ls --json\n",
    .options = options,
    .run = run,
};
