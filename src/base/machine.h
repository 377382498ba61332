/* machine.h - what this computer has to offer right now. */
#ifndef KVASIR_BASE_MACHINE_H
#define KVASIR_BASE_MACHINE_H

#include <stdint.h>

/* Bytes that new allocations could use without swapping (MemAvailable, bounded by the control group's limit); 0 when
 * unknown. */
uint64_t machine_free_bytes(void);
/* This process's largest resident set so far, in bytes; 0 when unknown. */
uint64_t machine_peak_rss_bytes(void);

#endif
