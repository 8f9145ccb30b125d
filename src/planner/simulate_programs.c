/* The programs of an operation. */
#include "planner/simulate_programs.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "sim/operation_state.h"

/* The simulator says what it runs: of many ranks whose shards differ by a row, larger ones may stand for all. */
fo_status fo_planner_simulate_programs_make(const fo_sim_machine *machine,
                                            const fo_sim_operation *operation,
                                            fo_planner_programs *p)
{
    fo_sim_state state = {0};
    fo_status status = fo_sim_state_make(machine, operation, &state);
    *p = (fo_planner_programs){.desc = state.schedule, .period = state.period};
    memcpy(p->row_bytes, state.row_bytes, sizeof p->row_bytes);
    memcpy(p->tile_rows, state.tile_rows, sizeof p->tile_rows);
    fo_sim_state_free(&state);
    if (status == FO_OK)
        p->built = calloc((size_t)operation->ranks, sizeof(fo_program *));
    if (status == FO_OK && !p->built)
        status = fo_base_error(FO_NO_MEMORY, "no memory for %d programs", operation->ranks);
    return status;
}

const fo_program *fo_planner_simulate_programs_of(fo_planner_programs *p, int rank)
{
    if (!p->built[rank])
        (void)fo_schedule_build(&p->desc, rank, &p->built[rank]); /* NULL says that it failed */
    return p->built[rank];
}

void fo_planner_simulate_programs_drop(fo_planner_programs *p, int rank)
{
    fo_schedule_free(p->built[rank]);
    p->built[rank] = NULL;
}

void fo_planner_simulate_programs_free(fo_planner_programs *p)
{
    for (int r = 0; p->built && r < p->desc.ranks; r++)
        fo_schedule_free(p->built[r]);
    free(p->built);
    *p = (fo_planner_programs){0};
}
