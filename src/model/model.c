#include "model/model.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/fingerprint.h"

typedef struct loader {
    model *m;
    const gguf *g;
    const model_options *o;
    fingerprint *fingerprint; /* NULL where it is known */
    uint64_t done_bytes, total_bytes;
    size_t panels_used;
    status *st;
} loader;

static int shape_error(loader *l, const gguf_tensor *t, const char *name, int64_t k, int64_t rows)
{
    return status_set(l->st, ST_FORMAT, STATUS_NO_POS,
                      "tensor %s is %lld x %lld, but the model's parameters ask for %lld x %lld", name,
                      (long long)t->dims[0], (long long)t->dims[1], (long long)k, (long long)rows);
}

/* The tensor of that name, with data; NULL (and no error) when it is absent and not required. */
static const gguf_tensor *find(loader *l, const char *name, bool required)
{
    const gguf_tensor *t = gguf_find_tensor(l->g, name);
    if (!t && required)
        status_set(l->st, ST_FORMAT, STATUS_NO_POS, "the file lacks the tensor %s, which a %s model needs", name,
                   l->m->params.traits->name);
    if (t && !t->data) {
        const char *type = dtype_name(t->type);
        status_set(l->st, ST_UNSUPPORTED, STATUS_NO_POS, "tensor %s has type %s (%u), which Kvasir can't compute with",
                   name, type ? type : "unknown", t->type);
    }
    if (l->st->code || !t) return NULL;
    if (l->fingerprint) fingerprint_tensor(l->fingerprint, t);
    return t;
}

/* Bytes of the tensor that were read, from `offset` on: their pages can go. */
static void done_with(loader *l, const gguf_tensor *t, size_t offset, size_t n_bytes)
{
    gguf_drop(l->g, t, offset, n_bytes);
    l->done_bytes += n_bytes;
    if (l->o->progress) l->o->progress(l->o->user, l->done_bytes, l->total_bytes);
}

/* A tensor is packed in pieces of about so many bytes, so that file pages and panels are not in memory together
 * (W2). */
#define PIECE_BYTES ((size_t)8 << 20)

static void pack_pieces(loader *l, weight *w, const gguf_tensor *t, int64_t first)
{
    size_t row_bytes = dtype_row_bytes(w->type, w->k);
    int64_t step = (int64_t)(PIECE_BYTES / row_bytes / PANEL_ROWS + 1) * PANEL_ROWS;
    for (int64_t r = 0; r < w->rows; r += step) {
        int64_t n = w->rows - r < step ? w->rows - r : step;
        size_t offset = (size_t)(first + r) * row_bytes;
        weight_pack(w, l->o->ks, l->o->team, r, n, t->data + offset);
        done_with(l, t, offset, (size_t)n * row_bytes);
    }
}

/* Packs rows [first, first + rows) of a matrix with all_rows rows of k. */
static void load_rows(loader *l, weight *w, const gguf_tensor *t, const char *name, int64_t k, int64_t first,
                      int64_t rows, int64_t all_rows)
{
    if (!t || l->st->code) return;
    if (t->dims[0] != k || t->dims[1] != all_rows || t->dims[2] != 1 || t->dims[3] != 1) {
        shape_error(l, t, name, k, all_rows);
        return;
    }
    if (weight_alloc(w, l->o->ks, (dtype)t->type, rows, k, (char *)l->m->panels + l->panels_used, l->st)) {
        status_prefix(l->st, "tensor %s", name);
        return;
    }
    l->panels_used += w->n_bytes;
    assert(l->panels_used <= l->m->panels_bytes);
    weight_place(w, l->o->team);
    pack_pieces(l, w, t, first);
    l->m->weight_bytes += w->n_bytes;
}

static void load_matrix(loader *l, weight *w, const char *name, int64_t k, int64_t rows, bool required)
{
    if (!l->st->code) load_rows(l, w, find(l, name, required), name, k, 0, rows, rows);
}

