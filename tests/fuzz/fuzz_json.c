/* What the commands read as JSON: arrays of token ids, saved conversations. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/conversation.h"
#include "cli/json_ids.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool holds)
{
    if (!holds) abort();
}

static void ids(const char *text, size_t n)
{
    token_list l = {0};
    status st = STATUS_INIT;
    int rc = json_ids_parse(&l, text, n, &st);
    check(rc == st.code && (rc != ST_OK) == (st.text[0] != 0));
    if (rc == ST_OK) check(l.n > 0);
    for (size_t i = 0; rc == ST_OK && i < l.n; i++) check(l.ids[i] >= 0);
    token_list_deinit(&l);
}

static void messages(const char *text, size_t n)
{
    conversation c = {0};
    status st = STATUS_INIT;
    check(conversation_add(&c, "user", "before", 6, &st) == ST_OK);
    int rc = conversation_parse(&c, text, n, &st);
    check(rc == st.code);
    if (rc) check(c.n == 1 && strcmp(c.messages[0].content, "before") == 0);
    conversation_deinit(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    uint64_t live = mem_stats().live;
    ids((const char *)data, n);
    messages((const char *)data, n);
    check(mem_stats().live == live);
    return 0;
}
