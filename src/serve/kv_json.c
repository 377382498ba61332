#include "serve/kv_json.h"

#include <string.h>

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

static void group_json(strbuf *out, const kv_cache *c, int group)
{
    const kv_group *g = kv_cache_group(c, group);
    const pool *p = kv_cache_pool(c, group);
    pool_counts n = pool_count(p);
    strbuf_puts(out, group ? ",{" : "{");
    layout_json(out, &g->layout);
    strbuf_printf(out,
                  ",\"n_layers\":%d,\"window\":%d,\"block_bytes\":%llu,\"blocks\":{\"total\":%u,\"free\":%u,\"cached\":%u,"
                  "\"in_use\":%u,\"in_flight\":%u},\"copied_rows\":%llu}",
                  g->n_layers, g->layout.window, (unsigned long long)pool_block_bytes(p), n.total, n.free, n.cached,
                  n.in_use, n.in_flight, (unsigned long long)kv_cache_copied_rows(c, group));
}

static void tree_json(strbuf *out, const kv_tree *t)
{
    kv_tree_counts n = kv_tree_count(t);
    strbuf_printf(out,
                  "{\"policy\":\"%s\",\"nodes\":%llu,\"blocks\":%llu,\"bytes\":%llu,\"inserted\":%llu,"
                  "\"evicted\":%llu,\"evicted_behind\":%llu}",
                  kv_tree_policy(t), (unsigned long long)n.nodes, (unsigned long long)n.blocks,
                  (unsigned long long)n.bytes, (unsigned long long)n.inserted, (unsigned long long)n.evicted,
                  (unsigned long long)n.evicted_behind);
}

static void sequence_json(strbuf *out, const job *j, const choice *c, bool first)
{
    session_stats s = session_get_stats(c->session);
    strbuf_printf(out,
                  "%s{\"request\":\"%s\",\"prompt\":%zu,\"choice\":%u,\"state\":\"%s\",\"prompt_tokens\":%lld,"
                  "\"cached_tokens\":%lld,\"generated_tokens\":%lld,\"context_used\":%lld,\"preemptions\":%d,"
                  "\"priority\":%d}",
                  first ? "" : ",", j->id, c->prompt, c->number, session_running(c->session) ? "running" : "waiting",
                  (long long)s.prompt_tokens, (long long)s.reused_tokens, (long long)s.generated_tokens,
                  (long long)s.context_used, s.preemptions, j->request.params.priority);
}

static void audit_json(strbuf *out, const kv_cache *c)
{
    status st = STATUS_INIT;
    const char *found = kv_cache_audit(c, &st) ? st.text : "clean";
    strbuf_puts(out, ",\"audit\":");
    strbuf_json(out, found, strlen(found));
}

void kv_json(strbuf *out, const engine *e, const job *running, bool audit)
{
    const kv_cache *c = engine_cache(e);
    bool first = true;
    strbuf_printf(out,
                  "{\"format\":\"%s\",\"block_tokens\":%d,\"bytes\":%llu,\"capacity_tokens\":%llu,\"context\":%d,"
                  "\"groups\":[",
                  kv_cache_format(c)->name, kv_cache_block_tokens(c), (unsigned long long)kv_cache_bytes(c),
                  (unsigned long long)kv_cache_capacity_tokens(c), engine_context(e));
    for (int g = 0; g < kv_cache_n_groups(c); g++) group_json(out, c, g);
    strbuf_puts(out, "],\"tree\":");
    if (kv_cache_tree(c)) tree_json(out, kv_cache_tree(c));
    else strbuf_puts(out, "null");
    strbuf_puts(out, ",\"sequences\":[");
    for (const job *j = running; j; j = j->next)
        for (size_t i = 0; i < j->n_choices; i++) {
            if (!j->choices[i].session) continue;
            sequence_json(out, j, &j->choices[i], first);
            first = false;
        }
    strbuf_puts(out, "]");
    if (audit) audit_json(out, c);
    strbuf_puts(out, "}");
}
