/* A pipeline of stages as a time model: 1F1B, and interleaved 1F1B as in Megatron-LM (arXiv 2104.04473). Every stage
 * does its passes in the fixed order of its schedule, each as soon as what it needs has arrived; messages between
 * stages take time and nobody's computation. Pure; any thread. */
#ifndef FO_PLANNER_PIPELINE_H
#define FO_PLANNER_PIPELINE_H

#include <stdint.h>

#include "flashoverlap/status.h"

/* Virtual stage j is chunk j / stages of stage j mod stages; a micro-batch passes 0, 1, 2, ... */
typedef struct fo_planner_pipeline {
    int stages, chunks;
    int64_t micro_batches;                /* chunks > 1: a multiple of stages */
    const double *forward_s, *backward_s; /* [stages * chunks] of a micro-batch */
    const double *transfer_s; /* [stages] from a stage to the next one, the last's to the first */
    const double *ready_s;    /* [stages * chunks] when its first forward pass may begin; NULL: 0 */
    int64_t most_passes;      /* beyond so many, the rest follows from the rhythm; 0: many */
} fo_planner_pipeline;

typedef struct fo_planner_pipeline_end {
    double begin_s,
        end_s; /* of the last backward pass of a virtual stage: its gradients are complete */
} fo_planner_pipeline_end;

/* *total_s: until the last stage ended. ends: [stages * chunks], or NULL. FO_INVALID, FO_NO_MEMORY. */
fo_status fo_planner_pipeline_run(const fo_planner_pipeline *pipeline, double *total_s,
                                  fo_planner_pipeline_end *ends);

#endif
