/* What the operators compute: tiles for the executor, and the whole local computation alone. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "op/plan.h"

static fo_dtype role_dtype(const fo_plan *plan, fo_buffer_role role)
{
    return role == FO_BUFFER_STAGING || role == FO_BUFFER_PARTIAL ? plan->desc.wire : FO_F32;
}

/* v = tile + what was received + bias, into a partial, a running sum or the result. */
static void finish_partial(fo_plan *plan, const fo_exec_tile *tile, const float *c)
{
    bool last = tile->out_role == FO_BUFFER_OUTPUT;
    fo_epilogue epilogue = {
        .add = tile->add,
        .add_dtype = role_dtype(plan, tile->add_role),
        .bias = last ? plan->args->bias : NULL,
        .y = tile->out,
        .y_dtype = role_dtype(plan, tile->out_role),
    };
    plan->kernel->epilogue(&epilogue, c, tile->rows, plan->width_out);
}

static fo_status column_forward(fo_plan *plan, const fo_exec_tile *tile)
{
    const fo_plan_desc *desc = &plan->desc;
    fo_status status =
        plan->kernel->gemm_tile(plan->gemm, plan->packed, tile->in, tile->rows, plan->tile);
    fo_epilogue epilogue = {
        .bias = plan->args->bias,
        .gelu = desc->act == FO_GELU,
        .pre = desc->act == FO_GELU
                   ? (char *)plan->args->pre +
                         tile->row * desc->out * (int64_t)fo_dtype_size(desc->dtype)
                   : NULL,
        .pre_dtype = desc->dtype,
        .y = tile->out,
        .y_dtype = desc->y_dtype,
    };
    if (status == FO_OK)
        plan->kernel->epilogue(&epilogue, plan->tile, tile->rows, desc->out);
    return status;
}

static fo_status row_dgrad(fo_plan *plan, const fo_exec_tile *tile)
{
    const fo_plan_desc *desc = &plan->desc;
    fo_status status =
        plan->kernel->gemm_tile(plan->gemm, plan->packed, tile->in, tile->rows, plan->tile);
    fo_epilogue epilogue = {
        .gelu_grad = desc->act == FO_GELU,
        .pre = desc->act == FO_GELU ? (char *)plan->args->pre +
                                          tile->row * desc->in * (int64_t)fo_dtype_size(desc->dtype)
                                    : NULL,
        .pre_dtype = desc->dtype,
        .y = tile->out,
        .y_dtype = desc->dtype,
    };
    if (status == FO_OK)
        plan->kernel->epilogue(&epilogue, plan->tile, tile->rows, desc->in);
    return status;
}

/* dw += dy^T . x for rows whose one factor travelled and whose other one is local. */
static fo_status wgrad(fo_plan *plan, const fo_exec_tile *tile)
{
    const fo_plan_desc *desc = &plan->desc;
    int64_t size = (int64_t)fo_dtype_size(desc->dtype);
    bool column = desc->op == FO_COLUMN_BACKWARD;
    const void *dy =
        column ? (const char *)plan->args->dy + tile->row * desc->out * size : tile->in;
    const void *x = column ? tile->in : (const char *)plan->args->x + tile->row * desc->in * size;
    if (plan->args->db && (column || tile->task->shard == fo_group_rank(plan->group)))
        plan->kernel->column_sum(dy, desc->dtype, tile->rows, desc->out, plan->args->db);
    return plan->kernel->wgrad_block(plan->wgrad, dy, x, tile->rows, plan->args->dw);
}

static fo_status produce_partial(fo_plan *plan, const fo_exec_tile *tile)
{
    const fo_plan_args *args = plan->args;
    const float *rows = (const float *)args->x + tile->row * plan->desc.in;
    if (args->produce) {
        args->produce(args->produce_arg, tile->row, tile->rows, plan->tile);
        rows = plan->tile;
    }
    finish_partial(plan, tile, rows);
    return FO_OK;
}

static fo_status partial_tile(fo_plan *plan, const fo_exec_tile *tile)
{
    fo_status status =
        plan->kernel->gemm_tile(plan->gemm, plan->packed, tile->in, tile->rows, plan->tile);
    if (status == FO_OK)
        finish_partial(plan, tile, plan->tile);
    return status;
}

static void add_tile(fo_plan *plan, const fo_exec_tile *tile)
{
    if (tile->in_role == FO_BUFFER_ACC) {
        finish_partial(plan, tile, tile->in);
        return;
    }
    plan->kernel->add(tile->in, role_dtype(plan, tile->in_role), tile->add,
                      role_dtype(plan, tile->add_role), tile->out, role_dtype(plan, tile->out_role),
                      tile->rows * plan->width_out);
}

static void gather_tile(fo_plan *plan, const fo_exec_tile *tile)
{
    memcpy(tile->out, tile->in,
           (size_t)(tile->rows * plan->desc.in) * fo_dtype_size(plan->desc.dtype));
}

