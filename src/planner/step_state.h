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

/* Strategies of operations, by the report's row: what is faster for the whole step than the best of each. */
enum { FO_PLANNER_CHOICES = 16 };
typedef struct fo_planner_choice {
    const char *row, *overlap;
} fo_planner_choice;

typedef struct fo_planner_state {
    fo_planner_prices *prices;
    const fo_sim_machine *machine;
    fo_planner_split split;
    unsigned how;
    fo_planner_choice choices[FO_PLANNER_CHOICES];
    int choice_count;
    fo_planner_parts equal, slow; /* slow: as equal where no rank is slow */
    int busiest; /* the stage that computes most; the slow rank's, where there is one */
    fo_step_report *report;
} fo_planner_state;

/* ---- step_time.c ---- */
/* Which of the steps: as chosen, nothing overlapped, data slicing; or computation alone, or transfers. */
typedef double (*fo_planner_pick)(const fo_planner_seconds *seconds);
double fo_planner_as_chosen(const fo_planner_seconds *seconds);
double fo_planner_not_overlapped(const fo_planner_seconds *seconds);
double fo_planner_sliced(const fo_planner_seconds *seconds);
double fo_planner_computing(const fo_planner_seconds *seconds);

typedef struct fo_planner_step_time {
    double total_s;
    double work_s;                    /* of the busiest stage's operations and passes */
    double pipeline_s;                /* until the last stage is through; no less than work_s */
    double gradients_s, parameters_s; /* what replicas add: after it, before it */
    double table_s, optimizer_s, equal_optimizer_s; /* equal: without a slow rank */
} fo_planner_step_time;

/* Once, after pricing. */
void fo_planner_state_find_busiest(fo_planner_state *state);
/* All of the busiest stage's operations and passes. */
double fo_planner_state_work_s(const fo_planner_state *state, fo_planner_pick of);
fo_status fo_planner_state_time(const fo_planner_state *state, fo_planner_pick of,
                                fo_planner_step_time *time);
/* Where its time goes between ranks: the pipeline with messages that take no time; all of it without contention, and
 * without latency either. */
typedef struct fo_planner_step_without {
    double pipeline_s;
    fo_planner_step_time contention, latency;
} fo_planner_step_without;
fo_status fo_planner_state_without(const fo_planner_state *state, fo_planner_pick of,
                                   fo_planner_step_without *without);
/* Seconds of the links: of a micro-batch between stages, of all gradients and parameters of the busiest stage. */
double fo_planner_state_message_s(const fo_planner_state *state, int stage);
fo_planner_replicas fo_planner_state_replicas(const fo_planner_state *state, fo_planner_pick of);

/* ---- step_choose.c ---- */
/* Compares whole steps of every strategy, and where replicas share the link of the tp group of operations one by one,
 * with that of the best of each, and sets state->choices and report->why. *slice_s: the best step of data slicing;
 * INFINITY: nothing is sliced. The parts have been priced; they are again when something was changed. */
fo_status fo_planner_state_choose(fo_planner_state *state, double *slice_s);

/* ---- step_rows.c ---- */
/* What is asked of an operation, before it is chosen how. */
fo_planner_question fo_planner_state_question(const fo_planner_state *state,
                                              const fo_planner_item *item, bool slow);
/* The split with nothing overlapped over tp. */
fo_planner_split fo_planner_state_none(const fo_planner_state *state);
/* Prices of the items of all parts, summed. */
fo_status fo_planner_state_price(fo_planner_state *state);
/* Executions a step of a part on a stage. */
double fo_planner_state_count(const fo_planner_state *state, fo_planner_part part, int stage);
/* Rows of the report: the operations of the busiest stage, then what is between ranks, and the optimizer. */
fo_status fo_planner_state_rows(fo_planner_state *state, const fo_planner_step_time *time,
                                const fo_planner_step_time *none);

#endif
