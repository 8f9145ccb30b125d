/* An operation on a machine: programs as a plan builds them, run by the engine. */
#include "sim/operation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "schedule/operation.h"
#include "sim/bound.h"
#include "sim/closed.h"
#include "sim/operation_state.h"

/* As op/plan.c and kernel/kernel.h have them: the least rows of a tile; an operation has so many tiles at least where
 * tiles may be larger. */
enum { LEAST_ROWS = 64, TILES = 128 };

enum { FEW_RANKS = 16 };

void fo_sim_operation_tiles(const fo_sim_device *device, const fo_plan_desc *desc,
                            int64_t *tile_rows, int64_t *wgrad_rows)
{
    *tile_rows = device->tile_rows > 0 ? device->tile_rows : LEAST_ROWS;
    *wgrad_rows = device->wgrad_rows > 0 ? device->wgrad_rows : FO_WGRAD_ROWS;
    if (device->by_tile)
        return;
    while (*tile_rows > LEAST_ROWS && desc->rows / *tile_rows < TILES)
        *tile_rows /= 2;
    if (*wgrad_rows > *tile_rows)
        *wgrad_rows = *tile_rows > FO_WGRAD_ROWS ? *tile_rows : FO_WGRAD_ROWS;
}

/* ---- making -------------------------------------------------------------------------------------------- */

static fo_status check_sizes(const fo_sim_operation *o)
{
    const fo_plan_desc *d = &o->desc;
    if ((unsigned)d->op >= FO_SCHEDULE_OPERATIONS)
        return fo_base_error(FO_INVALID,
                             "simulator: operation %d is unknown, expected one of fo_op",
                             (int)d->op);
    if (o->ranks < 1 || o->threads < 0 || o->nodes < 0)
        return fo_base_error(FO_INVALID,
                             "simulator: %d ranks of %d threads on %d machines, expected 1 rank or "
                             "more",
                             o->ranks, o->threads, o->nodes);
    if (d->rows < 0 || d->in < 0 || d->out < 0 || d->hidden < 0)
        return fo_base_error(FO_INVALID,
                             "simulator: %s: sizes are rows %lld, in %lld, out %lld, hidden %lld, "
                             "expected 0 or more",
                             fo_schedule_operation_name(d->op), (long long)d->rows,
                             (long long)d->in, (long long)d->out, (long long)d->hidden);
    return FO_OK;
}

static fo_status check_attention(const fo_plan_desc *d)
{
    const fo_plan_attention *a = &d->attention;
    if (!fo_schedule_operation_has_attention(d->op))
        return FO_OK;
    if (a->batch < 0 || a->context < 0 || a->batch * a->context != d->rows)
        return fo_base_error(FO_INVALID,
                             "simulator: %lld sequences of %lld tokens in %lld rows, expected "
                             "batch * context = rows",
                             (long long)a->batch, (long long)a->context, (long long)d->rows);
    if (a->heads < 0 || a->head_dim < 1 || (int64_t)a->heads * a->head_dim != d->in)
        return fo_base_error(FO_INVALID,
                             "simulator: %d heads of %d features for in = %lld, expected heads * "
                             "head_dim = in",
                             a->heads, a->head_dim, (long long)d->in);
    return FO_OK;
}

static fo_status check_dtype(const fo_sim_machine *machine, const fo_plan_desc *d)
{
    const double *rates = machine->device.flops_per_s;
    bool computes = fo_schedule_operation_has_gemm(d->op) || fo_schedule_operation_has_wgrad(d->op);
    int other = d->dtype == FO_F32 ? FO_BF16 : FO_F32;
    if (!computes || rates[d->dtype] > 0 || !(rates[other] > 0))
        return FO_OK;
    return fo_base_error(
        FO_UNSUPPORTED,
        "simulator: machine '%s' has no rate of %s, expected device.%s_flops_per_s "
        "in its profile, or computation in %s",
        machine->name, fo_dtype_name(d->dtype), fo_dtype_name(d->dtype),
        fo_dtype_name((fo_dtype)other));
}

