/* Closed forms of operations. */
#include "base/error.h"
#include "sim/operation.h"

fo_status fo_sim_operation_closed(const fo_sim_machine *machine, const fo_sim_operation *operation,
                                  fo_sim_report *report)
{
    (void)machine;
    (void)operation;
    (void)report;
    return fo_base_error(FO_UNSUPPORTED, "simulator: no closed form");
}
