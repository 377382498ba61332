#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/minmax.h"
#include "engine/forward_state.h"

static bool rotates_windows_apart(const forward *f)
{
    return f->p->window && f->p->traits->window_rope_base > 0;
}

static kv_place row_place(const forward *f, const batch_row *r, int group)
{
    const kv_seq *s = f->b->seqs[r->seq];
    int64_t len = kv_seq_len(s);
    return r->slot < len ? kv_seq_place(s, group, r->slot) : kv_seq_draft_place(s, group, (int)(r->slot - len));
}

/* A draft sees its ancestors and itself among the drafts, as far as the window reaches. Drafts on a line need no mask:
 * each sees all before it. */
static void draft_mask(forward *f, int i, int group, attn_row *row)
{
    const batch_row *r = &f->b->rows[i];
    const kv_seq *s = f->b->seqs[r->seq];
    int slot = (int)(r->slot - kv_seq_len(s));
    assert(slot < f->max_drafts);
    bool line = true;
    int n_seen = 0;
    int window = f->groups->group[group].layout.window;
    uint64_t *mask = f->masks[group][i];
    memset(mask, 0, sizeof f->masks[group][i]);
    for (int j = slot; j >= 0; j = kv_seq_draft_parent(s, j)) {
        if (!window || n_seen++ < window) mask[j / 64] |= (uint64_t)1 << (j % 64);
        line = line && kv_seq_draft_parent(s, j) == j - 1;
    }
    if (line) return;
    row->mask = mask;
    row->mask_n = slot + 1;
}

static attn_row visible(forward *f, int i, int group)
{
    int window = f->groups->group[group].layout.window;
    const batch_row *r = &f->b->rows[i];
    int64_t len = kv_seq_len(f->b->seqs[r->seq]);
    attn_row row = {.seq = r->seq, .lo = 0, .hi = r->slot + 1};
    if (window && r->position >= window) row.lo = r->position - window + 1;
    if (r->slot >= len) draft_mask(f, i, group, &row);
    return row;
}

static void plan_group(forward *f, int group)
{
    attn_plan *plan = f->plans[group];
    attn_plan_reset(plan);
    for (int s = 0; s < f->b->n_seqs; s++) {
        int n = kv_seq_spans(f->b->seqs[s], group, f->spans, f->max_spans);
        assert(n <= f->max_spans);
        int number = attn_plan_seq(plan, f->spans, n);
        assert(number == s);
        (void)number;
    }
    for (int i = 0; i < f->n; i++) {
        attn_row row = visible(f, i, group);
        attn_plan_row(plan, &row);
        f->places[group][i] = row_place(f, &f->b->rows[i], group);
    }
    unsigned how = (f->no_split ? 0 : ATTN_SPLIT) | (f->no_cascade ? 0 : ATTN_CASCADE);
    attn_plan_build(plan, threads_count(f->team), how);
}

void forward_plan(forward *f)
{
    for (int i = 0; i < f->n; i++) {
        int64_t at = (int64_t)i * f->p->n_rot;
        rope_angles(&f->m->rope, f->b->rows[i].position, f->angles[0] + at);
        if (rotates_windows_apart(f)) rope_angles(&f->m->rope_window, f->b->rows[i].position, f->angles[1] + at);
    }
    for (int g = 0; g < f->groups->n; g++) plan_group(f, g);
}

static float *floats(forward *f, int64_t rows, int64_t n)
{
    return arena_alloc(&f->memory, (size_t)rows * (size_t)n * sizeof(float), 64);
}

