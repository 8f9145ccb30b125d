/* What the tasks of an operation take, as op/compute.c computes them. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "schedule/operation.h"
#include "sim/cost.h"
#include "sim/operation_state.h"

/* ---- keys of causal attention ------------------------------------------------------------------------ */

fo_status fo_sim_state_keys_make(fo_sim_state *state)
{
    const fo_plan_attention *a = &state->operation.desc.attention;
    int ranks = state->operation.ranks;
    fo_sim_keys *keys = &state->keys;
    if (!fo_schedule_operation_has_attention(state->operation.desc.op))
        return FO_OK;
    keys->count = fo_rows_runs(a->order, a->batch, a->context, ranks, NULL, 0);
    keys->runs = calloc((size_t)keys->count + 1, sizeof *keys->runs);
    keys->before = calloc((size_t)keys->count + 1, sizeof *keys->before);
    if (!keys->runs || !keys->before)
        return fo_base_error(FO_NO_MEMORY, "no memory for %lld runs of rows",
                             (long long)keys->count);
    fo_rows_runs(a->order, a->batch, a->context, ranks, keys->runs, keys->count);
    for (int64_t i = 0; i < keys->count; i++) {
        double rows = (double)keys->runs[i].rows, first = (double)keys->runs[i].position + 1;
        keys->before[i + 1] = keys->before[i] + rows * first + rows * (rows - 1) / 2;
    }
    return FO_OK;
}

void fo_sim_state_keys_free(fo_sim_state *state)
{
    free(state->keys.runs);
    free(state->keys.before);
    state->keys = (fo_sim_keys){0};
}

/* Of rows [0, row). */
static double keys_before(const fo_sim_keys *keys, int64_t row)
{
    int64_t low = 0, high = keys->count; /* the first run that begins behind the row */
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (keys->runs[middle].row <= row)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return 0;
    const fo_run *run = &keys->runs[low - 1];
    double rows = (double)(row - run->row), first = (double)run->position + 1;
    return keys->before[low - 1] + rows * first + rows * (rows - 1) / 2;
}

/* Keys before queries [row, row + rows) at which they turn to another sequence than *sequence, the last one met. */
static double turned_keys(const fo_sim_keys *keys, int64_t row, int64_t rows, int64_t *sequence)
{
    double turned = 0;
    for (int64_t i = 0; i < keys->count && keys->runs[i].row < row + rows; i++) {
        const fo_run *run = &keys->runs[i];
        int64_t begin = run->row > row ? run->row : row;
        if (run->row + run->rows <= begin || run->sequence == *sequence)
            continue;
        turned += (double)(run->position + begin - run->row);
        *sequence = run->sequence;
    }
    return turned;
}

static double turn_s(const fo_sim_state *s, double keys)
{
    return s->machine.device.attention_turn_s * keys * (double)s->operation.desc.in;
}

/* In the order of the program; costs: by task, NULL: none. Returns all keys. */
static double add_turns(const fo_sim_state *s, const fo_program *program, fo_sim_task_cost *costs)
{
    int slot = s->operation.desc.op == FO_ATTENTION_BACKWARD;
    int64_t sequence = -1;
    double all = 0;
    for (int32_t t = 0; t < program->task_count; t++) {
        const fo_task *task = &program->tasks[t];
        if (task->kind != FO_TASK_COMPUTE || task->slot != slot)
            continue;
        double keys = turned_keys(&s->keys, task->row, task->rows, &sequence);
        all += keys;
        if (costs)
            costs[t].turn_s = turn_s(s, keys);
    }
    return all;
}

/* ---- products ------------------------------------------------------------------------------------------ */

static fo_sim_work attention_work(const fo_plan_desc *d)
{
    return d->op == FO_ATTENTION_FORWARD ? FO_SIM_ATTENTION : FO_SIM_ATTENTION_GRAD;
}

static double attention_flops(const fo_sim_state *s, double keys)
{
    const fo_plan_desc *d = &s->operation.desc;
    return fo_sim_cost_attention_flops(attention_work(d), keys, (double)d->in);
}

