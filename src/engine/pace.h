/* pace.h - how many rows of prompts fit into a step if running answers are to get their next token in time.
 *
 * Owns: two running averages. A step's seconds = those of a step that only decodes + rows of prompts * seconds a row:
 *
 *      target  |<------------------ 150 ms ------------------>|
 *      step    |-- decode --|---- rows of prompts, as many ---|
 *
 * Threads: the engine's step.
 */
#ifndef KVASIR_ENGINE_PACE_H
#define KVASIR_ENGINE_PACE_H

typedef struct pace {
    double target_s; /* 0 = no target */
    double decode_s; /* of a step without prompts */
    double row_s;    /* of a row of a prompt; 0 = not known yet */
} pace;

#define PACE_LEAST_ROWS 16 /* a prompt gets on, however slow the machine */

/* Rows for prompts in a step with n_decoding running answers, at most `most`. */
int pace_rows(const pace *p, int n_decoding, int most);
/* A step of n_decoding answers and n_prompt rows of prompts took that long. */
void pace_learn(pace *p, int n_decoding, int n_prompt, double seconds);

#endif
