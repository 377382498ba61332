/* Fields of OpenAI's interface, vLLM, SGLang, llama-server, Ollama, text-generation-webui and those who speak through
 * them that are not obeyed here:
 * which change no answer, whatever they say, and at which value the others change none. docs/SERVER.md lists them. */
#include <string.h>

#include "serve/request.h"

/* Values that change nothing. */
#define ANY 1u
#define NO 2u  /* false */
#define YES 4u /* true */
#define ZERO 8u
#define ONE 16u
#define MINUS_ONE 32u
#define EMPTY 64u /* "", [] or {} */

static const known_field known[] = {
    /* Who asks, and for what: of interest to others. */
    {"metadata", ANY, NULL},
    {"store", ANY, NULL},
    {"service_tier", ANY, NULL},
    {"safety_identifier", ANY, NULL},
    {"request_id", ANY, NULL},
    {"rid", ANY, NULL},
    {"session_id", ANY, NULL},
    {"trace_id", ANY, NULL},
    {"prompt_cache_key", ANY, NULL},
    {"prompt_cache_retention", ANY, NULL},
    {"keep_alive", ANY, NULL},
    {"ttl", ANY, NULL},
    /* Where and how fast: this engine's answers depend on neither. */
    {"cache_prompt", ANY, NULL},
    {"id_slot", ANY, NULL},
    {"slot_id", ANY, NULL},
    {"n_keep", ANY, NULL},
    {"n_discard", ANY, NULL},
    {"prediction", ANY, NULL},
    {"draft_model", ANY, NULL},
    {"speculative.n_max", ANY, NULL},
    {"speculative.n_min", ANY, NULL},
    {"speculative.p_min", ANY, NULL},
    {"speculative_ngram", ANY, NULL},
    {"backend_sampling", ANY, NULL},
    {"parallel_tool_calls", ANY, NULL}, /* calls come as text, as many as the model writes */
    /* Parameters of samplers that are refused where they are on. */
    {"mirostat_tau", ANY, NULL},
    {"mirostat_eta", ANY, NULL},
    {"dynatemp_exponent", ANY, NULL},
    {"smoothing_curve", ANY, NULL},
    /* Other shapes of the answer. */
    {"audio", 0, NULL},
    {"modalities", 0, "text"},
    {"verbosity", 0, "medium"},
    {"detokenize", YES, NULL},
    {"echo", NO, NULL},
    {"best_of", ONE, NULL},
    {"top_logprobs", ZERO, NULL},
    {"suffix", EMPTY, NULL},
    {"response_format", EMPTY, "text"},
    {"prompt_logprobs", NO, NULL},
    {"n_probs", ZERO, NULL},
    {"post_sampling_probs", NO, NULL},
    {"return_tokens_as_token_ids", NO, NULL},
    {"return_token_ids", NO, NULL},
    {"return_token_strs", NO, NULL},
    {"return_tokens", NO, NULL},
    {"return_progress", NO, NULL},
    {"return_hidden_states", NO, NULL},
    {"no_stop_trim", NO, NULL},
    {"timings_per_token", NO, NULL},
    {"response_fields", EMPTY, NULL},
    {"include_stop_str_in_output", NO, NULL},
    {"spaces_between_special_tokens", YES, NULL},
    {"include_reasoning", YES, NULL},
    {"reasoning_format", 0, "none"},
    {"reasoning", EMPTY, NULL},
    {"think", NO, NULL},
    {"thinking_forced_open", NO, NULL},
    {"parse_tool_calls", NO, NULL},
    /* What the prompt is made of. */
    {"add_special_tokens", NO, NULL},
    {"add_bos_token", YES, NULL},
    {"negative_prompt", EMPTY, NULL},
    {"media_io_kwargs", EMPTY, NULL},
    {"add_generation_prompt", YES, NULL},
    {"continue_final_message", NO, NULL},
    {"chat_template", EMPTY, NULL},
    {"chat_template_kwargs", EMPTY, NULL}, /* of completions, as the next ones */
    {"truncate_prompt_tokens", 0, NULL},
    {"truncate", NO, NULL},
    {"documents", EMPTY, NULL},
    {"image_data", EMPTY, NULL},
    {"mm_processor_kwargs", EMPTY, NULL},
    {"multi_modal_data", EMPTY, NULL},
    {"prompt_embeds", EMPTY, NULL},
    {"web_search_options", 0, NULL},
    {"system", EMPTY, NULL},
    {"template", EMPTY, NULL},
    {"raw", NO, NULL},
    {"transforms", EMPTY, NULL},
    /* Constraints and tools. */
    {"tools", EMPTY, NULL},
    {"tool_choice", 0, "none"},
    {"functions", EMPTY, NULL},
    {"function_call", 0, "none"},
    {"grammar", EMPTY, NULL},
    {"grammar_lazy", NO, NULL},
    {"grammar_triggers", EMPTY, NULL},
    {"preserved_tokens", EMPTY, NULL},
    {"json_schema", EMPTY, NULL},
    {"format", EMPTY, NULL},
    {"structured_outputs", EMPTY, NULL},
    {"guided_json", EMPTY, NULL},
    {"guided_regex", EMPTY, NULL},
    {"guided_choice", EMPTY, NULL},
    {"guided_grammar", EMPTY, NULL},
    {"guided_decoding_backend", EMPTY, NULL},
    {"guided_whitespace_pattern", EMPTY, NULL},
    {"structural_tag", EMPTY, NULL},
    {"grammar_string", EMPTY, NULL},
    {"regex", EMPTY, NULL},
    {"ebnf", EMPTY, NULL},
    /* Sampling and length. */
    {"bad_words", EMPTY, NULL},
    {"banned_strings", EMPTY, NULL},
    {"banned_tokens", EMPTY, NULL},
    {"custom_token_bans", EMPTY, NULL},
    {"stop_regex", EMPTY, NULL},
    {"ban_eos_token", NO, NULL},
    {"min_length", ZERO, NULL},
    {"max_tokens_second", ZERO, NULL},
    {"allowed_token_ids", EMPTY, NULL},
    {"logits_processors", EMPTY, NULL},
    {"use_beam_search", NO, NULL},
    {"num_beams", ONE, NULL},
    {"length_penalty", ONE, NULL},
    {"early_stopping", NO, NULL},
    {"samplers", EMPTY, NULL},
    {"min_keep", ZERO, NULL},
    {"mirostat", ZERO, NULL},
    {"dynatemp_range", ZERO, NULL},
    {"dynamic_temperature", NO, NULL},
    {"temperature_last", YES, NULL}, /* so it is here (sampler.h) */
    {"smoothing_factor", ZERO, NULL},
    {"tfs_z", ONE, NULL},
    {"tfs", ONE, NULL},
    {"top_a", ZERO, NULL},
    {"skew", ZERO, NULL},
    {"epsilon_cutoff", ZERO, NULL},
    {"eta_cutoff", ZERO, NULL},
    {"mirostat_mode", ZERO, NULL},
    {"no_repeat_ngram_size", ZERO, NULL},
    {"encoder_repetition_penalty", ONE, NULL},
    {"penalty_alpha", ZERO, NULL},
    {"guidance_scale", ONE, NULL},
    {"top_n_sigma", ZERO | MINUS_ONE, NULL},
    {"n_indent", ZERO, NULL},
    {"t_max_predict_ms", ZERO | MINUS_ONE, NULL},
    {"t_max_prompt_ms", ZERO | MINUS_ONE, NULL},
    {"thinking_token_budget", MINUS_ONE, NULL},
    {"thinking_budget_tokens", MINUS_ONE, NULL},
    {"num_ctx", 0, NULL},
    /* Other weights, other machines, whatever is wrapped. */
    {"lora", EMPTY, NULL},
    {"adapter_id", EMPTY, NULL},
    {"lora_path", EMPTY, NULL},
    {"kv_transfer_params", EMPTY, NULL},
    {"vllm_xargs", EMPTY, NULL},
    {"options", EMPTY, NULL},
    {"extra_body", EMPTY, NULL},
};