/* Seconds of a row of a product, out of a slice of `slice` rows. A device of tiles does not know slices. */
static double product_row_s(const fo_sim_state *s, fo_sim_work work, double slice, int64_t k,
                            int64_t n)
{
    const fo_sim_device *device = &s->machine.device;
    if (device->by_tile)
        slice = (double)s->operation.desc.rows;
    if (!(slice > 0))
        return 0;
    return fo_sim_cost_product(device, work, s->operation.desc.dtype, s->operation.threads, slice,
                               (double)k, (double)n, s->in_flight) /
           slice;
}

static fo_sim_cost attention_cost(const fo_sim_state *s, double slice)
{
    const fo_plan_desc *d = &s->operation.desc;
    return fo_sim_cost_of_attention(&s->machine.device, attention_work(d), d->dtype,
                                    s->operation.threads, slice, (double)d->attention.context,
                                    d->attention.heads, d->attention.head_dim);
}

/* An element of GELU takes as long as so many FLOPs of float32 products: 0.9 ns where those have 110e9 a second. */
enum { GELU_FLOPS = 100 };

/* ---- passes -------------------------------------------------------------------------------------------- */

/* What follows a tile while it is in cache. */
static double epilogue_s(const fo_sim_state *s, double bytes)
{
    double rate = s->machine.device.epilogue_bytes_per_s;
    return rate > 0 ? bytes / rate : 0;
}

static double partial_bytes(const fo_sim_state *s, fo_buffer_role role)
{
    bool wire = role == FO_BUFFER_STAGING || role == FO_BUFFER_PARTIAL;
    return (double)s->width_out * (wire ? (double)fo_dtype_size(s->operation.desc.wire) : 4);
}

static fo_buffer_role role_of(const fo_program *program, fo_ref ref)
{
    return ref.buffer < 0 ? FO_BUFFER_ROLES : program->buffers[ref.buffer].role;
}

/* Bytes of a row that the epilogue of the first or second computation reads and writes. `add`, `out`: roles of
 * partial sums. */
static double epilogue_bytes(const fo_sim_state *s, int slot, fo_buffer_role add,
                             fo_buffer_role out)
{
    const fo_plan_desc *d = &s->operation.desc;
    double t = (double)fo_dtype_size(d->dtype), pre = d->act == FO_GELU ? t : 0;
    double added = add < FO_BUFFER_ROLES ? partial_bytes(s, add) : 0;
    double partial = partial_bytes(s, out) + added;
    bool product = d->op != FO_ALL_GATHER && d->op != FO_REDUCE_SCATTER;
    if (s->machine.device.whole_tiles && product)
        return added;
    switch (d->op) {
    case FO_COLUMN_FORWARD: return (double)d->out * ((double)fo_dtype_size(d->y_dtype) + pre);
    case FO_MLP_FORWARD: return slot ? partial : (double)d->hidden * (t + pre);
    case FO_ROW_BACKWARD:
    case FO_ATTENTION_BACKWARD: return slot ? 0 : (double)d->in * (t + pre);
    case FO_REDUCE_SCATTER: return partial + (double)d->in * 4;
    case FO_ALL_GATHER: return 2 * (double)d->in * t;
    default: return slot ? 0 : partial;
    }
}

/* Of a row of the activation, or of its gradient, on a device where what follows a tile takes time. */
static double activation_s(const fo_sim_state *s, int slot)
{
    const fo_plan_desc *d = &s->operation.desc;
    double rate = s->machine.device.flops_per_s[FO_F32];
    int64_t width = d->op == FO_MLP_FORWARD      ? d->hidden
                    : d->op == FO_COLUMN_FORWARD ? d->out
                                                 : d->in;
    if (d->act != FO_GELU || slot || s->machine.device.whole_tiles || !(rate > 0) ||
        !(s->machine.device.epilogue_bytes_per_s > 0))
        return 0;
    return (double)width * GELU_FLOPS / rate;
}

