/* metrics_text.h - metrics in Prometheus' text format, under Kvasir's names or vLLM's. */
#ifndef KVASIR_SERVE_METRICS_TEXT_H
#define KVASIR_SERVE_METRICS_TEXT_H

#include "base/strbuf.h"
#include "serve/metrics.h"

/* vllm: families that vLLM has too go by its names, with its label model_name; the others keep theirs. */
void metrics_text(strbuf *out, const metrics_values *v, const char *model_name, bool vllm, bool ready);

#endif
