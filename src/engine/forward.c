#include "engine/forward.h"

#include <assert.h>
#include <string.h>

#include "base/arena.h"
#include "engine/forward_state.h"

void forward_norm(forward *f, const float *w)
{
    assert(!f->due.norm);
    f->due.norm = w;
}

void forward_add(forward *f, const float *post_norm)
{
    assert(!f->due.add && !f->due.norm);
    f->due.add = true;
    f->due.post_norm = post_norm;
}

static void make_row(void *arg, int i)
{
    forward *f = arg;
    const arch_params *p = f->p;
    int64_t d = p->d_model;
    float *x = f->x + i * d, *h = f->h + i * d;
    if (f->due.post_norm) f->ks->rms_norm(h, f->due.post_norm, p->norm_eps, d, h);
    if (f->due.add) f->ks->add(x, h, d, x);
    if (f->due.norm) f->ks->rms_norm(x, f->due.norm, p->norm_eps, d, h);
}

static void make_rows(void *arg, int begin, int end, int worker)
{
    (void)worker;
    for (int i = begin; i < end; i++) make_row(arg, i);
}

/* Adds what is due now, for those who read x itself. */
static void settle(forward *f)
{
    phase_enter(&f->phases, PHASE_ELEMENTWISE);
    if (f->due.add) threads_run(f->team, make_rows, f, f->n, ROW_GRAIN);
    f->due = (row_work){0};
    phase_enter(&f->phases, PHASE_OTHER);
}

/* Y = h W^T, with h's rows made as they are read. */
static void multiply(forward *f, const product *products, int n_products, gate_fn *gate)
{
    int64_t d = f->p->d_model;
    phase_enter(&f->phases, PHASE_PRODUCTS);
    product_call c = {f->h, d, f->n, make_row, f, products, n_products, gate, f->exact};
    product_run(f->ks, f->team, &f->products, &c);
    f->due = (row_work){0};
}

static void project(forward *f, const weight *w, const float *bias, const float *x)
{
    assert(!f->due.add && !f->due.norm);
    product p = {w, bias, f->h, w->rows};
    phase_enter(&f->phases, PHASE_PRODUCTS);
    product_call c = {.x = x, .x_stride = w->k, .n = f->n, .products = &p, .n_products = 1, .exact = f->exact};
    product_run(f->ks, f->team, &f->products, &c);
}

/* One row of q, k, v: norm of the heads, RoPE, and K, V into the row's place. */
typedef struct store_job {
    forward *f;
    int layer, group;
    const model_layer *y;
    const float *angles; /* [n][n_rot], or NULL: a layer without positions */
} store_job;

static void store_row(const store_job *j, int i)
{
    forward *f = j->f;
    const arch_params *p = f->p;
    float *q = f->q + (int64_t)i * p->n_heads * p->d_k, *k = f->k + (int64_t)i * p->n_kv_heads * p->d_k;
    const float *v = f->v + (int64_t)i * p->n_kv_heads * p->d_v;
    if (j->y->q_norm) {
        for (int h = 0; h < p->n_heads; h++)
            f->ks->rms_norm(q + h * p->d_k, j->y->q_norm, p->norm_eps, p->d_k, q + h * p->d_k);
        for (int h = 0; h < p->n_kv_heads; h++)
            f->ks->rms_norm(k + h * p->d_k, j->y->k_norm, p->norm_eps, p->d_k, k + h * p->d_k);
    }
    if (j->angles) {
        const float *angles = j->angles + (int64_t)i * p->n_rot;
        f->ks->rope(q, p->n_heads, p->d_k, p->n_rot, angles, p->traits->rope);
        f->ks->rope(k, p->n_kv_heads, p->d_k, p->n_rot, angles, p->traits->rope);
    }
    const kv_format *format = kv_cache_format(f->cache);
    kv_place place = f->places[j->group][i];
    int block_tokens = kv_cache_block_tokens(f->cache), l = f->groups->index_of[j->layer];
    for (int h = 0; h < p->n_kv_heads; h++) {
        format->write_k(f->ks, place.block + kv_k_offset(f->cache, j->group, l, h), block_tokens, place.row,
                        k + h * p->d_k, p->d_k);
        format->write_v(f->ks, place.block + kv_v_offset(f->cache, j->group, l, h), block_tokens, place.row,
                        v + h * p->d_v, p->d_v);
    }
}

