#include "measure/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double fo_measure_median(const double *values, int count)
{
    if (count < 1)
        return NAN;
    double *sorted = malloc((size_t)count * sizeof *sorted);
    if (!sorted)
        return NAN;
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, compare);
    double median = count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
    free(sorted);
    return median;
}
