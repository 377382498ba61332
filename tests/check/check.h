/* check.h - what the families of check-kernel share: the list of entries, random values, guarded arrays, the verdict.
 *
 *      entry   one slot of the kernel table: how to check it at one level, how to time it at all
 *      case    what a check tries once, with a description that every failure and crash is told with
 *
 *      a guarded array:   64 bytes | the array | slack | a page that faults     a pattern in the 64 bytes and the slack
 *
 * CK1 A check draws from (seed, entry) alone: every level meets the same numbers, and --only changes none of them.
 * CK2 Touching what lies behind an array faults (arrays end at the page, but for the slack that alignment asks for,
 *    which is compared like the bytes before it): the entry, level and case are told.
 */
#ifndef KVASIR_TESTS_CHECK_H
#define KVASIR_TESTS_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel/kernel.h"

typedef struct check check;

typedef struct check_entry {
    char name[32];
    size_t slot; /* offset of the function in kernels */
    int which;   /* the family's own number: the weight type of a product */
    void (*run)(check *c);
    void (*time)(check *c); /* NULL: nothing worth timing */
} check_entry;

struct check {
    const check_entry *entry;
    const kernels *ref;   /* scalar */
    const kernels *ks;    /* the level under check */
    const kernels *below; /* the level whose table ks overwrites; NULL where that is the reference, or none */
    uint64_t state;       /* of the random numbers */
    bool failed;
    char failure[400];
};

#define CHECK_ENTRIES 80

/* Each family writes its entries, and returns how many. */
int check_product_entries(check_entry *e);
int check_pack_entries(check_entry *e);
int check_vector_entries(check_entry *e);
int check_attend_entries(check_entry *e);
int check_logits_entries(check_entry *e);

/* Starts a case: the arrays of the one before are given back. */
void check_case(check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Uninitialized; `align` a power of two up to 64. */
void *check_array(check *c, size_t n_bytes, size_t align);
float *check_floats(check *c, int64_t n);
/* Ends a case: what surrounds its arrays must be as it was. */
void check_guards(check *c);
/* Only the first failure is kept. */
void check_fail(check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

uint32_t check_draw(check *c); /* 32 random bits */
float check_uniform(check *c); /* [-1, 1) */

typedef enum values {
    ORDINARY,
    NEAR_ZERO, /* around 1e-6 */
    LARGE,     /* up to 120 */
    VAST,      /* up to a quarter of the largest float */
    DENORMAL,
    EQUAL,
    ZEROS,
    SIGNS,      /* runs of sixteen 1 or -1 */
    NOT_FINITE, /* ordinary ones with an infinity and a NaN among them */
    N_VALUES
} values;
extern const char *const values_name[N_VALUES];

void check_fill(check *c, float *x, int64_t n, values what);

/* Where a and b first differ in their bits (any NaN equals any other); -1: nowhere. */
int64_t first_difference(const float *a, const float *b, int64_t n);
/* Whether got is want up to `relative` of it and `absolute`, and likewise no number. */
bool is_near(float got, float want, double relative, double absolute);

/* From now on a fault is told with its case, and ends the program. */
void check_catch_faults(void);

/* Prints how long call(ks, arg) takes at each level that has an own version of the entry, and the reference. */
void check_time(check *c, const char *what, void (*call)(const kernels *ks, void *arg), void *arg);

#endif
