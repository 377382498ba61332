#include "forward_net.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"

net *net_open(net_config c)
{
    status st = STATUS_INIT;
    net *n = calloc(1, sizeof *n);
    if (threads_new(&n->team, c.threads ? c.threads : 1, &st)) fail_msg("%s", st.text);
    n->n_layers = c.m->params.n_layers;
    n->d_model = c.m->params.d_model;
    kv_groups_init(&n->groups, &c.m->params);
    int chunk = c.chunk ? c.chunk : 1024;
    kv_cache_config k = {.groups = n->groups.group,
                         .n_groups = n->groups.n,
                         .format = kv_format_get(c.format ? c.format : "f16"),
                         .block_tokens = c.block_tokens,
                         .max_tokens = 768,
                         .step_tokens = (uint64_t)chunk,
                         .n_seqs = MAX_SEQS};
    if (kv_cache_new(&n->cache, &k, &st)) fail_msg("%s", st.text);
    /* What the cache holds before anything is written to it must not matter. */
    for (int g = 0; g < n->groups.n; g++) {
        pool *p = kv_cache_pool(n->cache, g);
        for (uint32_t i = 0; i < pool_count(p).total; i++) memset(pool_block(p, i), 0xFF, pool_block_bytes(p));
    }
    forward_config f = {.max_rows = chunk,
                        .max_seqs = MAX_SEQS,
                        .max_drafts = FORWARD_MAX_DRAFTS,
                        .max_logit_rows = 5,
                        .max_workers = threads_count(n->team),
                        .exact = c.exact,
                        .no_split = c.no_split};
    if (forward_new(&n->f, c.m, n->cache, &n->groups, n->team, &f, &st)) fail_msg("%s", st.text);
    return n;
}

void net_close(net *n)
{
    status st = STATUS_INIT;
    if (kv_cache_audit(n->cache, &st)) fail_msg("%s", st.text);
    forward_free(n->f);
    kv_cache_free(n->cache);
    threads_free(n->team);
    free(n);
}

kv_seq *net_seq(net *n)
{
    status st = STATUS_INIT;
    kv_seq *s = NULL;
    if (kv_seq_new(&s, n->cache, &st)) fail_msg("%s", st.text);
    return s;
}

static int seq_number(net *n, kv_seq *s)
{
    for (int i = 0; i < n->n_seqs; i++)
        if (n->seqs[i] == s) return i;
    n->seqs[n->n_seqs] = s;
    return n->n_seqs++;
}

void net_add_row(net *n, kv_seq *s, int32_t token, int64_t position, int64_t slot, float *to)
{
    n->to[n->n_rows] = to;
    n->rows[n->n_rows++] = (batch_row){token, seq_number(n, s), position, slot, to != NULL};
}

void net_add_tokens(net *n, kv_seq *s, const int32_t *ids, int n_ids, float *logits)
{
    status st = STATUS_INIT;
    int64_t at = kv_seq_len(s);
    if (kv_seq_append(s, n_ids, &st)) fail_msg("%s", st.text);
    for (int i = 0; i < n_ids; i++)
        net_add_row(n, s, ids[i], at + i, at + i, logits ? logits + (size_t)i * TINY_VOCAB : NULL);
}

void net_take_row(void *user, int row, const float *logits)
{
    net *n = user;
    memcpy(n->to[row], logits, ROW_BYTES);
}

int net_run_io(net *n, forward_io *io, status *st)
{
    batch b = {n->rows, n->n_rows, n->seqs, n->n_seqs};
    if (!io->layer_end) io->layer_end = n->n_layers;
    return forward_run(n->f, &b, io, st);
}

void net_clear(net *n)
{
    n->n_rows = n->n_seqs = 0;
}

void net_run(net *n)
{
    status st = STATUS_INIT;
    forward_io io = {.on_logits = net_take_row, .user = n};
    if (net_run_io(n, &io, &st)) fail_msg("%s", st.text);
    net_clear(n);
}

