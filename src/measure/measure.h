/* Helpers of this room. */
#ifndef FO_MEASURE_MEASURE_H
#define FO_MEASURE_MEASURE_H

#include "flashoverlap/group.h"

/* Meets the other ranks at a moment that is the same for all: *begin_ns, by the machine's clock. Returns then.
 * Collective. */
fo_status fo_measure_start(fo_group *group, int64_t *begin_ns);
/* Median of count values (copied; the mean of the middle two when even); NaN for none. */
double fo_measure_median(const double *values, int count);
/* The value below which `part` (0 to 1) of count values lie, linear between neighbours; NaN for none. */
double fo_measure_percentile(const double *values, int count, double part);

#endif
