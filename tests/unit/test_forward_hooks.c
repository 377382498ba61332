/* Layer ranges, taps and hooks of the forward pass; a sequence that is lost, a token that is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "forward_net.h"

static void check_layer_ranges(net_config c)
{
    const int32_t *ids = some_ids();
    float *want = reference(c, ids, N_IDS), *got = logits_new(N_IDS);
    float *hidden = calloc(N_IDS, (size_t)c.m->params.d_model * sizeof *hidden);
    status st = STATUS_INIT;
    for (int k = 0; k <= c.m->params.n_layers; k++) {
        /* One cache: the same rows twice. Two: a stage each. */
        net *a = net_open(c), *b = net_open(c);
        kv_seq *sa = net_seq(a), *sb = net_seq(b);
        forward_io first = {.layer_end = k, .hidden_out = hidden},
                   second = {.layer_begin = k, .hidden_in = hidden, .on_logits = net_take_row};
        batch ba, bb;
        net_add_tokens(a, sa, ids, N_IDS, got);
        net_add_tokens(b, sb, ids, N_IDS, got);
        ba = (batch){a->rows, a->n_rows, a->seqs, a->n_seqs};
        bb = (batch){b->rows, b->n_rows, b->seqs, b->n_seqs};
        second.layer_end = c.m->params.n_layers;
        assert_int_equal(forward_run(a->f, &ba, &first, &st), ST_OK);
        second.user = b;
        assert_int_equal(forward_run(b->f, &bb, &second, &st), ST_OK);
        same(got, want, N_IDS, "two stages");
        memset(got, 0, N_IDS * ROW_BYTES);
        second.user = a;
        assert_int_equal(forward_run(a->f, &ba, &second, &st), ST_OK);
        same(got, want, N_IDS, "two runs over one cache");
        kv_seq_free(sa);
        kv_seq_free(sb);
        net_close(a);
        net_close(b);
    }
    free(hidden);
    free(want);
    free(got);
}

static void layer_ranges(void **state)
{
    nets *w = *state;
    check_layer_ranges((net_config){.m = w->m[0][0]});
    check_layer_ranges((net_config){.m = w->m[1][1]});
    check_layer_ranges((net_config){.m = w->m[1][5]});
}

typedef struct record {
    int taps[8], n_taps, ready[8], n_ready, wait[2][8], n_wait[2], fails, fail_at, n_lost, n_rows;
    float *hidden[8];
    size_t n_bytes;
    net *n;
} record;

static void on_tap(void *user, int layer, const float *hidden)
{
    record *r = user;
    r->hidden[r->n_taps] = malloc(r->n_bytes);
    memcpy(r->hidden[r->n_taps], hidden, r->n_bytes);
    r->taps[r->n_taps++] = layer;
}

static void on_ready(void *user, int layer)
{
    record *r = user;
    r->ready[r->n_ready++] = layer;
}

static int on_wait(void *user, int layer, int seq, status *st)
{
    record *r = user;
    r->wait[seq][r->n_wait[seq]++] = layer;
    assert_int_equal(r->n_ready, r->n_wait[seq]); /* this step's rows of the layer are there */
    if (seq != r->fails || layer != r->fail_at) return ST_OK;
    return status_set(st, ST_TIMEOUT, STATUS_NO_POS, "layer %d did not come", layer);
}

static void on_lost(void *user, int seq, const status *st)
{
    record *r = user;
    assert_int_equal(seq, r->fails);
    assert_int_equal(st->code, ST_TIMEOUT);
    assert_string_equal(st->text, "layer 1 did not come");
    r->n_lost++;
}

static void take_row(void *user, int row, const float *logits)
{
    record *r = user;
    net_take_row(r->n, row, logits);
    r->n_rows++;
}

