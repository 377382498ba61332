/* work.h - the workloads of `kvasir bench serve`: what is asked, and what follows what.
 *
 *      fixed    [prompt] answer
 *      mix      the same, of many lengths
 *      agents   [a prompt that all share | a tail of their own] answer
 *      chat     [first message] answer [next] answer [next] answer ...    a turn follows the one before it
 *      tree     [prompt] --4 branches--> the best two, [more] --4 branches--> the best of each, [more] --4 branches
 *
 * Owns: the items and their tokens.
 *
 * WK1 An item's tokens, lengths and time of arrival depend on the seed and its number alone, not on the engine.
 * WK2 An item comes after the one that it follows; its prompt is that one's, an answer of that one's, its own tokens.
 * Threads: constant once made.
 */
#ifndef KVASIR_BENCH_WORK_H
#define KVASIR_BENCH_WORK_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum work_kind { WORK_FIXED, WORK_MIX, WORK_AGENTS, WORK_CHAT, WORK_TREE, WORK_KINDS } work_kind;
const char *work_name(work_kind k); /* "fixed", "mix", ... */

typedef struct work_config {
    work_kind kind;
    int n_answers; /* at least: conversations and trees are whole */
    uint64_t seed;
    double scale; /* of all lengths */
    double rate;  /* arrivals a second of what follows nothing, Poisson; 0 = all at once */
    int n_vocab;
    int prompt, answer; /* tokens of `fixed`, before the scale */
} work_config;

#define WORK_NOTHING (-1)

typedef struct work_item {
    size_t first; /* own tokens: ids [first, first + n_ids) */
    int n_ids;
    int follows;              /* item; WORK_NOTHING */
    int rank;                 /* which of its answers, the most likely first */
    int n_prompt;             /* all tokens of the prompt */
    int n_branches, n_answer; /* answers, and the tokens of each */
    size_t first_answer;      /* answers are numbered through */
    double arrival_s;
} work_item;

typedef struct workload {
    work_item *items;
    int n_items, n_answers, max_branches;
    int longest;                           /* prompt and answer together */
    uint64_t prompt_tokens, answer_tokens; /* of all answers; a prompt counts for each of its branches */
    int32_t *ids;
    size_t n_ids;
} workload;

int workload_new(workload *out, const work_config *c, status *st);
void workload_free(workload *w);

/* Lengths of the mix before the scale: of prompts and answers, tokens. */
void work_mix_lengths(uint64_t seed, uint32_t number, int *prompt, int *answer);

#endif
