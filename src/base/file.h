/* file.h - files: a read-only mapping, and a whole file read or written in one call; directories.
 *
 * F1 A mapped file is never written; its bytes are as untrusted as any input.
 * F2 A new_file (and so file_write_atomic) leaves either the old file or the whole new one (temporary file in the same
 *    folder, fsync, rename). A link keeps pointing where it did; a device or a pipe is written as it is, never
 *    replaced.
 */
#ifndef KVASIR_BASE_FILE_H
#define KVASIR_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"
#include "base/strbuf.h"

typedef struct mapped_file {
    const uint8_t *data; /* page-aligned; NULL for an empty file */
    size_t n_bytes;
} mapped_file;

/* Errors name the path and what to do: missing (ST_NOT_FOUND), a directory, no read permission, not a regular file. */
int mapped_file_open(mapped_file *m, const char *path, status *st);
void mapped_file_close(mapped_file *m);
/* The bytes [offset, offset + n) won't be read again soon: their pages leave this process's memory (they stay
 * readable). */
void mapped_file_drop(const mapped_file *m, size_t offset, size_t n);

/* Appends the whole file to b; path "-" reads standard input. Over max_bytes is ST_LIMIT. */
int file_read(strbuf *b, const char *path, size_t max_bytes, status *st);
const char *file_shown(const char *path); /* what messages call it: "standard input" for "-" */

typedef struct new_file {
    int fd, error;    /* errno of the first failure, or 0 */
    const char *path; /* as it was asked for; outlives the writing */
    char *target, *temporary; /* temporary NULL: written in place */
} new_file;

int new_file_open(new_file *f, const char *path, status *st);
void new_file_write(new_file *f, const void *data, size_t n_bytes); /* new_file_close tells of a failure */
/* Puts the file in its place if keep and every write succeeded, else removes it. */
int new_file_close(new_file *f, bool keep, status *st);
int file_write_atomic(const char *path, const void *data, size_t n_bytes, status *st);

/* Makes the directory and its parents, as far as they are missing, with this mode. False: errno says why. */
bool directory_create(const char *path, mode_t mode);

#endif
