/* A step's sizes as its ranks see them: what is split over tp, dp and pp, and who has most. Pure functions; any
 * thread. */
#ifndef FO_PLANNER_SPLIT_H
#define FO_PLANNER_SPLIT_H

#include "flashoverlap/planner.h"

/* What fo_step_options.overlap says. */
typedef enum fo_planner_overlap {
    FO_PLANNER_AUTO,    /* the best of every operation */
    FO_PLANNER_STATED,  /* options.overlap of every operation */
    FO_PLANNER_MEGATRON /* nothing sliced, some of it asynchronous (planner.h) */
} fo_planner_overlap;

typedef struct fo_planner_split {
    fo_step_options options; /* a copy; overlap is the caller's text */
    fo_planner_overlap overlap;
    int64_t context, rows; /* rows: tokens of a micro-batch */
    int64_t micro_batches; /* of a replica */
    int virtual_stages;    /* pp * interleave; number j is on stage j mod pp, as chunk j / pp */
    double element, wire;  /* bytes */
    bool dropout; /* of models with biases and an MLP that isn't gated: GPT-2 and its kind */
    /* of the tp rank that has most */
    int64_t heads, kv_heads, qkv, attention, ffn, vocabulary; /* qkv, attention: features */
    double
        norm_rows; /* rows whose norms and residuals it has: all, or its share with sequence parallelism */
} fo_planner_split;

/* `locals`: ranks of one machine, 0: all. FO_INVALID names the size that forbids the split and the nearest that can. */
fo_status fo_planner_split_make(const fo_step_options *options, int locals,
                                fo_planner_split *split);

/* Layers of virtual stage j. Where they don't divide, the last and the first have less: they have the head and the
 * embedding too. */
int64_t fo_planner_split_layers(const fo_planner_split *split, int virtual_stage);
int64_t fo_planner_split_stage_layers(const fo_planner_split *split, int stage);
/* Parameters on a rank: of a layer; of a virtual stage beside its layers (table, last norm, head); of a stage. */
double fo_planner_split_layer_parameters(const fo_planner_split *split);
double fo_planner_split_end_parameters(const fo_planner_split *split, int virtual_stage);
double fo_planner_split_parameters(const fo_planner_split *split, int stage);

#endif
