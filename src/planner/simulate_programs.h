/* The programs of an operation, built rank by rank as they are asked for, with the sizes that go with them. */
#ifndef FO_PLANNER_SIMULATE_PROGRAMS_H
#define FO_PLANNER_SIMULATE_PROGRAMS_H

#include "schedule/program.h"
#include "sim/operation.h"

typedef struct fo_planner_programs {
    fo_schedule_desc desc;
    int64_t row_bytes[FO_BUFFER_ROLES];
    int64_t tile_rows[2]; /* by slot */
    int period;           /* rank r does what rank r mod period does */
    fo_program **built;   /* [ranks], NULL: not yet */
} fo_planner_programs;

/* As the simulator builds them. FO_INVALID, FO_NO_MEMORY. */
fo_status fo_planner_simulate_programs_make(const fo_sim_machine *machine,
                                            const fo_sim_operation *operation,
                                            fo_planner_programs *programs);
/* NULL: it can't be built, fo_last_error says why. */
const fo_program *fo_planner_simulate_programs_of(fo_planner_programs *programs, int rank);
/* Forgets one that is not needed again. */
void fo_planner_simulate_programs_drop(fo_planner_programs *programs, int rank);
void fo_planner_simulate_programs_free(fo_planner_programs *programs);

#endif
