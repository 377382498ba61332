/* check-kernel: every entry of the kernel table, at every level of this processor, against the scalar reference. Prints
 * TAP. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "check.h"

static const char help[] =
    "usage: check-kernel [--level LEVEL] [--only NAME] [--seed N] [--bench]\n"
    "Compares every kernel of every level that this processor has with the scalar reference.\n"
    "  --level LEVEL  this level alone: scalar, avx2, avx512, neon or dotprod\n"
    "  --only NAME    kernels whose names begin with NAME (product/Q4_K, attend, ...)\n"
    "  --seed N       what the random numbers start from (1)\n"
    "  --bench        measure instead: time of a call, and how many times as fast as the reference\n"
    "  --help         this text\n"
    "Exit status: 0 all pass, 1 some fail, 2 a senseless command line.\n";

typedef struct settings {
    cpu_level level; /* CPU_AUTO: all */
    const char *only;
    uint64_t seed;
    bool bench;
} settings;

static check_entry entries[CHECK_ENTRIES];
static int n_entries;

static void *slot_of(const kernels *ks, const check_entry *e)
{
    void *function;
    memcpy(&function, (const char *)ks + e->slot, sizeof function);
    return function;
}

/* The level whose table `level` overwrites: the next lower one of this machine. */
static const kernels *level_below(cpu_level level)
{
    const kernels *ks = NULL;
    for (int l = CPU_SCALAR; l < (int)level; l++) {
        if (kernels_get((cpu_level)l)) ks = kernels_get((cpu_level)l);
    }
    return ks;
}

/* The level's table, if it has a version of the entry that no lower level has. */
static const kernels *own_version(cpu_level level, const check_entry *e)
{
    const kernels *ks = kernels_get(level), *below = level_below(level);
    return ks && (!below || slot_of(ks, e) != slot_of(below, e)) ? ks : NULL;
}

static check begin(const check_entry *e, cpu_level level, uint64_t seed)
{
    check c = {.entry = e, .ref = kernels_get(CPU_SCALAR), .ks = kernels_get(level)};
    const kernels *below = level_below(level);
    c.below = below == c.ref ? NULL : below;
    c.state = seed * 0x9E3779B97F4A7C15u + (uint64_t)(e - entries) * 0xD1342543DE82EF95u;
    return c;
}

static bool run_entry(const check_entry *e, cpu_level level, const settings *s, int number)
{
    check c = begin(e, level, s->seed);
    e->run(&c);
    check_guards(&c);
    printf("%sok %d - %s %s\n", c.failed ? "not " : "", number, e->name, cpu_level_name(level));
    if (c.failed) {
        printf("# %s\n# again: check-kernel --level %s --only %s --seed %llu\n", c.failure, cpu_level_name(level),
               e->name, (unsigned long long)s->seed);
    }
    fflush(stdout);
    return !c.failed;
}

/* The table is a name and functions; what no entry names would go unchecked. */
static bool every_slot_has_an_entry(int number)
{
    const kernels *ks = kernels_get(CPU_SCALAR);
    size_t at = offsetof(kernels, name) + sizeof ks->name;
    for (; at < sizeof *ks; at += sizeof(void *)) {
        check_entry e = {.slot = at};
        int i = 0;
        while (i < n_entries && entries[i].slot != at) i++;
        if (i == n_entries && slot_of(ks, &e)) break;
    }
    printf("%sok %d - every entry of the table is checked\n", at < sizeof *ks ? "not " : "", number);
    if (at < sizeof *ks) printf("# nothing checks the function at offset %zu of the table\n", at);
    return at == sizeof *ks;
}

static bool chosen(const check_entry *e, const settings *s)
{
    return !s->only || strncmp(e->name, s->only, strlen(s->only)) == 0;
}