static void store_rows(void *arg, int begin, int end, int worker)
{
    (void)worker;
    for (int i = begin; i < end; i++) store_row(arg, i);
}

void forward_qkv(forward *f, const model_layer *y, int layer)
{
    const arch_params *p = f->p;
    product qkv[] = {{&y->q, y->q_bias, f->q, y->q.rows},
                     {&y->k, y->k_bias, f->k, y->k.rows},
                     {&y->v, y->v_bias, f->v, y->v.rows}};
    multiply(f, qkv, 3, NULL);
    phase_enter(&f->phases, PHASE_ELEMENTWISE);
    bool windowed = arch_layer_windowed(p, layer);
    store_job j = {f, layer, f->groups->group_of[layer], y,
                   arch_layer_has_rope(p, layer) ? f->angles[windowed] : NULL};
    threads_run(f->team, store_rows, &j, f->n, ROW_GRAIN);
    if (f->io->kv_ready) f->io->kv_ready(f->io->user, layer);
}

static void wait_for_kv(forward *f, int layer)
{
    for (int s = 0; s < f->b->n_seqs; s++) {
        status st = STATUS_INIT;
        if (f->lost[s] || f->io->kv_wait(f->io->user, layer, s, &st) == ST_OK) continue;
        f->lost[s] = true;
        f->io->on_lost(f->io->user, s, &st);
    }
}

void forward_attend(forward *f, int layer)
{
    phase_enter(&f->phases, PHASE_ATTENTION);
    if (f->io->kv_wait) wait_for_kv(f, layer);
    int group = f->groups->group_of[layer], l = f->groups->index_of[layer];
    bool many = f->p->n_kv_heads > 1;
    size_t k0 = kv_k_offset(f->cache, group, l, 0), v0 = kv_v_offset(f->cache, group, l, 0);
    const pool *blocks = kv_cache_pool(f->cache, group);
    attn_layer a = {.source[ATTN_EXACT] = {.attend = kv_cache_format(f->cache)->attend(f->ks),
                                           .blocks = pool_block(blocks, 0),
                                           .block_bytes = pool_block_bytes(blocks),
                                           .block_tokens = kv_cache_block_tokens(f->cache),
                                           .k_offset = k0,
                                           .v_offset = v0,
                                           .k_head_stride = many ? kv_k_offset(f->cache, group, l, 1) - k0 : 0,
                                           .v_head_stride = many ? kv_v_offset(f->cache, group, l, 1) - v0 : 0},
                    .scale = f->p->attn_scale,
                    .softcap = f->p->attn_softcap};
    attn_run(f->plans[group], f->team, &a, f->q, f->att);
}

void forward_out(forward *f, const model_layer *y)
{
    project(f, &y->o, y->o_bias, f->att);
}

void forward_ffn(forward *f, const model_layer *y)
{
    int64_t d = f->p->d_ff;
    product gate_up[] = {{&y->gate, NULL, f->gate, d}, {&y->up, NULL, f->up, d}};
    multiply(f, gate_up, 2, f->p->traits->family == FAMILY_GEMMA ? f->ks->gelu_mul : f->ks->silu_mul);
    project(f, &y->down, NULL, f->gate);
}

void forward_tap(forward *f, int layer)
{
    for (int i = 0; i < f->io->n_taps; i++) {
        if (f->io->tap_layers[i] != layer) continue;
        settle(f);
        f->io->on_tap(f->io->user, layer, f->x);
    }
}

/* x [n][d_model] = the tokens' rows of the embedding, scaled. */
static void embed_rows(void *arg, int begin, int end, int worker)
{
    (void)worker;
    forward *f = arg;
    int64_t d = f->p->d_model;
    for (int i = begin; i < end; i++) {
        weight_row(&f->m->embed, f->ks, f->b->rows[i].token, f->x + i * d);
        if (f->p->embed_scale != 1.0f) f->ks->scale(f->x + i * d, f->p->embed_scale, d, f->x + i * d);
    }
}

