#include "serve/kv_json.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

static void layout_json(strbuf *out, const kv_layout *l)
{
    switch (l->kind) {
    case KV_GQA:
        strbuf_printf(out, "\"layout\":\"gqa\",\"n_kv_heads\":%d,\"d_k\":%d,\"d_v\":%d", l->n_kv_heads, l->d_k, l->d_v);
        break;
    case KV_MLA: strbuf_printf(out, "\"layout\":\"mla\",\"d_c\":%d,\"d_rope\":%d", l->d_c, l->d_rope); break;
    case KV_X: strbuf_printf(out, "\"layout\":\"x\",\"d_model\":%d", l->d_model); break;
    }
}

static void group_json(strbuf *out, const kv_report *r, int group)
{
    const kv_cache *c = engine_cache(r->e);
    const kv_group *g = kv_cache_group(c, group);
    const pool_counts *n = &r->groups[group].blocks;
    strbuf_puts(out, group ? ",{" : "{");
    layout_json(out, &g->layout);
    strbuf_printf(
        out,
        ",\"n_layers\":%d,\"window\":%d,\"block_bytes\":%llu,\"blocks\":{\"total\":%u,\"free\":%u,\"cached\":%u,"
        "\"in_use\":%u,\"in_flight\":%u},\"copied_rows\":%llu}",
        g->n_layers, g->layout.window, (unsigned long long)pool_block_bytes(kv_cache_pool(c, group)), n->total, n->free,
        n->cached, n->in_use, n->in_flight, (unsigned long long)r->groups[group].copied_rows);
}

static void tree_json(strbuf *out, const char *policy, const kv_tree_counts *n)
{
    strbuf_printf(out,
                  "{\"policy\":\"%s\",\"nodes\":%llu,\"blocks\":%llu,\"tails\":%llu,\"bytes\":%llu,\"inserted\":%llu,"
                  "\"evicted\":%llu,\"absorbed\":%llu,\"evicted_behind\":%llu}",
                  policy, (unsigned long long)n->nodes, (unsigned long long)n->blocks, (unsigned long long)n->tails,
                  (unsigned long long)n->bytes,
                  (unsigned long long)n->inserted, (unsigned long long)n->evicted,
                  (unsigned long long)n->absorbed, (unsigned long long)n->evicted_behind);
}

static void sequence_json(strbuf *out, const kv_sequence_report *q, bool first)
{
    const session_stats *s = &q->stats;
    strbuf_printf(out,
                  "%s{\"request\":\"%s\",\"prompt\":%zu,\"choice\":%u,\"state\":\"%s\",\"prompt_tokens\":%lld,"
                  "\"cached_tokens\":%lld,\"generated_tokens\":%lld,\"context_used\":%lld,\"stored_tokens\":%lld,\"preemptions\":%d,"
                  "\"priority\":%d}",
                  first ? "" : ",", q->request, q->prompt, q->choice, q->running ? "running" : "waiting",
                  (long long)s->prompt_tokens, (long long)s->reused_tokens, (long long)s->generated_tokens,
                  (long long)s->context_used, (long long)s->stored_tokens, s->preemptions, q->priority);
}

int kv_report_init(kv_report *r, const engine *e, int max_sequences, status *st)
{
    *r = (kv_report){.e = e, .max_sequences = (size_t)max_sequences};
    r->sequences = mem_calloc(r->max_sequences, sizeof *r->sequences);
    return r->sequences ? ST_OK : status_nomem(st, r->max_sequences * sizeof *r->sequences);
}

void kv_report_deinit(kv_report *r)
{
    mem_free(r->sequences);
    r->sequences = NULL;
}

static void take_sequence(kv_report *r, const job *j, const choice *c)
{
    kv_sequence_report *q = &r->sequences[r->n_sequences++];
    *q = (kv_sequence_report){.prompt = c->prompt,
                              .choice = c->number,
                              .running = session_running(c->session),
                              .priority = -j->request.params.priority,
                              .stats = session_get_stats(c->session)};
    memcpy(q->request, j->id, sizeof q->request);
}

void kv_report_take(kv_report *r, const job *running)
{
    const kv_cache *c = engine_cache(r->e);
    for (int g = 0; g < kv_cache_n_groups(c); g++)
        r->groups[g] = (kv_group_report){pool_count(kv_cache_pool(c, g)), kv_cache_copied_rows(c, g)};
    if (kv_cache_tree(c)) r->tree = kv_tree_count(kv_cache_tree(c));
    r->bytes = kv_cache_bytes(c);
    r->capacity_tokens = kv_cache_capacity_tokens(c);
    r->longest_sequence_tokens = kv_cache_longest_tokens(c);
    r->n_pins = engine_list_pins(r->e, r->pins);
    r->n_sequences = 0;
    for (const job *j = running; j; j = j->next)
        for (size_t i = 0; i < j->n_choices; i++)
            if (j->choices[i].session && r->n_sequences < r->max_sequences) take_sequence(r, j, &j->choices[i]);
}

void kv_report_copy(kv_report *to, const kv_report *from)
{
    kv_sequence_report *own = to->sequences;
    memcpy(own, from->sequences, from->n_sequences * sizeof *own);
    *to = *from;
    to->sequences = own;
}

void kv_report_json(strbuf *out, const kv_report *r, const char *audit, double audit_age_s)
{
    const kv_cache *c = engine_cache(r->e);
    strbuf_printf(out,
                  "{\"format\":\"%s\",\"block_tokens\":%d,\"bytes\":%llu,\"capacity_tokens\":%llu,"
                  "\"longest_sequence_tokens\":%llu,\"context\":%d,\"groups\":[",
                  kv_cache_format(c)->name, kv_cache_block_tokens(c), (unsigned long long)r->bytes,
                  (unsigned long long)r->capacity_tokens, (unsigned long long)r->longest_sequence_tokens,
                  engine_context(r->e));
    for (int g = 0; g < kv_cache_n_groups(c); g++) group_json(out, r, g);
    strbuf_puts(out, "],\"tree\":");
    if (kv_cache_tree(c)) tree_json(out, kv_tree_policy(kv_cache_tree(c)), &r->tree);
    else strbuf_puts(out, "null");
    strbuf_puts(out, ",\"pins\":[");
    int64_t now = clock_ns();
    for (int i = 0; i < r->n_pins; i++)
        strbuf_printf(out, "%s{\"tokens\":%lld,\"seconds_left\":%.3f}", i ? "," : "", (long long)r->pins[i].n_tokens,
                      r->pins[i].until_ns > now ? (double)(r->pins[i].until_ns - now) * 1e-9 : 0);
    strbuf_puts(out, "],\"sequences\":[");
    for (size_t i = 0; i < r->n_sequences; i++) sequence_json(out, &r->sequences[i], i == 0);
    strbuf_puts(out, "]");
    if (audit) {
        strbuf_puts(out, ",\"audit\":");
        strbuf_json(out, audit, strlen(audit));
        strbuf_printf(out, ",\"audit_age_s\":%.3f", audit_age_s);
    }
    strbuf_puts(out, "}");
}
