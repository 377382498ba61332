#include <assert.h>
#include <limits.h>
#include <string.h>

#include "base/mem.h"
#include "cache/cache_impl.h"

static int check_config(const kv_cache_config *c, int block_tokens, status *st)
{
    assert(c->n_groups >= 1 && c->n_groups <= KV_MAX_GROUPS && c->n_seqs >= 1 && c->max_tokens >= 1 &&
           c->step_tokens >= 1);
    assert(c->step_tokens <= INT_MAX);
    int b = block_tokens;
    if (b < 8 || b > 256 || (b & (b - 1)))
        return status_set(st, ST_ARG, STATUS_NO_POS, "a block of %d tokens can't be: choose 8, 16, 32, 64, 128 or 256",
                          b);
    if (b % c->format->group_tokens)
        return status_set(st, ST_ARG, STATUS_NO_POS, "a block of %d tokens can't be in %s: choose a multiple of %d", b,
                          c->format->name, c->format->group_tokens);
    for (int i = 0; i < c->n_groups; i++)
        if (c->groups[i].layout.kind != KV_GQA)
            return status_set(st, ST_UNSUPPORTED, STATUS_NO_POS,
                              "this cache stores K and V by head only (MHA, GQA, MQA)");
    return ST_OK;
}

static uint64_t blocks_of(const kv_cache *c, int group, uint64_t n_tokens, uint64_t step_tokens)
{
    return kv_blocks(&c->groups[group].group.layout, c->block_tokens, n_tokens, step_tokens);
}

/* Bytes of one sequence of n_tokens over all groups. */
static uint64_t seq_bytes(const kv_cache *c, uint64_t n_tokens, uint64_t step_tokens)
{
    uint64_t sum = 0;
    for (int g = 0; g < c->n_groups; g++) {
        uint64_t n = kv_bytes(&c->groups[g].group, c->format, c->block_tokens, n_tokens, step_tokens);
        if (__builtin_add_overflow(sum, n, &sum)) return UINT64_MAX;
    }
    return sum;
}

/* The longest sequence, at most max_tokens, whose bytes stay within the limit. */
static uint64_t longest_within(const kv_cache *c, uint64_t limit_bytes, uint64_t max_tokens, uint64_t step_tokens)
{
    uint64_t fits = 0, end = max_tokens;
    while (fits < end) {
        uint64_t middle = end - (end - fits) / 2;
        if (seq_bytes(c, middle, step_tokens) <= limit_bytes) fits = middle;
        else end = middle - 1;
    }
    return fits;
}

__extension__ typedef unsigned __int128 wide;

/* need * memory / one, at most need * n_seqs: the share of a group that one longest sequence (`one` bytes) fills with
 * `need` blocks. */
static uint64_t share(uint64_t need, uint64_t memory_bytes, uint64_t one_bytes, int n_seqs)
{
    wide n = (wide)need * memory_bytes / one_bytes, most = (wide)need * (wide)n_seqs;
    if (n > most) n = most;
    return n > UINT64_MAX ? UINT64_MAX : (uint64_t)n;
}

/* How many blocks each pool gets. */
static int size_pools(kv_cache *c, const kv_cache_config *config, uint64_t n_blocks[], status *st)
{
    uint64_t one = seq_bytes(c, config->max_tokens, config->step_tokens);
    uint64_t memory = config->memory_bytes ? config->memory_bytes : UINT64_MAX;
    c->capacity_tokens = longest_within(c, memory, config->max_tokens, config->step_tokens);
    if (c->capacity_tokens == 0)
        return status_set(st, ST_LIMIT, STATUS_NO_POS,
                          "a KV cache needs at least %llu bytes here (a block of %d tokens in each of %d groups of "
                          "layers) and has %llu: raise --kv-memory",
                          (unsigned long long)seq_bytes(c, 1, 1), c->block_tokens, c->n_groups,
                          (unsigned long long)memory);
    for (int g = 0; g < c->n_groups; g++) {
        uint64_t need = blocks_of(c, g, c->capacity_tokens, config->step_tokens);
        n_blocks[g] = memory > one ? share(need, memory, one, config->n_seqs) : need;
        if (n_blocks[g] >= BLOCK_NONE)
            return status_set(st, ST_LIMIT, STATUS_NO_POS,
                              "%llu tokens for each of %d sequences need more than the %u blocks that a pool may have: "
                              "choose a shorter context, fewer sequences or larger blocks",
                              (unsigned long long)config->max_tokens, config->n_seqs, BLOCK_NONE - 1);
    }
    return ST_OK;
}

static int copy_groups(kv_cache *c, const kv_cache_config *config, status *st)
{
    size_t n_layers = 0;
    for (int g = 0; g < config->n_groups; g++) n_layers += (size_t)config->groups[g].n_layers;
    c->layers = mem_array(n_layers, sizeof *c->layers);
    if (!c->layers) return status_nomem(st, n_layers * sizeof *c->layers);
    int *next = c->layers;
    for (int i = 0; i < config->n_groups; i++) {
        cache_group *g = &c->groups[i];
        g->group = config->groups[i];
        memcpy(next, g->group.layers, (size_t)g->group.n_layers * sizeof *next);
        g->group.layers = next;
        next += g->group.n_layers;
        g->layer_bytes = kv_layer_bytes(&g->group.layout, c->format, c->block_tokens);
        g->k_head_bytes = kv_run_bytes(c->format, (uint64_t)g->group.layout.d_k, (uint64_t)c->block_tokens);
        g->v_head_bytes = kv_run_bytes(c->format, (uint64_t)g->group.layout.d_v, (uint64_t)c->block_tokens);
    }
    c->n_groups = config->n_groups;
    return ST_OK;
}

