/* What a step takes at least. Pure function; any thread. */
#ifndef FO_PLANNER_SEARCH_ESTIMATE_H
#define FO_PLANNER_SEARCH_ESTIMATE_H

#include "planner/split.h"
#include "sim/machine.h"

/* Never more than the step: products alone, at the rate that none exceeds. Every stage does its own of all
 * micro-batches after stages before it have done a forward pass of their first chunks, and before they do the backward
 * pass of them. */
double fo_planner_search_estimate(const fo_sim_device *device, const fo_planner_split *split);

#endif
