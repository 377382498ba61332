#include <stdio.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/inspect.h"
#include "fetch/model_dir.h"

static int report(const char *path, const gguf *g, bool full, bool json, status *st)
{
    inspection *x = mem_alloc(sizeof *x);
    if (!x) return status_nomem(st, sizeof *x);
    strbuf out;
    strbuf_init(&out, 0);
    int rc = inspection_make(x, path, g, st);
    if (rc == ST_OK && json) rc = inspection_json(x, full, &out, st);
    else if (rc == ST_OK) inspection_text(x, full, &out);
    if (rc == ST_OK && (rc = strbuf_check(&out, st)) == ST_OK) fwrite(out.data, 1, out.n_bytes, stdout);
    strbuf_deinit(&out);
    mem_free(x);
    return rc;
}

static int run(const args *a, status *st)
{
    char *path = NULL;
    gguf *g = NULL;
    if (model_path(&path, args_positional(a, 0), st)) return 1;
    int rc = gguf_open(&g, path, st);
    if (rc == ST_OK) rc = report(path, g, args_flag(a, "full"), args_flag(a, "json"), st);
    gguf_close(g);
    mem_free(path);
    return rc ? 1 : 0;
}

static const option_spec options[] = {
    {.name = "full", .kind = OPTION_FLAG, .help = "print long arrays and strings whole"},
    {.name = "json", .kind = OPTION_FLAG, .help = "print one JSON object"},
    {.name = NULL},
};

const command cmd_inspect = {
    .name = "inspect",
    .positional = "MODEL",
    .min_positional = 1,
    .max_positional = 1,
    .summary = "Print what is in a GGUF file, and what Kvasir can do with it",
    .details = "Prints metadata, tensors, bytes by type, and whether Kvasir runs the model: architecture, tensor "
               "types, tokenizer, chat "
               "template, context, and what a token costs in the KV cache. A model is a path or the name of a pulled "
               "one; of a split "
               "model name the first part.\n\n"
               "A file that is a GGUF file but not one that Kvasir can run is described all the same, with the "
               "reasons; the exit status "
               "is then 0.\n\n"
               "Examples:\n\n"
               "  kvasir inspect smollm2-135m-instruct\n"
               "  kvasir inspect model.gguf --json | jq .kvasir\n",
    .options = options,
    .run = run,
};
