/* Making, running and describing plans. */
#include "flashoverlap/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "group/group.h"
#include "op/plan.h"

/* A message should be worth its descriptor: at least this many bytes, unless the slice is smaller. */
enum { MESSAGE_BYTES = 32768 };

static const char *op_name(fo_op op)
{
    static const char *const names[] = {"column forward", "column backward", "row forward",
                                        "row backward",   "all-gather",      "reduce-scatter"};
    return names[op];
}

static fo_pattern op_pattern(fo_op op)
{
    switch (op) {
    case FO_COLUMN_FORWARD:
    case FO_ALL_GATHER: return FO_PATTERN_GATHER;
    case FO_ROW_BACKWARD: return FO_PATTERN_GATHER2;
    case FO_COLUMN_BACKWARD: return FO_PATTERN_JOINT;
    default: return FO_PATTERN_REDUCE;
    }
}

static bool has_weight(fo_op op)
{
    return op != FO_ALL_GATHER && op != FO_REDUCE_SCATTER;
}

static bool has_wgrad(fo_op op)
{
    return op == FO_COLUMN_BACKWARD || op == FO_ROW_BACKWARD;
}

static fo_status check_desc(const fo_plan_desc *desc, const fo_kernel *kernel, const char *name)
{
    if ((unsigned)desc->op > FO_REDUCE_SCATTER)
        return fo_base_error(FO_INVALID, "plan: operation %d is unknown, expected one of fo_op",
                             (int)desc->op);
    if (desc->rows < 0 || desc->in < 0 || desc->out < 0)
        return fo_base_error(FO_INVALID,
                             "%s: sizes are rows %lld, in %lld, out %lld, expected 0 or more", name,
                             (long long)desc->rows, (long long)desc->in, (long long)desc->out);
    if (desc->act == FO_GELU && desc->op != FO_COLUMN_FORWARD && desc->op != FO_ROW_BACKWARD)
        return fo_base_error(FO_INVALID,
                             "%s: an activation goes with column forward and row backward only",
                             name);
    if (has_weight(desc->op) && !kernel->supports(desc->dtype))
        return fo_base_error(FO_UNSUPPORTED, "%s: kernel '%s' can't compute in %s", name,
                             kernel->name, fo_dtype_name(desc->dtype));
    return FO_OK;
}

/* Width and type of the rows that travel as gathered input, and of the first computation's output. */
static void row_sizes(fo_plan *plan, int64_t row_bytes[FO_BUFFER_ROLES])
{
    const fo_plan_desc *desc = &plan->desc;
    int64_t t = (int64_t)fo_dtype_size(desc->dtype), wire = (int64_t)fo_dtype_size(desc->wire);
    int64_t gathered = 0, full = 0, output = 0;
    switch (desc->op) {
    case FO_COLUMN_FORWARD:
        gathered = desc->in * t;
        plan->width_out = desc->out;
        output = desc->out * (int64_t)fo_dtype_size(desc->y_dtype);
        break;
    case FO_COLUMN_BACKWARD:
        gathered = desc->in * t;
        full = desc->out * t;
        plan->width_out = desc->in;
        output = desc->in * 4;
        break;
    case FO_ROW_FORWARD:
        full = desc->in * t;
        plan->width_out = desc->out;
        output = desc->out * 4;
        break;
    case FO_ROW_BACKWARD:
        gathered = desc->out * t;
        plan->width_out = desc->in;
        output = desc->in * t;
        break;
    case FO_ALL_GATHER:
        gathered = output = desc->in * t;
        plan->width_out = desc->in;
        break;
    case FO_REDUCE_SCATTER:
        full = desc->in * 4;
        plan->width_out = desc->in;
        output = desc->in * 4;
        break;
    default: break;
    }
    row_bytes[FO_BUFFER_SHARD] = row_bytes[FO_BUFFER_GATHERED] = gathered;
    row_bytes[FO_BUFFER_FULL] = full;
    row_bytes[FO_BUFFER_ACC] = plan->width_out * 4;
    row_bytes[FO_BUFFER_PARTIAL] = row_bytes[FO_BUFFER_STAGING] = plan->width_out * wire;
    row_bytes[FO_BUFFER_OUTPUT] = output;
}

