/* What the software of tiles and messages takes, and messages where they are moved. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/quantile.h"
#include "group/group.h"
#include "op/learn.h"
#include "transport/machine.h"

enum { SOFTWARE_RUNS = 20, SOFTWARE_LEAST = 1, SOFTWARE_ROWS = 512, SOFTWARE_WIDTH = 16 };

/* ---- software ------------------------------------------------------------------------------------- */

static int64_t messages_of(const fo_program *program)
{
    int64_t messages = 0;
    for (int32_t t = 0; t < program->task_count; t++)
        if (program->tasks[t].kind == FO_TASK_SEND || program->tasks[t].kind == FO_TASK_RECV)
            messages += (program->tasks[t].rows + program->stream_rows - 1) / program->stream_rows;
    return messages;
}

static int64_t tiles_of(const fo_plan *plan)
{
    int64_t count = 0;
    for (int32_t t = 0; t < plan->program->task_count; t++)
        if (plan->program->tasks[t].kind == FO_TASK_COMPUTE)
            count += (plan->program->tasks[t].rows + plan->tile_rows - 1) / plan->tile_rows;
    return count;
}

/* What is left of an execution when computing and waiting are taken away, for each tile and each end of a message:
 * of a plan with hardly anything to compute or to send. */
fo_status fo_op_learn_software(fo_group *group, fo_op_figure *result)
{
    int64_t rows = (int64_t)SOFTWARE_ROWS * fo_group_size(group);
    fo_plan_desc desc = {.op = FO_ROW_FORWARD,
                         .rows = rows,
                         .in = SOFTWARE_WIDTH,
                         .out = SOFTWARE_WIDTH,
                         .overlap = "flash",
                         .name = "measuring"};
    fo_plan *plan = NULL;
    fo_report report;
    float *memory = calloc((size_t)(2 * rows + SOFTWARE_WIDTH) * SOFTWARE_WIDTH, sizeof *memory);
    fo_status status = fo_op_learn_all_have(group, memory, "the software of a message");
    if (status == FO_OK)
        status = fo_plan_create(group, &desc, &plan);
    fo_plan_args args = {.x = memory,
                         .w = memory + rows * SOFTWARE_WIDTH,
                         .y = memory + (rows + SOFTWARE_WIDTH) * SOFTWARE_WIDTH,
                         .w_version = 1};
    int runs = SOFTWARE_LEAST;
    for (int i = -2; status == FO_OK && i < runs; i++) {
        int64_t begin = fo_base_clock_ns();
        status = fo_plan_execute(plan, &args);
        if (status == FO_OK && i == -1) {
            fo_plan_report_reset(plan);
            status = fo_op_learn_repeats(group, fo_base_clock_ns() - begin, SOFTWARE_LEAST,
                                         SOFTWARE_RUNS, &runs);
        }
    }
    if (status == FO_OK) {
        fo_plan_report(plan, &report);
        double left = (double)(report.total_ns - report.compute_ns - report.exposed_ns) * 1e-9;
        double things = (double)(tiles_of(plan) + messages_of(plan->program)) * runs;
        result->seconds = left > 0 ? left / things : 0;
    }
    if (plan)
        fo_plan_destroy(plan);
    free(memory);
    return status;
}

/* ---- one message ----------------------------------------------------------------------------------- */

/* Messages take turns in so many places, as those of an operator lie one behind the other. */
enum { PLACES = 16 };

typedef struct exchange {
    fo_endpoint *endpoint;
    uint32_t tag;
    size_t bytes;
    char *out, *in;
} exchange;

/* To the right and from the left, as rings do. */
static fo_status one_exchange(void *work, int index)
{
    const exchange *x = work;
    fo_endpoint *e = x->endpoint;
    fo_request send = {0}, receive = {0};
    size_t at = (size_t)(index % PLACES) * x->bytes;
    fo_status status =
        e->ops->irecv(e, &receive, (e->rank + e->size - 1) % e->size, x->tag, x->in + at, x->bytes);
    if (status == FO_OK)
        status = e->ops->isend(e, &send, (e->rank + 1) % e->size, x->tag, x->out + at, x->bytes, 0);
    if (status == FO_OK)
        status = fo_transport_wait_request(e, &receive, "measuring");
    return status == FO_OK ? fo_transport_wait_request(e, &send, "measuring") : status;
}

fo_status fo_op_learn_message(fo_group *group, const fo_op_fact *need, fo_op_figure *result)
{
    exchange x = {.endpoint = fo_group_endpoint(group),
                  .tag = fo_group_next_tag(group, 1),
                  .bytes = (size_t)need->n};
    x.out = fo_group_alloc(group, PLACES * x.bytes + 64);
    x.in = fo_group_alloc(group, PLACES * x.bytes + 64);
    fo_status status = fo_op_learn_all_have(group, x.out && x.in, "a message");
    if (status == FO_OK) {
        memset(x.out, 1, PLACES * x.bytes + 64);
        memset(x.in, 1, PLACES * x.bytes + 64);
        status = fo_op_learn_sample_together(group, one_exchange, &x, result);
    }
    fo_group_free(group, x.in);
    fo_group_free(group, x.out);
    return status;
}

/* ---- messages as operators send them ----------------------------------------------------------------- */

