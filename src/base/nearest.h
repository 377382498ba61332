/* nearest.h - "did you mean": the candidate nearest to a mistyped word.
 *
 * Keep one struct, offer every candidate, read `best` (NULL: nothing is near). Borrows the words.
 */
#ifndef KVASIR_BASE_NEAREST_H
#define KVASIR_BASE_NEAREST_H

typedef struct nearest {
    const char *word, *best;
    int distance; /* of best; before one is found, the bound that it must stay under */
} nearest;

void nearest_init(nearest *n, const char *word);
void nearest_offer(nearest *n, const char *candidate);

#endif