/* Rows whose logits are there. */
typedef struct head_rows {
    forward *f;
    const int *rows; /* of the batch */
} head_rows;

static void cap_rows(void *arg, int begin, int end, int worker)
{
    (void)worker;
    const head_rows *h = arg;
    int64_t vocab = h->f->p->n_vocab;
    for (int r = begin; r < end; r++) {
        float *logits = h->f->logits + r * vocab;
        h->f->ks->softcap(logits, h->f->p->logit_softcap, vocab, logits);
    }
}

static void work_rows(void *arg, int begin, int end, int worker)
{
    const head_rows *h = arg;
    const forward_io *io = h->f->io;
    for (int r = begin; r < end; r++)
        io->each_logits(io->user, h->rows[r], h->f->logits + r * (int64_t)h->f->p->n_vocab, worker);
}

/* Final norm and head for the rows that want logits, max_logit_rows at a time. */
static void run_head(forward *f)
{
    const arch_params *p = f->p;
    int64_t d = p->d_model, vocab = p->n_vocab;
    int rows[FORWARD_MAX_LOGIT_ROWS], n = 0;
    phase_enter(&f->phases, PHASE_HEAD);
    for (int i = 0; i < f->n; i++) {
        if (f->b->rows[i].wants_logits && !f->lost[f->b->rows[i].seq]) {
            f->ks->rms_norm(f->x + i * d, f->m->output_norm, p->norm_eps, d, f->h + n * d);
            rows[n++] = i;
        }
        if (n == 0 || (n < f->max_logit_rows && i < f->n - 1)) continue;
        product head = {f->m->head, NULL, f->logits, vocab};
        product_call c = {.x = f->h, .x_stride = d, .n = n, .products = &head, .n_products = 1, .exact = f->exact};
        product_run(f->ks, f->team, &f->products, &c);
        head_rows h = {f, rows};
        if (p->logit_softcap > 0) threads_run(f->team, cap_rows, &h, n, 1);
        phase_enter(&f->phases, PHASE_SAMPLING);
        if (f->io->each_logits) threads_run(f->team, work_rows, &h, n, 1);
        for (int r = 0; r < n; r++) f->io->on_logits(f->io->user, rows[r], f->logits + r * vocab);
        phase_enter(&f->phases, PHASE_HEAD);
        n = 0;
    }
}

static int check_batch(const forward *f, const batch *b, status *st)
{
    assert(b->n_rows >= 1 && b->n_rows <= f->max_rows && b->n_seqs >= 1 && b->n_seqs <= f->max_seqs);
    for (int i = 0; i < b->n_rows; i++) {
        int32_t t = b->rows[i].token;
        if (t < 0 || t >= f->p->n_vocab)
            return status_set(st, ST_ARG, (uint64_t)i, "token %d is not in the vocabulary of %d", t, f->p->n_vocab);
    }
    return ST_OK;
}

phase_clock *forward_phases(forward *f)
{
    return &f->phases;
}

int forward_run(forward *f, const batch *b, const forward_io *io, status *st)
{
    if (check_batch(f, b, st)) return st->code;
    assert(io->layer_begin >= 0 && io->layer_begin <= io->layer_end && io->layer_end <= f->p->n_layers);
    f->b = b;
    f->io = io;
    f->n = b->n_rows;
    f->due = (row_work){0};
    memset(f->lost, 0, (size_t)b->n_seqs * sizeof *f->lost);
    phase_enter(&f->phases, PHASE_OTHER);
    forward_plan(f);
    size_t n_floats = (size_t)f->n * (size_t)f->p->d_model;
    if (io->hidden_in) memcpy(f->x, io->hidden_in, n_floats * sizeof *f->x);
    else threads_run(f->team, embed_rows, f, f->n, ROW_GRAIN);
    if (f->p->traits->family == FAMILY_GEMMA) forward_gemma(f);
    else forward_llama(f);
    settle(f);
    if (io->hidden_out) memcpy(io->hidden_out, f->x, n_floats * sizeof *f->x);
    if (io->on_logits && io->layer_end == f->p->n_layers) run_head(f);
    phase_enter(&f->phases, PHASE_OTHER);
    return ST_OK;
}
