#include "cli/runtime.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/groups.h"
#include "fetch/model_dir.h"
#include "fetch/progress.h"

static void show_progress(void *user, uint64_t done, uint64_t total)
{
    progress *bar = user;
    bar->total = total;
    progress_update(bar, done);
}

static int choose_kernels(const kernels **out, const args *a, status *st)
{
    const char *name = args_string(a, "cpu");
    cpu_level level = CPU_AUTO;
    while (strcmp(name, cpu_level_name(level)) != 0) level++; /* the option's table admits these names alone */
    *out = kernels_get(level);
    if (*out) return ST_OK;
    return status_set(st, ST_UNSUPPORTED, STATUS_NO_POS, "this processor lacks %s; leave --cpu out to use what it has",
                      name);
}

static bool from_hex(uint8_t out[32], const char *hex)
{
    for (int i = 0; *hex && i < 32; i++) {
        unsigned byte;
        sscanf(hex + (size_t)2 * i, "%2x", &byte);
        out[i] = (uint8_t)byte;
    }
    return *hex;
}

/* Takes the fingerprint from the file's stamp in the model directory, or notes there what was computed. */
static int load_stamped(model **out, const char *path, model_options *o, status *st)
{
    status ignored = STATUS_INIT; /* without a stamp (a read-only directory) the next load computes it again */
    char *dir = NULL, *name = NULL;
    uint8_t known[32];
    model_stamp s;
    bool inside =
        model_in_dir(&dir, &name, path) && (model_stamp_read(&s, dir, name) || !model_stamp_begin(&s, path, &ignored));
    bool stamped = inside && from_hex(known, s.fingerprint);
    if (stamped) o->known_fingerprint = known;
    int rc = model_load(out, path, o, st);
    if (!rc && inside && !stamped) {
        for (size_t i = 0; i < 32; i++) snprintf(s.fingerprint + 2 * i, 3, "%02x", (*out)->fingerprint[i]);
        model_stamp_write(&s, dir, name, &ignored);
    }
    mem_free(dir);
    mem_free(name);
    return rc;
}

int runtime_open_model(runtime *r, const args *a, const char *model_name, int context, status *st)
{
    *r = (runtime){0};
    char *path = NULL;
    model_options o = {.context = context, .progress = show_progress};
    progress bar;
    o.user = &bar;
    int n = args_given(a, "threads") ? (int)args_int(a, "threads") : threads_available();
    if (choose_kernels(&o.ks, a, st) || model_path(&path, model_name, st) || threads_new(&r->team, n, st)) {
        mem_free(path);
        return st->code;
    }
    threads_pin(r->team);
    o.team = r->team;
    progress_begin(&bar, "loading", 0, "B");
    int rc = load_stamped(&r->m, path, &o, st);
    progress_end(&bar);
    mem_free(path);
    if (rc) runtime_close(r);
    return rc;
}

/* The engine's settings from the options. */
static int engine_settings(engine_config *c, const args *a, status *st)
{
    c->exact = args_flag(a, "exact");
    c->format = kv_format_get(c->exact && !args_given(a, "kv") ? "f32" : args_string(a, "kv"));
    if (!c->block_tokens) c->block_tokens = (int)args_int(a, "block-size");
    if (c->block_tokens & (c->block_tokens - 1))
        return status_set(st, ST_ARG, STATUS_NO_POS,
                          "--block-size %d is not a power of two; choose 8, 16, 32, 64, 128 or 256", c->block_tokens);
    c->chunk = (int)args_int(a, "chunk");
    if (args_given(a, "kv-memory")) c->kv_memory_bytes = args_bytes(a, "kv-memory");
    return ST_OK;
}

int runtime_open_engine(runtime *r, const args *a, engine_config base, status *st)
{
    if (engine_settings(&base, a, st)) return st->code;
    return engine_new(&r->e, r->m, r->team, &base, st);
}

void runtime_close_engine(runtime *r)
{
    engine_free(r->e);
    r->e = NULL;
}

int runtime_open(runtime *r, const args *a, const char *model_name, engine_config base, status *st)
{
    if (engine_settings(&base, a, st) || runtime_open_model(r, a, model_name, base.context, st)) return st->code;
    if (engine_new(&r->e, r->m, r->team, &base, st)) runtime_close(r);
    return st->code;
}

void runtime_close(runtime *r)
{
    engine_free(r->e);
    model_free(r->m);
    threads_free(r->team);
    *r = (runtime){0};
}

int runtime_cache_bytes(uint64_t *out, const runtime *r, const args *a, engine_config base, int n_seqs, status *st)
{
    kv_groups groups;
    if (engine_settings(&base, a, st)) return st->code;
    kv_groups_init(&groups, &r->m->params);
    uint64_t one = 0, step = (uint64_t)(base.chunk > base.n_sessions ? base.chunk : base.n_sessions);
    for (int g = 0; g < groups.n; g++)
        one += kv_bytes(&groups.group[g], base.format, base.block_tokens, (uint64_t)base.context, step);
    *out = one * (uint64_t)n_seqs;
    return ST_OK;
}
