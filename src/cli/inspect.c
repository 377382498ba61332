#include "cli/inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/dtype.h"
#include "model/template/template.h"
#include "model/tokenizer.h"

const char *inspect_type_name(uint32_t type, char buffer[24])
{
    const char *name = dtype_name(type);
    if (name) return name;
    snprintf(buffer, 24, "type %u", type);
    return buffer;
}

const char *inspect_float(float f, char buffer[24])
{
    int digits = 6;
    do snprintf(buffer, 24, "%.*g", digits, (double)f);
    while (digits++ < 9 && strtof(buffer, NULL) != f);
    return buffer;
}

static void sum_types(inspection *x)
{
    for (uint32_t id = 0; id < INSPECT_TYPES; id++) x->types[id].name = dtype_name(id);
    x->types[INSPECT_TYPES - 1].name = "unknown";
    for (size_t i = 0; i < gguf_tensor_count(x->g); i++) {
        const gguf_tensor *t = gguf_tensor_at(x->g, i);
        type_sum *sum = &x->types[dtype_name(t->type) && t->type < INSPECT_TYPES ? t->type : INSPECT_TYPES - 1];
        sum->n_tensors++;
        sum->n_bytes += t->n_bytes;
    }
}

static void add_reason(inspection *x, const char *text)
{
    snprintf(x->reasons[x->n_reasons++], sizeof x->reasons[0], "%s", text);
}

static void check_arch(inspection *x)
{
    status st = STATUS_INIT;
    x->arch_ok = arch_read(&x->arch, x->g, &st) == ST_OK;
    if (!x->arch_ok) {
        add_reason(x, st.text);
        return;
    }
    kv_groups_init(&x->groups, &x->arch);
    const kv_format *f16 = kv_format_get("f16");
    for (int i = 0; i < x->groups.n; i++) {
        const kv_group *group = &x->groups.group[i];
        x->kv_bytes_per_token += group->n_layers * kv_bytes_per_token_layer(&group->layout, f16);
        if (group->layout.window) x->n_windowed += group->n_layers;
    }
}

static void check_types(inspection *x)
{
    char list[128] = "";
    uint64_t n_tensors = 0;
    for (uint32_t id = 0; id < INSPECT_TYPES; id++) {
        if (dtype_get(id) || !x->types[id].n_tensors) continue;
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", x->types[id].name);
        n_tensors += x->types[id].n_tensors;
    }
    x->types_ok = n_tensors == 0;
    if (x->types_ok) return;
    snprintf(x->reasons[x->n_reasons++], sizeof x->reasons[0],
             "%llu tensor%s of a type that Kvasir doesn't compute with (%s): get the model in another quantization, "
             "such as Q4_K_M",
             (unsigned long long)n_tensors, n_tensors == 1 ? " is" : "s are", list);
}

static int check_tokenizer(inspection *x, status *st)
{
    tokenizer *t = NULL;
    status found = STATUS_INIT;
    int rc = tokenizer_new(&t, x->g, &found);
    tokenizer_free(t);
    x->tokenizer_ok = rc == ST_OK;
    if (rc == ST_NOMEM) return status_set(st, rc, STATUS_NO_POS, "%s", found.text);
    if (rc) add_reason(x, found.text);
    return ST_OK;
}

static int check_template(inspection *x, status *st)
{
    tmpl *t = NULL;
    status found = STATUS_INIT;
    gguf_str source = {"", 0};
    int rc = gguf_get_str(x->g, "tokenizer.chat_template", &source, &x->has_template, &found);
    if (rc == ST_OK && !x->has_template) {
        snprintf(x->note, sizeof x->note,
                 "no chat template: the model continues raw text, unless --chat-template gives one");
        return ST_OK;
    }
    if (rc == ST_OK) rc = tmpl_parse(&t, source.data, source.n, &found);
    tmpl_free(t);
    x->template_ok = rc == ST_OK;
    if (rc == ST_NOMEM) return status_set(st, rc, STATUS_NO_POS, "%s", found.text);
    if (rc) snprintf(x->note, sizeof x->note, "%s", found.text);
    return ST_OK;
}

/* A string for display; one of another type shows as missing. */
static gguf_str string_or_empty(const gguf *g, const char *key)
{
    gguf_str s = {"", 0};
    status ignored = STATUS_INIT;
    gguf_get_str(g, key, &s, NULL, &ignored);
    return s;
}

int inspection_make(inspection *x, const char *path, const gguf *g, status *st)
{
    *x = (inspection){.path = path,
                      .g = g,
                      .architecture = string_or_empty(g, "general.architecture"),
                      .tokenizer = string_or_empty(g, "tokenizer.ggml.model"),
                      .pre = string_or_empty(g, "tokenizer.ggml.pre")};
    sum_types(x);
    check_arch(x);
    check_types(x);
    return check_tokenizer(x, st) || check_template(x, st) ? st->code : ST_OK;
}