static const float *load_floats(loader *l, const char *name, int64_t n, bool required)
{
    if (l->st->code) return NULL;
    const gguf_tensor *t = find(l, name, required);
    if (!t) return NULL;
    if (t->dims[0] != n || t->dims[1] != 1 || t->dims[2] != 1 || t->dims[3] != 1) {
        shape_error(l, t, name, n, 1);
        return NULL;
    }
    float *out = arena_alloc(&l->m->floats, (size_t)n * sizeof *out, 64);
    if (!out) {
        status_nomem(l->st, (uint64_t)n * sizeof *out);
        return NULL;
    }
    dtype_to_float((dtype)t->type, t->data, out, n);
    for (int64_t i = 0; i < n && !l->st->code; i++)
        if (!isfinite(out[i]))
            status_set(l->st, ST_FORMAT, STATUS_NO_POS,
                       "tensor %s: element %lld is no finite number; the file is damaged, get it again", name,
                       (long long)i);
    l->m->weight_bytes += (uint64_t)n * sizeof *out;
    done_with(l, t, 0, t->n_bytes);
    return out;
}

static const char *layer_name(char buffer[static 64], int layer, const char *what)
{
    snprintf(buffer, 64, "blk.%d.%s", layer, what);
    return buffer;
}

/* q, k, v: three tensors, or one whose rows are all of q, then of k, then of v (Phi-3). */
static void load_qkv(loader *l, model_layer *y, int i)
{
    const arch_params *p = &l->m->params;
    int64_t nq = (int64_t)p->n_heads * p->d_k, nk = (int64_t)p->n_kv_heads * p->d_k,
            nv = (int64_t)p->n_kv_heads * p->d_v;
    char name[64];
    const gguf_tensor *t = find(l, layer_name(name, i, "attn_qkv.weight"), false);
    if (t) {
        load_rows(l, &y->q, t, name, p->d_model, 0, nq, nq + nk + nv);
        load_rows(l, &y->k, t, name, p->d_model, nq, nk, nq + nk + nv);
        load_rows(l, &y->v, t, name, p->d_model, nq + nk, nv, nq + nk + nv);
        const float *bias = load_floats(l, layer_name(name, i, "attn_qkv.bias"), nq + nk + nv, false);
        if (bias) {
            y->q_bias = bias;
            y->k_bias = bias + nq;
            y->v_bias = bias + nq + nk;
        }
        return;
    }
    load_matrix(l, &y->q, layer_name(name, i, "attn_q.weight"), p->d_model, nq, true);
    load_matrix(l, &y->k, layer_name(name, i, "attn_k.weight"), p->d_model, nk, true);
    load_matrix(l, &y->v, layer_name(name, i, "attn_v.weight"), p->d_model, nv, true);
    bool bias = p->traits->qkv_bias;
    y->q_bias = load_floats(l, layer_name(name, i, "attn_q.bias"), nq, bias);
    y->k_bias = load_floats(l, layer_name(name, i, "attn_k.bias"), nk, bias);
    y->v_bias = load_floats(l, layer_name(name, i, "attn_v.bias"), nv, bias);
}

/* gate and up: two tensors, or one ffn_up whose rows are all of gate, then of up (Phi-3). */
static void load_ffn(loader *l, model_layer *y, int i)
{
    const arch_params *p = &l->m->params;
    char name[64];
    const gguf_tensor *t = find(l, layer_name(name, i, "ffn_up.weight"), true);
    if (t && t->dims[1] == 2 * (int64_t)p->d_ff) {
        load_rows(l, &y->gate, t, name, p->d_model, 0, p->d_ff, 2 * (int64_t)p->d_ff);
        load_rows(l, &y->up, t, name, p->d_model, p->d_ff, p->d_ff, 2 * (int64_t)p->d_ff);
    } else {
        load_matrix(l, &y->up, name, p->d_model, p->d_ff, true);
        load_matrix(l, &y->gate, layer_name(name, i, "ffn_gate.weight"), p->d_model, p->d_ff, true);
    }
    load_matrix(l, &y->down, layer_name(name, i, "ffn_down.weight"), p->d_ff, p->d_model, true);
}

