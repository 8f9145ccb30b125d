/* Bytes of a rank. Pure functions; any thread. */
#ifndef FO_PLANNER_MEMORY_H
#define FO_PLANNER_MEMORY_H

#include "planner/split.h"

typedef struct fo_planner_memory {
    double weights, gradients, optimizer, activations;
} fo_planner_memory;

/* What a layer leaves for its backward pass, of one micro-batch, on a rank (docs/planner.md). */
double fo_planner_memory_layer(const fo_planner_split *split, fo_recompute recompute);
/* Micro-batches x layers whose activations stage `stage` holds at the worst moment, in layers. */
double fo_planner_memory_layers_in_flight(const fo_planner_split *split, int stage);
/* Of a stage. */
fo_planner_memory fo_planner_memory_of_stage(const fo_planner_split *split, int stage);
/* Of the stage that needs most. */
fo_planner_memory fo_planner_memory_most(const fo_planner_split *split);

#endif
