/* sanitized.h - builds that are ten times slower look at fewer cases. */
#ifndef KVASIR_TESTS_SANITIZED_H
#define KVASIR_TESTS_SANITIZED_H

#include <stdbool.h>

#if defined(__has_feature) /* clang tells this way, gcc by the names below */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED true
#endif
#endif
#if !defined(SANITIZED) && (defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__))
#define SANITIZED true
#endif
#ifndef SANITIZED
#define SANITIZED false
#endif

#endif