fo_status fo_op_compute_tile(void *context, const fo_exec_tile *tile)
{
    fo_plan *plan = context;
    if (tile->task->kind == FO_TASK_ADD) {
        add_tile(plan, tile);
        return FO_OK;
    }
    if (tile->task->kind == FO_TASK_COPY) {
        plan->kernel->convert(tile->in, role_dtype(plan, tile->in_role), tile->out,
                              role_dtype(plan, tile->out_role), tile->rows * plan->width_out);
        return FO_OK;
    }
    if (tile->task->slot == 1)
        return wgrad(plan, tile);
    switch (plan->desc.op) {
    case FO_COLUMN_FORWARD: return column_forward(plan, tile);
    case FO_ROW_BACKWARD: return row_dgrad(plan, tile);
    case FO_ROW_FORWARD:
    case FO_COLUMN_BACKWARD: return partial_tile(plan, tile);
    case FO_REDUCE_SCATTER: return produce_partial(plan, tile);
    case FO_ALL_GATHER: gather_tile(plan, tile); return FO_OK;
    default: break;
    }
    return fo_base_error(FO_INTERNAL, "%s: operation %d is unknown", plan->name,
                         (int)plan->desc.op);
}

fo_status fo_op_compute_pack(fo_plan *plan, const fo_plan_args *args)
{
    if (!plan->gemm)
        return FO_OK;
    if (args->w_version && args->w_version == plan->packed_version && args->w == plan->packed_from)
        return FO_OK;
    int64_t begin = fo_base_clock_ns();
    fo_status status = plan->kernel->gemm_pack(plan->gemm, args->w, plan->packed);
    plan->packed_version = status == FO_OK ? args->w_version : 0;
    plan->packed_from = args->w;
    plan->pack_ns += fo_base_clock_ns() - begin;
    return status;
}

/* ---- the local computation alone ----------------------------------------------------------------- */

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

static fo_status local_block(fo_plan *plan, int slot, int64_t row, int64_t rows)
{
    const fo_plan_desc *desc = &plan->desc;
    const fo_plan_args *args = plan->args;
    int64_t size = (int64_t)fo_dtype_size(desc->dtype);
    fo_task task = {.kind = FO_TASK_COMPUTE, .slot = slot, .shard = fo_group_rank(plan->group)};
    fo_exec_tile tile = {.task = &task,
                         .row = row,
                         .rows = rows,
                         .in_role = FO_BUFFER_SHARD,
                         .add_role = FO_BUFFER_ROLES,
                         .out_role = FO_BUFFER_PARTIAL};
    if (plan->local_out)
        tile.out =
            (char *)plan->local_out + row * plan->width_out * (int64_t)fo_dtype_size(desc->wire);
    switch (desc->op) {
    case FO_COLUMN_FORWARD:
        tile.in = stand_in(plan, args->x, row, rows, desc->in * size);
        tile.out = (char *)args->y + row * desc->out * (int64_t)fo_dtype_size(desc->y_dtype);
        break;
    case FO_ROW_BACKWARD:
        tile.in = stand_in(plan, args->dy, row, rows, desc->out * size);
        tile.out = (char *)args->dx + row * desc->in * size;
        break;
    case FO_COLUMN_BACKWARD:
        tile.in = slot ? stand_in(plan, args->x, row, rows, desc->in * size)
                       : (const char *)args->dy + row * desc->out * size;
        break;
    case FO_ROW_FORWARD: tile.in = (const char *)args->x + row * desc->in * size; break;
    default: break;
    }
    return fo_op_compute_tile(plan, &tile);
}

static fo_status local_slot(fo_plan *plan, int slot, int64_t step)
{
    fo_status status = FO_OK;
    if (plan->shard_rows < step && fo_group_size(plan->group) > 1)
        step = plan->shard_rows ? plan->shard_rows : 1; /* the stand-in has no more rows */
    for (int64_t row = 0; status == FO_OK && row < plan->desc.rows; row += step) {
        int64_t rows = plan->desc.rows - row < step ? plan->desc.rows - row : step;
        status = local_block(plan, slot, row, rows);
    }
    return status;
}

fo_status fo_op_compute_local(fo_plan *plan, const fo_plan_args *args)
{
    if (plan->desc.op == FO_ALL_GATHER || plan->desc.op == FO_REDUCE_SCATTER)
        return FO_OK;
    if (!plan->local_out &&
        (plan->desc.op == FO_ROW_FORWARD || plan->desc.op == FO_COLUMN_BACKWARD)) {
        size_t bytes = (size_t)(plan->desc.rows * plan->width_out) * fo_dtype_size(plan->desc.wire);
        plan->local_out = calloc(1, bytes + 64);
        if (!plan->local_out)
            return fo_base_error(FO_NO_MEMORY, "%s: no memory for %zu bytes", plan->name, bytes);
    }
    plan->args = args;
    fo_status status = fo_op_compute_pack(plan, args);
    if (status == FO_OK)
        status = local_slot(plan, 0, FO_TILE_ROWS);
    if (status == FO_OK && plan->wgrad)
        status = local_slot(plan, 1, FO_WGRAD_ROWS);
    return status;
}
