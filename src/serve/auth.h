/* auth.h - API keys from a file: one a line, # begins a comment, blank lines are skipped.
 *
 * Keys are kept as SHA-256; a presented key is hashed and compared with every one of them in constant time.
 * Threads: constant after auth_load.
 */
#ifndef KVASIR_SERVE_AUTH_H
#define KVASIR_SERVE_AUTH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct auth auth;

/* ST_FORMAT where the file has no key. */
int auth_load(auth **out, const char *path, status *st);
void auth_free(auth *a); /* NULL is fine */
/* header: the value of Authorization, or NULL. a NULL: everybody is welcome. */
bool auth_allows(const auth *a, const char *header);

#endif
