#include "fetch/model_dir.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "base/strbuf.h"

static int take(char **out, strbuf *b, status *st)
{
    int failed = strbuf_check(b, st);
    if (!failed) *out = strbuf_take(b, NULL);
    strbuf_deinit(b);
    return failed;
}

int model_dir(char **out, status *st)
{
    const char *own = getenv("KVASIR_MODELS"), *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    strbuf b;
    strbuf_init(&b, 0);
    if (own && *own) strbuf_puts(&b, own);
    else if (data && *data == '/') strbuf_printf(&b, "%s/kvasir/models", data);
    else if (home && *home) strbuf_printf(&b, "%s/.local/share/kvasir/models", home);
    else {
        strbuf_deinit(&b);
        return status_set(st, ST_NOT_FOUND, STATUS_NO_POS,
                          "neither KVASIR_MODELS nor HOME says where models live; set KVASIR_MODELS to a directory");
    }
    return take(out, &b, st);
}

int model_dir_create(char **out, status *st)
{
    char *dir = NULL;
    if (model_dir(&dir, st)) return st->code;
    char *absolute = directory_create(dir, 0777) ? realpath(dir, NULL) : NULL;
    if (!absolute)
        status_set(st, ST_IO, STATUS_NO_POS, "the model directory %s can't be made: %s; KVASIR_MODELS may name another",
                   dir, strerror(errno));
    else if (!(*out = mem_strdup(absolute))) status_nomem(st, strlen(absolute) + 1);
    free(absolute); /* realpath's own malloc */
    mem_free(dir);
    return st->code;
}

bool model_name_valid(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n > 200 || name[0] == '.' || name[0] == '-') return false;
    for (const char *c = name; *c; c++)
        if (*c == '/' || (unsigned char)*c < 0x20 || *c == 0x7f) return false;
    return true;
}

int model_file(char **out, const char *dir, const char *prefix, const char *name, const char *suffix, status *st)
{
    strbuf b;
    strbuf_init(&b, 0);
    strbuf_printf(&b, "%s/%s%s%s", dir, prefix, name, suffix);
    return take(out, &b, st);
}

static const char suffix[] = ".gguf";

static size_t without_suffix(const char *file)
{
    size_t n = strlen(file), s = sizeof suffix - 1;
    return n > s && strcasecmp(file + n - s, suffix) == 0 ? n - s : n;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const model_info *)a)->name, ((const model_info *)b)->name);
}

/* Appends the entry if it is a model; false when memory is short. */
static bool add_entry(model_info **list, int *n, int dir_fd, const char *file)
{
    struct stat info;
    size_t length = strlen(file), s = sizeof suffix - 1;
    if (length <= s || strcmp(file + length - s, suffix) != 0) return true;
    if (fstatat(dir_fd, file, &info, 0) != 0 || !S_ISREG(info.st_mode)) return true;
    char *name = mem_strndup(file, length - s);
    if (!name) return false;
    if (!model_name_valid(name)) {
        mem_free(name);
        return true;
    }
    model_info *larger = mem_resize(*list, (size_t)*n + 1, sizeof **list);
    if (!larger) {
        mem_free(name);
        return false;
    }
    *list = larger;
    larger[(*n)++] = (model_info){name, (uint64_t)info.st_size, info.st_mtime};
    return true;
}

int model_list(model_info **out, int *n, const char *dir, status *st)
{
    *out = NULL;
    *n = 0;
    DIR *d = opendir(dir);
    if (!d && errno == ENOENT) return ST_OK;
    if (!d)
        return status_set(st, ST_IO, STATUS_NO_POS, "the model directory %s can't be read: %s", dir, strerror(errno));
    bool ok = true;
    for (struct dirent *e; ok && (e = readdir(d));) ok = add_entry(out, n, dirfd(d), e->d_name);
    closedir(d);
    if (!ok) {
        model_list_free(*out, *n);
        *out = NULL;
        *n = 0;
        return status_nomem(st, sizeof(model_info));
    }
    if (*n > 0) qsort(*out, (size_t)*n, sizeof **out, by_name);
    return ST_OK;
}

void model_list_free(model_info *list, int n)
{
    for (int i = 0; i < n; i++) mem_free(list[i].name);
    mem_free(list);
}

static bool is_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

/* Fills st for a name that is neither a model nor a file: what to pull, or what was perhaps meant. */
static int no_such_model(const char *name, const char *dir, status *st)
{
    char shown[128];
    snprintf(shown, sizeof shown, "%.*s", (int)without_suffix(name), name);
    if (catalogue_find(shown))
        return status_set(st, ST_NOT_FOUND, STATUS_NO_POS, "%s is not here yet; 'kvasir pull %s' brings it", shown,
                          shown);
    model_info *list = NULL;
    int n = 0;
    nearest near;
    nearest_init(&near, shown);
    for (const catalogue_entry *e = catalogue; e->name; e++) nearest_offer(&near, e->name);
    if (model_list(&list, &n, dir, st)) return st->code;
    for (int i = 0; i < n; i++) nearest_offer(&near, list[i].name);
    if (near.best)
        status_set(st, ST_NOT_FOUND, STATUS_NO_POS, "there is no model or file '%s'; did you mean '%s'?", name,
                   near.best);
    else
        status_set(st, ST_NOT_FOUND, STATUS_NO_POS, "there is no model or file '%s'; 'kvasir ls' lists the models",
                   name);
    model_list_free(list, n);
    return st->code;
}

int model_path(char **out, const char *name, status *st)
{
    bool names_file = without_suffix(name) < strlen(name) && is_file(name);
    if (!strchr(name, '/') && model_name_valid(name) && !names_file) {
        char *dir = NULL, *path = NULL, stem[256];
        snprintf(stem, sizeof stem, "%.*s", (int)without_suffix(name), name);
        if (model_dir(&dir, st)) return st->code;
        int failed = model_file(&path, dir, "", stem, suffix, st);
        bool found = !failed && is_file(path);
        if (!failed && !found && access(name, F_OK) != 0) failed = no_such_model(name, dir, st);
        mem_free(dir);
        if (found) *out = path;
        else mem_free(path);
        if (found || failed) return failed;
    }
    *out = mem_strdup(name);
    return *out ? ST_OK : status_nomem(st, strlen(name) + 1);
}

bool model_in_dir(char **dir, char **name, const char *path)
{
    status ignored = STATUS_INIT;
    char *of_path = NULL, *own = NULL;
    const char *file = strrchr(path, '/');
    size_t n = file ? strlen(++file) : 0, s = sizeof suffix - 1;
    if (n > s && strcmp(file + n - s, suffix) == 0 && !model_dir(&own, &ignored) &&
        strlen(own) + n + 1 == strlen(path) && strncmp(path, own, strlen(own)) == 0)
        of_path = mem_strndup(file, n - s);
    bool inside = of_path && model_name_valid(of_path);
    if (inside) {
        *dir = own;
        *name = of_path;
    } else {
        mem_free(own);
        mem_free(of_path);
    }
    return inside;
}
