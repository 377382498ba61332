#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/machine.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "cli/cli.h"
#include "cli/size.h"
#include "fetch/model_dir.h"
#include "model/gguf.h"

static void list_shapes(bool json, strbuf *b)
{
    const model_shape *s;
    for (int i = 0; (s = model_shape_at(i)) != NULL; i++) {
        if (json)
            strbuf_printf(b,
                          "%s{\"model\": \"%s\", \"source\": \"%s\", \"parameters\": %llu, \"layers\": %d, "
                          "\"context_length\": %d}",
                          i ? ", " : "[", s->name, s->source, (unsigned long long)s->n_params, s->n_layers,
                          s->context_length);
        else
            strbuf_printf(b, "%-17s %6.1f B parameters  %6d tokens  %s\n", s->name, (double)s->n_params * 1e-9,
                          s->context_length, s->source);
    }
    if (json) strbuf_puts(b, "]\n");
}

/* Bytes of n values in a type of GGUF by its name; false when there is none. */
static bool typed_bytes(const char *name, uint64_t n, const char **type, uint64_t *n_bytes)
{
    for (uint32_t id = 0; id < DTYPE_COUNT; id++) {
        const dtype_info *t = dtype_get(id);
        if (!t || strcasecmp(t->name, name) != 0) continue;
        *type = t->name;
        *n_bytes = (n + (uint64_t)t->block_elems - 1) / (uint64_t)t->block_elems * (uint64_t)t->block_bytes;
        return true;
    }
    return false;
}

static int unknown_weights(const char *name, status *st)
{
    strbuf names;
    strbuf_init(&names, 0);
    for (uint32_t id = 0; id < DTYPE_COUNT; id++)
        if (dtype_get(id)) strbuf_printf(&names, " %s", dtype_get(id)->name);
    status_set(st, ST_ARG, STATUS_NO_POS, "there are no weights of type '%s'; the types are%s", name,
               strbuf_cstr(&names));
    strbuf_deinit(&names);
    return 2;
}

/* A name that is neither a shape nor a model here: says so, and what there is. */
static int unknown_name(const char *name, status *st)
{
    const model_shape *s;
    nearest near;
    strbuf text;
    nearest_init(&near, name);
    for (int i = 0; (s = model_shape_at(i)) != NULL; i++) nearest_offer(&near, s->name);
    strbuf_init(&text, 0);
    strbuf_printf(&text, "there is no model, file or shape '%.80s'; ", name);
    if (near.best) strbuf_printf(&text, "did you mean '%s'? ", near.best);
    strbuf_puts(&text, "the shapes are");
    for (int i = 0; (s = model_shape_at(i)) != NULL; i++) strbuf_printf(&text, "%s %s", i ? "," : "", s->name);
    status_set(st, ST_NOT_FOUND, STATUS_NO_POS, "%s", strbuf_cstr(&text));
    strbuf_deinit(&text);
    return 1;
}

static uint64_t tensor_bytes(const gguf *g)
{
    uint64_t n = 0;
    for (size_t i = 0; i < gguf_tensor_count(g); i++) n += gguf_tensor_at(g, i)->n_bytes;
    return n;
}

static int shape_of_file(model_shape *s, uint64_t *weights_bytes, const char *path, const char *name, status *st)
{
    gguf *g = NULL;
    arch_params p;
    if (gguf_open(&g, path, st)) return 1;
    int rc = arch_read(&p, g, st);
    if (rc == ST_OK) {
        *s = model_shape_of(&p, name, path);
        *weights_bytes = tensor_bytes(g);
    }
    gguf_close(g);
    return rc ? 1 : 0;
}

static int answer(const size_question *q, const args *a, strbuf *out)
{
    size_answer n = size_answer_make(q);
    if (args_flag(a, "json")) size_json(&n, out);
    else size_text(&n, out);
    return 0;
}

/* Fills the question's numbers from the options; the shape and the weights are in place. */
static int read_question(size_question *q, const args *a, status *st)
{
    const kv_format *f;
    for (int i = 0; (f = size_format_at(i)) != NULL; i++)
        if (strcmp(f->name, args_string(a, "kv")) == 0) q->format = f;
    q->block_tokens = (int)args_int(a, "block-size");
    if (q->block_tokens & (q->block_tokens - 1)) {
        status_set(st, ST_ARG, STATUS_NO_POS, "--block-size takes 8, 16, 32, 64, 128 or 256");
        return 2;
    }
    q->context = args_given(a, "context") ? (uint64_t)args_int(a, "context") : (uint64_t)q->shape->context_length;
    q->batch = (uint64_t)args_int(a, "batch");
    q->memory_bytes = args_given(a, "memory") ? args_bytes(a, "memory") : machine_free_bytes();
    return 0;
}

