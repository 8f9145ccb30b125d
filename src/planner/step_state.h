/* Inside of a step's evaluation. */
#ifndef FO_PLANNER_STEP_STATE_H
#define FO_PLANNER_STEP_STATE_H

#include "planner/data_parallel.h"
#include "planner/layer.h"
#include "planner/step.h"

/* Seconds of one execution of a part of a step on a rank. */
typedef struct fo_planner_seconds {
    double total_s, none_s, slice_s, compute_s, transfer_s;
} fo_planner_seconds;

/* Of all parts; a group with a slow rank has its own. */
typedef struct fo_planner_parts {
    fo_planner_seconds part[FO_PLANNER_PARTS];
} fo_planner_parts;

typedef struct fo_planner_state {
    fo_planner_prices *prices;
    const fo_sim_machine *machine;
    fo_planner_split split;
    unsigned how;
    fo_planner_parts equal, slow; /* slow: as equal where no rank is slow */
    int busiest;                  /* stage; the slow rank's, where there is one */
    fo_step_report *report;
} fo_planner_state;

/* step_rows.c: prices of the items of a part, summed; speeds as of a group with the slow rank, or of equal ranks. */
fo_status fo_planner_state_price(fo_planner_state *state, fo_planner_part part, bool slow,
                                 fo_planner_seconds *seconds);
/* Executions a step of a part on a stage. */
double fo_planner_state_count(const fo_planner_state *state, fo_planner_part part, int stage);
/* Rows of the report for the operations of the busiest stage. */
fo_status fo_planner_state_rows(fo_planner_state *state);

#endif
