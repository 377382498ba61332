/* Any bytes either parse, and then every accessor stays inside them, or give an error with a text. Nothing leaks. */
#include <stdlib.h>

#include "../unit/gguf_walk.h"
#include "base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t before = mem_stats().bytes;
    gguf *g = NULL;
    status st = STATUS_INIT;
    int rc = gguf_parse(&g, data, size, &st);
    if ((rc == ST_OK) != (g != NULL) || rc != st.code || (rc != ST_OK && !st.text[0])) abort();
    if (g && gguf_walk(g) == 0) abort(); /* a hash of all that was read */
    gguf_close(g);
    if (mem_stats().bytes != before) abort();
    return 0;
}
