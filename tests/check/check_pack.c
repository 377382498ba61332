/* What products read: packed weights, and activations in strips. */
#include <math.h>
#include <string.h>

#include "../unit/weight_rows.h"
#include "base/half.h"
#include "check.h"

#define UNTOUCHED 0x5A

static void check_panel_bytes(check *c)
{
    for (int i = 0; i < N_WEIGHT_TYPES; i++) {
        for (int64_t n = 1; n < 40; n += 3) {
            int64_t k = n * dtype_get(weight_types[i])->block_elems;
            check_case(c, "%s k %lld", dtype_get(weight_types[i])->name, (long long)k);
            size_t got = c->ks->panel_bytes(weight_types[i], k), want = c->ref->panel_bytes(weight_types[i], k);
            if (got != want) check_fail(c, "%zu bytes, reference %zu", got, want);
        }
    }
}

/* One panel of the type, of n_rows rows; *rows: as they lie in a file. */
static uint8_t *make_panel(check *c, const kernels *ks, dtype t, int n_rows, int64_t k, const uint8_t *rows)
{
    size_t n_bytes = c->ref->panel_bytes(t, k);
    uint8_t *panel = check_array(c, n_bytes, 64);
    memset(panel, UNTOUCHED, n_bytes);
    ks->pack(t, rows, n_rows, k, panel);
    return panel;
}

static void for_panels(check *c, void (*check_rows)(check *c, dtype t, int n_rows, int64_t k, const uint8_t *rows))
{
    for (int i = 0; i < N_WEIGHT_TYPES; i++) {
        dtype t = weight_types[i];
        for (int n_rows = 1; n_rows <= PANEL_ROWS; n_rows++) {
            int64_t k = dtype_get(t)->block_elems * (1 + (n_rows + i) % 5);
            uint64_t seed = check_draw(c);
            check_case(c, "%s k %lld, %d rows", dtype_get(t)->name, (long long)k, n_rows);
            uint8_t *rows = check_array(c, dtype_row_bytes(t, k) * (size_t)n_rows, 1);
            weight_rows_fill(t, n_rows, k, RANDOM, &seed, rows);
            check_rows(c, t, n_rows, k, rows);
        }
    }
}

static void check_packed(check *c, dtype t, int n_rows, int64_t k, const uint8_t *rows)
{
    const uint8_t *got = make_panel(c, c->ks, t, n_rows, k, rows), *want = make_panel(c, c->ref, t, n_rows, k, rows);
    if (memcmp(got, want, c->ref->panel_bytes(t, k)) != 0) check_fail(c, "other bytes than the reference's");
}

static void check_unpacked(check *c, dtype t, int n_rows, int64_t k, const uint8_t *rows)
{
    const uint8_t *panel = make_panel(c, c->ref, t, n_rows, k, rows);
    float *got = check_floats(c, k), *want = check_floats(c, k);
    for (int r = 0; r < PANEL_ROWS; r++) {
        memset(want, 0, (size_t)k * sizeof *want);
        if (r < n_rows) dtype_to_float(t, rows + (size_t)r * dtype_row_bytes(t, k), want, k);
        c->ks->unpack_row(t, panel, r, k, got);
        for (int64_t i = 0; i < k; i++) { /* a missing row's zeros may be 0 * -8 */
            if (!is_near(got[i], want[i], 0, 0))
                check_fail(c, "row %d, weight %lld: %g, not %g", r, (long long)i, (double)got[i], (double)want[i]);
        }
    }
}

static void check_pack(check *c)
{
    for_panels(c, check_packed);
}

static void check_unpack_row(check *c)
{
    for_panels(c, check_unpacked);
}

static bool same_strip(const act_strip *a, const act_strip *b)
{
    return memcmp(a->q, b->q, sizeof a->q) == 0 && memcmp(a->sum, b->sum, sizeof a->sum) == 0 &&
           first_difference(a->d, b->d, 2) < 0 && first_difference(&a->s, &b->s, 1) < 0;
}

/* Halves of strips of other sizes, down to what becomes zeros, and the size where that begins. */
static void scale_halves(check *c, float *x, int64_t k)
{
    const float by[] = {1, 1, 1, 0x1p-10f, 0x1p10f, 0x1p-121f, 0x1p-119f, 0};
    for (int64_t i = 0; i < k; i += 16) {
        uint32_t which = check_draw(c) % 9;
        for (int64_t j = i; j < i + 16; j++) x[j] = which < 8 ? x[j] * by[which] : 0x1p-120f;
    }
}

static void check_quantize(check *c)
{
    for (int round = 0; round < 400; round++) {
        int64_t k = 32 * (1 + round % 4);
        int n_cols = 1 + round % 7, col = (int)(check_draw(c) % (unsigned)n_cols);
        check_case(c, "k %lld, column %d of %d, %s", (long long)k, col, n_cols, values_name[round % N_VALUES]);
        float *x = check_floats(c, k);
        size_t n_bytes = (size_t)(k / 32 * n_cols) * sizeof(act_strip);
        act_strip *want = check_array(c, n_bytes, _Alignof(act_strip)),
                  *got = check_array(c, n_bytes, _Alignof(act_strip));
        memset(want, UNTOUCHED, n_bytes);
        memset(got, UNTOUCHED, n_bytes);
        check_fill(c, x, k, (values)(round % N_VALUES));
        if (round % 2) scale_halves(c, x, k);
        c->ref->quantize(x, k, want, col, n_cols);
        c->ks->quantize(x, k, got, col, n_cols);
        for (int i = 0; i < k / 32 * n_cols; i++) {
            if (!same_strip(&got[i], &want[i])) check_fail(c, "strip %d of column %d differs", i / n_cols, i % n_cols);
        }
    }
}

typedef struct quantize_input {
    const float *x;
    act_strip *strips;
} quantize_input;

static void call_quantize(const kernels *ks, void *arg)
{
    quantize_input *in = arg;
    ks->quantize(in->x, 2048, in->strips, 0, 1);
}

static void time_quantize(check *c)
{
    check_case(c, "timing");
    float *x = check_floats(c, 2048);
    quantize_input in = {x, check_array(c, 2048 / 32 * sizeof(act_strip), _Alignof(act_strip))};
    check_fill(c, x, 2048, ORDINARY);
    check_time(c, "2048", call_quantize, &in);
}

int check_pack_entries(check_entry *e)
{
    const check_entry all[] = {
        {.name = "panel_bytes", .slot = offsetof(kernels, panel_bytes), .run = check_panel_bytes},
        {.name = "pack", .slot = offsetof(kernels, pack), .run = check_pack},
        {.name = "unpack_row", .slot = offsetof(kernels, unpack_row), .run = check_unpack_row},
        {.name = "quantize", .slot = offsetof(kernels, quantize), .run = check_quantize, .time = time_quantize},
    };
    memcpy(e, all, sizeof all);
    return sizeof all / sizeof all[0];
}
