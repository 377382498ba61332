/* progress.h - progress of long work on stderr: a bar with rate and time left.
 *
 *      what  [########--------]  45%  43.1 MiB of 93.8 MiB  12.3 MiB/s  0:04 left
 *
 * Redrawn at most ten times a second; nothing unless stderr is a terminal, and nothing for what is over within a
 * quarter of a second. Threads: one at a time.
 */
#ifndef KVASIR_FETCH_PROGRESS_H
#define KVASIR_FETCH_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct progress {
    const char *what;
    uint64_t total;   /* 0 = unknown */
    const char *unit; /* "B" scales to KiB, MiB...; else printed as it is */
    int64_t start_ns, last_ns;
    bool tty, shown;
    uint64_t
        first; /* done before the start (a resumed download), which the rate leaves out: set it after progress_begin */
} progress;
void progress_begin(progress *p, const char *what, uint64_t total, const char *unit);
void progress_update(progress *p, uint64_t done);
void progress_end(progress *p); /* takes the bar away */

/* "93.8 MiB" into out, which it returns. */
#define BYTES_TEXT 24
const char *bytes_text(char out[BYTES_TEXT], uint64_t n);

#endif
