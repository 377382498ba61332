#include "kernel/product.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"

#define STRIP_INPUTS 32
/* Rows are quantized by the caller alone up to so many values: waking the team costs more. */
#define QUANTIZE_ALONE 16384
/* A piece of work takes about so many bytes of weights times columns: enough that claiming it, and the first reads of a
 * new place in memory, cost little beside it. */
#define PIECE_BYTES (256 << 10)
/* Of more than a few columns, it has a multiple of so many panels, since kernels share activations between them. */
#define FEW_COLUMNS 8
#define PIECE_PANELS 4

static int64_t panels_of(const weight *w)
{
    return (w->rows + PANEL_ROWS - 1) / PANEL_ROWS;
}

typedef struct pack_job {
    const weight *w;
    const kernels *ks;
    const uint8_t *data;
    int64_t first, n_rows; /* of the rows at data */
    size_t row_bytes, panel_bytes;
} pack_job;

static void pack_panels(void *arg, int begin, int end, int worker)
{
    (void)worker;
    const pack_job *j = arg;
    for (int64_t p = begin; p < end; p++) {
        int64_t left = j->n_rows - p * PANEL_ROWS;
        j->ks->pack(j->w->type, j->data + (size_t)p * PANEL_ROWS * j->row_bytes,
                    left < PANEL_ROWS ? (int)left : PANEL_ROWS, j->w->k,
                    (uint8_t *)j->w->panels + (size_t)(j->first / PANEL_ROWS + p) * j->panel_bytes);
    }
}

int weight_alloc(weight *w, const kernels *ks, dtype t, int64_t rows, int64_t k, status *st)
{
    assert(dtype_get(t) && rows > 0 && k > 0 && k % dtype_get(t)->block_elems == 0);
    weight made = {.type = t, .rows = rows, .k = k};
    if (rows > (int64_t)1 << 31 ||
        __builtin_mul_overflow(ks->panel_bytes(t, k), (size_t)panels_of(&made), &made.n_bytes))
        return status_set(st, ST_LIMIT, STATUS_NO_POS, "a matrix of %lld x %lld is too large", (long long)rows,
                          (long long)k);
    made.panels = mem_pages_alloc(made.n_bytes);
    if (!made.panels) return status_nomem(st, made.n_bytes);
    *w = made;
    return ST_OK;
}

void weight_pack(weight *w, const kernels *ks, threads *team, int64_t first, int64_t n_rows, const void *data)
{
    assert(first % PANEL_ROWS == 0 && n_rows > 0 && first + n_rows <= w->rows);
    pack_job j = {w, ks, data, first, n_rows, dtype_row_bytes(w->type, w->k), ks->panel_bytes(w->type, w->k)};
    int64_t grain = (int64_t)((1 << 18) / j.panel_bytes) + 1;
    threads_run(team, pack_panels, &j, (int)((n_rows + PANEL_ROWS - 1) / PANEL_ROWS), (int)grain);
}

int weight_init(weight *w, const kernels *ks, threads *team, dtype t, int64_t rows, int64_t k, const void *data,
                status *st)
{
    if (weight_alloc(w, ks, t, rows, k, st)) return st->code;
    weight_pack(w, ks, team, 0, rows, data);
    return ST_OK;
}

void weight_deinit(weight *w)
{
    mem_pages_free(w->panels, w->n_bytes);
    memset(w, 0, sizeof *w);
}

void weight_row(const weight *w, const kernels *ks, int64_t r, float *out)
{
    assert(r >= 0 && r < w->rows);
    const uint8_t *panel = (const uint8_t *)w->panels + (size_t)(r / PANEL_ROWS) * ks->panel_bytes(w->type, w->k);
    ks->unpack_row(w->type, panel, (int)(r % PANEL_ROWS), w->k, out);
}

int product_scratch_init(product_scratch *s, int64_t max_k, int max_n, status *st)
{
    assert(max_k > 0 && max_n > 0);
    int64_t strips = (max_k + STRIP_INPUTS - 1) / STRIP_INPUTS;
    size_t n_bytes = (size_t)strips * (size_t)max_n * sizeof *s->strips;
    act_strip *p = mem_pages_alloc(n_bytes);
    if (!p) return status_nomem(st, n_bytes);
    *s = (product_scratch){p, strips * STRIP_INPUTS, max_n};
    return ST_OK;
}

void product_scratch_deinit(product_scratch *s)
{
    if (s->strips) mem_pages_free(s->strips, (size_t)(s->max_k / STRIP_INPUTS) * (size_t)s->max_n * sizeof *s->strips);
    memset(s, 0, sizeof *s);
}

/* A worker's run of panels. It takes piece after piece of its own, so that it reads on where it has prefetched; who has
 * finished takes from the others'. */
typedef struct share {
    _Alignas(64) _Atomic int64_t next;
    int64_t end;
} share;

typedef struct product_job {
    const kernels *ks;
    act_strip *strips;
    const float *x;
    int64_t x_stride, k;
    int n;
    bool exact;
    const product *products;
    int n_products, n_shares;
    int64_t piece; /* panels */
    share *shares;
} product_job;

static int tile_columns(int n, int first)
{
    return n - first < ACT_COLS ? n - first : ACT_COLS;
}

/* Strips of the tile whose first column is `first`. */
static act_strip *tile_strips(const product_job *j, int first)
{
    return j->strips + (size_t)first * (size_t)(j->k / STRIP_INPUTS);
}

