#include "base/nearest.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "base/minmax.h"

enum { NEAREST_MAX = 64 };

static bool same_letter(char a, char b)
{
    return strncasecmp(&a, &b, 1) == 0;
}

/* Edit distance with transpositions of neighbours, letter case ignored; words over NEAREST_MAX are far from all. */
static int edit_distance(const char *a, const char *b)
{
    int n = (int)strnlen(a, NEAREST_MAX + 1), m = (int)strnlen(b, NEAREST_MAX + 1);
    if (n > NEAREST_MAX || m > NEAREST_MAX) return NEAREST_MAX;
    int rows[3][NEAREST_MAX + 1];
    for (int j = 0; j <= m; j++) rows[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *row = rows[i % 3];
        const int *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int differs = !same_letter(a[i - 1], b[j - 1]);
            row[j] = (int)min_i64(min_i64(above[j], row[j - 1]) + 1, above[j - 1] + differs);
            bool swapped = i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) && same_letter(a[i - 2], b[j - 1]);
            if (swapped && above2[j - 2] + 1 < row[j]) row[j] = above2[j - 2] + 1;
        }
    }
    return rows[n % 3][m];
}

void nearest_init(nearest *n, const char *word)
{
    size_t length = strlen(word);
    *n = (nearest){.word = word, .best = NULL, .distance = length < 3 ? 2 : length < 9 ? 3 : 4};
}

void nearest_offer(nearest *n, const char *candidate)
{
    size_t length = strlen(n->word);
    bool begins = length >= 3 && strncasecmp(n->word, candidate, length) == 0;
    int d = begins ? 1 : edit_distance(n->word, candidate);
    if (d < n->distance) {
        n->distance = d;
        n->best = candidate;
    }
}
