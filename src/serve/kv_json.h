/* kv_json.h - the state of the cache as JSON: pools, groups, tree, sequences (GET /v1/kv). By the engine's thread,
 * between steps. */
#ifndef KVASIR_SERVE_KV_JSON_H
#define KVASIR_SERVE_KV_JSON_H

#include "serve/job.h"

/* running: a list of jobs, by next. audit: blocks and references are recounted, and what doesn't add up is said. */
void kv_json(strbuf *out, const engine *e, const job *running, bool audit);

#endif