/* A plan with messages and tiles of TRAFFIC_ROWS rows and little computation. */
enum { TRAFFIC_ROWS = 64, TRAFFIC_WIDTH = 1024, TRAFFIC_DEPTH = 256, TRAFFIC_DEPTH_SLOW = 16 };
enum { TRAFFIC_MESSAGES = 32, TRAFFIC_FEW = 8, TRAFFIC_LEAST = 1, TRAFFIC_MOST = 8 };

/* What a run is looked at for. */
typedef enum traffic_kind {
    STREAM, /* all but computing */
    SUMS,   /* all but computing and waiting */
    ROWS, /* all but waiting: rows that were moved are found in a cache, so that computing takes less */
    ALONE /* computing alone */
} traffic_kind;

static double seconds_of(traffic_kind kind, const fo_report *r, int64_t took_ns)
{
    switch (kind) {
    case STREAM: return (double)(r->total_ns - r->compute_ns) * 1e-9;
    case SUMS: return (double)(r->total_ns - r->compute_ns - r->exposed_ns) * 1e-9;
    case ROWS: return (double)(r->total_ns - r->exposed_ns) * 1e-9;
    default: return (double)took_ns * 1e-9;
    }
}

/* Of some runs, after one that warms up: the middle one, or the shortest where waits count, since who has computed longer
 * is waited for too. */
static fo_status run_traffic(fo_group *group, fo_plan *plan, const fo_plan_args *args,
                             traffic_kind kind, double *seconds)
{
    double times[TRAFFIC_MOST];
    int runs = TRAFFIC_LEAST;
    fo_status status = FO_OK;
    for (int i = -1; status == FO_OK && i < runs; i++) {
        fo_report report;
        fo_plan_report_reset(plan);
        status = fo_group_barrier(group);
        int64_t begin = fo_base_clock_ns();
        if (status == FO_OK)
            status =
                kind == ALONE ? fo_plan_execute_local(plan, args) : fo_plan_execute(plan, args);
        int64_t took = fo_base_clock_ns() - begin;
        fo_plan_report(plan, &report);
        if (i >= 0)
            times[i] = seconds_of(kind, &report, took);
        else if (status == FO_OK)
            status = fo_op_learn_repeats(group, took, TRAFFIC_LEAST, TRAFFIC_MOST, &runs);
    }
    if (status == FO_OK)
        *seconds = fo_base_percentile(times, runs, kind == STREAM ? 0 : 0.5);
    return status;
}

static fo_status measure_traffic(fo_group *group, const fo_plan_desc *desc,
                                 const fo_plan_args *args, traffic_kind kind, fo_op_figure *result)
{
    fo_plan *plan;
    double with_s = 0, alone_s = 0;
    fo_status status = fo_plan_create(group, desc, &plan);
    if (status != FO_OK)
        return status;
    if (kind == ROWS)
        status = run_traffic(group, plan, args, ALONE, &alone_s);
    if (status == FO_OK)
        status = run_traffic(group, plan, args, kind, &with_s);
    result->seconds = fmax(with_s - alone_s, 0) * 2 / (double)messages_of(plan->program);
    fo_plan_destroy(plan);
    return status;
}

/* That a rank sends in a run. Where ranks take turns on cores messages are slow, and figures rough anyway. */
static int traffic_messages(const fo_group *group)
{
    return fo_group_local_ranks(group) > fo_transport_machine_cores() ? TRAFFIC_FEW
                                                                      : TRAFFIC_MESSAGES;
}

fo_status fo_op_learn_traffic(fo_group *group, const fo_op_fact *need, fo_op_figure *result)
{
    int ranks = fo_group_size(group);
    bool sums = strstr(need->what, ":sums"), stream = fo_op_learn_is(need, "stream");
    int messages = traffic_messages(group) / (ranks - 1);
    int64_t shard = (messages > 2 ? messages : 2) * TRAFFIC_ROWS;
    int64_t depth = strcmp(fo_group_kernel(group), "ref") != 0 ? TRAFFIC_DEPTH : TRAFFIC_DEPTH_SLOW;
    int64_t wide = shard * TRAFFIC_WIDTH, w = depth * TRAFFIC_WIDTH, all = shard * ranks * depth;
    float *memory = fo_group_alloc(group, (size_t)(wide + w + all) * sizeof *memory);
    fo_plan_desc desc = {.op = sums ? FO_ROW_FORWARD : FO_COLUMN_FORWARD,
                         .rows = shard * ranks,
                         .in = sums ? depth : TRAFFIC_WIDTH,
                         .out = sums ? TRAFFIC_WIDTH : depth,
                         .overlap = stream ? "none" : "flash",
                         .name = "measuring"};
    fo_status status = fo_op_learn_all_have(group, memory, "messages");
    if (status == FO_OK) {
        memset(memory, 0, (size_t)(wide + w + all) * sizeof *memory);
        fo_plan_args args = {.x = sums ? memory + wide + w : memory,
                             .w = memory + wide,
                             .y = sums ? memory : memory + wide + w,
                             .w_version = 1};
        status = measure_traffic(group, &desc, &args, stream ? STREAM : sums ? SUMS : ROWS, result);
    }
    fo_group_free(group, memory);
    return status;
}
