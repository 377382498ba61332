/* The radix tree with a million cached blocks of 16 tokens, in several shapes: match and insert of a prompt of 4,096
 * tokens that shares half of itself with one that is there, match of one that is there, eviction block by block, and
 * the memory of the tree.
 *
 *      bench_tree [--quick]     --quick: 100,000 blocks
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cache/tree.h"

#define B 16
#define PROMPT 256 /* blocks */
#define REPS 2000
#define SALT 1

static void die(const char *what)
{
    fprintf(stderr, "bench_tree: %s\n", what);
    exit(1);
}

static uint64_t mix(uint64_t x) /* splitmix64's finish */
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* The tokens of block i of prompt number p. */
typedef void block_fn(int32_t *out, uint64_t p, int i);

static void fill(int32_t *out, uint64_t seed)
{
    for (int j = 0; j < B; j++) out[j] = (int32_t)(mix(seed * B + (uint64_t)j) % 50000);
}

static void of_its_own(int32_t *out, uint64_t p, int i)
{
    fill(out, p * PROMPT + (uint64_t)i);
}

/* Bit i of p says which of two blocks follows: every node holds one block. */
static void by_bits(int32_t *out, uint64_t p, int i)
{
    fill(out, (uint64_t)i * 2 + (p >> i & 1));
}

/* A system prompt of 64 blocks, which 64 prompts share, turns of 16 blocks, which 4, 16, 64 share. */
static void chat(int32_t *out, uint64_t p, int i)
{
    int level = i < 64 ? 3 : i < 80 ? 2 : i < 96 ? 1 : 0;
    fill(out, (p >> 2 * level) * PROMPT + (uint64_t)i + ((uint64_t)level << 40));
}

/* Each of 256 prompts leaves the first one a block later than the one before: paths of as many nodes as blocks. */
static void comb(int32_t *out, uint64_t p, int i)
{
    of_its_own(out, i < (int)(p % PROMPT) ? p / PROMPT << 20 : p, i);
}

typedef struct shape {
    const char *name;
    block_fn *block;
    int n_blocks; /* of a prompt */
} shape;

static const shape shapes[] = {
    {"prompts of 4,096 tokens", of_its_own, PROMPT},
    {"chats with shared turns", chat, 160},
    {"combs of 256 prompts", comb, PROMPT},
    {"binary, a block a node", by_bits, 0}, /* as deep as it takes */
    {"flat, a block a node", of_its_own, 1},
};

typedef struct world {
    kv_tree *tree;
    pool *pool;
    shape shape;
    uint64_t n_prompts;
    int32_t ids[PROMPT * B];
    block_id blocks[PROMPT];
} world;

static void make_ids(world *w, uint64_t p, int from, int n, block_fn *block)
{
    for (int i = from; i < n; i++) block(w->ids + i * B, p, i);
}

static uint32_t evict_for(world *w, uint32_t n)
{
    uint32_t evicted = 0;
    for (; pool_count(w->pool).free < n; evicted++)
        if (!kv_tree_evict(w->tree, 0)) die("nothing to evict");
    return evicted;
}

/* What a sequence of the ids does to the tree, from beginning to end; seconds. */
static double add(world *w, int n_blocks)
{
    status st = STATUS_INIT;
    kv_node *node;
    block_id *blocks[] = {w->blocks};
    double begin = clock_seconds();
    kv_match m = kv_tree_match(w->tree, SALT, w->ids, (int64_t)n_blocks * B);
    if (kv_tree_lock(w->tree, SALT, &m, 0, &node, &st)) die(st.text);
    double seconds = clock_seconds() - begin;
    int n_new = n_blocks - (int)m.n_blocks;
    for (int i = 0; i < n_new; i++) w->blocks[i] = pool_take(w->pool);
    begin = clock_seconds();
    if (kv_tree_insert(w->tree, &node, w->ids + m.n_blocks * B, n_new, blocks, &st)) die(st.text);
    kv_tree_unlock(w->tree, node);
    seconds += clock_seconds() - begin;
    for (int i = 0; i < n_new; i++) pool_unref(w->pool, w->blocks[i]);
    return seconds;
}

static void fill_tree(world *w, uint64_t n_blocks)
{
    while (kv_tree_count(w->tree).blocks + (uint64_t)w->shape.n_blocks <= n_blocks) {
        make_ids(w, w->n_prompts++, 0, w->shape.n_blocks, w->shape.block);
        add(w, w->shape.n_blocks);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_times(const char *what, double *t)
{
    qsort(t, REPS, sizeof *t, by_value);
    printf("  %-34s median %7.2f us  p99 %7.2f us\n", what, t[REPS / 2] * 1e6, t[REPS * 99 / 100] * 1e6);
}

static void bench_matches(world *w)
{
    double t[REPS];
    for (int r = 0; r < REPS; r++) {
        make_ids(w, mix((uint64_t)r) % w->n_prompts, 0, w->shape.n_blocks, w->shape.block);
        double begin = clock_seconds();
        kv_match m = kv_tree_match(w->tree, SALT, w->ids, (int64_t)w->shape.n_blocks * B);
        t[r] = clock_seconds() - begin;
        if (m.n_blocks != w->shape.n_blocks) die("a prompt is missing");
    }
    print_times("match of what is there", t);
}

static void bench_inserts(world *w)
{
    double t[REPS], evict_seconds = 0;
    uint64_t evicted = 0;
    int half = w->shape.n_blocks / 2;
    for (int r = 0; r < REPS; r++) {
        uint64_t newest = w->n_prompts - 1 - mix((uint64_t)r) % (w->n_prompts / 2); /* those are not evicted yet */
        make_ids(w, newest, 0, half, w->shape.block);
        make_ids(w, (1u << 30) + (uint64_t)r, half, PROMPT, of_its_own);
        double begin = clock_seconds();
        evicted += evict_for(w, PROMPT);
        evict_seconds += clock_seconds() - begin;
        t[r] = add(w, PROMPT);
    }
    print_times("match, insert of 4,096 tokens", t);
    printf("  %-34s %6.0f ns a block\n", "eviction", evict_seconds / (double)evicted * 1e9);
}

static void bench_shape(const shape *s, uint32_t n_blocks)
{
    world *w = mem_calloc(1, sizeof *w);
    status st = STATUS_INIT;
    if (!w) die("out of memory");
    w->shape = *s;
    while (w->shape.n_blocks == 0 || (s->n_blocks == 0 && (2u << w->shape.n_blocks) < n_blocks)) w->shape.n_blocks++;
    if (pool_new(&w->pool, 64, n_blocks, &st)) die(st.text);
    kv_tree_slot slot = {w->pool, 0};
    uint64_t before = mem_stats().bytes;
    if (kv_tree_new(&w->tree, &(kv_tree_config){.block_tokens = B, .slots = &slot, .n_slots = 1}, &st)) die(st.text);
    fill_tree(w, n_blocks);
    kv_tree_counts c = kv_tree_count(w->tree);
    printf("%s: %llu blocks in %llu nodes\n", s->name, (unsigned long long)c.blocks, (unsigned long long)c.nodes);
    printf("  %-34s %6.1f bytes a block, %.1f with the heap's rounding\n", "memory",
           (double)c.bytes / (double)c.blocks, (double)(mem_stats().bytes - before) / (double)c.blocks);
    bench_matches(w);
    bench_inserts(w);
    kv_tree_free(w->tree);
    pool_free(w->pool);
    mem_free(w);
}

int main(int argc, char **argv)
{
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) bench_shape(&shapes[i], quick ? 100000 : 1000000);
    return 0;
}