const known_field *known_field_at(size_t i)
{
    return i < sizeof known / sizeof *known ? &known[i] : NULL;
}

static bool is_word(const json_t *v, const char *word)
{
    if (json_is_array(v) && json_array_size(v) == 1) v = json_array_get(v, 0);
    if (json_is_object(v) && json_object_size(v) == 1) v = json_object_get(v, "type");
    const char *s = json_string_value(v);
    return s && strcmp(s, word) == 0 && json_string_length(v) == strlen(word);
}

static bool changes_nothing(const known_field *k, const json_t *v)
{
    double x = json_number_value(v);
    switch (json_typeof(v)) {
    case JSON_NULL: return true;
    case JSON_FALSE: return k->neutral & (ANY | NO);
    case JSON_TRUE: return k->neutral & (ANY | YES);
    case JSON_INTEGER:
    case JSON_REAL:
        return k->neutral & ANY || (k->neutral & ZERO && x == 0) || (k->neutral & ONE && x == 1) ||
               (k->neutral & MINUS_ONE && x == -1);
    default: break;
    }
    bool empty = json_is_string(v) ? json_string_length(v) == 0 : json_array_size(v) + json_object_size(v) == 0;
    return k->neutral & ANY || (k->neutral & EMPTY && empty) || (k->word && is_word(v, k->word));
}

const known_field *known_field_find(const char *name)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0) return &known[i];
    return NULL;
}

bool known_field_accepts(const known_field *k, const json_t *v)
{
    return json_is_null(v) || changes_nothing(k, v);
}