/* Sums of columns, for the bias: of the local factor, or of the own shard of the one that travels. */
static double column_sum_s(const fo_sim_state *s, bool own)
{
    const fo_plan_desc *d = &s->operation.desc;
    bool column = d->op == FO_COLUMN_BACKWARD || d->op == FO_COLUMN_WGRAD;
    if (!fo_schedule_operation_has_wgrad(d->op) || !(column || own) ||
        (column && s->machine.device.whole_tiles))
        return 0;
    return fo_sim_cost_pass(&s->machine.device, (double)d->out * (double)fo_dtype_size(d->dtype));
}

/* ---- tasks --------------------------------------------------------------------------------------------- */

/* The products of a row of computation `slot`, of a slice of `slice` rows. */
static double compute_row_s(const fo_sim_state *s, int slot, double slice)
{
    const fo_plan_desc *d = &s->operation.desc;
    switch (d->op) {
    case FO_MLP_FORWARD:
        return slot ? product_row_s(s, FO_SIM_GEMM, slice, d->hidden, d->out)
                    : product_row_s(s, FO_SIM_GEMM, slice, d->in, d->hidden);
    case FO_COLUMN_FORWARD:
    case FO_ROW_FORWARD:
    case FO_ATTENTION_FORWARD: return product_row_s(s, FO_SIM_GEMM, slice, d->in, d->out);
    case FO_ALL_GATHER:
    case FO_REDUCE_SCATTER: return 0;
    default:
        return slot ? product_row_s(s, FO_SIM_WGRAD, slice, d->in, d->out)
                    : product_row_s(s, FO_SIM_GEMM, slice, d->out, d->in);
    }
}

static bool attends(const fo_sim_state *s, int slot)
{
    const fo_plan_desc *d = &s->operation.desc;
    return fo_schedule_operation_has_attention(d->op) && !d->attention.first &&
           slot == (d->op == FO_ATTENTION_BACKWARD);
}

static fo_sim_task_cost compute_cost(const fo_sim_state *s, const fo_program *program,
                                     const fo_task *task, double slice)
{
    fo_sim_task_cost cost = {.row_s = compute_row_s(s, task->slot, slice)};
    fo_buffer_role add = s->unsliced ? FO_BUFFER_ROLES : role_of(program, task->add);
    fo_buffer_role out = s->unsliced ? FO_BUFFER_PARTIAL : role_of(program, task->out);
    bool in_place = s->operation.desc.op == FO_ALL_GATHER && task->shard == program->rank;
    if (!in_place)
        cost.row_s += epilogue_s(s, epilogue_bytes(s, task->slot, add, out));
    cost.row_s += activation_s(s, task->slot);
    if (task->slot || s->operation.desc.op == FO_COLUMN_WGRAD)
        cost.row_s += column_sum_s(s, task->shard == program->rank);
    if (attends(s, task->slot)) {
        fo_sim_cost attention = attention_cost(s, slice);
        cost.row_s += slice > 0 ? attention.launch_s / slice : 0;
        cost.attention_flop_s = attention.flop_s;
    }
    return cost;
}

/* An addition of a local float32 sum belongs to the message where epilogues belong to the product. */
static double add_row_s(const fo_sim_state *s, const fo_program *program, const fo_task *task)
{
    const fo_sim_device *device = &s->machine.device;
    fo_buffer_role in = role_of(program, task->in);
    if (s->unsliced || (in == FO_BUFFER_ACC && !(device->epilogue_bytes_per_s > 0)))
        return 0;
    double bytes = partial_bytes(s, in) + partial_bytes(s, role_of(program, task->out));
    if (task->kind == FO_TASK_ADD)
        bytes += partial_bytes(s, role_of(program, task->add));
    return fo_sim_cost_pass(device, bytes);
}