static int answer_shape(const model_shape *s, const args *a, strbuf *out, status *st)
{
    const char *type = args_given(a, "weights") ? args_string(a, "weights") : "BF16";
    size_question q = {.shape = s};
    if (!typed_bytes(type, s->n_params, &q.weights_type, &q.weights_bytes)) return unknown_weights(type, st);
    int rc = read_question(&q, a, st);
    return rc ? rc : answer(&q, a, out);
}

static int answer_file(const char *name, const args *a, strbuf *out, status *st)
{
    char *path = NULL;
    model_shape s;
    size_question q = {.shape = &s, .weights_type = "file"};
    if (args_given(a, "weights")) {
        status_set(st, ST_ARG, STATUS_NO_POS, "--weights is for shapes: a file's weights are what they are");
        return 2;
    }
    if (model_path(&path, name, st))
        return st->code == ST_NOT_FOUND && !catalogue_find(name) ? unknown_name(name, st) : 1;
    int rc = shape_of_file(&s, &q.weights_bytes, path, name, st);
    if (rc == 0 && (rc = read_question(&q, a, st)) == 0) rc = answer(&q, a, out);
    mem_free(path);
    return rc;
}

static int run(const args *a, status *st)
{
    const char *name = args_positional(a, 0);
    if (!name && !args_flag(a, "list")) {
        status_set(st, ST_ARG, STATUS_NO_POS, "name a shape or a GGUF file; --list prints the shapes");
        return 2;
    }
    strbuf out;
    strbuf_init(&out, 0);
    const model_shape *s = name ? model_shape_find(name) : NULL;
    int rc = 0;
    if (args_flag(a, "list")) list_shapes(args_flag(a, "json"), &out);
    else rc = s ? answer_shape(s, a, &out, st) : answer_file(name, a, &out, st);
    if (rc == 0) rc = strbuf_check(&out, st) ? 1 : 0;
    if (rc == 0) fwrite(out.data, 1, out.n_bytes, stdout);
    strbuf_deinit(&out);
    return rc;
}

static const option_spec options[] = {
    {.name = "context", .letter = 'c', .kind = OPTION_INT, .arg = "N", .min = 1, .max = 1e9,
     .help = "tokens of a sequence (default: what the model was made for)"},
    {.name = "kv", .kind = OPTION_CHOICE, .arg = "FORMAT", .fallback = "f16", .choices = "f32|f16|q8|q4|q2",
     .help = "precision of the cache"},
    {.name = "batch", .letter = 'b', .kind = OPTION_INT, .arg = "N", .fallback = "1", .min = 1, .max = 1e6,
     .help = "sequences at a time"},
    {.name = "memory", .letter = 'm', .kind = OPTION_BYTES, .arg = "BYTES",
     .help = "memory for weights and cache (default: what is free on this machine)"},
    {.name = "weights", .kind = OPTION_STRING, .arg = "TYPE",
     .help = "type of a shape's weights: BF16, Q8_0, Q4_K... (default: BF16)"},
    {.name = "block-size", .kind = OPTION_INT, .arg = "N", .fallback = "16", .min = 8, .max = 256,
     .help = "tokens of a block: 8, 16, 32, 64, 128 or 256"},
    {.name = "list", .excludes = "context|batch|memory|weights|kv|block-size", .kind = OPTION_FLAG,
     .help = "list the shapes that are built in"},
    {.name = "json", .kind = OPTION_FLAG, .help = "print JSON"},
    {.name = NULL},
};

const command cmd_size = {
    .name = "size",
    .positional = "[SHAPE|MODEL]",
    .max_positional = 1,
    .summary = "Say what a model's cache takes, and how many sequences fit",
    .details = "For a built-in shape or a GGUF file: bytes per token and layer, per token and per sequence, at each "
               "precision of the cache; what MHA, GQA, MQA and MLA would take; whether weights or cache decide; how "
               "many sequences fit in the memory, in blocks, and with a reservation of the longest length in one piece "
               "(the model's context, or the one asked for if that is longer; windows are reserved whole).\n\n"
               "A sequence is counted in whole blocks, and of layers with a window as it stands while it is answered; "
               "reading a prompt takes a step's tokens more there. Some precisions are sizes for planning only: they "
               "are marked.\n\n"
               "Examples:\n\n"
               "  kvasir size llama-3-70b --context 128000 --memory 640G\n"
               "  kvasir size deepseek-v3 --kv q8 --batch 32 --json\n"
               "  kvasir size smollm2-135m-instruct --context 8192\n",
    .options = options,
    .run = run,
};
