#include <assert.h>
#include <string.h>

#include <openssl/evp.h>

#include "cache/tree_impl.h"

#define KEY_BYTES 32
#define GROUP 64 /* nodes of a path that are gathered at a time, since a path is only linked upwards */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "salts and tokens are hashed as they lie in memory");

/* key = SHA-256(key, data). The context was made with the tree, so that nothing here can fail. */
static void chain(const kv_tree *t, uint8_t key[KEY_BYTES], const void *data, size_t n_bytes)
{
    int ok = EVP_DigestInit_ex(t->digest, NULL, NULL) && EVP_DigestUpdate(t->digest, key, KEY_BYTES) &&
             EVP_DigestUpdate(t->digest, data, n_bytes) && EVP_DigestFinal_ex(t->digest, key, NULL);
    assert(ok);
    (void)ok;
}

/* Of the path that ends at n, `depth` nodes below the root: nodes [from, from + GROUP), counted from the root, as far
 * as there are that many. */
static void gather(const kv_node *n, int64_t depth, int64_t from, const kv_node **out)
{
    for (; depth > from + GROUP; depth--) n = n->parent;
    for (; depth > from; depth--, n = n->parent) out[depth - from - 1] = n;
}

void kv_tree_keys(const kv_tree *t, const kv_node *n, int64_t first, int64_t count, uint8_t (*out)[KEY_BYTES])
{
    assert(first >= 0 && first + count <= kv_node_blocks(n) && !n->tail_rows);
    const kv_node *group[GROUP], *root = n;
    int64_t depth = 0;
    for (; root->parent; root = root->parent) depth++;
    uint8_t key[KEY_BYTES];
    memcpy(key, t->seed, sizeof key);
    chain(t, key, &root->salt, sizeof root->salt);
    for (int64_t i = 0; i < depth && count > 0; i++) {
        if (i % GROUP == 0) gather(n, depth, i, group);
        const kv_node *at = group[i % GROUP];
        for (int64_t j = 0; j < at->n && at->first + j < first + count; j++) {
            chain(t, key, node_tokens(t, at) + j * t->block_tokens, (size_t)t->block_tokens * sizeof(int32_t));
            if (at->first + j >= first) memcpy(out[at->first + j - first], key, sizeof key);
        }
    }
}

void kv_tree_key(const kv_tree *t, const kv_node *n, int64_t index, uint8_t out[KEY_BYTES])
{
    kv_tree_keys(t, n, index, 1, (uint8_t(*)[KEY_BYTES])out);
}
