#include "engine/pace.h"

int pace_rows(const pace *p, int n_decoding, int most)
{
    if (p->target_s <= 0 || n_decoding == 0) return most;
    if (p->row_s <= 0) return most < 4 * PACE_LEAST_ROWS ? most : 4 * PACE_LEAST_ROWS;
    double rows = (p->target_s - p->decode_s) / p->row_s;
    if (rows >= most) return most;
    int least = most < PACE_LEAST_ROWS ? most : PACE_LEAST_ROWS;
    return rows > least ? (int)rows : least;
}

/* The newest step counts a quarter. */
static void blend(double *average, double x)
{
    *average = *average > 0 ? 0.75 * *average + 0.25 * x : x;
}

void pace_learn(pace *p, int n_decoding, int n_prompt, double seconds)
{
    if (n_prompt == 0) {
        blend(&p->decode_s, seconds);
    } else if (n_prompt >= PACE_LEAST_ROWS) { /* the time of fewer rows says little about a row's */
        double rest = n_decoding ? seconds - p->decode_s : seconds;
        if (rest > 0) blend(&p->row_s, rest / n_prompt);
    }
}
