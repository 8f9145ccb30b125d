/* What the operators compute: tiles for the executor. */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "flashoverlap/trace.h"
#include "group/group.h"
#include "op/plan.h"

static fo_dtype role_dtype(const fo_plan *plan, fo_buffer_role role)
{
    return role == FO_BUFFER_STAGING || role == FO_BUFFER_PARTIAL ? plan->desc.wire : FO_F32;
}

/* v = tile + what was received + bias, into a partial, a running sum or the result. */
static void finish_partial(fo_plan *plan, const fo_exec_tile *tile, const float *c)
{
    fo_op op = plan->desc.op;
    bool last =
        tile->out_role == FO_BUFFER_OUTPUT && op != FO_COLUMN_BACKWARD && op != FO_COLUMN_DGRAD;
    fo_epilogue epilogue = {
        .add = tile->add,
        .add_dtype = role_dtype(plan, tile->add_role),
        .bias = last ? plan->gemm2 ? plan->args->bias2 : plan->args->bias : NULL,
        .y = tile->out,
        .y_dtype = role_dtype(plan, tile->out_role),
    };
    plan->kernel->epilogue(&epilogue, c, tile->rows, plan->width_out);
}

/* Column forward, and the first product of an MLP. */
static fo_status column_forward(fo_plan *plan, const fo_exec_tile *tile)
{
    const fo_plan_desc *desc = &plan->desc;
    bool mlp = desc->op == FO_MLP_FORWARD;
    int64_t width = mlp ? desc->hidden : desc->out;
    fo_status status =
        plan->kernel->gemm_tile(plan->gemm, plan->packed, tile->in, tile->rows, plan->tile);
    fo_epilogue epilogue = {
        .bias = plan->args->bias,
        .gelu = desc->act == FO_GELU,
        .pre = desc->act == FO_GELU ? (char *)plan->args->pre +
                                          tile->row * width * (int64_t)fo_dtype_size(desc->dtype)
                                    : NULL,
        .pre_dtype = desc->dtype,
        .y = tile->out,
        .y_dtype = mlp ? desc->dtype : desc->y_dtype,
    };
    if (status == FO_OK)
        plan->kernel->epilogue(&epilogue, plan->tile, tile->rows, width);
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
    bool column = desc->op == FO_COLUMN_BACKWARD || desc->op == FO_COLUMN_WGRAD;
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

static fo_status partial_of(fo_plan *plan, const fo_exec_tile *tile, fo_gemm *gemm,
                            const void *packed, const void *in)
{
    fo_status status = plan->kernel->gemm_tile(gemm, packed, in, tile->rows, plan->tile);
    if (status == FO_OK)
        finish_partial(plan, tile, plan->tile);
    return status;
}

/* ---- attention ------------------------------------------------------------------------------------- */

static fo_attention_args attention_args(const fo_plan *plan)
{
    const fo_plan_args *a = plan->args;
    if (plan->desc.op == FO_ATTENTION_FORWARD)
        return (fo_attention_args){.qkv = a->x,
                                   .dropout_key = a->dropout_key,
                                   .lse = a->lse,
                                   .out = a->att};
    return (fo_attention_args){.qkv = a->qkv,
                               .dropout_key = a->dropout_key,
                               .lse = a->lse,
                               .out = (void *)(uintptr_t)a->x,
                               .dout = a->dx,
                               .dqkv = a->dqkv};
}

/* Attention of a slice of queries and their out-projection. */
static fo_status attention_tile(fo_plan *plan, const fo_exec_tile *tile)
{
    fo_attention_args args = attention_args(plan);
    fo_status status = FO_OK;
    if (!plan->desc.attention.first)
        status = plan->kernel->attention_queries(plan->attention, &args, tile->row, tile->rows);
    int64_t row_bytes = plan->desc.in * (int64_t)fo_dtype_size(plan->desc.dtype);
    const char *att = (const char *)plan->args->att + tile->row * row_bytes;
    return status == FO_OK ? partial_of(plan, tile, plan->gemm, plan->packed, att) : status;
}

/* The weight gradient and the gradient through a slice of queries, whose da is there. */
static fo_status attention_grad(fo_plan *plan, const fo_exec_tile *tile)
{
    fo_attention_args args = attention_args(plan);
    fo_status status = wgrad(plan, tile);
    if (status == FO_OK && !plan->desc.attention.first)
        status =
            plan->kernel->attention_queries_grad(plan->attention, &args, tile->row, tile->rows);
    return status;
}

/* Rows [row, end), tile by tile. */
static fo_status attention_rows(fo_plan *plan, const fo_attention_args *args, int64_t row,
                                int64_t end)
{
    bool forward = plan->desc.op == FO_ATTENTION_FORWARD;
    int64_t step = forward ? plan->tile_rows : plan->wgrad_rows;
    fo_status status = FO_OK;
    for (int64_t rows; status == FO_OK && row < end; row += rows) {
        rows = end - row < step ? end - row : step;
        status = forward ? plan->kernel->attention_queries(plan->attention, args, row, rows)
                         : plan->kernel->attention_queries_grad(plan->attention, args, row, rows);
    }
    return status;
}

/* In the order of the program's tasks: gradients of keys and values are sums in that order. */
fo_status fo_op_compute_attention(fo_plan *plan)
{
    const fo_program *program = plan->program;
    int slot = plan->desc.op == FO_ATTENTION_FORWARD ? 0 : 1;
    fo_attention_args args = attention_args(plan);
    int64_t begin = fo_base_clock_ns();
    fo_status status = FO_OK;
    if (plan->kernel->slice)
        plan->kernel->slice(plan->desc.rows);
    for (int32_t t = 0; status == FO_OK && t < program->task_count; t++) {
        const fo_task *task = &program->tasks[t];
        if (task->kind == FO_TASK_COMPUTE && task->slot == slot)
            status = attention_rows(plan, &args, task->row, task->row + task->rows);
    }
    plan->apart_ns += fo_base_clock_ns() - begin;
    fo_trace_local(plan->group, "attention", begin);
    return status;
}

/* ---- tiles ------------------------------------------------------------------------------------------ */

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
    if (tile->out == tile->in) /* the own shard, where it belongs already */
        return;
    memcpy(tile->out, tile->in,
           (size_t)(tile->rows * plan->desc.in) * fo_dtype_size(plan->desc.dtype));
}

