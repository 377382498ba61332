#include <stddef.h>

#include "cli/cli.h"

extern const command cmd_bench, cmd_bench_serve, cmd_chat, cmd_completion, cmd_detokenize, cmd_help, cmd_inspect,
    cmd_logits, cmd_ls, cmd_pull, cmd_rm, cmd_run, cmd_serve, cmd_sim_cache, cmd_size, cmd_tokenize, cmd_version;

/* In the order of `kvasir help`. */
const command *const commands[] = {
    &cmd_pull,        &cmd_ls,         &cmd_rm,   &cmd_inspect,  &cmd_run,        &cmd_chat,   &cmd_serve,
    &cmd_size,        &cmd_sim_cache,        &cmd_tokenize, &cmd_detokenize, &cmd_logits, &cmd_bench,
    &cmd_bench_serve, &cmd_completion, &cmd_help, &cmd_version,  NULL,
};