static void taps_and_hooks(void **state)
{
    nets *w = *state;
    const int32_t *ids = some_ids();
    status st = STATUS_INIT;
    const int wanted[] = {4, 0, 6};
    net *n = net_open((net_config){.m = w->m[0][1]}); /* 7 layers */
    kv_seq *s = net_seq(n);
    record r = {.n_bytes = 10 * (size_t)n->d_model * sizeof(float), .fail_at = -1, .n = n};
    net_add_tokens(n, s, ids, 10, NULL);
    forward_io io = {
        .tap_layers = wanted, .n_taps = 3, .on_tap = on_tap, .kv_ready = on_ready, .kv_wait = on_wait, .user = &r};
    assert_int_equal(net_run_io(n, &io, &st), ST_OK);
    assert_int_equal(r.n_ready, 7);
    assert_int_equal(r.n_wait[0], 7);
    for (int l = 0; l < 7; l++) {
        assert_int_equal(r.ready[l], l);
        assert_int_equal(r.wait[0][l], l);
    }
    assert_int_equal(r.n_taps, 3);
    const int order[] = {0, 4, 6};
    float *hidden = malloc(r.n_bytes);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(r.taps[i], order[i]);
        forward_io range = {.layer_end = order[i] + 1, .hidden_out = hidden};
        assert_int_equal(net_run_io(n, &range, &st), ST_OK);
        assert_memory_equal(hidden, r.hidden[i], r.n_bytes);
        free(r.hidden[i]);
    }
    free(hidden);
    kv_seq_free(s);
    net_close(n);
}

/* It loses its sequence alone: no logits and no waits of that any more, and the other one's bits are what they are. */
static void failed_wait_loses_its_sequence(void **state)
{
    nets *w = *state;
    const int32_t *ids = some_ids();
    for (int i = 0; i < 4; i++) {
        net_config c = {.m = w->m[0][i % 2]};
        float *want = reference(c, ids, N_IDS), *got = logits_new(N_IDS), *lost = logits_new(N_IDS);
        net *n = net_open(c);
        kv_seq *s = net_seq(n), *other = net_seq(n);
        net_run_chunks(n, s, ids, 30, 30, lost);
        net_run_chunks(n, other, ids, 30, 30, got);
        status st = STATUS_INIT;
        record r = {.fails = i / 2, .fail_at = 1, .n = n};
        if (r.fails == 0) net_add_tokens(n, s, ids + 30, 20, lost + 30 * TINY_VOCAB);
        net_add_tokens(n, other, ids + 30, 20, got + 30 * TINY_VOCAB);
        if (r.fails == 1) net_add_tokens(n, s, ids + 30, 20, lost + 30 * TINY_VOCAB);
        forward_io io = {
            .on_logits = take_row, .kv_ready = on_ready, .kv_wait = on_wait, .on_lost = on_lost, .user = &r};
        assert_int_equal(net_run_io(n, &io, &st), ST_OK);
        assert_int_equal(r.n_lost, 1);
        assert_int_equal(r.n_rows, 20);
        assert_int_equal(r.n_wait[r.fails], 2);
        assert_int_equal(r.n_wait[!r.fails], n->n_layers);
        same(got, want, N_IDS, "beside a lost sequence");
        assert_int_equal(kv_seq_truncate(s, 30, &st), ST_OK);
        net_clear(n);
        net_run_chunks(n, s, ids + 30, N_IDS - 30, 20, lost + 30 * TINY_VOCAB);
        same(lost, want, N_IDS, "after a failed wait");
        kv_seq_free(s);
        kv_seq_free(other);
        net_close(n);
        free(want);
        free(got);
        free(lost);
    }
}

static void tokens_outside_the_vocabulary(void **state)
{
    nets *w = *state;
    net *n = net_open((net_config){.m = w->m[0][0]});
    kv_seq *s = net_seq(n);
    const int32_t bad[][2] = {{1, TINY_VOCAB}, {1, -1}};
    for (int i = 0; i < 2; i++) {
        status st = STATUS_INIT;
        forward_io io = {0};
        net_add_tokens(n, s, bad[i], 2, NULL);
        assert_int_equal(net_run_io(n, &io, &st), ST_ARG);
        assert_int_equal(st.pos, 1);
        net_clear(n);
        assert_int_equal(kv_seq_truncate(s, 0, &st), ST_OK);
    }
    kv_seq_free(s);
    net_close(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layer_ranges),
        cmocka_unit_test(taps_and_hooks),
        cmocka_unit_test(failed_wait_loses_its_sequence),
        cmocka_unit_test(tokens_outside_the_vocabulary),
    };
    return cmocka_run_group_tests(tests, nets_open, nets_close);
}
