/* number.h - numbers from and to text, as Python writes them and whatever the process's locale. Pure functions. */
#ifndef KVASIR_MODEL_TEMPLATE_NUMBER_H
#define KVASIR_MODEL_TEMPLATE_NUMBER_H

#include <stddef.h>
#include <stdint.h>

/* ST_OK, ST_FORMAT, or ST_LIMIT (beyond 64 bits). White space around, a sign, underscores between digits are fine.
 * base 0: 0x, 0o, 0b prefixes tell; 2..36 otherwise (the fitting prefix is allowed). */
int number_parse_int(const char *s, size_t n, int base, int64_t *out);
/* ST_OK or ST_FORMAT; also inf and nan. */
int number_parse_float(const char *s, size_t n, double *out);

#define FLOAT_TEXT_MAX 40
/* The shortest text that reads back as f: 0.1, 1e+16, -0.0, inf, nan. Returns its length. */
size_t float_text(double f, char out[FLOAT_TEXT_MAX]);

/* f rounded to so many decimals (0..300), half to even on the exact value. */
double float_round(double f, int decimals);

#endif
