/* inline.h - INLINE: for functions that are called with constant arguments and must be compiled for them. */
#ifndef KVASIR_BASE_INLINE_H
#define KVASIR_BASE_INLINE_H

#define INLINE static inline __attribute__((always_inline))

#endif
