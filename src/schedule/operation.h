/* What every operation is, as far as it follows from its descriptor alone: its pattern, its computations, its
 * sizes. Pure functions; the operators, the simulator and the planner read the same ones. */
#ifndef FO_SCHEDULE_OPERATION_H
#define FO_SCHEDULE_OPERATION_H

#include "flashoverlap/plan.h"
#include "schedule/program.h"

enum { FO_SCHEDULE_OPERATIONS = FO_COLUMN_WGRAD + 1 };

const char *fo_schedule_operation_name(fo_op op); /* "unknown" for none */
fo_pattern fo_schedule_operation_pattern(fo_op op);
bool fo_schedule_operation_has_gemm(fo_op op);
bool fo_schedule_operation_has_wgrad(fo_op op);
bool fo_schedule_operation_has_attention(fo_op op);
bool fo_schedule_operation_has_activation(fo_op op); /* may have one */
/* Whether partial sums are made: they have to go somewhere in the local computation too. */
bool fo_schedule_operation_reduces(fo_op op);

/* Bytes of a row of every buffer; returns the elements of a row of partial sums, or of the first computation's
 * output. */
int64_t fo_schedule_operation_sizes(const fo_plan_desc *desc, int64_t row_bytes[FO_BUFFER_ROLES]);

/* Rows of a message, where a computation makes tiles of `tile_rows` rows. All ranks cut messages alike, so it follows
 * from a width they share: that of the travelling rows. */
int64_t fo_schedule_operation_message_rows(const fo_plan_desc *desc, int64_t tile_rows);

#endif
