/* What the software of tiles and messages takes, and messages where they are moved. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "group/group.h"
#include "op/learn.h"

enum { SOFTWARE_RUNS = 20, SOFTWARE_ROWS = 512, SOFTWARE_WIDTH = 16 };

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
    fo_plan *plan;
    fo_report report;
    float *memory = calloc((size_t)(2 * rows + SOFTWARE_WIDTH) * SOFTWARE_WIDTH, sizeof *memory);
    if (!memory)
        return fo_base_error(FO_NO_MEMORY, "no memory to measure the software of a message");
    fo_status status = fo_plan_create(group, &desc, &plan);
    fo_plan_args args = {.x = memory,
                         .w = memory + rows * SOFTWARE_WIDTH,
                         .y = memory + (rows + SOFTWARE_WIDTH) * SOFTWARE_WIDTH,
                         .w_version = 1};
    for (int i = 0; status == FO_OK && i < SOFTWARE_RUNS + 2; i++) {
        status = fo_plan_execute(plan, &args);
        if (i == 1)
            fo_plan_report_reset(plan);
    }
    if (status == FO_OK) {
        fo_plan_report(plan, &report);
        double left = (double)(report.total_ns - report.compute_ns - report.exposed_ns) * 1e-9;
        double things = (double)(tiles_of(plan) + messages_of(plan->program)) * SOFTWARE_RUNS;
        result->seconds = left > 0 ? left / things : 0;
    }
    fo_plan_destroy(plan);
    free(memory);
    return status;
}

/* ---- messages where they are moved ------------------------------------------------------------------ */

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
    (void)index;
    fo_status status =
        e->ops->irecv(e, &receive, (e->rank + e->size - 1) % e->size, x->tag, x->in, x->bytes);
    if (status == FO_OK)
        status = e->ops->isend(e, &send, (e->rank + 1) % e->size, x->tag, x->out, x->bytes, 0);
    if (status == FO_OK)
        status = fo_transport_wait_request(e, &receive, "measuring");
    return status == FO_OK ? fo_transport_wait_request(e, &send, "measuring") : status;
}

static double processor_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Seconds of an exchange, or the processor's share of one. */
fo_status fo_op_learn_message(fo_group *group, const fo_op_fact *need, fo_op_figure *result)
{
    exchange x = {.endpoint = fo_group_endpoint(group),
                  .tag = fo_group_next_tag(group, 1),
                  .bytes = (size_t)need->n};
    x.out = fo_group_alloc(group, x.bytes + 64);
    x.in = fo_group_alloc(group, x.bytes + 64);
    fo_status status = x.out && x.in ? FO_OK : FO_NO_MEMORY;
    if (status == FO_OK)
        memset(x.out, 1, x.bytes + 64);
    double begin_s = processor_s();
    int64_t begin_ns = fo_base_clock_ns();
    if (status == FO_OK)
        status = fo_op_learn_sample(group, one_exchange, NULL, &x, result);
    double share = (processor_s() - begin_s) / ((double)(fo_base_clock_ns() - begin_ns) * 1e-9);
    if (!strcmp(need->what, "message:processor"))
        result->seconds *= fmin(share, 1);
    fo_group_free(group, x.in);
    fo_group_free(group, x.out);
    return status;
}