/* none and slice:k compute a chunk of every shard as one product; in the others a task is one (op/plan.c). */
static double slice_rows(const fo_sim_state *s, const fo_program *program, int32_t t)
{
    fo_strategy_kind kind = s->strategy.kind;
    bool chunks =
        kind == FO_STRATEGY_NONE || kind == FO_STRATEGY_SLICE || kind == FO_STRATEGY_HIER_NONE;
    const fo_task *task = &program->tasks[t];
    if (s->unsliced)
        return (double)program->rows;
    if (!chunks)
        return (double)task->rows;
    int64_t rows = 0;
    for (int32_t u = 0; u < program->task_count; u++) {
        const fo_task *other = &program->tasks[u];
        if (other->kind == task->kind && other->slot == task->slot && other->sub == task->sub)
            rows += other->rows;
    }
    return (double)rows;
}

/* Tasks that cost a row the same: most follow one that was costed already. */
static bool alike(const fo_task *a, const fo_task *b, const fo_program *program)
{
    return a->kind == b->kind && a->slot == b->slot && a->rows == b->rows &&
           (a->shard == program->rank) == (b->shard == program->rank) &&
           a->in.buffer == b->in.buffer && a->add.buffer == b->add.buffer &&
           a->out.buffer == b->out.buffer;
}

void fo_sim_state_costs(const fo_sim_state *s, int p, fo_sim_task_cost *costs)
{
    const fo_program *program = s->programs[p];
    int32_t recent[8], recent_count = 0;
    for (int32_t t = 0; t < program->task_count; t++) {
        const fo_task *task = &program->tasks[t];
        if (task->kind == FO_TASK_SEND || task->kind == FO_TASK_RECV)
            continue;
        int i = 0, most = recent_count < 8 ? recent_count : 8;
        double slice = task->kind == FO_TASK_COMPUTE ? -1 : 0;
        while (i < most && !alike(&program->tasks[recent[i]], task, program))
            i++;
        bool same_chunk = i < most && (s->strategy.kind != FO_STRATEGY_SLICE ||
                                       program->tasks[recent[i]].sub == task->sub);
        if (i < most && (slice == 0 || same_chunk)) {
            costs[t] = costs[recent[i]];
            continue;
        }
        if (slice < 0)
            costs[t] = compute_cost(s, program, task, slice_rows(s, program, t));
        else
            costs[t] = (fo_sim_task_cost){.row_s = add_row_s(s, program, task)};
        recent[recent_count++ % 8] = t;
    }
    if (s->machine.device.attention_turn_s > 0 && (attends(s, 0) || attends(s, 1)))
        add_turns(s, program, costs);
}

double fo_sim_state_tile_s(const void *context, int rank, const fo_task *task, int64_t row,
                           int64_t rows)
{
    const fo_sim_state *s = context;
    int p = rank % s->period;
    const fo_sim_task_cost *cost = &s->costs[p][task - s->programs[p]->tasks];
    double seconds = cost->row_s * (double)rows;
    if (row == task->row)
        seconds += cost->turn_s;
    if (cost->attention_flop_s > 0)
        seconds += cost->attention_flop_s * attention_flops(s, keys_before(&s->keys, row + rows) -
                                                                   keys_before(&s->keys, row));
    return seconds;
}

/* ---- the whole computation ----------------------------------------------------------------------------- */

double fo_sim_state_pack_s(const fo_sim_state *s)
{
    const fo_plan_desc *d = &s->operation.desc;
    bool mlp = d->op == FO_MLP_FORWARD;
    if (s->operation.packed || !fo_schedule_operation_has_gemm(d->op))
        return 0;
    double weight = (double)d->in * (double)(mlp ? d->hidden : d->out);
    if (mlp)
        weight += (double)d->hidden * (double)d->out;
    return fo_sim_cost_product(&s->machine.device, FO_SIM_PACK, d->dtype, s->operation.threads, 1,
                               weight, 1, false);
}