static bool alloc_buffers(forward *f)
{
    const arch_params *p = f->p;
    int64_t n = f->max_rows;
    f->x = floats(f, n, p->d_model);
    f->h = floats(f, n, p->d_model);
    f->q = floats(f, n, (int64_t)p->n_heads * p->d_k);
    f->k = floats(f, n, (int64_t)p->n_kv_heads * p->d_k);
    f->v = floats(f, n, (int64_t)p->n_kv_heads * p->d_v);
    f->att = floats(f, n, (int64_t)p->n_heads * p->d_v);
    f->gate = floats(f, n, p->d_ff);
    f->up = floats(f, n, p->d_ff);
    f->logits = floats(f, f->max_logit_rows, p->n_vocab);
    f->angles[0] = floats(f, n, p->n_rot);
    f->angles[1] = rotates_windows_apart(f) ? floats(f, n, p->n_rot) : f->angles[0];
    f->spans = arena_alloc(&f->memory, (size_t)f->max_spans * sizeof *f->spans, 64);
    f->lost = arena_alloc(&f->memory, (size_t)f->max_seqs * sizeof *f->lost, 64);
    bool ok = f->x && f->h && f->q && f->k && f->v && f->att && f->gate && f->up && f->logits && f->angles[0] &&
              f->angles[1] && f->spans && f->lost;
    for (int g = 0; g < f->groups->n; g++) {
        f->places[g] = arena_alloc(&f->memory, (size_t)n * sizeof *f->places[g], 64);
        f->masks[g] = arena_alloc(&f->memory, (size_t)(f->max_drafts ? n : 1) * sizeof *f->masks[g], 64);
        ok = ok && f->places[g] && f->masks[g];
    }
    return ok;
}

static int alloc_plans(forward *f, int max_workers, status *st)
{
    const arch_params *p = f->p;
    int64_t max_spans = (int64_t)f->max_spans * f->max_seqs;
    if (max_spans > INT32_MAX / 64)
        return status_set(st, ST_LIMIT, STATUS_NO_POS,
                          "%d sequences of up to %d blocks are more than a step can plan; ask for a smaller cache, "
                          "larger blocks or fewer sequences",
                          f->max_seqs, f->max_spans);
    attn_shape shape = {p->n_heads, p->n_kv_heads, p->d_k, p->d_v, kv_cache_block_tokens(f->cache)};
    for (int g = 0; g < f->groups->n; g++)
        if (attn_plan_new(&f->plans[g], f->ks, shape, max_workers, f->max_rows, f->max_seqs, (int)max_spans, st))
            return st->code;
    int64_t k = max_i64(max_i64(p->d_model, p->d_ff), (int64_t)p->n_heads * p->d_v);
    return product_scratch_init(&f->products, k, f->max_rows, st);
}

int forward_new(forward **out, const model *m, kv_cache *cache, const kv_groups *groups, threads *team,
                const forward_config *c, status *st)
{
    assert(c->max_rows >= 1 && c->max_drafts >= 0 && c->max_drafts <= FORWARD_MAX_DRAFTS);
    assert(c->max_logit_rows >= 1 && c->max_logit_rows <= FORWARD_MAX_LOGIT_ROWS);
    forward *f = mem_calloc(1, sizeof *f);
    if (!f) return status_nomem(st, sizeof *f);
    int block_tokens = kv_cache_block_tokens(cache);
    *f = (forward){.m = m, .p = &m->params, .ks = m->ks, .cache = cache, .groups = groups, .team = team,
                   .max_rows = c->max_rows, .max_seqs = c->max_seqs, .max_drafts = c->max_drafts,
                   .max_logit_rows = c->max_logit_rows, .exact = c->exact, .no_split = c->no_split,
                   .no_cascade = c->no_cascade};
    f->max_spans = (int)((kv_cache_longest_tokens(cache) + (uint64_t)c->max_drafts) / (uint64_t)block_tokens) + 2;
    arena_init(&f->memory, 0);
    if (!alloc_buffers(f)) status_nomem(st, (uint64_t)f->max_rows * (uint64_t)m->params.d_ff * 8);
    else if (!alloc_plans(f, c->max_workers, st)) {
        *out = f;
        return ST_OK;
    }
    forward_free(f);
    return st->code;
}

void forward_free(forward *f)
{
    if (!f) return;
    for (int g = 0; g < KV_MAX_GROUPS; g++) attn_plan_free(f->plans[g]);
    product_scratch_deinit(&f->products);
    arena_deinit(&f->memory);
    mem_free(f);
}