/* All ranks cut messages alike, so the width must be one they share: that of the travelling rows. */
static int64_t message_rows(const fo_plan_desc *desc, const int64_t *row_bytes)
{
    bool gathers = op_pattern(desc->op) != FO_PATTERN_REDUCE;
    int64_t bytes = gathers ? row_bytes[FO_BUFFER_GATHERED] : row_bytes[FO_BUFFER_PARTIAL];
    int64_t tile = bytes * FO_TILE_ROWS;
    if (tile <= 0 || tile >= MESSAGE_BYTES)
        return FO_TILE_ROWS;
    return FO_TILE_ROWS * ((MESSAGE_BYTES + tile - 1) / tile);
}

static fo_status build_program(fo_plan *plan, const fo_strategy *strategy, int64_t stream_rows)
{
    int ranks = fo_group_size(plan->group), rank = fo_group_rank(plan->group);
    fo_schedule_desc desc = {
        .pattern = op_pattern(plan->desc.op),
        .strategy = *strategy,
        .ranks = ranks,
        .rows = plan->desc.rows,
        .quantum = has_wgrad(plan->desc.op) ? FO_WGRAD_ROWS : FO_TILE_ROWS,
        .stream_rows = stream_rows,
    };
    fo_program **programs = calloc((size_t)ranks, sizeof *programs);
    if (!programs)
        return fo_base_error(FO_NO_MEMORY, "%s: no memory for %d programs", plan->name, ranks);
    fo_status status = FO_OK;
    for (int r = 0; status == FO_OK && r < ranks; r++)
        status = fo_schedule_build(&desc, r, &programs[r]);
    fo_verdict verdict;
    if (status == FO_OK)
        status = fo_schedule_verify(programs, ranks, &verdict);
    plan->program = programs[rank];
    for (int r = 0; r < ranks; r++)
        if (r != rank || status != FO_OK)
            fo_schedule_free(programs[r]);
    if (status != FO_OK)
        plan->program = NULL;
    free(programs);
    return status;
}

static void explain(fo_plan *plan, const fo_strategy *strategy)
{
    const fo_program *program = plan->program;
    int sends = 0, slices = 0;
    for (int32_t t = 0; t < program->task_count; t++) {
        sends += program->tasks[t].kind == FO_TASK_SEND;
        slices += program->tasks[t].kind == FO_TASK_COMPUTE && program->tasks[t].slot == 0;
    }
    const char *why = "as asked for";
    if (fo_group_size(plan->group) == 1)
        why = "one rank has nothing to communicate";
    else if (!plan->desc.overlap)
        why = "the default";
    else if (strategy->kind == FO_STRATEGY_NONE)
        why = "as asked for: nothing is overlapped";
    snprintf(plan->explain, sizeof plan->explain,
             "%s: %s, %s (%s): %d ranks, %lld rows in %d slices, %d sends of %lld-row messages, "
             "wire %s, computation %s on %s",
             plan->name, op_name(plan->desc.op), plan->overlap, why, fo_group_size(plan->group),
             (long long)plan->desc.rows, slices, sends, (long long)program->stream_rows,
             fo_dtype_name(plan->desc.wire), fo_dtype_name(plan->desc.dtype), plan->kernel->name);
}

