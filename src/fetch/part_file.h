/* part_file.h - a model on its way into the model directory: never half there.
 *
 *      part_open ---> .NAME.part (locked) --part_write...--> part_finish ---> NAME.gguf + .NAME.stamp
 *        |                                                      |
 *        | another process has it: wait                         | wrong SHA-256, not GGUF: the part is removed
 *
 * PF1 One process at a time holds a name's part: flock on the part itself, and its path still leads to it after that.
 * PF2 NAME.gguf appears by rename, after its SHA-256 was checked and its bytes are on the disk.
 * PF3 The hash runs along with the writes, so that a large file is read back only when a download is resumed.
 */
#ifndef KVASIR_FETCH_PART_FILE_H
#define KVASIR_FETCH_PART_FILE_H

#include <openssl/evp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "fetch/model_dir.h"

typedef struct part_file {
    const char *dir, *name; /* borrowed */
    char *path, *origin_path;
    int fd;
    bool finished;    /* it is NAME.gguf now: nothing of the part is left to remove */
    uint64_t n_bytes; /* written and hashed */
    EVP_MD_CTX *sha;
} part_file;

/* Locks the part, whose earlier bytes stay until part_resume or part_restart says what to do with them. Waits while
 * another process holds it (a line on stderr says so). */
int part_open(part_file *p, const char *dir, const char *name, status *st);
/* Gives the lock back; keep = false removes the part, unless it is finished. */
void part_close(part_file *p, bool keep);
/* Removes what an interrupted pull left. ST_LIMIT while a pull holds it. */
int part_discard(const char *dir, const char *name, bool *existed, status *st);

/* What a later run needs to go on: whether it is the same source, and what the server called this version of it. */
typedef struct part_origin {
    char source[SHA256_HEX]; /* SHA-256 of the URL */
    char validator[256];     /* for If-Range: a strong ETag or a date */
} part_origin;
bool part_origin_read(const part_file *p, part_origin *o);
int part_origin_write(const part_file *p, const part_origin *o, status *st);

/* Goes on after the bytes that are there. */
int part_resume(part_file *p, status *st);
/* Empty, and without origin. */
int part_restart(part_file *p, status *st);

/* ST_FORMAT if the first bytes are not those of a GGUF file. */
int part_write(part_file *p, const void *data, size_t n, status *st);

/* ST_LIMIT with both sizes when the disk has no room for n_bytes more. */
int part_check_room(const part_file *p, uint64_t n_bytes, status *st);

/* expected: a SHA-256 in hex, or NULL. On success s has the hash, and NAME.gguf is the file. ST_FORMAT: not what was
 * expected. origin: see model_stamp. */
int part_finish(part_file *p, const char *expected, const char *origin, model_stamp *s, status *st);

/* SHA-256 in hex, of bytes and of a whole file (with a progress bar). */
int sha256_text(char out[SHA256_HEX], const char *text, status *st);
int sha256_file(char out[SHA256_HEX], const char *path, status *st);

#endif
