#include "engine/groups.h"

void kv_groups_init(kv_groups *g, const arch_params *p)
{
    g->n = 0;
    int number[2] = {-1, -1}; /* of the group for global and for windowed layers, by first appearance */
    for (int l = 0; l < p->n_layers; l++) {
        bool windowed = arch_layer_windowed(p, l);
        if (number[windowed] < 0) {
            number[windowed] = g->n;
            g->group[g->n] = (kv_group){.layout = {.kind = KV_GQA,
                                                   .n_kv_heads = p->n_kv_heads,
                                                   .d_k = p->d_k,
                                                   .d_v = p->d_v,
                                                   .window = windowed ? p->window : 0},
                                        .layers = g->layers[g->n]};
            g->n++;
        }
        int i = number[windowed];
        g->group_of[l] = i;
        g->index_of[l] = g->group[i].n_layers;
        g->layers[i][g->group[i].n_layers++] = l;
    }
}