static fo_status create_kernels(fo_plan *plan)
{
    const fo_plan_desc *desc = &plan->desc;
    bool forward = desc->op == FO_COLUMN_FORWARD || desc->op == FO_ROW_FORWARD;
    fo_status status = FO_OK;
    plan->tile =
        aligned_alloc(64, (size_t)(FO_TILE_ROWS * plan->width_out + 16) * 4 / 64 * 64 + 64);
    if (!plan->tile)
        return fo_base_error(FO_NO_MEMORY, "%s: no memory for a tile", plan->name);
    if (has_weight(desc->op)) {
        fo_gemm_desc gemm = {.k = forward ? desc->in : desc->out,
                             .n = forward ? desc->out : desc->in,
                             .dtype = desc->dtype,
                             .transposed = forward};
        status = plan->kernel->gemm_create(&gemm, &plan->gemm);
        if (status != FO_OK)
            return status;
        size_t bytes = (plan->kernel->gemm_packed_bytes(plan->gemm) + 127) / 64 * 64;
        plan->packed = aligned_alloc(64, bytes);
        if (!plan->packed)
            return fo_base_error(FO_NO_MEMORY, "%s: no memory for %zu bytes of packed weight",
                                 plan->name, bytes);
    }
    if (has_wgrad(desc->op)) {
        fo_wgrad_desc wgrad = {.out = desc->out, .in = desc->in, .dtype = desc->dtype};
        status = plan->kernel->wgrad_create(&wgrad, &plan->wgrad);
    }
    return status;
}

static fo_status create_executor(fo_plan *plan, const int64_t *row_bytes)
{
    fo_exec_desc desc = {
        .endpoint = fo_group_endpoint(plan->group),
        .program = plan->program,
        .tag = fo_group_next_tag(plan->group, 2),
        .tile_rows = {FO_TILE_ROWS, FO_WGRAD_ROWS},
        .compute = fo_op_compute_tile,
        .name = plan->name,
        .recorder = fo_group_recorder(plan->group),
    };
    memcpy(desc.row_bytes, row_bytes, sizeof desc.row_bytes);
    for (int32_t t = 0; t < plan->program->task_count; t++) {
        const fo_task *task = &plan->program->tasks[t];
        if (task->kind == FO_TASK_SEND)
            plan->wire_bytes +=
                task->rows * row_bytes[plan->program->buffers[task->in.buffer].role];
    }
    plan->waits = calloc((size_t)plan->program->task_count + 1, sizeof *plan->waits);
    if (!plan->waits)
        return fo_base_error(FO_NO_MEMORY, "%s: no memory for its report", plan->name);
    return fo_exec_create(&desc, &plan->exec);
}

static fo_status set_up(fo_plan *plan)
{
    fo_strategy strategy;
    int64_t row_bytes[FO_BUFFER_ROLES] = {0};
    fo_status status = fo_strategy_parse(plan->overlap, &strategy);
    if (status == FO_OK)
        status = check_desc(&plan->desc, plan->kernel, plan->name);
    if (status != FO_OK)
        return status;
    row_sizes(plan, row_bytes);
    status = build_program(plan, &strategy, message_rows(&plan->desc, row_bytes));
    if (status == FO_OK)
        status = create_kernels(plan);
    if (status == FO_OK)
        status = create_executor(plan, row_bytes);
    if (status == FO_OK)
        explain(plan, &strategy);
    return status;
}

