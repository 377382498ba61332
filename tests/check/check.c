#include "check.h"

#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/half.h"

#define N_ARRAYS 10
#define ARRAY_BYTES ((size_t)8 << 20) /* largest */
#define GUARD 64
#define PATTERN 0xA5

const char *const values_name[N_VALUES] = {"ordinary",  "near zero", "large", "huge",      "denormal",
                                           "all equal", "zero",      "signs", "not finite"};

typedef struct array {
    uint8_t *room, *end; /* ARRAY_BYTES that end where the page begins that faults */
    uint8_t *data;
    size_t n_bytes;
} array;

static array arrays[N_ARRAYS];
static int n_used;
static char now[300]; /* the case */
static const check *running;

static void make_room(array *a)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    a->room = mmap(NULL, ARRAY_BYTES + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (a->room == MAP_FAILED) {
        perror("check-kernel: mmap");
        exit(1);
    }
    a->end = a->room + ARRAY_BYTES;
    mprotect(a->end, page, PROT_NONE);
}

void check_case(check *c, const char *format, ...)
{
    va_list args;
    check_guards(c);
    va_start(args, format);
    vsnprintf(now, sizeof now, format, args);
    va_end(args);
    running = c;
    n_used = 0;
}

void *check_array(check *c, size_t n_bytes, size_t align)
{
    if (n_used == N_ARRAYS || n_bytes > ARRAY_BYTES - 2 * GUARD) {
        fprintf(stderr, "check-kernel: %s asks for too many arrays, or for one too large\n", c->entry->name);
        abort();
    }
    array *a = &arrays[n_used++];
    if (!a->room) make_room(a);
    a->data = a->end - ((n_bytes + align - 1) & ~(align - 1));
    a->n_bytes = n_bytes;
    memset(a->data - GUARD, PATTERN, GUARD);
    memset(a->data + n_bytes, PATTERN, (size_t)(a->end - a->data) - n_bytes);
    return a->data;
}

float *check_floats(check *c, int64_t n)
{
    return check_array(c, (size_t)n * sizeof(float), sizeof(float));
}

static bool is_pattern(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] != PATTERN) return false;
    }
    return true;
}

void check_guards(check *c)
{
    for (int i = 0; i < n_used; i++) {
        const array *a = &arrays[i];
        if (!is_pattern(a->data - GUARD, GUARD)) check_fail(c, "wrote before array %d", i);
        if (!is_pattern(a->data + a->n_bytes, (size_t)(a->end - a->data) - a->n_bytes))
            check_fail(c, "wrote behind array %d", i);
    }
    n_used = 0;
}

void check_fail(check *c, const char *format, ...)
{
    if (c->failed) return;
    c->failed = true;
    int n = snprintf(c->failure, sizeof c->failure, "%s: ", now);
    va_list args;
    va_start(args, format);
    vsnprintf(c->failure + n, sizeof c->failure - (size_t)n, format, args);
    va_end(args);
}

static void fault(int number)
{
    static char text[500];
    const char *entry = running ? running->entry->name : "?", *level = running ? running->ks->name : "?";
    int n = snprintf(text, sizeof text, "# signal %d in %s %s: %s\n", number, entry, level, now);
    if (write(STDOUT_FILENO, text, (size_t)n) < 0) _exit(3);
    _exit(1);
}

void check_catch_faults(void)
{
    struct sigaction action = {.sa_handler = fault};
    const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) sigaction(signals[i], &action, NULL);
}

uint32_t check_draw(check *c)
{
    uint64_t x = c->state += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return (uint32_t)(x >> 32);
}

float check_uniform(check *c)
{
    return (float)(check_draw(c) >> 8) * 0x1p-23f - 1;
}

void check_fill(check *c, float *x, int64_t n, values what)
{
    float sign = 1;
    for (int64_t i = 0; i < n; i++) {
        float u = check_uniform(c);
        if (i % 16 == 0) sign = u < 0 ? -1.0f : 1.0f;
        switch (what) {
        case NEAR_ZERO: x[i] = u * 1e-6f; break;
        case LARGE: x[i] = u * 120; break;
        case VAST: x[i] = u * 0x1p126f; break;
        case DENORMAL: x[i] = u * 0x1p-130f; break;
        case EQUAL: x[i] = 0.75f; break;
        case ZEROS: x[i] = u < 0 ? -0.0f : 0; break;
        case SIGNS: x[i] = sign; break;
        default: x[i] = u * 4; break;
        }
    }
    if (what != NOT_FINITE) return;
    x[check_draw(c) % (uint64_t)n] = check_draw(c) % 2 ? INFINITY : -INFINITY;
    x[check_draw(c) % (uint64_t)n] = NAN;
}

int64_t first_difference(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (float_bits(a[i]) != float_bits(b[i]) && !(isnan(a[i]) && isnan(b[i]))) return i;
    }
    return -1;
}

bool is_near(float got, float want, double relative, double absolute)
{
    if (isnan(want)) return isnan(got);
    if (isinf(want)) return got == want;
    return fabs((double)got - want) <= relative * fabs((double)want) + absolute;
}
