/* An operation made ready for the engine; shared by the files that simulate operations. */
#ifndef FO_SIM_OPERATION_STATE_H
#define FO_SIM_OPERATION_STATE_H

#include "flashoverlap/rows.h"
#include "sim/operation.h"

/* What a task takes: seconds of a row, and of a FLOP of its attention. */
typedef struct fo_sim_task_cost {
    double row_s, attention_flop_s;
    double turn_s; /* of the task, with its first tile: turning to other sequences than before */
} fo_sim_task_cost;

/* Keys that causal queries meet, summed up to the first row of each run. */
typedef struct fo_sim_keys {
    fo_run *runs;
    double *before;
    int64_t count;
} fo_sim_keys;

typedef struct fo_sim_state {
    fo_sim_machine machine; /* a copy; entries are the caller's */
    fo_sim_operation operation;
    fo_strategy strategy;
    fo_schedule_desc schedule;
    int period;
    bool
        unsliced; /* tasks cost what their rows do in the unsliced computation, additions nothing */
    bool in_flight; /* products are costed as beside messages */
    bool closed;    /* by the closed form instead of the engine */
    int64_t tile_rows[2], row_bytes[FO_BUFFER_ROLES], width_out;
    fo_program **programs;    /* [period] */
    fo_sim_task_cost **costs; /* [period], by task */
    fo_sim_keys keys;
    double prepare_s, apart_s; /* packing; attention before or after the program */
    double *prepare, *start;   /* [period] for the engine */
} fo_sim_state;

/* ---- operation_cost.c ---- */
fo_status fo_sim_state_keys_make(fo_sim_state *state);
void fo_sim_state_keys_free(fo_sim_state *state);
/* The costs of the tasks of programs[p]. */
void fo_sim_state_costs(const fo_sim_state *state, int p, fo_sim_task_cost *costs);
/* The engine's callback; context is the state. */
double fo_sim_state_tile_s(const void *context, int rank, const fo_task *task, int64_t row,
                           int64_t rows);
/* The unsliced local computation alone, all of it. */
double fo_sim_state_local_s(const fo_sim_state *state);
/* What of it no program can leave out. */
double fo_sim_state_least_s(const fo_sim_state *state);
/* Of a row of computation `slot`, the least that it takes in any slice. */
double fo_sim_state_least_row_s(const fo_sim_state *state, int slot);
double fo_sim_state_pack_s(const fo_sim_state *state);
/* Attention of all rows at once, where it is no part of the program. */
double fo_sim_state_apart_s(const fo_sim_state *state);
/* How many times as long products of the programs take beside messages: fewer units are free. */
double fo_sim_state_squeeze(const fo_sim_state *state);

/* ---- operation.c ---- */
fo_status fo_sim_state_make(const fo_sim_machine *machine, const fo_sim_operation *operation,
                            fo_sim_state *state);
void fo_sim_state_free(fo_sim_state *state);
/* Costs everything anew (after state->machine or operation was changed) and runs it; *total_s may be all that is
 * wanted: report NULL. */
fo_status fo_sim_state_run(fo_sim_state *state, double *total_s, fo_sim_report *report);

#endif
