/* Products of every weight type: the same bits as the reference, whatever the contents, for all numbers of columns. */
#include <stdio.h>
#include <string.h>

#include "../unit/weight_rows.h"
#include "check.h"

#define UNTOUCHED 12345.0f

typedef struct product_case {
    int64_t k;
    int n_panels, n_cols;
    content weights;
    values acts;
} product_case;

typedef struct product_input {
    const check_entry *entry;
    product_case is;
    const void *panels;
    act_tile tile;
    float *y; /* [n_cols][y_stride], the last row without what follows its panels */
    int64_t y_stride;
} product_input;

static void call_product(const kernels *ks, void *arg)
{
    const product_input *in = arg;
    product_fn *product;
    memcpy(&product, (const char *)ks + in->entry->slot, sizeof product);
    product((dtype)in->entry->which, in->panels, in->is.n_panels, in->is.k, &in->tile, in->y, in->y_stride);
}

static bool takes_strips(const check_entry *e)
{
    return dtype_is_quantized((dtype)e->which) && e->slot < offsetof(kernels, product_exact);
}

/* The last panel has rows missing. */
static const void *make_panels(check *c, const product_case *is)
{
    dtype t = (dtype)c->entry->which;
    size_t panel_size = c->ref->panel_bytes(t, is->k), row_bytes = dtype_row_bytes(t, is->k);
    uint8_t *panels = check_array(c, panel_size * (size_t)is->n_panels, 64);
    uint8_t *rows = check_array(c, row_bytes * PANEL_ROWS, 1);
    uint64_t seed = check_draw(c);
    for (int p = 0; p < is->n_panels; p++) {
        int n_rows = p + 1 == is->n_panels ? PANEL_ROWS - is->n_cols % 3 : PANEL_ROWS;
        weight_rows_fill(t, PANEL_ROWS, is->k, is->weights, &seed, rows);
        c->ref->pack(t, rows, n_rows, is->k, panels + (size_t)p * panel_size);
    }
    return panels;
}

static act_tile make_tile(check *c, const product_case *is)
{
    act_tile tile = {.n_cols = is->n_cols};
    tile.x_stride = is->k + is->n_cols % 3;
    int64_t n = (is->n_cols - 1) * tile.x_stride + is->k;
    float *x = check_floats(c, n);
    check_fill(c, x, n, is->acts);
    tile.x = x;
    if (!takes_strips(c->entry)) return tile;
    act_strip *strips = check_array(c, (size_t)(is->k / 32 * is->n_cols) * sizeof *strips, _Alignof(act_strip));
    for (int i = 0; i < is->n_cols; i++) c->ref->quantize(x + i * tile.x_stride, is->k, strips, i, is->n_cols);
    tile.strips = strips;
    tile.x = NULL;
    return tile;
}

static float *make_output(check *c, const product_input *in)
{
    int64_t n = (in->is.n_cols - 1) * in->y_stride + in->is.n_panels * PANEL_ROWS;
    float *y = check_floats(c, n);
    for (int64_t i = 0; i < n; i++) y[i] = UNTOUCHED;
    return y;
}

static product_input make_input(check *c, const product_case *is)
{
    product_input in = {.entry = c->entry, .is = *is, .y_stride = is->n_panels * PANEL_ROWS + is->n_cols % 4};
    in.panels = make_panels(c, is);
    in.tile = make_tile(c, is);
    in.y = make_output(c, &in);
    return in;
}

static void check_gaps(check *c, const product_input *in)
{
    for (int i = 0; i + 1 < in->is.n_cols; i++) {
        for (int64_t r = in->is.n_panels * PANEL_ROWS; r < in->y_stride; r++) {
            if (in->y[i * in->y_stride + r] != UNTOUCHED) check_fail(c, "wrote between columns %d and %d", i, i + 1);
        }
    }
}

static void check_one(check *c, product_case is)
{
    check_case(c, "k %lld, %d panels, %d columns, weights %d, activations %s", (long long)is.k, is.n_panels, is.n_cols,
               is.weights, values_name[is.acts]);
    product_input want = make_input(c, &is), got = want;
    got.y = make_output(c, &got);
    call_product(c->ref, &want);
    call_product(c->ks, &got);
    check_gaps(c, &got);
    for (int i = 0; i < is.n_cols; i++) {
        const float *x = got.y + i * got.y_stride, *y = want.y + i * want.y_stride;
        int64_t at = first_difference(x, y, is.n_panels * PANEL_ROWS);
        if (at >= 0)
            check_fail(c, "column %d, row %lld: %.9g, reference %.9g", i, (long long)at, (double)x[at], (double)y[at]);
    }
}

/* Block sizes of 1 get lengths that are no multiple of anything. */
static int64_t length(dtype t, int n)
{
    int64_t unit = dtype_get(t)->block_elems;
    return unit == 1 ? 1 + 37 * (n - 1) : unit * n;
}

static void check_product(check *c)
{
    dtype t = (dtype)c->entry->which;
    for (int n = 1; n <= ACT_COLS; n++)
        check_one(c, (product_case){length(t, 1 + !(n % 5)), 1 + !(n % 3), n, RANDOM, ORDINARY});
    for (int n = 1; n <= 48; n++)
        check_one(c, (product_case){length(t, 1 + n % 2), 1 + n / 8, 1 + n % 8, RANDOM, ORDINARY});
    for (int w = 0; w < N_CONTENTS; w++) {
        for (int a = 0; a < N_VALUES; a++) {
            for (int n = 1; n <= 4; n++) check_one(c, (product_case){length(t, n), 5 - n, n, (content)w, (values)a});
        }
    }
}

static void time_product(check *c)
{
    const int columns[] = {1, 16};
    for (int i = 0; i < 2; i++) {
        check_case(c, "timing");
        product_case is = {2048, 4, columns[i], RANDOM, ORDINARY};
        product_input in = make_input(c, &is);
        check_time(c, i ? "2048 x 32 rows x 16" : "2048 x 32 rows x 1", call_product, &in);
    }
}

int check_product_entries(check_entry *e)
{
    int n = 0;
    for (int i = 0; i < N_WEIGHT_TYPES; i++) {
        for (int exact = 0; exact < 2; exact++, n++) {
            dtype t = weight_types[i];
            size_t table = exact ? offsetof(kernels, product_exact) : offsetof(kernels, product);
            e[n] = (check_entry){.slot = table + t * sizeof(product_fn *),
                                 .which = (int)t,
                                 .run = check_product,
                                 .time = time_product};
            snprintf(e[n].name, sizeof e[n].name, "%s/%s", exact ? "product_exact" : "product", dtype_get(t)->name);
        }
    }
    return n;
}
