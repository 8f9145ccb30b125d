/* Data for kernel tests and the comparison with what is expected: every element within
 * absolute + relative * |expected|, NaN counted as infinitely wrong, the worst place printed. */
#ifndef FO_TEST_KERNEL_COMPARE_H
#define FO_TEST_KERNEL_COMPARE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/error.h"
#include "base/random.h"
#include "kernel/kernel.h"

/* Elements behind every array that must stay as they were. */
enum { FENCE = 16 };

/* The backends that compute something: the emulated device touches no matrix. NULL past the end. */
static inline const fo_kernel *computing(int index)
{
    for (int i = 0; fo_kernel_at(i); i++)
        if (!fo_kernel_at(i)->emulates && index-- == 0)
            return fo_kernel_at(i);
    return NULL;
}

static inline double get(const void *x, fo_dtype dtype, int64_t i)
{
    return dtype == FO_BF16 ? (double)fo_base_bf16_to_f32(((const fo_bf16 *)x)[i])
                            : (double)((const float *)x)[i];
}

static inline void put(void *x, fo_dtype dtype, int64_t i, double value)
{
    if (dtype == FO_BF16)
        ((fo_bf16 *)x)[i] = fo_base_bf16_from_f32((float)value);
    else
        ((float *)x)[i] = (float)value;
}

/* n elements of NaN, with a fence. */
static inline void *make(fo_dtype dtype, int64_t n)
{
    void *x = malloc((size_t)(n + FENCE) * fo_dtype_size(dtype));
    assert_non_null(x);
    for (int64_t i = 0; i < n + FENCE; i++)
        put(x, dtype, i, NAN);
    return x;
}

/* Uniform in [center - half, center + half). */
static inline void *random_values(fo_dtype dtype, int64_t n, uint64_t stream, double center,
                                  double half)
{
    void *x = make(dtype, n);
    for (int64_t i = 0; i < n; i++)
        put(x, dtype, i,
            center + half * (2.0 * fo_base_random_uniform(5, stream, (uint64_t)i) - 1.0));
    return x;
}

static inline void *copy_of(fo_dtype dtype, const void *from, int64_t n)
{
    void *x = make(dtype, n);
    memcpy(x, from, (size_t)n * fo_dtype_size(dtype));
    return x;
}

static inline void check_fence(const char *what, const void *x, fo_dtype dtype, int64_t n)
{
    for (int64_t i = n; i < n + FENCE; i++)
        if (!isnan(get(x, dtype, i)))
            fail_msg("%s: element %lld behind the end %lld was written", what, (long long)i,
                     (long long)n);
}

static inline double wrong(double found, double expected)
{
    if (found == expected || (isnan(found) && isnan(expected)))
        return 0.0;
    double difference = fabs(found - expected);
    return isnan(difference) ? INFINITY : difference;
}

/* expected: doubles of type -1, or values of the same type. `width`: columns, for the message. */
static inline void compare(const char *what, const void *found, fo_dtype dtype,
                           const void *expected, const double *expected64, int64_t n, int64_t width,
                           double absolute, double relative)
{
    double worst = -1.0;
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        double e = expected64 ? expected64[i] : get(expected, dtype, i);
        double bound = absolute + relative * (isfinite(e) ? fabs(e) : 0.0);
        double over = wrong(get(found, dtype, i), e) - bound;
        if (over > worst) {
            worst = over;
            at = i;
        }
    }
    if (n > 0 && worst > 0.0) {
        double e = expected64 ? expected64[at] : get(expected, dtype, at);
        fail_msg("%s: row %lld, column %lld: found %.9g, expected %.9g, allowed difference %.3g",
                 what, (long long)(at / (width ? width : 1)), (long long)(at % (width ? width : 1)),
                 get(found, dtype, at), e, absolute + relative * fabs(e));
    }
    check_fence(what, found, dtype, n);
}

static inline void same_bits(const char *what, const void *a, const void *b, fo_dtype dtype,
                             int64_t n, int64_t width)
{
    size_t size = fo_dtype_size(dtype);
    for (int64_t i = 0; i < n; i++)
        if (memcmp((const char *)a + (size_t)i * size, (const char *)b + (size_t)i * size, size))
            fail_msg("%s: bits differ at row %lld, column %lld: %.9g and %.9g", what,
                     (long long)(i / (width ? width : 1)), (long long)(i % (width ? width : 1)),
                     get(a, dtype, i), get(b, dtype, i));
}

static inline void ok(fo_status status)
{
    if (status != FO_OK)
        fail_msg("%s: %s", fo_status_name(status), fo_last_error());
}

static inline void *row_at(const void *x, fo_dtype dtype, int64_t element)
{
    return (char *)(uintptr_t)x + (size_t)element * fo_dtype_size(dtype);
}

#endif
