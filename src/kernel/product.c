#include "kernel/product.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"

#define STRIP_INPUTS 32
/* Rows are made and quantized by the caller alone up to so many values: waking the team costs more. */
#define ROWS_ALONE 4096
#define ROWS_GRAIN 4
/* A piece of work takes about so many bytes of weights times columns: enough that claiming it, and the first reads of a
 * new place in memory, cost little beside it. */
#define PIECE_BYTES (128 << 10)
/* Of more than a few columns, it has a multiple of so many panels, since kernels share activations between them. */
#define FEW_COLUMNS 8
#define PIECE_PANELS 4

static int64_t panels_of(const weight *w)
{
    return (w->rows + PANEL_ROWS - 1) / PANEL_ROWS;
}

static int64_t parts(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

/* Panels of one worker's share, a multiple of PIECE_PANELS. */
static int64_t share_panels(int64_t n_panels, int n_workers)
{
    return parts(parts(n_panels, n_workers), PIECE_PANELS) * PIECE_PANELS;
}

#define PAGE 4096

typedef struct touch_job {
    const weight *w;
    int n_workers;
} touch_job;

static void touch_share(void *arg, int begin, int end, int worker)
{
    (void)begin, (void)end;
    const touch_job *j = arg;
    int64_t n_panels = panels_of(j->w), length = share_panels(n_panels, j->n_workers), first = worker * length,
            stop = first + length < n_panels ? first + length : n_panels;
    size_t panel_bytes = j->w->n_bytes / (size_t)n_panels, at = (size_t)first * panel_bytes;
    for (volatile char *p = j->w->panels; first < stop && at < (size_t)stop * panel_bytes; at += PAGE) p[at] = 0;
}

void weight_place(const weight *w, threads *team)
{
    touch_job j = {w, threads_count(team)};
    threads_run(team, touch_share, &j, j.n_workers, 1);
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

int weight_size(size_t *n_bytes, const kernels *ks, dtype t, int64_t rows, int64_t k, status *st)
{
    assert(dtype_get(t) && rows > 0 && k > 0 && k % dtype_get(t)->block_elems == 0);
    weight w = {.rows = rows};
    if (rows > (int64_t)1 << 31 || __builtin_mul_overflow(ks->panel_bytes(t, k), (size_t)panels_of(&w), n_bytes) ||
        *n_bytes > SIZE_MAX - 63)
        return status_set(st, ST_LIMIT, STATUS_NO_POS, "a matrix of %lld x %lld is too large", (long long)rows,
                          (long long)k);
    *n_bytes = (*n_bytes + 63) & ~(size_t)63;
    return ST_OK;
}

int weight_alloc(weight *w, const kernels *ks, dtype t, int64_t rows, int64_t k, void *panels, status *st)
{
    weight made = {.type = t, .rows = rows, .k = k, .panels = panels, .borrowed = panels != NULL};
    if (weight_size(&made.n_bytes, ks, t, rows, k, st)) return st->code;
    if (!panels) made.panels = mem_pages_alloc(made.n_bytes);
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
    if (weight_alloc(w, ks, t, rows, k, NULL, st)) return st->code;
    weight_place(w, team);
    weight_pack(w, ks, team, 0, rows, data);
    return ST_OK;
}

void weight_deinit(weight *w)
{
    if (!w->borrowed) mem_pages_free(w->panels, w->n_bytes);
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
    const product_call *call;
    act_strip *strips;
    int64_t k;
    bool quantized;
    int n_shares;
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

static void prepare_rows(void *arg, int begin, int end, int worker)
{
    (void)worker;
    const product_job *j = arg;
    const product_call *c = j->call;
    for (int row = begin; row < end; row++) {
        int first = row / ACT_COLS * ACT_COLS;
        if (c->make_row) c->make_row(c->arg, row);
        if (j->quantized)
            j->ks->quantize(c->x + row * c->x_stride, j->k, tile_strips(j, first), row - first,
                            tile_columns(c->n, first));
    }
}

static void add_bias(const product *p, int64_t row, int64_t n_rows, float *y, int n_cols)
{
    if (!p->bias) return;
    for (int c = 0; c < n_cols; c++)
        for (int64_t r = 0; r < n_rows; r++) y[c * p->y_stride + r] += p->bias[row + r];
}

/* Panels [begin, end) of one weight times one tile, whose y starts at column `first`. */
static void tile_product(const product_job *j, const product *p, int64_t begin, int64_t end, int first)
{
    const weight *w = p->w;
    const product_call *c = j->call;
    product_fn *fn = c->exact ? j->ks->product_exact[w->type] : j->ks->product[w->type];
    const act_tile a = {tile_strips(j, first), c->x + first * c->x_stride, c->x_stride, tile_columns(c->n, first)};
    const uint8_t *panels = w->panels;
    size_t panel_bytes = j->ks->panel_bytes(w->type, w->k);
    int64_t full = w->rows / PANEL_ROWS, last = end < full ? end : full;
    float *y = p->y + first * p->y_stride;
    if (last > begin) {
        fn(w->type, panels + (size_t)begin * panel_bytes, (int)(last - begin), w->k, &a, y + begin * PANEL_ROWS,
           p->y_stride);
        add_bias(p, begin * PANEL_ROWS, (last - begin) * PANEL_ROWS, y + begin * PANEL_ROWS, a.n_cols);
    }
    if (end <= full) return;
    /* The last panel has rows that y hasn't. */
    float buffer[ACT_COLS][PANEL_ROWS];
    int64_t rest = w->rows - full * PANEL_ROWS;
    fn(w->type, panels + (size_t)full * panel_bytes, 1, w->k, &a, buffer[0], PANEL_ROWS);
    for (int i = 0; i < a.n_cols; i++)
        memcpy(y + i * p->y_stride + full * PANEL_ROWS, buffer[i], (size_t)rest * sizeof *y);
    add_bias(p, full * PANEL_ROWS, rest, y + full * PANEL_ROWS, a.n_cols);
}

/* Panels [begin, end) of gate and up, while a tile's results are in the nearest caches. */
static void multiply_gated(const product_job *j, int64_t begin, int64_t end)
{
    const product *gate = &j->call->products[0], *up = &j->call->products[1];
    int64_t row = begin * PANEL_ROWS, stop = end * PANEL_ROWS < gate->w->rows ? end * PANEL_ROWS : gate->w->rows;
    for (int first = 0; first < j->call->n; first += ACT_COLS) {
        tile_product(j, gate, begin, end, first);
        tile_product(j, up, begin, end, first);
        for (int i = first; i < first + tile_columns(j->call->n, first); i++) {
            float *y = gate->y + i * gate->y_stride + row;
            j->call->gate(y, up->y + i * up->y_stride + row, stop - row, y);
        }
    }
}

/* Units are the panels of all products in a row; a piece's weights are read from memory once for all tiles. */
static void multiply(const product_job *j, int64_t begin, int64_t end)
{
    int64_t base = 0;
    for (int i = 0; i < j->call->n_products && base < end; i++) {
        const product *p = &j->call->products[i];
        int64_t n_panels = panels_of(p->w), from = begin > base ? begin - base : 0,
                to = end - base < n_panels ? end - base : n_panels;
        base += n_panels;
        for (int first = 0; from < to && first < j->call->n; first += ACT_COLS) tile_product(j, p, from, to, first);
    }
}

static void multiply_shares(void *arg, int begin, int end, int worker)
{
    (void)begin, (void)end;
    const product_job *j = arg;
    for (int i = 0; i < j->n_shares; i++) {
        share *from = &j->shares[(worker + i) % j->n_shares];
        int64_t at;
        while ((at = atomic_fetch_add_explicit(&from->next, j->piece, memory_order_relaxed)) < from->end) {
            int64_t stop = at + j->piece < from->end ? at + j->piece : from->end;
            if (j->call->gate) multiply_gated(j, at, stop);
            else multiply(j, at, stop);
        }
    }
}

/* One share for each worker, with equally many pieces in each. */
static void split(product_job *j, int64_t n_panels, size_t n_bytes, int n_workers)
{
    int64_t unit = j->call->n < FEW_COLUMNS ? 1 : PIECE_PANELS, length = share_panels(n_panels, n_workers);
    int64_t n_pieces = (int64_t)(n_bytes * (size_t)j->call->n / PIECE_BYTES) / n_workers;
    j->piece = parts(parts(length, n_pieces ? n_pieces : 1), unit) * unit;
    j->n_shares = (int)parts(n_panels, length);
    for (int i = 0; i < j->n_shares; i++) {
        j->shares[i].end = (i + 1) * length < n_panels ? (i + 1) * length : n_panels;
        atomic_init(&j->shares[i].next, i * length);
    }
}

void product_run(const kernels *ks, threads *team, product_scratch *s, const product_call *c)
{
    share shares[THREADS_MAX];
    product_job j = {.ks = ks, .call = c, .strips = s->strips, .k = c->products[0].w->k, .shares = shares};
    assert(c->n_products >= 1 && c->n >= 1 && c->n <= s->max_n && j.k <= s->max_k);
    assert(!c->gate || (c->n_products == 2 && c->products[0].w->rows == c->products[1].w->rows));
    int64_t n_panels = 0;
    size_t n_bytes = 0;
    for (int i = 0; i < c->n_products; i++) {
        const weight *w = c->products[i].w;
        assert(w->panels && w->k == j.k);
        if (i == 0 || !c->gate) n_panels += panels_of(w);
        n_bytes += w->n_bytes;
        j.quantized |= !c->exact && dtype_get(w->type)->block_elems > 1;
    }
    if (c->n * j.k <= ROWS_ALONE) prepare_rows(&j, 0, c->n, 0);
    else threads_run(team, prepare_rows, &j, c->n, ROWS_GRAIN);
    split(&j, n_panels, n_bytes, threads_count(team));
    threads_run(team, multiply_shares, &j, threads_count(team), 1);
}
