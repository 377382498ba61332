#include "bench/bench.h"

#include "base/mem.h"

#define NOISE_ROWS 64
#define ROW_GRAIN 8

typedef struct fill_job {
    const engine *e;
    kv_seq *seq;
    const float *noise; /* [NOISE_ROWS][d] */
    int d;
    int64_t first;
} fill_job;

/* One token's K and V in all layers and heads of a group. */
static void fill_row(const fill_job *j, int group, int64_t index)
{
    const kv_cache *c = engine_cache(j->e);
    const kv_group *g = kv_cache_group(c, group);
    const kv_format *f = kv_cache_format(c);
    const kernels *ks = engine_model(j->e)->ks;
    int block_tokens = kv_cache_block_tokens(c);
    kv_place p = kv_seq_place(j->seq, group, index);
    for (int l = 0; l < g->n_layers; l++)
        for (int h = 0; h < g->layout.n_kv_heads; h++) {
            const float *k = j->noise + (index * 7 + l * 5 + h) % NOISE_ROWS * j->d,
                        *v = j->noise + (index * 11 + l * 3 + h) % NOISE_ROWS * j->d;
            f->write_k(ks, p.block + kv_k_offset(c, group, l, h), block_tokens, p.row, k, g->layout.d_k);
            f->write_v(ks, p.block + kv_v_offset(c, group, l, h), block_tokens, p.row, v, g->layout.d_v);
        }
}

static void fill_rows(void *arg, int begin, int end, int worker)
{
    (void)worker;
    const fill_job *j = arg;
    for (int g = 0; g < kv_cache_n_groups(engine_cache(j->e)); g++)
        for (int i = begin; i < end; i++) fill_row(j, g, j->first + i);
}

/* In steps as a prompt takes them: behind a window, blocks go before the next ones come. */
int bench_fill_noise(engine *e, kv_seq *seq, int n, status *st)
{
    const arch_params *p = &engine_model(e)->params;
    fill_job j = {.e = e, .seq = seq, .d = p->d_k > p->d_v ? p->d_k : p->d_v};
    size_t n_floats = (size_t)NOISE_ROWS * (size_t)j.d;
    float *noise = mem_array(n_floats, sizeof *noise);
    if (!noise) return status_nomem(st, n_floats * sizeof *noise);
    uint32_t x = 1;
    for (size_t i = 0; i < n_floats; i++) {
        x = x * 1664525u + 1013904223u;
        noise[i] = (float)(x >> 8) * 0x1p-23f - 1;
    }
    j.noise = noise;
    int chunk = engine_chunk(e), rc = ST_OK;
    for (int at = 0; at < n && rc == ST_OK; at += chunk) {
        int m = n - at < chunk ? n - at : chunk;
        j.first = kv_seq_len(seq);
        rc = kv_seq_append(seq, m, st);
        if (rc == ST_OK) threads_run(engine_team(e), fill_rows, &j, m, ROW_GRAIN);
    }
    mem_free(noise);
    return rc;
}
