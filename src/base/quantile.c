#include "base/quantile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double fo_base_percentile(const double *values, int64_t count, double part)
{
    if (count < 1)
        return NAN;
    double *sorted = malloc((size_t)count * sizeof *sorted);
    if (!sorted)
        return NAN;
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, compare);
    double at = part * (double)(count - 1);
    int64_t low = (int64_t)at, high = low + 1 < count ? low + 1 : low;
    double value = sorted[low] + (at - (double)low) * (sorted[high] - sorted[low]);
    free(sorted);
    return value;
}

double fo_base_median(const double *values, int64_t count)
{
    return fo_base_percentile(values, count, 0.5);
}
