/* A training step, evaluated as often as one likes: profiles are read once, and what operations take is asked once for
 * all splits. */
#ifndef FO_PLANNER_STEP_H
#define FO_PLANNER_STEP_H

#include "planner/prices.h"

/* One step on the prices' machine (options->machine is not looked at). `how`: as in prices.h; without
 * FO_PLANNER_COMPARE none_s and slice_s are step_s, without FO_PLANNER_EXPLAIN losses of operations are 0; with
 * FO_PLANNER_CLOSED there are no rows, and every operation has its own best strategy. Costs what is not in the table
 * yet, and micro-batches x pp x interleave passes of a pipeline for every step that is compared. As
 * fo_step_simulate. */
fo_status fo_planner_step_run(fo_planner_prices *prices, const fo_step_options *options,
                              unsigned how, fo_step_report *report);
/* FLOP/s that no product of a rank exceeds: those of large ones, or of the fastest that was measured. */
double fo_planner_step_rate(const fo_sim_device *device, fo_dtype dtype);

#endif
