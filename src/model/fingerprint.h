/* fingerprint.h - which model is it: SHA-256 over a file's metadata, its tensors' names, types and shapes, and the
 * beginning of each tensor's data.
 *
 * Not over all data, which would cost a second read of the file: two models that differ in the weights differ in the
 * first FINGERPRINT_BYTES of some tensor.
 * Threads: pure.
 */
#ifndef KVASIR_MODEL_FINGERPRINT_H
#define KVASIR_MODEL_FINGERPRINT_H

#include "model/gguf.h"

#define FINGERPRINT_BYTES 4096

int model_fingerprint(uint8_t out[32], const gguf *g, status *st);

#endif