static void load_layer(loader *l, int i)
{
    const arch_params *p = &l->m->params;
    model_layer *y = &l->m->layers[i];
    char name[64];
    load_qkv(l, y, i);
    load_matrix(l, &y->o, layer_name(name, i, "attn_output.weight"), (int64_t)p->n_heads * p->d_v, p->d_model, true);
    y->o_bias = load_floats(l, layer_name(name, i, "attn_output.bias"), p->d_model, false);
    load_ffn(l, y, i);
    y->attn_norm = load_floats(l, layer_name(name, i, "attn_norm.weight"), p->d_model, true);
    y->ffn_norm = load_floats(l, layer_name(name, i, "ffn_norm.weight"), p->d_model, true);
    if (p->traits->family == FAMILY_GEMMA) {
        y->post_attn_norm = load_floats(l, layer_name(name, i, "post_attention_norm.weight"), p->d_model, true);
        y->post_ffn_norm = load_floats(l, layer_name(name, i, "post_ffw_norm.weight"), p->d_model, true);
    }
    if (p->traits->qk_norm) {
        y->q_norm = load_floats(l, layer_name(name, i, "attn_q_norm.weight"), p->d_k, true);
        y->k_norm = load_floats(l, layer_name(name, i, "attn_k_norm.weight"), p->d_k, true);
    }
}

/* Divisors of the angles: LongRoPE has a set for contexts within the original one and a set for longer ones. */
static const float *load_rope_factors(loader *l)
{
    const arch_params *p = &l->m->params;
    const char *name = "rope_freqs.weight";
    bool longrope = p->rope.scaling == ROPE_SCALING_LONGROPE || gguf_find_tensor(l->g, "rope_factors_long.weight");
    if (longrope) {
        int context = l->o->context ? l->o->context : p->context_length;
        l->m->rope_context = context;
        name = context > p->rope.original_context ? "rope_factors_long.weight" : "rope_factors_short.weight";
    }
    return load_floats(l, name, p->n_rot / 2, longrope);
}

static void load_rope(loader *l)
{
    model *m = l->m;
    const float *factors = load_rope_factors(l);
    for (int i = 0; factors && !l->st->code && i < m->params.n_rot / 2; i++)
        if (!(factors[i] > 0))
            status_set(l->st, ST_FORMAT, STATUS_NO_POS, "RoPE factor %d is %g; it must be above zero", i,
                       (double)factors[i]);
    if (l->st->code || rope_init(&m->rope, &m->params.rope, m->params.n_rot, factors, l->st)) return;
    rope_init(&m->rope_window, &m->params.rope_window, m->params.n_rot,
              m->params.traits->window_rope_base > 0 ? NULL : factors, l->st);
}

/* Room for the panels of every tensor that load_rows may accept, each as up to three matrices: one run of memory in the
 * order of loading, so that huge pages back even small matrices and a layer's lie together. */
static int alloc_panels(loader *l)
{
    model *m = l->m;
    for (size_t i = 0; i < gguf_tensor_count(l->g); i++) {
        const gguf_tensor *t = gguf_tensor_at(l->g, i);
        size_t n_bytes;
        if (!t->data || t->dims[2] != 1 || t->dims[3] != 1) continue;
        if (weight_size(&n_bytes, l->o->ks, (dtype)t->type, t->dims[1] + 2 * PANEL_ROWS, t->dims[0], l->st))
            return l->st->code;
        if (__builtin_add_overflow(m->panels_bytes, n_bytes, &m->panels_bytes)) return status_nomem(l->st, SIZE_MAX);
    }
    m->panels = mem_pages_alloc(m->panels_bytes);
    return m->panels ? ST_OK : status_nomem(l->st, m->panels_bytes);
}

