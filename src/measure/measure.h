/* Helpers of this room. */
#ifndef FO_MEASURE_MEASURE_H
#define FO_MEASURE_MEASURE_H

/* Median of count values (copied; the mean of the middle two when even); NaN for none. */
double fo_measure_median(const double *values, int count);

#endif
