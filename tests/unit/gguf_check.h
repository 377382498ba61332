/* gguf_check.h - what every way to read a GGUF file owes its caller when it can't. */
#ifndef KVASIR_TESTS_GGUF_CHECK_H
#define KVASIR_TESTS_GGUF_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "model/gguf.h"

typedef int gguf_reader(gguf **out, const void *source, status *st);

/* The source must be refused with this code and a text that holds `words`, and leave nothing behind. */
static inline status gguf_refused(gguf_reader *read, const void *source, int code, const char *words)
{
    gguf *g = NULL;
    status st = STATUS_INIT;
    uint64_t before = mem_stats().bytes;
    assert_int_equal(read(&g, source, &st), code);
    assert_int_equal(st.code, code);
    assert_null(g);
    if (!strstr(st.text, words)) fail_msg("'%s' is not in: %s", words, st.text);
    assert_int_equal(mem_stats().bytes, before);
    return st;
}

/* Reads with the first allocation failing, then the second, and so on until none fails; check (may be NULL) looks at
 * each outcome. Returns the number of attempts. */
static inline int64_t gguf_fail_each(gguf_reader *read, const void *source, void (*check)(int rc))
{
    int rc = ST_NOMEM;
    int64_t n = 0;
    while (rc) {
        uint64_t before = mem_stats().bytes;
        gguf *g = NULL;
        status st = STATUS_INIT;
        mem_fail_after(++n);
        rc = read(&g, source, &st);
        mem_fail_after(0);
        assert_true(rc == ST_OK || (rc == ST_NOMEM && !g && strstr(st.text, "out of memory")));
        if (check) check(rc);
        gguf_close(g);
        assert_int_equal(mem_stats().bytes, before);
    }
    return n;
}

#endif