static void load_weights(loader *l)
{
    model *m = l->m;
    const arch_params *p = &m->params;
    if (alloc_panels(l)) return;
    load_matrix(l, &m->embed, "token_embd.weight", p->d_model, p->n_vocab, true);
    load_matrix(l, &m->own_head, "output.weight", p->d_model, p->n_vocab, false);
    m->head = m->own_head.panels ? &m->own_head : &m->embed;
    m->output_norm = load_floats(l, "output_norm.weight", p->d_model, true);
    load_rope(l);
    for (int i = 0; i < p->n_layers && !l->st->code; i++) load_layer(l, i);
    m->step_bytes = m->weight_bytes - (m->own_head.panels ? m->embed.n_bytes : 0);
}

static int load_texts(loader *l, const char *path)
{
    model *m = l->m;
    if (tokenizer_new(&m->tok, l->g, l->st)) return l->st->code;
    if (tokenizer_vocab_size(m->tok) > m->params.n_vocab)
        return status_set(l->st, ST_FORMAT, STATUS_NO_POS,
                          "the tokenizer has %d tokens, but the embedding only %d rows", tokenizer_vocab_size(m->tok),
                          m->params.n_vocab);
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    gguf_str name = {base, strlen(base)}, source = {NULL, 0};
    if (gguf_get_str(l->g, "general.name", &name, NULL, l->st) ||
        gguf_get_str(l->g, "tokenizer.chat_template", &source, NULL, l->st))
        return l->st->code;
    m->name = mem_strndup(name.data, name.n);
    if (source.data) m->chat_template = mem_strndup(source.data, source.n);
    if (!m->name || (source.data && !m->chat_template)) return status_nomem(l->st, name.n + source.n);
    return ST_OK;
}

static int load(loader *l, const char *path)
{
    model *m = l->m;
    if (arch_read(&m->params, l->g, l->st)) return l->st->code;
    m->layers = mem_calloc((size_t)m->params.n_layers, sizeof *m->layers);
    if (!m->layers) return status_nomem(l->st, (uint64_t)m->params.n_layers * sizeof *m->layers);
    for (size_t i = 0; i < gguf_tensor_count(l->g); i++) l->total_bytes += gguf_tensor_at(l->g, i)->n_bytes;
    const uint8_t *known = gguf_part_count(l->g) == 1 ? l->o->known_fingerprint : NULL; /* who knows saw one file */
    if (load_texts(l, path)) return l->st->code;
    if (known) memcpy(m->fingerprint, known, sizeof m->fingerprint);
    else if (fingerprint_new(&l->fingerprint, l->g, l->o->team, l->st)) return l->st->code;
    load_weights(l);
    if (!l->st->code && !known) fingerprint_finish(l->fingerprint, m->fingerprint, l->st);
    return l->st->code;
}

int model_load(model **out, const char *path, const model_options *o, status *st)
{
    gguf *g;
    if (gguf_open(&g, path, st)) return st->code;
    model *m = mem_calloc(1, sizeof *m);
    if (!m) {
        gguf_close(g);
        return status_nomem(st, sizeof *m);
    }
    st->code = ST_OK; /* the loader reads it to stop at the first failure */
    m->ks = o->ks;
    arena_init(&m->floats, 0);
    loader l = {.m = m, .g = g, .o = o, .st = st};
    if (load(&l, path)) {
        model_free(m);
        m = NULL;
    }
    fingerprint_free(l.fingerprint);
    gguf_close(g);
    if (st->code) return status_prefix(st, "%s", path);
    *out = m;
    return ST_OK;
}

void model_free(model *m)
{
    if (!m) return;
    mem_pages_free(m->panels, m->panels_bytes);
    rope_deinit(&m->rope);
    rope_deinit(&m->rope_window);
    arena_deinit(&m->floats);
    tokenizer_free(m->tok);
    mem_free(m->layers);
    mem_free(m->chat_template);
    mem_free(m->name);
    mem_free(m);
}
