/* fingerprint.h - which model is it: SHA-256 over a file's metadata and its tensors' names, types, shapes and all bytes.
 *
 * The bytes go in as XXH3-128 of chunks of 256 KiB, which the team computes, in the order of the directory:
 *
 *      tensor 0   [chunk 0][chunk 1][chunk 2 ]   tensor 1   [chunk 3]   ...
 *                    |        |        |                       |
 *      digest[]      h0       h1       h2                      h3  ->  SHA-256(metadata, tensor 0, h0 h1 h2, tensor 1, h3 ...)
 *
 * The loader asks for a tensor's chunks just before it packs it, so that the disk is read once; finishing adds those
 * that nobody loads. XXH3 tells every accident apart, not a forger's work: who shares stores must trust the files.
 *
 * FP1 A file that differs in any byte of metadata or tensors has another fingerprint; the padding between is left out.
 * FP2 It depends on neither the team nor the order in which tensors are asked for.
 * Threads: the team's caller.
 */
#ifndef KVASIR_MODEL_FINGERPRINT_H
#define KVASIR_MODEL_FINGERPRINT_H

#include "base/threads.h"
#include "model/gguf.h"

typedef struct fingerprint fingerprint;

/* Both are borrowed. */
int fingerprint_new(fingerprint **out, const gguf *g, threads *team, status *st);
void fingerprint_free(fingerprint *f);
/* Reads the tensor's bytes, the first time. */
void fingerprint_tensor(fingerprint *f, const gguf_tensor *t);
int fingerprint_finish(fingerprint *f, uint8_t out[32], status *st);

#endif
