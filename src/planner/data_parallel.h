/* Gradients and parameters between replicas: a bucket a layer, reduce-scattered behind the rest of the backward pass of
 * the last micro-batch, all-gathered behind the next forward pass. Pure functions; any thread. */
#ifndef FO_PLANNER_DATA_PARALLEL_H
#define FO_PLANNER_DATA_PARALLEL_H

#include "planner/links.h"
#include "planner/pipeline.h"

typedef struct fo_planner_replicas {
    const fo_planner_split *split;
    fo_planner_link link;
    double contention; /* computing takes 1 + this times as long while messages are in flight */
    double
        busy; /* part of the time of computing for which the link belongs to the tp group, 0 ... 1 */
} fo_planner_replicas;

/* Seconds of all transfers of a stage with the link to themselves: of gradients, of parameters. 0 without replicas. */
double fo_planner_replicas_gradients_s(const fo_planner_replicas *r, int stage);
double fo_planner_replicas_parameters_s(const fo_planner_replicas *r, int stage);

/* When the gradients of all stages are reduced. ends, end_s: of the backward pass (pipeline.h); end_s [pp] of a
 * stage. */
double fo_planner_replicas_reduced_s(const fo_planner_replicas *r,
                                     const fo_planner_pipeline_end *ends, const double *end_s);

/* ready_s[virtual stage]: when its first forward pass may begin so that no layer of it waits for its parameters, which
 * arrive in order while the layers before are computed, in forward_s[virtual stage]. */
void fo_planner_replicas_ready_s(const fo_planner_replicas *r, const double *forward_s,
                                 double *ready_s);

#endif
