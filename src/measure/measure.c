/* Order statistics. */
#include "measure/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double fo_measure_percentile(const double *values, int count, double part)
{
    if (count < 1)
        return NAN;
    double *sorted = malloc((size_t)count * sizeof *sorted);
    if (!sorted)
        return NAN;
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, compare);
    double at = part * (count - 1);
    int low = (int)at < count - 1 ? (int)at : count - 1;
    int high = low < count - 1 ? low + 1 : low;
    double value = sorted[low] + (at - low) * (sorted[high] - sorted[low]);
    free(sorted);
    return value;
}

double fo_measure_median(const double *values, int count)
{
    return fo_measure_percentile(values, count, 0.5);
}
