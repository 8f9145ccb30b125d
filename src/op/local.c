/* The local computation alone: what ECT is measured against. */
#include <stdlib.h>

#include "base/error.h"
#include "op/plan.h"

/* The travelling factor of row `row`: the own shard stands in for the shards of others. */
static const void *stand_in(const fo_plan *plan, const void *shard, int64_t row, int64_t rows,
                            int64_t row_bytes)
{
    int64_t last = plan->shard_rows - rows;
    int64_t at = plan->shard_rows ? row % plan->shard_rows : 0;
    if (at > last)
        at = last > 0 ? last : 0;
    return (const char *)shard + at * row_bytes;
}

/* Where a computation reads: what it gathers, what is between a block's products, or the local input. */
static fo_buffer_role input_role(const fo_plan *plan, int slot)
{
    switch (fo_schedule_operation_pattern(plan->desc.op)) {
    case FO_PATTERN_GATHER:
    case FO_PATTERN_GATHER2:
    case FO_PATTERN_WGRAD: return FO_BUFFER_SHARD;
    case FO_PATTERN_JOINT: return slot ? FO_BUFFER_SHARD : FO_BUFFER_FULL;
    case FO_PATTERN_BLOCK: return slot ? FO_BUFFER_HIDDEN : FO_BUFFER_SHARD;
    default: return FO_BUFFER_FULL;
    }
}

/* Where it writes; FO_BUFFER_ROLES: it accumulates. */
static fo_buffer_role output_role(const fo_plan *plan, int slot)
{
    switch (fo_schedule_operation_pattern(plan->desc.op)) {
    case FO_PATTERN_GATHER:
    case FO_PATTERN_GATHER2: return slot ? FO_BUFFER_ROLES : FO_BUFFER_OUTPUT;
    case FO_PATTERN_WGRAD: return FO_BUFFER_ROLES;
    case FO_PATTERN_BLOCK: return slot ? FO_BUFFER_PARTIAL : FO_BUFFER_HIDDEN;
    default: return slot ? FO_BUFFER_ROLES : FO_BUFFER_PARTIAL;
    }
}

fo_status fo_op_local_block(fo_plan *plan, int slot, int64_t row, int64_t rows, const void *add)
{
    fo_task task = {.kind = FO_TASK_COMPUTE,
                    .slot = slot,
                    .shard = fo_group_rank(plan->group),
                    .rows = plan->desc.rows};
    fo_exec_tile tile = {.task = &task,
                         .row = row,
                         .rows = rows,
                         .in_role = input_role(plan, slot),
                         .add = add,
                         .add_role = add ? FO_BUFFER_STAGING : FO_BUFFER_ROLES,
                         .out_role = output_role(plan, slot)};
    char *in = fo_op_describe_external(plan, plan->args, tile.in_role);
    int64_t in_bytes = plan->row_bytes[tile.in_role];
    tile.in = tile.in_role == FO_BUFFER_SHARD ? stand_in(plan, in, row, rows, in_bytes)
                                              : in + row * in_bytes;
    if (tile.out_role != FO_BUFFER_ROLES) {
        char *out = tile.out_role == FO_BUFFER_PARTIAL
                        ? plan->local_out
                        : fo_op_describe_external(plan, plan->args, tile.out_role);
        tile.out = out + row * plan->row_bytes[tile.out_role];
    }
    if (plan->kernel->slice)
        plan->kernel->slice(plan->desc.rows);
    return fo_op_compute_rows(plan, &tile);
}

static fo_status local_slot(fo_plan *plan, int slot, int64_t step)
{
    fo_status status = FO_OK;
    if (!plan->shard_rows && input_role(plan, slot) == FO_BUFFER_SHARD)
        return FO_OK; /* an empty shard cannot stand in for others */
    if (plan->shard_rows < step && fo_group_size(plan->group) > 1)
        step = plan->shard_rows ? plan->shard_rows : 1; /* the stand-in has no more rows */
    for (int64_t row = 0; status == FO_OK && row < plan->desc.rows; row += step) {
        int64_t rows = plan->desc.rows - row < step ? plan->desc.rows - row : step;
        status = fo_op_local_block(plan, slot, row, rows, NULL);
    }
    return status;
}

fo_status fo_op_local_allocate(fo_plan *plan)
{
    size_t bytes = (size_t)(plan->desc.rows * plan->row_bytes[FO_BUFFER_PARTIAL]);
    if (plan->local_out || !fo_schedule_operation_reduces(plan->desc.op))
        return FO_OK;
    plan->local_out = calloc(1, bytes + 64);
    return plan->local_out
               ? FO_OK
               : fo_base_error(FO_NO_MEMORY, "%s: no memory for %zu bytes", plan->name, bytes);
}

fo_status fo_op_local_run(fo_plan *plan, const fo_plan_args *args)
{
    fo_op op = plan->desc.op;
    fo_pattern pattern = fo_schedule_operation_pattern(op);
    if (op == FO_ALL_GATHER || op == FO_REDUCE_SCATTER)
        return FO_OK;
    fo_status status = fo_op_local_allocate(plan);
    plan->args = args;
    if (status == FO_OK)
        status = fo_op_compute_pack(plan);
    if (plan->attention)
        plan->kernel->attention_begin(plan->attention);
    if (status == FO_OK && plan->attention && plan->desc.attention.first &&
        op == FO_ATTENTION_FORWARD)
        status = fo_op_compute_attention(plan);
    if (status == FO_OK && pattern != FO_PATTERN_WGRAD)
        status = local_slot(plan, 0, plan->tile_rows);
    if (status == FO_OK && pattern == FO_PATTERN_BLOCK)
        status = local_slot(plan, 1, plan->tile_rows);
    if (status == FO_OK && plan->wgrad)
        status = local_slot(plan, 1, plan->wgrad_rows);
    if (status == FO_OK && plan->attention && plan->desc.attention.first &&
        op == FO_ATTENTION_BACKWARD)
        status = fo_op_compute_attention(plan);
    plan->args = NULL;
    return status;
}