static int make_tree(kv_cache *c, const kv_cache_config *config, status *st)
{
    kv_tree_slot slots[KV_MAX_GROUPS];
    for (int g = 0; g < c->n_groups; g++)
        slots[g] = (kv_tree_slot){.pool = c->groups[g].pool, .window = c->groups[g].group.layout.window};
    kv_tree_config t = {.block_tokens = c->block_tokens,
                        .slots = slots,
                        .n_slots = c->n_groups,
                        .policy = config->evict,
                        .seed = config->seed,
                        .whole_blocks = !c->format->exact};
    return kv_tree_new(&c->tree, &t, st);
}

int kv_cache_new(kv_cache **out, const kv_cache_config *config, status *st)
{
    int block_tokens = config->block_tokens ? config->block_tokens : KV_BLOCK_TOKENS;
    if (check_config(config, block_tokens, st)) return st->code;
    kv_cache *c = mem_calloc(1, sizeof *c);
    if (!c) return status_nomem(st, sizeof *c);
    c->format = config->format;
    c->block_tokens = block_tokens;
    c->step_tokens = (int)config->step_tokens;
    uint64_t n_blocks[KV_MAX_GROUPS];
    int rc = copy_groups(c, config, st);
    if (!rc) rc = size_pools(c, config, n_blocks, st);
    for (int g = 0; !rc && g < c->n_groups; g++) {
        uint64_t block_bytes = kv_block_bytes(&c->groups[g].group, c->format, c->block_tokens);
        rc = pool_new(&c->groups[g].pool, block_bytes, (uint32_t)n_blocks[g], st);
    }
    if (!rc && !config->no_sharing) rc = make_tree(c, config, st);
    if (rc) return kv_cache_free(c), rc;
    *out = c;
    return ST_OK;
}

void kv_cache_free(kv_cache *c)
{
    if (!c) return;
    assert(!c->seqs);
    kv_tree_free(c->tree);
    for (int g = 0; g < c->n_groups; g++) pool_free(c->groups[g].pool);
    mem_free(c->layers);
    mem_free(c);
}

static const cache_group *group_of(const kv_cache *c, int group)
{
    assert(group >= 0 && group < c->n_groups);
    return &c->groups[group];
}

int kv_cache_n_groups(const kv_cache *c)
{
    return c->n_groups;
}

const kv_group *kv_cache_group(const kv_cache *c, int group)
{
    return &group_of(c, group)->group;
}

pool *kv_cache_pool(const kv_cache *c, int group)
{
    return group_of(c, group)->pool;
}

const kv_format *kv_cache_format(const kv_cache *c)
{
    return c->format;
}

int kv_cache_block_tokens(const kv_cache *c)
{
    return c->block_tokens;
}

uint64_t kv_cache_bytes(const kv_cache *c)
{
    uint64_t sum = 0;
    for (int g = 0; g < c->n_groups; g++)
        sum += pool_block_bytes(c->groups[g].pool) * pool_count(c->groups[g].pool).total;
    return sum;
}

uint64_t kv_cache_longest_tokens(const kv_cache *c)
{
    return c->capacity_tokens;
}

uint64_t kv_cache_capacity_tokens(const kv_cache *c)
{
    uint64_t all = UINT64_MAX, windowed = UINT64_MAX;
    for (int g = 0; g < c->n_groups; g++) {
        uint64_t n = (uint64_t)pool_count(c->groups[g].pool).total * (uint64_t)c->block_tokens;
        uint64_t *least = c->groups[g].group.layout.window ? &windowed : &all;
        if (n < *least) *least = n;
    }
    return all < UINT64_MAX ? all : windowed;
}

kv_tree *kv_cache_tree(const kv_cache *c)
{
    return c->tree;
}

uint32_t kv_cache_available(const kv_cache *c, int group)
{
    pool_counts n = pool_count(group_of(c, group)->pool);
    return n.free + n.cached;
}

uint64_t kv_cache_blocks(const kv_cache *c, int group, int64_t n_tokens)
{
    return blocks_of(c, group, (uint64_t)n_tokens, (uint64_t)c->step_tokens);
}

uint64_t kv_cache_copied_rows(const kv_cache *c, int group)
{
    return group_of(c, group)->copied_rows;
}

size_t kv_k_offset(const kv_cache *c, int group, int layer, int head)
{
    const cache_group *g = group_of(c, group);
    assert(layer >= 0 && layer < g->group.n_layers && head >= 0 && head < g->group.layout.n_kv_heads);
    return (size_t)layer * g->layer_bytes + (size_t)head * (g->k_head_bytes + g->v_head_bytes);
}

size_t kv_v_offset(const kv_cache *c, int group, int layer, int head)
{
    return kv_k_offset(c, group, layer, head) + group_of(c, group)->k_head_bytes;
}

int kv_cache_audit(const kv_cache *c, status *st)
{
    for (int g = 0; g < c->n_groups; g++) {
        pool *p = c->groups[g].pool;
        uint32_t *refs = mem_calloc(pool_count(p).total, sizeof *refs);
        if (!refs) return status_nomem(st, pool_count(p).total * sizeof *refs);
        int rc = ST_OK;
        for (const kv_seq *s = c->seqs; s && !rc; s = s->next) rc = kv_seq_audit(s, g, refs, st);
        if (!rc) rc = pool_audit(p, refs, st);
        mem_free(refs);
        if (rc) return status_prefix(st, "group %d of the KV cache", g);
    }
    return c->tree ? kv_tree_audit(c->tree, st) : ST_OK;
}
