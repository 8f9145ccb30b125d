/* Closed forms of operations. */
#include "sim/closed.h"
#include "sim/operation_state.h"

fo_status fo_sim_operation_closed(const fo_sim_machine *machine, const fo_sim_operation *operation,
                                  fo_sim_report *report)
{
    fo_sim_state state;
    double total_s;
    fo_status status = fo_sim_state_make(machine, operation, &state);
    state.closed = true;
    if (status == FO_OK)
        status = fo_sim_state_run(&state, &total_s, report);
    fo_sim_state_free(&state);
    return status;
}
