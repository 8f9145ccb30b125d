/* What no schedule can beat, and what follows from times. Derivations: docs/metrics.md. */
#ifndef FO_MEASURE_BOUND_H
#define FO_MEASURE_BOUND_H

#include "flashoverlap/plan.h"

/* Rows of the smallest unit that may come first or last: shards are cut into units of `unit` rows, and what
 * is left over is one too. */
int64_t fo_measure_bound_unit(int64_t rows, int ranks, int64_t unit);

/* Milliseconds. `edge`: part of the computation that the link stands idle at the start or the end; bytes:
 * what the busiest rank sends. Without an emulated link: the computation. */
double fo_measure_bound_ms(double compute_ms, double bytes, double edge, const fo_link *link,
                           int ranks);

/* The transfer alone, milliseconds; NaN without an emulated link. */
double fo_measure_bound_transfer_ms(double bytes, const fo_link *link);

/* What a device's rate for a slice of `rows` rows is, of its highest (fo_device). */
double fo_measure_bound_efficiency(const fo_device *device, double rows);

/* 100 (1 - ect / ect_none); NaN when `none` was not measured or pays nothing. */
double fo_measure_bound_hidden(double ect_ms, double ect_none_ms);
/* 100 (1 - t / t_none): time saved end to end; NaN when `none` was not measured. */
double fo_measure_bound_faster(double t_ms, double t_none_ms);

#endif