static fo_status first_tile(fo_plan *plan, const fo_exec_tile *tile)
{
    switch (plan->desc.op) {
    case FO_COLUMN_FORWARD:
    case FO_MLP_FORWARD: return column_forward(plan, tile);
    case FO_ROW_BACKWARD:
    case FO_ATTENTION_BACKWARD: return row_dgrad(plan, tile);
    case FO_ROW_FORWARD:
    case FO_COLUMN_DGRAD:
    case FO_COLUMN_BACKWARD: return partial_of(plan, tile, plan->gemm, plan->packed, tile->in);
    case FO_ATTENTION_FORWARD: return attention_tile(plan, tile);
    case FO_REDUCE_SCATTER: return produce_partial(plan, tile);
    case FO_ALL_GATHER: gather_tile(plan, tile); return FO_OK;
    case FO_COLUMN_WGRAD: break;
    }
    return fo_base_error(FO_INTERNAL, "%s: operation %d has no first computation", plan->name,
                         (int)plan->desc.op);
}

static fo_status second_tile(fo_plan *plan, const fo_exec_tile *tile)
{
    if (plan->desc.op == FO_MLP_FORWARD)
        return partial_of(plan, tile, plan->gemm2, plan->packed2, tile->in);
    return plan->attention ? attention_grad(plan, tile) : wgrad(plan, tile);
}

fo_status fo_op_compute_tile(void *context, const fo_exec_tile *tile)
{
    fo_plan *plan = context;
    if (plan->slice_rows)
        plan->kernel->slice(plan->slice_rows[tile->task - plan->program->tasks]);
    return fo_op_compute_rows(plan, tile);
}

fo_status fo_op_compute_rows(fo_plan *plan, const fo_exec_tile *tile)
{
    if (tile->task->kind == FO_TASK_ADD) {
        add_tile(plan, tile);
        return FO_OK;
    }
    if (tile->task->kind == FO_TASK_COPY) {
        plan->kernel->convert(tile->in, role_dtype(plan, tile->in_role), tile->out,
                              role_dtype(plan, tile->out_role), tile->rows * plan->width_out);
        return FO_OK;
    }
    return tile->task->slot ? second_tile(plan, tile) : first_tile(plan, tile);
}

static fo_status pack(fo_plan *plan, fo_gemm *gemm, const float *w, void *packed)
{
    int64_t begin = fo_base_clock_ns();
    fo_status status = plan->kernel->gemm_pack(gemm, w, packed);
    fo_recorder *recorder = *fo_group_recorder(plan->group);
    if (recorder)
        fo_base_recorder_event(recorder, FO_EVENT_PACK, fo_base_recorder_name(recorder, plan->name),
                               begin, fo_base_clock_ns());
    return status;
}

fo_status fo_op_compute_pack(void *context)
{
    fo_plan *plan = context;
    const fo_plan_args *args = plan->args;
    if (!plan->gemm)
        return FO_OK;
    if (args->w_version && args->w_version == plan->packed_version &&
        args->w == plan->packed_from && args->w2 == plan->packed2_from)
        return FO_OK;
    fo_status status = pack(plan, plan->gemm, args->w, plan->packed);
    if (status == FO_OK && plan->gemm2)
        status = pack(plan, plan->gemm2, args->w2, plan->packed2);
    plan->packed_version = status == FO_OK ? args->w_version : 0;
    plan->packed_from = args->w;
    plan->packed2_from = args->w2;
    return status;
}

bool fo_op_compute_meanwhile(void *context)
{
    const fo_plan_args *args = ((fo_plan *)context)->args;
    return args && args->meanwhile && args->meanwhile(args->meanwhile_arg);
}
