/* Making, running and describing plans. */
#include "flashoverlap/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "group/group.h"
#include "op/plan.h"

/* Between looks at the messages from inside a tile. */
enum { LOOK_NS = 1000000 };

/* Multiplications of a tile, a thread, that is looked out of: a dozen milliseconds in bf16, half that many in float32.
 * Being cut costs a product a percent or two, and what sockets hold lasts that long at 2 Gbit/s. */
static const double long_tile = 1.28e9;

/* Of all rows, at least, on an emulated device. */
enum { EMULATED_TILES = 128 };

static fo_status build_program(fo_plan *plan)
{
    int ranks = fo_group_size(plan->group), rank = fo_group_rank(plan->group);
    fo_schedule_desc desc = {
        .pattern = fo_schedule_operation_pattern(plan->desc.op),
        .strategy = plan->strategy,
        .ranks = ranks,
        .nodes = fo_group_nodes(plan->group),
        .rows = plan->desc.rows,
        .quantum =
            fo_schedule_operation_has_wgrad(plan->desc.op) ? plan->wgrad_rows : plan->tile_rows,
        .stream_rows = fo_schedule_operation_message_rows(&plan->desc, plan->tile_rows),
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

static void explain(fo_plan *plan)
{
    const fo_program *program = plan->program;
    int sends = 0, slices = 0;
    for (int32_t t = 0; t < program->task_count; t++) {
        sends += program->tasks[t].kind == FO_TASK_SEND;
        slices += program->tasks[t].kind == FO_TASK_COMPUTE &&
                  program->tasks[t].slot == (program->pattern == FO_PATTERN_WGRAD);
    }
    const char *why = "as asked for";
    if (plan->automatic)
        why = plan->why;
    else if (fo_group_size(plan->group) == 1)
        why = "one rank has nothing to communicate";
    else if (!plan->desc.overlap)
        why = "the default";
    else if (plan->strategy.kind == FO_STRATEGY_NONE ||
             plan->strategy.kind == FO_STRATEGY_HIER_NONE)
        why = "as asked for: nothing is overlapped";
    else if (plan->strategy.kind == FO_STRATEGY_HIER && fo_group_nodes(plan->group) == 1)
        why = "as asked for, but as flash: one machine, or not equally many ranks on each";
    snprintf(plan->explain, sizeof plan->explain,
             "%s: %s, %s (%s): %d ranks, %lld rows in %d slices, %d sends of %lld-row messages, "
             "wire %s, computation %s on %s",
             plan->name, fo_schedule_operation_name(plan->desc.op), plan->overlap, why,
             fo_group_size(plan->group), (long long)plan->desc.rows, slices, sends,
             (long long)program->stream_rows, fo_dtype_name(plan->desc.wire),
             fo_dtype_name(plan->desc.dtype), plan->kernel->name);
}

static fo_status create_gemm(fo_plan *plan, const fo_gemm_desc *desc, fo_gemm **gemm, void **packed)
{
    fo_status status = plan->kernel->gemm_create(desc, gemm);
    if (status != FO_OK)
        return status;
    size_t bytes = (plan->kernel->gemm_packed_bytes(*gemm) + 127) / 64 * 64;
    *packed = aligned_alloc(64, bytes);
    return *packed ? FO_OK
                   : fo_base_error(FO_NO_MEMORY, "%s: no memory for %zu bytes of packed weight",
                                   plan->name, bytes);
}

static fo_status create_attention(fo_plan *plan)
{
    const fo_plan_attention *a = &plan->desc.attention;
    int ranks = fo_group_size(plan->group);
    int64_t count = fo_rows_runs(a->order, a->batch, a->context, ranks, NULL, 0);
    fo_run *runs = calloc((size_t)count + 1, sizeof *runs);
    if (!runs)
        return fo_base_error(FO_NO_MEMORY, "%s: no memory for %lld runs of rows", plan->name,
                             (long long)count);
    fo_rows_runs(a->order, a->batch, a->context, ranks, runs, count);
    fo_attention_desc desc = {.batch = a->batch,
                              .context = a->context,
                              .heads = a->heads,
                              .head_dim = a->head_dim,
                              .dtype = plan->desc.dtype,
                              .dropout = a->dropout,
                              .head_offset =
                                  a->head_offset + (int)(a->first_sequence * a->total_heads),
                              .total_heads = a->total_heads,
                              .runs = runs,
                              .run_count = count};
    fo_status status = plan->kernel->attention_create(&desc, &plan->attention);
    free(runs);
    return status;
}

fo_status fo_op_plan_make_kernels(fo_plan *plan)
{
    const fo_plan_desc *desc = &plan->desc;
    bool mlp = desc->op == FO_MLP_FORWARD;
    bool forward = mlp || desc->op == FO_COLUMN_FORWARD || desc->op == FO_ROW_FORWARD ||
                   desc->op == FO_ATTENTION_FORWARD;
    int64_t out = mlp ? desc->hidden : desc->out;
    int64_t width = plan->width_out > desc->hidden ? plan->width_out : desc->hidden;
    plan->tile = aligned_alloc(64, (size_t)(plan->tile_rows * width + 32) / 16 * 64);
    if (!plan->tile)
        return fo_base_error(FO_NO_MEMORY, "%s: no memory for a tile", plan->name);
    fo_gemm_desc first = {.k = forward ? desc->in : out,
                          .n = forward ? out : desc->in,
                          .dtype = desc->dtype,
                          .transposed = forward};
    fo_gemm_desc second = {.k = desc->hidden,
                           .n = desc->out,
                           .dtype = desc->dtype,
                           .transposed = true};
    fo_wgrad_desc wgrad = {.out = desc->out, .in = desc->in, .dtype = desc->dtype};
    fo_status status = FO_OK;
    if (fo_schedule_operation_has_gemm(desc->op))
        status = create_gemm(plan, &first, &plan->gemm, &plan->packed);
    if (status == FO_OK && mlp)
        status = create_gemm(plan, &second, &plan->gemm2, &plan->packed2);
    if (status == FO_OK && fo_schedule_operation_has_wgrad(desc->op))
        status = plan->kernel->wgrad_create(&wgrad, &plan->wgrad);
    if (status == FO_OK && fo_schedule_operation_has_attention(desc->op))
        status = create_attention(plan);
    return status;
}

static fo_status create_executor(fo_plan *plan)
{
    fo_exec_desc desc = {
        .endpoint = fo_group_endpoint(plan->group),
        .program = plan->program,
        .tag = fo_group_next_tag(plan->group, 2),
        .tile_rows = {plan->tile_rows, plan->wgrad ? plan->wgrad_rows : plan->tile_rows},
        .compute = fo_op_compute_tile,
        .prepare = fo_op_compute_pack,
        .meanwhile = fo_op_compute_meanwhile,
        .name = plan->name,
        .background = fo_group_background(plan->group),
        .recorder = fo_group_recorder(plan->group),
    };
    memcpy(desc.row_bytes, plan->row_bytes, sizeof desc.row_bytes);
    for (int32_t t = 0; t < plan->program->task_count; t++) {
        const fo_task *task = &plan->program->tasks[t];
        if (task->kind == FO_TASK_SEND)
            plan->wire_bytes +=
                task->rows * plan->row_bytes[plan->program->buffers[task->in.buffer].role];
    }
    plan->waits = calloc((size_t)plan->program->task_count + 1, sizeof *plan->waits);
    if (!plan->waits)
        return fo_base_error(FO_NO_MEMORY, "%s: no memory for its report", plan->name);
    return fo_exec_create(&desc, &plan->exec);
}

/* Of computing kernels the tile is part of the numerics. An emulated device takes larger ones, for the sake of
 * the processor that emulates it, but not so large that a slice is a tile or two. */
static void choose_tiles(fo_plan *plan)
{
    plan->tile_rows = plan->kernel->tile_rows;
    plan->wgrad_rows = plan->kernel->wgrad_rows;
    while (plan->kernel->emulates && plan->tile_rows > FO_TILE_ROWS &&
           plan->desc.rows / plan->tile_rows < EMULATED_TILES)
        plan->tile_rows /= 2;
    if (plan->kernel->emulates && plan->wgrad_rows > plan->tile_rows)
        plan->wgrad_rows = plan->tile_rows > FO_WGRAD_ROWS ? plan->tile_rows : FO_WGRAD_ROWS;
}

void fo_op_plan_size(fo_plan *plan)
{
    choose_tiles(plan);
    plan->width_out = fo_schedule_operation_sizes(&plan->desc, plan->row_bytes);
}

/* none and slice:k compute a chunk of every shard as one product; in the others a task is one. */
static fo_status lay_out_slices(fo_plan *plan)
{
    const fo_program *program = plan->program;
    fo_strategy_kind kind = plan->strategy.kind;
    bool chunks =
        kind == FO_STRATEGY_NONE || kind == FO_STRATEGY_SLICE || kind == FO_STRATEGY_HIER_NONE;
    if (!plan->kernel->slice)
        return FO_OK;
    plan->slice_rows = calloc((size_t)program->task_count + 1, sizeof *plan->slice_rows);
    if (!plan->slice_rows)
        return fo_base_error(FO_NO_MEMORY, "%s: no memory for %d tasks", plan->name,
                             (int)program->task_count);
    for (int32_t t = 0; t < program->task_count; t++) {
        const fo_task *task = &program->tasks[t];
        for (int32_t u = 0; u < program->task_count; u++) {
            const fo_task *other = &program->tasks[u];
            bool same = chunks && other->kind == task->kind && other->slot == task->slot &&
                        other->sub == task->sub;
            plan->slice_rows[t] += same || u == t ? other->rows : 0;
        }
    }
    return FO_OK;
}

/* Strategy library has no program and so no executor. */
static fo_status set_up_library(fo_plan *plan)
{
    fo_status status = fo_op_plan_make_kernels(plan);
    return status == FO_OK ? fo_op_library_create(plan) : status;
}

static fo_status make_program(fo_plan *plan)
{
    fo_status status = build_program(plan);
    if (status == FO_OK)
        status = lay_out_slices(plan);
    if (status == FO_OK)
        status = create_executor(plan);
    if (status == FO_OK)
        explain(plan);
    return status;
}

static void drop_program(fo_plan *plan)
{
    fo_exec_destroy(plan->exec);
    fo_schedule_free(plan->program);
    free(plan->slice_rows);
    free(plan->waits);
    plan->exec = NULL;
    plan->program = NULL;
    plan->slice_rows = NULL;
    plan->waits = NULL;
    plan->wait_count = 0;
    plan->wire_bytes = 0;
}

static fo_status set_up(fo_plan *plan)
{
    fo_status status = fo_strategy_parse(plan->overlap, &plan->strategy);
    if (status == FO_OK)
        status = fo_op_describe_check(&plan->desc, plan->kernel, plan->name);
    if (status != FO_OK)
        return status;
    plan->automatic = plan->strategy.kind == FO_STRATEGY_AUTO;
    fo_op_plan_size(plan);
    if (plan->strategy.kind == FO_STRATEGY_LIBRARY)
        return set_up_library(plan);
    if (plan->automatic)
        status = fo_op_auto_choose(plan);
    if (status == FO_OK)
        status = fo_op_plan_make_kernels(plan);
    return status == FO_OK ? make_program(plan) : status;
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
             desc->name ? desc->name : fo_schedule_operation_name(desc->op));
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

void fo_op_plan_free_kernels(fo_plan *plan)
{
    if (plan->gemm)
        plan->kernel->gemm_destroy(plan->gemm);
    if (plan->gemm2)
        plan->kernel->gemm_destroy(plan->gemm2);
    if (plan->wgrad)
        plan->kernel->wgrad_destroy(plan->wgrad);
    if (plan->attention)
        plan->kernel->attention_destroy(plan->attention);
    free(plan->packed);
    free(plan->packed2);
    free(plan->tile);
    free(plan->local_out);
}

void fo_plan_destroy(fo_plan *plan)
{
    if (!plan)
        return;
    drop_program(plan);
    fo_op_library_destroy(plan);
    fo_op_plan_free_kernels(plan);
    free(plan);
}

/* Row-parallel form: the program overlaps the out-projection only. */
static bool attention_apart(const fo_plan *plan, fo_op op)
{
    return plan->desc.op == op && plan->desc.attention.first;
}

static void bind_arguments(fo_plan *plan, const fo_plan_args *args, void *external[FO_BUFFER_ROLES])
{
    for (int role = 0; role < FO_BUFFER_ROLES; role++)
        external[role] = fo_op_describe_external(plan, args, (fo_buffer_role)role);
    plan->args = args;
}

/* The statistics of the executor that goes are kept. */
static fo_status replace_program(fo_plan *plan)
{
    fo_exec_stats sums, *before = &plan->before;
    fo_exec_stats_get(plan->exec, &sums);
    before->runs += sums.runs;
    before->total_ns += sums.total_ns;
    before->compute_ns += sums.compute_ns;
    before->exposed_ns += sums.exposed_ns;
    before->sent_bytes += sums.sent_bytes;
    before->tasks += sums.tasks;
    drop_program(plan);
    return make_program(plan);
}

/* What was chosen for another link is chosen anew. Collective, as whoever changed the link was. */
static fo_status follow_link(fo_plan *plan)
{
    fo_link now = fo_group_link(plan->group);
    if (!plan->automatic ||
        (now.bytes_per_s == plan->link.bytes_per_s && now.latency_s == plan->link.latency_s &&
         now.topology == plan->link.topology))
        return FO_OK;
    char was[sizeof plan->overlap];
    snprintf(was, sizeof was, "%s", plan->overlap);
    fo_status status = fo_op_auto_choose(plan);
    if (status == FO_OK && strcmp(was, plan->overlap) != 0)
        return replace_program(plan);
    if (status == FO_OK)
        explain(plan);
    return status;
}

static fo_status check_idle(const fo_plan *plan)
{
    if (!plan->exec && !plan->library)
        return fo_base_error(FO_INVALID,
                             "%s: executed after its program could not be made anew for another "
                             "link, expected it to be destroyed",
                             plan->name);
    if (!plan->exec || !fo_exec_started(plan->exec))
        return FO_OK;
    return fo_base_error(FO_INVALID,
                         "%s: executed while an execution that was started is running, expected "
                         "fo_plan_finish before",
                         plan->name);
}

static void look(void *plan)
{
    fo_exec_look(((fo_plan *)plan)->exec);
}

static bool has_long_tiles(const fo_plan *plan)
{
    const fo_plan_desc *d = &plan->desc;
    int64_t out = d->hidden > d->out ? d->hidden : d->out;
    double rows = plan->wgrad ? plan->wgrad_rows : plan->tile_rows;
    double work = rows * (double)d->in * (double)out / fo_group_threads(plan->group);
    return work * (d->dtype == FO_F32 ? 2 : 1) >= long_tile;
}

/* Where messages move only inside the library's calls, they are looked at from inside long tiles too. Transports whose
 * receivers read in place need nobody to move anything. */
static void look_inside_tiles(fo_plan *plan, bool on)
{
    fo_endpoint *endpoint = fo_group_endpoint(plan->group);
    if (!(endpoint->ops->caps & FO_TRANSPORT_VIEW) && has_long_tiles(plan))
        fo_kernel_set_progress(on ? look : NULL, plan, LOOK_NS);
}

fo_status fo_plan_execute(fo_plan *plan, const fo_plan_args *args)
{
    fo_status status = check_idle(plan);
    if (status == FO_OK)
        status = fo_op_describe_check_args(plan, args);
    if (status != FO_OK)
        return status;
    if (plan->library)
        return fo_op_library_execute(plan, args);
    status = follow_link(plan);
    if (status != FO_OK)
        return status;
    void *external[FO_BUFFER_ROLES];
    bind_arguments(plan, args, external);
    if (plan->attention)
        plan->kernel->attention_begin(plan->attention);
    if (status == FO_OK && attention_apart(plan, FO_ATTENTION_FORWARD))
        status = fo_op_compute_attention(plan);
    look_inside_tiles(plan, true);
    if (status == FO_OK)
        status = fo_exec_run(plan->exec, external, plan);
    look_inside_tiles(plan, false);
    if (status == FO_OK && attention_apart(plan, FO_ATTENTION_BACKWARD))
        status = fo_op_compute_attention(plan);
    plan->args = NULL;
    return status;
}

/* What is done outside of the program can't be left to go on. */
static bool leaves_nothing(const fo_plan *plan)
{
    return !plan->exec || plan->attention;
}

fo_status fo_plan_start(fo_plan *plan, const fo_plan_args *args)
{
    fo_status status = check_idle(plan);
    if (status == FO_OK)
        status = fo_op_describe_check_args(plan, args);
    if (status != FO_OK)
        return status;
    if (leaves_nothing(plan))
        return fo_plan_execute(plan, args);
    status = follow_link(plan);
    if (status != FO_OK)
        return status;
    void *external[FO_BUFFER_ROLES];
    plan->kept = *args;
    bind_arguments(plan, &plan->kept, external);
    return fo_exec_start(plan->exec, external, plan);
}

fo_status fo_plan_finish(fo_plan *plan)
{
    if (!plan->exec || !fo_exec_started(plan->exec))
        return FO_OK;
    look_inside_tiles(plan, true);
    fo_status status = fo_exec_finish(plan->exec);
    look_inside_tiles(plan, false);
    plan->args = NULL;
    return status;
}

fo_status fo_plan_execute_local(fo_plan *plan, const fo_plan_args *args)
{
    fo_status status = fo_op_describe_check_args(plan, args);
    return status == FO_OK ? fo_op_local_run(plan, args) : status;
}

const char *fo_plan_explain(const fo_plan *plan)
{
    return plan->explain;
}

const char *fo_plan_overlap(const fo_plan *plan)
{
    return plan->overlap;
}

int64_t fo_plan_wire_bytes(const fo_plan *plan)
{
    return plan->wire_bytes;
}

int64_t fo_plan_slice_rows(const fo_plan *plan)
{
    return plan->wgrad ? plan->wgrad_rows : plan->tile_rows;
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
    fo_exec_stats stats = {0};
    if (plan->library) { /* a collective has no peer that is waited for */
        fo_op_library_stats(plan, &stats);
    } else if (plan->exec) {
        fo_exec_stats_get(plan->exec, &stats);
        collect_waits((fo_plan *)(uintptr_t)plan);
    }
    const fo_exec_stats *before = &plan->before;
    *report = (fo_report){.executions = before->runs + stats.runs,
                          .total_ns = before->total_ns + stats.total_ns + plan->apart_ns,
                          .compute_ns = before->compute_ns + stats.compute_ns + plan->apart_ns,
                          .exposed_ns = before->exposed_ns + stats.exposed_ns,
                          .sent_bytes = before->sent_bytes + stats.sent_bytes,
                          .tasks = before->tasks + stats.tasks,
                          .waits = plan->waits,
                          .wait_count = plan->wait_count};
}

void fo_plan_report_reset(fo_plan *plan)
{
    if (plan->library)
        fo_op_library_stats_reset(plan);
    else if (plan->exec)
        fo_exec_stats_reset(plan->exec);
    plan->before = (fo_exec_stats){0};
    plan->apart_ns = 0;
}
