#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/nearest.h"
#include "base/strbuf.h"
#include "cli/cli.h"
#include "fetch/model_dir.h"
#include "fetch/part_file.h"

static int no_such_model(const char *dir, const char *name, status *st)
{
    model_info *list = NULL;
    int n = 0;
    if (model_list(&list, &n, dir, st)) return st->code;
    nearest near;
    nearest_init(&near, name);
    for (int i = 0; i < n; i++) nearest_offer(&near, list[i].name);
    if (near.best)
        status_set(st, ST_NOT_FOUND, STATUS_NO_POS, "there is no model '%s' in %s; did you mean '%s'?", name, dir,
                   near.best);
    else status_set(st, ST_NOT_FOUND, STATUS_NO_POS, "there is no model '%s' in %s", name, dir);
    model_list_free(list, n);
    return st->code;
}

/* Is there a model, or the remains of an interrupted pull? */
static int check(const char *dir, const char *name, status *st)
{
    if (!model_name_valid(name))
        return status_set(st, ST_ARG, STATUS_NO_POS,
                          "'%s' is no model's name: rm takes names as 'kvasir ls' shows them, not paths", name);
    char *path = NULL, *part = NULL;
    struct stat info;
    int rc = model_file(&path, dir, "", name, ".gguf", st);
    if (!rc) rc = model_file(&part, dir, ".", name, ".part", st);
    if (!rc && lstat(path, &info) != 0 && lstat(part, &info) != 0) rc = no_such_model(dir, name, st);
    mem_free(path);
    mem_free(part);
    return rc;
}

static int remove_model(const char *dir, const char *name, status *st)
{
    char *path = NULL, *stamp = NULL;
    bool had_part = false;
    int rc = part_discard(dir, name, &had_part, st);
    if (!rc) rc = model_file(&path, dir, "", name, ".gguf", st);
    if (!rc) rc = model_file(&stamp, dir, ".", name, ".stamp", st);
    if (!rc && unlink(path) != 0 && !(errno == ENOENT && had_part))
        rc = status_set(st, ST_IO, STATUS_NO_POS, "%s can't be removed: %s", path, strerror(errno));
    if (!rc) {
        unlink(stamp);
        printf("%s is removed\n", name);
    }
    mem_free(path);
    mem_free(stamp);
    return rc;
}

static int run(const args *a, status *st)
{
    char *dir = NULL;
    int rc = model_dir(&dir, st), n = args_n_positional(a);
    for (int i = 0; !rc && i < n; i++) rc = check(dir, args_positional(a, i), st);
    bool usage = rc == ST_ARG;
    for (int i = 0; !rc && i < n; i++) rc = remove_model(dir, args_positional(a, i), st);
    mem_free(dir);
    return usage ? 2 : rc ? 1 : 0;
}

const command cmd_rm = {
    .name = "rm",
    .positional = "NAME...",
    .min_positional = 1,
    .max_positional = -1,
    .summary = "Remove models from the model directory",
    .details =
        "Also removes what an interrupted pull of that name left. If one of the names is wrong, nothing is removed.\n\n"
        "Examples:\n\n  kvasir rm smollm2-135m-instruct\n",
    .run = run,
};