/* Machines: as asked for, else as the network has them. */
static void place(fo_sim_state *s)
{
    fo_sim_network *network = &s->machine.network;
    fo_sim_operation *o = &s->operation;
    if (!o->nodes)
        o->nodes =
            network->locals > 0 && o->ranks % network->locals == 0 ? o->ranks / network->locals : 1;
    else if (network->locals > 0 && o->ranks % o->nodes == 0)
        network->locals = o->ranks / o->nodes;
    if (o->nodes < 1)
        o->nodes = 1;
    if (network->locals >= o->ranks)
        network->locals = 0;
}

/* In straight order later queries cost more, so that the shards of a cut sequence differ. */
static bool shards_differ(const fo_sim_operation *o)
{
    const fo_plan_attention *a = &o->desc.attention;
    if (!fo_schedule_operation_has_attention(o->desc.op) || a->first ||
        a->order == FO_ROWS_BALANCED || o->ranks == 1 || !a->context)
        return false;
    return a->batch % o->ranks != 0;
}

/* Rows that do not divide are simulated rank by rank where that is cheap; else all shards are as the largest. */
static int period_of(fo_sim_state *s)
{
    const fo_sim_operation *o = &s->operation;
    bool uneven = o->desc.rows % o->ranks != 0;
    if (o->exact || shards_differ(o) || (uneven && o->ranks <= FEW_RANKS) ||
        o->desc.rows < o->ranks) /* most shards are empty then */
        return o->ranks;
    int period =
        fo_sim_engine_period(&s->schedule, &s->machine.network, o->speed, o->start_s, true);
    if (uneven && period < o->ranks)
        s->schedule.rows = (o->desc.rows / o->ranks + 1) * o->ranks;
    return period;
}

static fo_status build(fo_sim_state *s)
{
    size_t count = (size_t)s->period;
    s->programs = calloc(count, sizeof(fo_program *));
    s->costs = calloc(count, sizeof(fo_sim_task_cost *));
    s->prepare = calloc(count, sizeof *s->prepare);
    s->start = calloc(count, sizeof *s->start);
    if (!s->programs || !s->costs || !s->prepare || !s->start)
        return fo_base_error(FO_NO_MEMORY, "simulator: no memory for %d ranks", s->period);
    fo_status status = FO_OK;
    for (int p = 0; status == FO_OK && p < s->period; p++) {
        status = fo_schedule_build(&s->schedule, p, &s->programs[p]);
        if (status == FO_OK)
            s->costs[p] = calloc((size_t)s->programs[p]->task_count + 1, sizeof *s->costs[p]);
        if (status == FO_OK && !s->costs[p])
            status = fo_base_error(FO_NO_MEMORY, "simulator: no memory for %d tasks",
                                   (int)s->programs[p]->task_count);
    }
    return status;
}

static void choose_tiles(fo_sim_state *s)
{
    const fo_sim_operation *o = &s->operation;
    int64_t tile, wgrad;
    fo_sim_operation_tiles(&s->machine.device, &o->desc, &tile, &wgrad);
    tile = o->tile_rows > 0 ? o->tile_rows : tile;
    wgrad = o->wgrad_rows > 0 ? o->wgrad_rows : wgrad;
    bool has_wgrad = fo_schedule_operation_has_wgrad(o->desc.op);
    s->tile_rows[0] = tile;
    s->tile_rows[1] = has_wgrad ? wgrad : tile;
    s->schedule = (fo_schedule_desc){
        .pattern = fo_schedule_operation_pattern(o->desc.op),
        .strategy = s->strategy,
        .ranks = o->ranks,
        .nodes = o->nodes,
        .rows = o->desc.rows,
        .quantum = s->tile_rows[1],
        .stream_rows = fo_schedule_operation_message_rows(&o->desc, tile),
    };
}

