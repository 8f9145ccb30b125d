/* Order statistics of measured values. */
#ifndef FO_BASE_QUANTILE_H
#define FO_BASE_QUANTILE_H

#include <stdint.h>

/* The value below which `part` (0 to 1) of count values lie, linear between neighbours. NaN for none, and when
 * there is no memory for a copy. */
double fo_base_percentile(const double *values, int64_t count, double part);
/* The same with part 0.5: the mean of the middle two when count is even. */
double fo_base_median(const double *values, int64_t count);

#endif
