#include <math.h>
#include <stdlib.h>

#include "train/train.h"

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double fo_train_median(double *values, int64_t count)
{
    if (count < 1)
        return NAN;
    qsort(values, (size_t)count, sizeof *values, compare);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}
