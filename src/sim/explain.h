/* Taking operations apart. Pure functions; any thread. (fo_sim_operation_explain is in operation.h.) */
#ifndef FO_SIM_EXPLAIN_H
#define FO_SIM_EXPLAIN_H

#include "sim/operation.h"

/* What of the unsliced computation of a rank of speed 1 no program leaves out. Less than compute_s of a report for
 * row-parallel layers backward: alone a rank sums the columns of all rows, in a program those of its own shard. */
fo_status fo_sim_explain_least(const fo_sim_machine *machine, const fo_sim_operation *operation,
                               double *least_s);

#endif
