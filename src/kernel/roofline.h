/* roofline.h - what this machine can do at most, measured now: the denominators of every "percent of the limit".
 *
 *      read_bytes_s    all workers read a buffer far larger than the caches, sequentially
 *      int8_macs_s     8-bit multiply-adds widened at once (maddubs, madd, add), all workers, data in registers
 *      float_macs_s    float fused multiply-adds, likewise
 *
 * The machine is shared: each figure is the best of several short runs. Threads: one at a time per team.
 */
#ifndef KVASIR_KERNEL_ROOFLINE_H
#define KVASIR_KERNEL_ROOFLINE_H

#include "base/status.h"
#include "base/threads.h"

typedef struct roofline {
    double read_bytes_s, int8_macs_s, float_macs_s;
} roofline;

/* Takes about half a second and 256 MiB. */
int roofline_measure(roofline *r, threads *team, status *st);

/* n rounds of each kind of arithmetic, as wide as this build goes; the result keeps the compiler from leaving them out.
 * *macs: multiply-adds per round. */
int64_t roofline_int8_rounds(int64_t n, int64_t *macs);
int64_t roofline_float_rounds(int64_t n, int64_t *macs);
int64_t roofline_int8_rounds_avx2(int64_t n, int64_t *macs);
int64_t roofline_float_rounds_avx2(int64_t n, int64_t *macs);

#endif