/* A simulation takes its time and memory by tiles. */
static fo_status check_tiles(const fo_sim_state *s)
{
    static const double most = 1 << 22;
    double tiles = (double)s->schedule.rows / (double)s->tile_rows[0] * s->period;
    if (tiles <= most)
        return FO_OK;
    return fo_base_error(
        FO_INVALID,
        "simulator: %lld rows are %.3g tiles of %lld rows on %d ranks that differ, expected at "
        "most %.0f tiles; take at most %.0f rows",
        (long long)s->schedule.rows, tiles, (long long)s->tile_rows[0], s->period, most,
        most / s->period * (double)s->tile_rows[0]);
}

fo_status fo_sim_state_make(const fo_sim_machine *machine, const fo_sim_operation *operation,
                            fo_sim_state *s)
{
    memset(s, 0, sizeof *s);
    s->machine = *machine;
    s->operation = *operation;
    if (!s->operation.threads)
        s->operation.threads = 1;
    const char *overlap = operation->desc.overlap ? operation->desc.overlap : "flash";
    fo_status status = check_sizes(operation);
    if (status == FO_OK)
        status = check_attention(&operation->desc);
    if (status == FO_OK)
        status = check_dtype(machine, &operation->desc);
    if (status == FO_OK)
        status = fo_strategy_parse(overlap, &s->strategy);
    if (status != FO_OK)
        return status;
    place(s);
    choose_tiles(s);
    s->width_out = fo_schedule_operation_sizes(&s->operation.desc, s->row_bytes);
    s->period = period_of(s);
    status = check_tiles(s);
    if (status == FO_OK)
        status = build(s);
    return status == FO_OK ? fo_sim_state_keys_make(s) : status;
}

void fo_sim_state_free(fo_sim_state *s)
{
    for (int p = 0; s->programs && p < s->period; p++)
        fo_schedule_free(s->programs[p]);
    for (int p = 0; s->costs && p < s->period; p++)
        free(s->costs[p]);
    free(s->programs);
    free(s->costs);
    free(s->prepare);
    free(s->start);
    fo_sim_state_keys_free(s);
    memset(s, 0, sizeof *s);
}

/* ---- running ------------------------------------------------------------------------------------------- */

static double speed_of(const fo_sim_state *s, int p)
{
    return s->operation.speed ? s->operation.speed[p] : 1;
}

/* Costs follow from the machine as it is now. Attention that comes first delays the program. */
static void cost(fo_sim_state *s)
{
    bool first = s->operation.desc.op == FO_ATTENTION_FORWARD;
    for (int p = 0; p < s->period; p++)
        fo_sim_state_costs(s, p, s->costs[p]);
    s->prepare_s = fo_sim_state_pack_s(s);
    s->apart_s = fo_sim_state_apart_s(s);
    for (int p = 0; p < s->period; p++) {
        s->prepare[p] = s->prepare_s;
        s->start[p] = s->operation.start_s ? s->operation.start_s[p] : 0;
        if (first)
            s->start[p] += s->apart_s / speed_of(s, p);
    }
}

/* When the slowest rank is done: attention may follow its program. */
static double total_of(const fo_sim_state *s, const fo_sim_rank *ranks)
{
    bool after = s->operation.desc.op == FO_ATTENTION_BACKWARD;
    double total = 0;
    for (int p = 0; p < s->period; p++)
        total = fmax(total, ranks[p].end_s + (after ? s->apart_s / speed_of(s, p) : 0));
    return total;
}

static int slices_of(const fo_program *program)
{
    int slices = 0;
    for (int32_t t = 0; t < program->task_count; t++)
        slices += program->tasks[t].kind == FO_TASK_COMPUTE &&
                  program->tasks[t].slot == (program->pattern == FO_PATTERN_WGRAD);
    return slices;
}

/* Of the slowest rank, and of the fastest one. */
static void speeds(const fo_sim_operation *o, double *slowest, double *fastest)
{
    *slowest = *fastest = 1;
    for (int r = 0; o->speed && r < o->ranks; r++) {
        *slowest = r ? fmin(*slowest, o->speed[r]) : o->speed[r];
        *fastest = r ? fmax(*fastest, o->speed[r]) : o->speed[r];
    }
}

