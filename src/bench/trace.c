#include "bench/trace.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct trace_name {
    int64_t id;
    uint32_t salt;
    uint32_t number; /* 1 + it; 0 = empty */
};

/* Room for one element more in an array of `size` bytes each. */
static int reserve(void **array, size_t *cap, size_t n, size_t size, status *st)
{
    if (n < *cap) return ST_OK;
    size_t more = n < 1024 ? 1024 : n * 2;
    void *p = mem_resize(*array, more, size);
    if (!p) return status_nomem(st, more * size);
    *array = p;
    *cap = more;
    return ST_OK;
}

static trace_name *find(trace_name *names, size_t cap, int64_t id, uint32_t salt)
{
    uint64_t h = ((uint64_t)id ^ (uint64_t)salt << 40) * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(h >> 20) & (cap - 1);
    while (names[i].number && (names[i].id != id || names[i].salt != salt)) i = (i + 1) & (cap - 1);
    return &names[i];
}

static int grow_names(trace *t, status *st)
{
    size_t cap = t->names_cap ? t->names_cap * 2 : 4096;
    trace_name *names = mem_calloc(cap, sizeof *names);
    if (!names) return status_nomem(st, cap * sizeof *names);
    for (size_t i = 0; i < t->names_cap; i++)
        if (t->names[i].number) *find(names, cap, t->names[i].id, t->names[i].salt) = t->names[i];
    mem_free(t->names);
    t->names = names;
    t->names_cap = cap;
    return ST_OK;
}

static int add_block(trace *t, int64_t id, uint32_t salt, status *st)
{
    if (t->n_distinct * (size_t)2 >= t->names_cap && grow_names(t, st)) return st->code;
    if (t->n_distinct == INT32_MAX)
        return status_set(st, ST_LIMIT, STATUS_NO_POS, "more than %d different blocks", INT32_MAX);
    if (reserve((void **)&t->blocks, &t->blocks_cap, t->n_blocks, sizeof *t->blocks, st)) return st->code;
    trace_name *name = find(t->names, t->names_cap, id, salt);
    if (!name->number) *name = (trace_name){id, salt, ++t->n_distinct};
    t->blocks[t->n_blocks++] = (int32_t)(name->number - 1);
    return ST_OK;
}

static int bad(status *st, const char *what)
{
    return status_set(st, ST_FORMAT, STATUS_NO_POS, "%s", what);
}

static int add_request(trace *t, const json_t *request, const char *time_name, uint32_t salt, status *st)
{
    const json_t *ids = json_object_get(request, "hash_ids"), *time = json_object_get(request, time_name);
    if (!json_is_array(ids)) return bad(st, "a request needs hash_ids, an array");
    if (json_array_size(ids) > UINT32_MAX) return bad(st, "hash_ids has too many elements");
    if (time && !json_is_number(time)) return status_set(st, ST_FORMAT, STATUS_NO_POS, "%s is no number", time_name);
    if (reserve((void **)&t->requests, &t->requests_cap, t->n_requests, sizeof *t->requests, st) ||
        reserve((void **)&t->blocks, &t->blocks_cap, t->n_blocks, sizeof *t->blocks, st)) /* also when it has none */
        return st->code;
    double before = t->n_requests ? t->requests[t->n_requests - 1].time : 0;
    trace_request r = {.time = time ? json_number_value(time) : before,
                       .salt = salt,
                       .n = (uint32_t)json_array_size(ids),
                       .first = t->n_blocks};
    for (size_t i = 0; i < r.n; i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id))
            return status_set(st, ST_FORMAT, STATUS_NO_POS, "element %zu of hash_ids is no integer", i);
        if (add_block(t, json_integer_value(id), salt, st)) return st->code;
    }
    t->requests[t->n_requests++] = r;
    return ST_OK;
}

static int add_conversation(trace *t, const json_t *line, status *st)
{
    const json_t *requests = json_object_get(line, "requests"), *scope = json_object_get(line, "hash_id_scope");
    if (!json_is_array(requests)) return bad(st, "requests is no array");
    if (scope && !json_is_string(scope)) return bad(st, "hash_id_scope is no string");
    bool local = scope && strcmp(json_string_value(scope), "local") == 0;
    if (scope && !local && strcmp(json_string_value(scope), "global") != 0)
        return status_set(st, ST_UNSUPPORTED, STATUS_NO_POS, "hash_id_scope is '%.40s', neither local nor global",
                          json_string_value(scope));
    uint32_t salt = local ? t->n_salts++ : 0;
    for (size_t i = 0; i < json_array_size(requests); i++) {
        const json_t *r = json_array_get(requests, i);
        if (!json_is_object(r)) return bad(st, "a request is no object");
        if (!json_object_get(r, "requests") && add_request(t, r, "t", salt, st))
            return status_prefix(st, "request %zu", i);
    }
    return ST_OK;
}

int trace_add(trace *t, const char *line, size_t n_bytes, status *st)
{
    json_error_t e;
    size_t blank = 0;
    while (blank < n_bytes && strchr(" \t\r\n", line[blank]) && line[blank]) blank++;
    if (blank == n_bytes) return ST_OK;
    if (memchr(line, 0, n_bytes)) return bad(st, "a zero byte");
    json_t *value = json_loadb(line, n_bytes, 0, &e);
    if (!value && *e.text) return status_set(st, ST_FORMAT, STATUS_NO_POS, "column %d: %s", e.column, e.text);
    if (!value) return status_nomem(st, n_bytes);
    int rc = ST_OK;
    if (!json_is_object(value)) rc = bad(st, "not a JSON object");
    else if (json_object_get(value, "requests")) rc = add_conversation(t, value, st);
    else rc = add_request(t, value, "timestamp", 0, st);
    json_decref(value);
    return rc;
}

/* Their places among the blocks tell which came first. */
static int by_time(const void *a, const void *b)
{
    const trace_request *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return (x->n > y->n) - (x->n < y->n);
}

void trace_sort(trace *t)
{
    if (t->n_requests) qsort(t->requests, t->n_requests, sizeof *t->requests, by_time);
}

void trace_deinit(trace *t)
{
    mem_free(t->requests);
    mem_free(t->blocks);
    mem_free(t->names);
    *t = (trace)TRACE_INIT;
}
