#include "model/shapes.h"

#include <strings.h>

/* name, source,
 * parameters, layers, windowed, window, heads, KV heads, d_k, d_v, d_c, d_rope, context length
 * Gemma 3: every 6th layer is global. DeepSeek-V3: without its extra prediction layer. Mistral 7B: v0.2 gave up the
 * window. */
static const model_shape shapes[] = {
    {"Llama-2-7B", "hf:meta-llama/Llama-2-7b-hf/config.json",
       6738415616, 32,  0,    0,  32,  32, 128, 128,   0,  0,   4096},
    {"Llama-3-8B", "hf:meta-llama/Meta-Llama-3-8B/config.json",
       8030261248, 32,  0,    0,  32,   8, 128, 128,   0,  0,   8192},
    {"Llama-3-70B", "hf:meta-llama/Meta-Llama-3-70B/config.json",
      70553706496, 80,  0,    0,  64,   8, 128, 128,   0,  0,   8192},
    {"Llama-3.1-8B", "hf:meta-llama/Llama-3.1-8B/config.json",
       8030261248, 32,  0,    0,  32,   8, 128, 128,   0,  0, 131072},
    {"Llama-3.1-70B", "hf:meta-llama/Llama-3.1-70B/config.json",
      70553706496, 80,  0,    0,  64,   8, 128, 128,   0,  0, 131072},
    {"Mistral-7B", "hf:mistralai/Mistral-7B-v0.3/config.json",
       7248023552, 32,  0,    0,  32,   8, 128, 128,   0,  0,  32768},
    {"Mistral-7B-v0.1", "hf:mistralai/Mistral-7B-v0.1/config.json",
       7241732096, 32, 32, 4096,  32,   8, 128, 128,   0,  0,  32768},
    {"Qwen2.5-7B", "hf:Qwen/Qwen2.5-7B/config.json",
       7615616512, 28,  0,    0,  28,   4, 128, 128,   0,  0, 131072},
    {"Qwen3-8B", "hf:Qwen/Qwen3-8B/config.json",
       8190735360, 36,  0,    0,  32,   8, 128, 128,   0,  0,  40960},
    {"Gemma-3-27B", "hf:google/gemma-3-27b-pt/config.json",
      27009346304, 62, 52, 1024,  32,  16, 128, 128,   0,  0, 131072},
    {"DeepSeek-V2-Lite", "hf:deepseek-ai/DeepSeek-V2-Lite/config.json",
      15706484224, 27,  0,    0,  16,  16, 128, 128, 512, 64, 163840},
    {"DeepSeek-V2", "hf:deepseek-ai/DeepSeek-V2/config.json",
     235741434880, 60,  0,    0, 128, 128, 128, 128, 512, 64, 163840},
    {"DeepSeek-V3", "hf:deepseek-ai/DeepSeek-V3/config.json",
     671026419200, 61,  0,    0, 128, 128, 128, 128, 512, 64, 163840},
};

const model_shape *model_shape_at(int i)
{
    return i >= 0 && i < (int)(sizeof shapes / sizeof *shapes) ? &shapes[i] : NULL;
}

const model_shape *model_shape_find(const char *name)
{
    const model_shape *s;
    for (int i = 0; (s = model_shape_at(i)) != NULL; i++)
        if (strcasecmp(s->name, name) == 0) return s;
    return NULL;
}

model_shape model_shape_of(const arch_params *p, const char *name, const char *source)
{
    model_shape s = {.name = name,
                     .source = source,
                     .n_layers = p->n_layers,
                     .n_heads = p->n_heads,
                     .n_kv_heads = p->n_kv_heads,
                     .d_k = p->d_k,
                     .d_v = p->d_v,
                     .context_length = p->context_length};
    for (int l = 0; l < p->n_layers; l++) s.n_windowed += arch_layer_windowed(p, l);
    if (s.n_windowed) s.window = p->window;
    return s;
}