static void quantize_rows(void *arg, int begin, int end, int worker)
{
    (void)worker;
    const product_job *j = arg;
    for (int c = begin; c < end; c++) {
        int first = c / ACT_COLS * ACT_COLS;
        j->ks->quantize(j->x + c * j->x_stride, j->k, tile_strips(j, first), c - first, tile_columns(j->n, first));
    }
}

static void add_bias(const product *p, int64_t row, int64_t n_rows, float *y, int n_cols)
{
    if (!p->bias) return;
    for (int c = 0; c < n_cols; c++)
        for (int64_t r = 0; r < n_rows; r++) y[c * p->y_stride + r] += p->bias[row + r];
}

/* Panels [begin, end) of one weight times one tile, whose y starts at column `first`. */
static void tile_product(const product_job *j, const product *p, int64_t begin, int64_t end, const act_tile *a,
                         int first)
{
    const weight *w = p->w;
    product_fn *fn = j->exact ? j->ks->product_exact[w->type] : j->ks->product[w->type];
    const uint8_t *panels = w->panels;
    size_t panel_bytes = j->ks->panel_bytes(w->type, w->k);
    int64_t full = w->rows / PANEL_ROWS, last = end < full ? end : full;
    float *y = p->y + first * p->y_stride;
    if (last > begin) {
        fn(w->type, panels + (size_t)begin * panel_bytes, (int)(last - begin), w->k, a, y + begin * PANEL_ROWS,
           p->y_stride);
        add_bias(p, begin * PANEL_ROWS, (last - begin) * PANEL_ROWS, y + begin * PANEL_ROWS, a->n_cols);
    }
    if (end <= full) return;
    /* The last panel has rows that y hasn't. */
    float buffer[ACT_COLS][PANEL_ROWS];
    int64_t rest = w->rows - full * PANEL_ROWS;
    fn(w->type, panels + (size_t)full * panel_bytes, 1, w->k, a, buffer[0], PANEL_ROWS);
    for (int c = 0; c < a->n_cols; c++)
        memcpy(y + c * p->y_stride + full * PANEL_ROWS, buffer[c], (size_t)rest * sizeof *y);
    add_bias(p, full * PANEL_ROWS, rest, y + full * PANEL_ROWS, a->n_cols);
}

/* Units are the panels of all products in a row; a piece's weights are read from memory once for all tiles. */
static void multiply(const product_job *j, int64_t begin, int64_t end)
{
    int64_t base = 0;
    for (int i = 0; i < j->n_products && base < end; i++) {
        const product *p = &j->products[i];
        int64_t n_panels = panels_of(p->w), from = begin > base ? begin - base : 0,
                to = end - base < n_panels ? end - base : n_panels;
        base += n_panels;
        if (from >= to) continue;
        for (int first = 0; first < j->n; first += ACT_COLS) {
            act_tile a = {tile_strips(j, first), j->x + first * j->x_stride, j->x_stride, tile_columns(j->n, first)};
            tile_product(j, p, from, to, &a, first);
        }
    }
}

static void multiply_shares(void *arg, int begin, int end, int worker)
{
    (void)worker;
    const product_job *j = arg;
    for (int first = begin; first < end; first++)
        for (int i = 0; i < j->n_shares; i++) {
            share *from = &j->shares[(first + i) % j->n_shares];
            int64_t at;
            while ((at = atomic_fetch_add_explicit(&from->next, j->piece, memory_order_relaxed)) < from->end)
                multiply(j, at, at + j->piece < from->end ? at + j->piece : from->end);
        }
}

static int64_t parts(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

/* One share for each worker, with equally many pieces in each. */
static void split(product_job *j, int64_t n_panels, size_t n_bytes, int n_workers)
{
    int64_t unit = j->n < FEW_COLUMNS ? 1 : PIECE_PANELS, length = parts(parts(n_panels, n_workers), unit) * unit;
    int64_t n_pieces = (int64_t)(n_bytes * (size_t)j->n / PIECE_BYTES) / n_workers;
    j->piece = parts(parts(length, n_pieces ? n_pieces : 1), unit) * unit;
    j->n_shares = (int)parts(n_panels, length);
    for (int i = 0; i < j->n_shares; i++) {
        j->shares[i].end = (i + 1) * length < n_panels ? (i + 1) * length : n_panels;
        atomic_init(&j->shares[i].next, i * length);
    }
}

void product_run(const kernels *ks, threads *team, product_scratch *s, bool exact, const float *x, int64_t x_stride,
                 int n, const product *p, int n_products)
{
    assert(n_products >= 1 && n >= 1 && n <= s->max_n && p[0].w->k <= s->max_k);
    share shares[THREADS_MAX];
    product_job j = {ks, s->strips, x, x_stride, p[0].w->k, n, exact, p, n_products, 0, 0, shares};
    int64_t n_panels = 0;
    size_t n_bytes = 0;
    bool quantized = false;
    for (int i = 0; i < n_products; i++) {
        assert(p[i].w->panels && p[i].w->k == j.k);
        n_panels += panels_of(p[i].w);
        n_bytes += p[i].w->n_bytes;
        quantized |= !exact && dtype_get(p[i].w->type)->block_elems > 1;
    }
    if (quantized) {
        if (n * j.k <= QUANTIZE_ALONE) quantize_rows(&j, 0, n, 0);
        else threads_run(team, quantize_rows, &j, n, 4);
    }
    split(&j, n_panels, n_bytes, threads_count(team));
    threads_run(team, multiply_shares, &j, j.n_shares, 1);
}