fo_status fo_plan_create(fo_group *group, const fo_plan_desc *desc, fo_plan **out)
{
    *out = NULL;
    fo_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return fo_base_error(FO_NO_MEMORY, "no memory for a plan");
    plan->group = group;
    plan->kernel = fo_group_kernel_ops(group);
    plan->desc = *desc;
    snprintf(plan->overlap, sizeof plan->overlap, "%s", desc->overlap ? desc->overlap : "flash");
    snprintf(plan->name, sizeof plan->name, "%s",
             desc->name                                ? desc->name
             : (unsigned)desc->op <= FO_REDUCE_SCATTER ? op_name(desc->op)
                                                       : "plan");
    plan->shard_row = fo_shard_begin(desc->rows, fo_group_size(group), fo_group_rank(group));
    plan->shard_rows = fo_shard_rows(desc->rows, fo_group_size(group), fo_group_rank(group));
    fo_status status = set_up(plan);
    if (status != FO_OK) {
        fo_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return FO_OK;
}

void fo_plan_destroy(fo_plan *plan)
{
    if (!plan)
        return;
    fo_exec_destroy(plan->exec);
    fo_schedule_free(plan->program);
    if (plan->gemm)
        plan->kernel->gemm_destroy(plan->gemm);
    if (plan->wgrad)
        plan->kernel->wgrad_destroy(plan->wgrad);
    free(plan->packed);
    free(plan->tile);
    free(plan->local_out);
    free(plan->waits);
    free(plan);
}

static fo_status missing(const fo_plan *plan, const char *argument)
{
    return fo_base_error(FO_INVALID,
                         "%s: argument `%s` is NULL, expected memory as plan.h lists it",
                         plan->name, argument);
}

static fo_status check_args(const fo_plan *plan, const fo_plan_args *args)
{
    const fo_plan_desc *desc = &plan->desc;
    bool backward = has_wgrad(desc->op);
    int64_t weight = desc->in * desc->out;
    if (has_weight(desc->op) && weight && !args->w)
        return missing(plan, "w");
    if (desc->op == FO_REDUCE_SCATTER ? !args->x && !args->produce : !args->x)
        return missing(plan, "x");
    if (!backward && !args->y)
        return missing(plan, "y");
    if (backward && !args->dy)
        return missing(plan, "dy");
    if (backward && !args->dx)
        return missing(plan, "dx");
    if (backward && weight && !args->dw)
        return missing(plan, "dw");
    if (desc->act == FO_GELU && !args->pre)
        return missing(plan, "pre");
    return FO_OK;
}

fo_status fo_plan_execute(fo_plan *plan, const fo_plan_args *args)
{
    fo_status status = check_args(plan, args);
    if (status != FO_OK)
        return status;
    void *external[FO_BUFFER_ROLES] = {0};
    bool row_backward = plan->desc.op == FO_ROW_BACKWARD;
    external[FO_BUFFER_SHARD] = (void *)(uintptr_t)(row_backward ? args->dy : args->x);
    external[FO_BUFFER_FULL] =
        (void *)(uintptr_t)(plan->desc.op == FO_COLUMN_BACKWARD ? args->dy : args->x);
    external[FO_BUFFER_OUTPUT] = has_wgrad(plan->desc.op) ? args->dx : args->y;
    plan->args = args;
    status = fo_op_compute_pack(plan, args);
    if (status == FO_OK)
        status = fo_exec_run(plan->exec, external, plan);
    plan->args = NULL;
    return status;
}

fo_status fo_plan_execute_local(fo_plan *plan, const fo_plan_args *args)
{
    fo_status status = check_args(plan, args);
    return status == FO_OK ? fo_op_compute_local(plan, args) : status;
}

const char *fo_plan_explain(const fo_plan *plan)
{
    return plan->explain;
}

int64_t fo_plan_wire_bytes(const fo_plan *plan)
{
    return plan->wire_bytes;
}

int64_t fo_plan_slice_rows(const fo_plan *plan)
{
    return has_wgrad(plan->desc.op) ? FO_WGRAD_ROWS : FO_TILE_ROWS;
}

static void collect_waits(fo_plan *plan)
{
    plan->wait_count = 0;
    for (int32_t t = 0; t < plan->program->task_count; t++) {
        const fo_task *task = &plan->program->tasks[t];
        int64_t waited = fo_exec_waited_ns(plan->exec, t);
        if (!waited)
            continue;
        int w = 0;
        while (w < plan->wait_count &&
               (plan->waits[w].step != task->step || plan->waits[w].peer != task->peer))
            w++;
        if (w == plan->wait_count)
            plan->waits[plan->wait_count++] = (fo_wait){.step = task->step, .peer = task->peer};
        plan->waits[w].exposed_ns += waited;
    }
}

void fo_plan_report(const fo_plan *plan, fo_report *report)
{
    fo_exec_stats stats;
    fo_exec_stats_get(plan->exec, &stats);
    collect_waits((fo_plan *)(uintptr_t)plan);
    *report = (fo_report){.executions = stats.runs,
                          .total_ns = stats.total_ns + plan->pack_ns,
                          .compute_ns = stats.compute_ns + plan->pack_ns,
                          .exposed_ns = stats.exposed_ns,
                          .sent_bytes = stats.sent_bytes,
                          .tasks = stats.tasks,
                          .waits = plan->waits,
                          .wait_count = plan->wait_count};
}

void fo_plan_report_reset(fo_plan *plan)
{
    fo_exec_stats_reset(plan->exec);
    plan->pack_ns = 0;
}