static int run_checks(const settings *s)
{
    int n = 0, n_failed = 0;
    for (int i = 0; i < n_entries; i++) {
        for (int l = CPU_SCALAR; l < CPU_LEVELS; l++) {
            if (!chosen(&entries[i], s) || (s->level != CPU_AUTO && s->level != (cpu_level)l)) continue;
            if (own_version((cpu_level)l, &entries[i])) n_failed += !run_entry(&entries[i], (cpu_level)l, s, ++n);
        }
    }
    if (!s->only && s->level == CPU_AUTO) n_failed += !every_slot_has_an_entry(++n);
    printf("1..%d\n", n);
    if (n == 0) fprintf(stderr, "check-kernel: no kernel of that name and level\n");
    return n && !n_failed ? 0 : 1;
}

#define BATCH_NS 2000000

/* Nanoseconds of a call: the best of several batches. */
static double call_ns(const kernels *ks, void (*call)(const kernels *ks, void *arg), void *arg)
{
    double best = 0;
    int64_t n = 1;
    for (int batch = 0; batch < 7;) {
        int64_t start = clock_ns();
        for (int64_t i = 0; i < n; i++) call(ks, arg);
        int64_t took = clock_ns() - start;
        if (took < BATCH_NS / 2) {
            n *= 2;
            continue;
        }
        double each = (double)took / (double)n;
        if (batch++ == 0 || each < best) best = each;
    }
    return best;
}

void check_time(check *c, const char *what, void (*call)(const kernels *ks, void *arg), void *arg)
{
    double reference = 0;
    printf("%-20s %-28s", c->entry->name, what);
    for (int l = CPU_SCALAR; l < CPU_LEVELS; l++) {
        const kernels *ks = own_version((cpu_level)l, c->entry);
        if (!ks) continue;
        double ns = call_ns(ks, call, arg);
        if (l == CPU_SCALAR) reference = ns;
        printf("  %s %.0f ns", ks->name, ns);
        if (l != CPU_SCALAR) printf(" (%.1fx)", reference / ns);
    }
    printf("\n");
    fflush(stdout);
}

static int run_bench(const settings *s)
{
    for (int i = 0; i < n_entries; i++) {
        if (!entries[i].time || !chosen(&entries[i], s)) continue;
        check c = begin(&entries[i], CPU_SCALAR, s->seed);
        entries[i].time(&c);
    }
    return 0;
}

static int level_named(const char *name, cpu_level *level)
{
    for (int l = CPU_SCALAR; l < CPU_LEVELS; l++) {
        if (strcmp(name, cpu_level_name((cpu_level)l)) != 0) continue;
        *level = (cpu_level)l;
        if (kernels_get(*level)) return 0;
        fprintf(stderr, "check-kernel: this processor lacks %s\n", name);
        return 2;
    }
    fprintf(stderr, "check-kernel: there is no level \"%s\"; see --help\n", name);
    return 2;
}

static int parse(int argc, char **argv, settings *s)
{
    static const struct option options[] = {
        {"level", required_argument, NULL, 'l'}, {"only", required_argument, NULL, 'o'},
        {"seed", required_argument, NULL, 's'},  {"bench", no_argument, NULL, 'b'},
        {"help", no_argument, NULL, 'h'},        {NULL, 0, NULL, 0},
    };
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        char *end = "";
        switch (option) {
        case 'l':
            if (level_named(optarg, &s->level)) return 2;
            break;
        case 'o': s->only = optarg; break;
        case 's': s->seed = strtoull(optarg, &end, 0); break;
        case 'b': s->bench = true; break;
        case 'h': fputs(help, stdout); exit(0);
        default: return 2;
        }
        if (*end) fprintf(stderr, "check-kernel: --seed wants a number\n");
        if (*end) return 2;
    }
    if (optind == argc) return 0;
    fprintf(stderr, "check-kernel: what is \"%s\"? See --help\n", argv[optind]);
    return 2;
}

int main(int argc, char **argv)
{
    settings s = {.level = CPU_AUTO, .seed = 1};
    int rc = parse(argc, argv, &s);
    if (rc) return rc;
    n_entries += check_product_entries(entries + n_entries);
    n_entries += check_pack_entries(entries + n_entries);
    n_entries += check_vector_entries(entries + n_entries);
    n_entries += check_attend_entries(entries + n_entries);
    n_entries += check_logits_entries(entries + n_entries);
    check_catch_faults();
    return s.bench ? run_bench(&s) : run_checks(&s);
}
