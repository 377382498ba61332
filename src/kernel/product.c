#include "kernel/product.h"

#include <assert.h>
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
    size_t row_bytes, panel_bytes;
} pack_job;

static void pack_panels(void *arg, int begin, int end, int worker)
{
    (void)worker;
    const pack_job *j = arg;
    for (int64_t p = begin; p < end; p++) {
        int64_t left = j->w->rows - p * PANEL_ROWS;
        j->ks->pack(j->w->type, j->data + (size_t)p * PANEL_ROWS * j->row_bytes,
                    left < PANEL_ROWS ? (int)left : PANEL_ROWS, j->w->k,
                    (uint8_t *)j->w->panels + (size_t)p * j->panel_bytes);
    }
}

int weight_init(weight *w, const kernels *ks, threads *team, dtype t, int64_t rows, int64_t k, const void *data,
                status *st)
{
    assert(dtype_get(t) && rows > 0 && k > 0 && k % dtype_get(t)->block_elems == 0);
    weight made = {.type = t, .rows = rows, .k = k};
    size_t panel_bytes = ks->panel_bytes(t, k);
    if (rows > (int64_t)1 << 31 || __builtin_mul_overflow(panel_bytes, (size_t)panels_of(&made), &made.n_bytes))
        return status_set(st, ST_LIMIT, STATUS_NO_POS, "a matrix of %lld x %lld is too large", (long long)rows,
                          (long long)k);
    made.panels = mem_pages_alloc(made.n_bytes);
    if (!made.panels) return status_nomem(st, made.n_bytes);
    pack_job j = {&made, ks, data, dtype_row_bytes(t, k), panel_bytes};
    int64_t grain = (int64_t)((1 << 18) / panel_bytes) + 1;
    threads_run(team, pack_panels, &j, (int)panels_of(&made), (int)grain);
    *w = made;
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

typedef struct product_job {
    const kernels *ks;
    act_strip *strips;
    const float *x;
    int64_t x_stride, k;
    int n;
    bool exact;
    const product *products;
    int n_products;
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
static void multiply(void *arg, int begin, int end, int worker)
{
    (void)worker;
    const product_job *j = arg;
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

/* Panels in a piece, so that there are equally many pieces for each worker. */
static int grain(int64_t n_panels, size_t n_bytes, int n_workers, int n)
{
    int64_t per_worker = (int64_t)(n_bytes * (size_t)n / PIECE_BYTES + (size_t)n_workers / 2) / n_workers;
    int64_t pieces = n_workers * (per_worker ? per_worker : 1), panels = (n_panels + pieces - 1) / pieces;
    if (n < FEW_COLUMNS) return (int)panels;
    return (int)(panels < PIECE_PANELS ? PIECE_PANELS : panels / PIECE_PANELS * PIECE_PANELS);
}

void product_run(const kernels *ks, threads *team, product_scratch *s, bool exact, const float *x, int64_t x_stride,
                 int n, const product *p, int n_products)
{
    assert(n_products >= 1 && n >= 1 && n <= s->max_n && p[0].w->k <= s->max_k);
    product_job j = {ks, s->strips, x, x_stride, p[0].w->k, n, exact, p, n_products};
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
    threads_run(team, multiply, &j, (int)n_panels, grain(n_panels, n_bytes, threads_count(team), n));
}