/* Of all rows: one after another, or (`apart`) as the program's tasks have them. */
static double all_attention_s(const fo_sim_state *s, bool apart)
{
    int64_t rows = s->operation.desc.rows, sequence = -1;
    fo_sim_cost cost = attention_cost(s, (double)rows);
    double keys =
        apart ? add_turns(s, s->programs[0], NULL) : turned_keys(&s->keys, 0, rows, &sequence);
    return cost.launch_s + cost.flop_s * attention_flops(s, s->keys.before[s->keys.count]) +
           turn_s(s, keys);
}

double fo_sim_state_apart_s(const fo_sim_state *s)
{
    const fo_plan_desc *d = &s->operation.desc;
    if (!fo_schedule_operation_has_attention(d->op) || !d->attention.first || !d->rows)
        return 0;
    return all_attention_s(s, true);
}

double fo_sim_state_least_row_s(const fo_sim_state *s, int slot)
{
    const fo_plan_desc *d = &s->operation.desc;
    fo_pattern pattern = fo_schedule_operation_pattern(d->op);
    bool second = pattern == FO_PATTERN_BLOCK || fo_schedule_operation_has_wgrad(d->op);
    double rows = (double)d->rows;
    if (!(rows > 0) || (slot ? !second : pattern == FO_PATTERN_WGRAD))
        return 0;
    double row_s = compute_row_s(s, slot, rows);
    if (attends(s, slot)) /* the first query of a sequence meets itself */
        row_s += attention_cost(s, rows).flop_s * attention_flops(s, 1);
    return row_s;
}

double fo_sim_state_local_s(const fo_sim_state *s)
{
    const fo_plan_desc *d = &s->operation.desc;
    fo_pattern pattern = fo_schedule_operation_pattern(d->op);
    double rows = (double)d->rows, row_s = 0;
    if (d->op == FO_ALL_GATHER || d->op == FO_REDUCE_SCATTER || !(rows > 0))
        return 0;
    if (pattern != FO_PATTERN_WGRAD)
        row_s += compute_row_s(s, 0, rows) + activation_s(s, 0) +
                 epilogue_s(s, epilogue_bytes(s, 0, FO_BUFFER_ROLES, FO_BUFFER_PARTIAL));
    if (pattern == FO_PATTERN_BLOCK)
        row_s += compute_row_s(s, 1, rows) +
                 epilogue_s(s, epilogue_bytes(s, 1, FO_BUFFER_ROLES, FO_BUFFER_PARTIAL));
    if (fo_schedule_operation_has_wgrad(d->op))
        row_s += compute_row_s(s, 1, rows) + column_sum_s(s, true);
    double attention = fo_schedule_operation_has_attention(d->op) ? all_attention_s(s, false) : 0;
    return fo_sim_state_pack_s(s) + row_s * rows + attention;
}

/* Alone a rank sums the columns of all rows, in a program those of its own shard. */
double fo_sim_state_least_s(const fo_sim_state *s)
{
    const fo_sim_operation *o = &s->operation;
    bool own = o->desc.op == FO_ROW_BACKWARD || o->desc.op == FO_ATTENTION_BACKWARD;
    int64_t others = o->desc.rows - fo_shard_rows(o->desc.rows, o->ranks, o->ranks - 1);
    return fo_sim_state_local_s(s) - (own ? column_sum_s(s, true) * (double)others : 0);
}

double fo_sim_state_squeeze(const fo_sim_state *s)
{
    const fo_sim_device *device = &s->machine.device;
    if (!device->units || !device->comm_units || device->by_tile)
        return 1;
    fo_sim_state alone = *s, beside = *s;
    alone.in_flight = false;
    beside.in_flight = true;
    const fo_program *program = s->programs[0];
    double alone_s = 0, beside_s = 0;
    for (int32_t t = 0; t < program->task_count; t++) {
        const fo_task *task = &program->tasks[t];
        if (task->kind != FO_TASK_COMPUTE)
            continue;
        double rows = (double)task->rows, slice = slice_rows(s, program, t);
        alone_s += compute_row_s(&alone, task->slot, slice) * rows;
        beside_s += compute_row_s(&beside, task->slot, slice) * rows;
    }
    return alone_s > 0 ? beside_s / alone_s : 1;
}