void net_run_chunks(net *n, kv_seq *s, const int32_t *ids, int n_ids, int chunk, float *logits)
{
    for (int at = 0; at < n_ids; at += chunk) {
        int left = n_ids - at;
        net_add_tokens(n, s, ids + at, left < chunk ? left : chunk, logits + (size_t)at * TINY_VOCAB);
        net_run(n);
    }
}

float *logits_new(int n)
{
    return calloc((size_t)n, ROW_BYTES);
}

float *reference(net_config c, const int32_t *ids, int n_ids)
{
    c.threads = c.block_tokens = c.chunk = 0;
    net *n = net_open(c);
    kv_seq *s = net_seq(n);
    float *logits = logits_new(n_ids);
    net_run_chunks(n, s, ids, n_ids, n_ids, logits);
    for (int i = 0; i < n_ids * TINY_VOCAB; i++) assert_true(isfinite(logits[i]));
    assert_memory_not_equal(logits, logits + TINY_VOCAB, ROW_BYTES);
    kv_seq_free(s);
    net_close(n);
    return logits;
}

char net_label[32] = "";

void same(const float *a, const float *b, int n_rows, const char *what)
{
    for (int i = 0; i < n_rows; i++)
        if (memcmp(a + (size_t)i * TINY_VOCAB, b + (size_t)i * TINY_VOCAB, ROW_BYTES))
            fail_msg("%s%s: row %d differs", net_label, what, i);
}

static tiny_config model_config(int i)
{
    tiny_config c = i % 2 ? tiny_gemma() : tiny_llama();
    const dtype types[] = {DTYPE_F32, DTYPE_F32, DTYPE_F16, DTYPE_Q8_0, DTYPE_Q4_1, DTYPE_Q4_K, DTYPE_Q6_K};
    if (i < 7) c.type = types[i];
    if (i == 2) c.n_kv_heads = 1, c.own_head = true, c.window = 9; /* every layer windowed, MQA */
    if (i == 3 || i == 4) c.d_k = c.d_v = 32;
    if (i == 5 || i == 6) { /* rows of whole super-blocks */
        c.d_model = c.d_ff = 256;
        c.d_k = c.d_v = 64;
        c.n_kv_heads = 2;
    }
    if (i == 7) { /* all heads their own, K wider than V */
        c.n_kv_heads = 4;
        c.d_v = 8;
        c.window = 12;
    }
    if (i == 8) c.arch = "qwen2";
    return c;
}

int nets_open(void **state)
{
    status st = STATUS_INIT;
    nets *w = calloc(1, sizeof *w);
    if (threads_new(&w->team, 1, &st)) return -1;
    for (int i = 0; i < N_MODELS; i++) {
        tiny_config c = model_config(i);
        w->m[0][i] = tiny_load(&c, kernels_get(CPU_SCALAR), w->team);
        w->m[1][i] = tiny_load(&c, kernels_get(CPU_AUTO), w->team);
    }
    *state = w;
    return 0;
}

int nets_close(void **state)
{
    nets *w = *state;
    for (int i = 0; i < 2 * N_MODELS; i++) model_free(w->m[i / N_MODELS][i % N_MODELS]);
    threads_free(w->team);
    free(w);
    return mem_stats().live != 0;
}

static void on_model(nets *w, int table, int i, void (*check)(net_config c))
{
    const model *m = w->m[table][i];
    snprintf(net_label, sizeof net_label, "%s, model %d, ", m->ks->name, i);
    check((net_config){.m = m});
    net_label[0] = 0;
}

void on_all(void **state, void (*check)(net_config c))
{
    for (int i = 0; i < 2 * N_MODELS; i += SANITIZED ? 4 : 1) on_model(*state, i / N_MODELS, i % N_MODELS, check);
}

void on_some(void **state, void (*check)(net_config c))
{
    const int models[] = {7, 2, 5, 0, 1};
    if (!SANITIZED) on_model(*state, 0, 1, check);
    if (!SANITIZED) on_model(*state, 0, 7, check);
    for (int i = 0; i < (SANITIZED ? 2 : 5); i++) on_model(*state, 1, models[i], check);
}

int32_t *some_ids(void)
{
    static int32_t ids[N_IDS];
    tiny_ids(ids, N_IDS, 3);
    return ids;
}