/* Of ranks that are all as stated: what slower ones cost is loss. */
static fo_sim_bound bound_of(const fo_sim_state *s)
{
    bool gathers = s->schedule.pattern != FO_PATTERN_REDUCE;
    bool reduces = fo_schedule_operation_reduces(s->operation.desc.op);
    double slowest, fastest;
    fo_schedule_desc real = s->schedule; /* of the rows there are, not of as many on every rank */
    real.rows = s->operation.desc.rows;
    speeds(&s->operation, &slowest, &fastest);
    fo_sim_bound_desc desc = {
        .schedule = &real,
        .network = &s->machine.network,
        .gather_bytes = gathers ? (double)s->row_bytes[FO_BUFFER_GATHERED] : 0,
        .reduce_bytes = reduces ? (double)s->row_bytes[FO_BUFFER_PARTIAL] : 0,
        .tile_rows = {s->tile_rows[0], s->tile_rows[1]},
        .compute_s = fo_sim_state_least_s(s) / fmax(1, slowest),
        .row_s = {fo_sim_state_least_row_s(s, 0) / fmax(1, fastest),
                  fo_sim_state_least_row_s(s, 1) / fmax(1, fastest)},
    };
    return fo_sim_bound_of(&desc);
}

static void fill(const fo_sim_state *s, const fo_sim_run *run, const fo_sim_rank *ranks,
                 fo_sim_report *report)
{
    double slowest, fastest;
    fo_sim_bound bound = bound_of(s);
    speeds(&s->operation, &slowest, &fastest);
    *report = (fo_sim_report){.total_s = total_of(s, ranks),
                              .compute_s = fo_sim_state_local_s(s) / slowest,
                              .transfer_s = bound.transfer_s,
                              .bound_s = bound.bound_s,
                              .exposed_s = run->worst.exposed_s,
                              .slices = slices_of(s->programs[0]),
                              .events = run->events};
    for (int p = 0; p < s->period; p++)
        report->sent_bytes = fmax(report->sent_bytes, ranks[p].sent_bytes);
}

fo_status fo_sim_state_run(fo_sim_state *s, double *total_s, fo_sim_report *report)
{
    fo_sim_run run;
    fo_sim_rank *ranks = calloc((size_t)s->period, sizeof *ranks);
    if (!ranks)
        return fo_base_error(FO_NO_MEMORY, "simulator: no memory for %d ranks", s->period);
    cost(s);
    fo_sim_machine machine = s->machine;
    machine.contention = (1 + machine.contention) * fo_sim_state_squeeze(s) - 1;
    fo_sim_engine_desc desc = {.programs = (const fo_program *const *)s->programs,
                               .ranks = s->operation.ranks,
                               .period = s->period,
                               .machine = &machine,
                               .tile_rows = {s->tile_rows[0], s->tile_rows[1]},
                               .tile_s = fo_sim_state_tile_s,
                               .context = s,
                               .prepare_s = s->prepare,
                               .start_s = s->start,
                               .speed = s->operation.speed,
                               .watch = s->operation.watch,
                               .watcher = s->operation.watcher};
    memcpy(desc.row_bytes, s->row_bytes, sizeof desc.row_bytes);
    fo_status status = (s->closed ? fo_sim_closed_run : fo_sim_engine_run)(&desc, &run, ranks);
    if (status == FO_OK)
        *total_s = total_of(s, ranks);
    if (status == FO_OK && report)
        fill(s, &run, ranks, report);
    free(ranks);
    return status;
}

fo_status fo_sim_operation_run(const fo_sim_machine *machine, const fo_sim_operation *operation,
                               fo_sim_report *report)
{
    fo_sim_state state;
    double total_s;
    fo_status status = fo_sim_state_make(machine, operation, &state);
    if (status == FO_OK)
        status = fo_sim_state_run(&state, &total_s, report);
    fo_sim_state_free(&state);
    return status;
}
