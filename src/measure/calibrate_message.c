/* Messages between ranks 0 and 1 over the transport itself, and the executor's overhead of a task. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "flashoverlap/plan.h"
#include "group/group.h"
#include "measure/calibrate.h"

/* The plan whose tasks are counted: hardly anything to compute or to send. */
enum { PLANS = 2, PLAN_WIDTH = 16, PLAN_ROWS = 256 /* of a rank */ };

enum { NAP_NS = 1000000 };

struct fo_measure_wires {
    fo_group *group;
    fo_endpoint *endpoint;
    char *out, *in;
    uint32_t tag;
    fo_plan *plans[PLANS];
    char names[PLANS][16];
    float *w, *x, *y;
    int plan_count;
};

/* ---- messages ------------------------------------------------------------------------------------ */

typedef struct transfer {
    fo_request send, receive;
} transfer;

static fo_status post_receive(fo_measure_wires *wires, const fo_measure_case *which, transfer *t)
{
    fo_endpoint *e = wires->endpoint;
    size_t bytes = (size_t)which->n;
    return which->view ? e->ops->irecv_view(e, &t->receive, 1 - e->rank, wires->tag, bytes)
                       : e->ops->irecv(e, &t->receive, 1 - e->rank, wires->tag, wires->in, bytes);
}

static fo_status post_send(fo_measure_wires *wires, const fo_measure_case *which, transfer *t)
{
    fo_endpoint *e = wires->endpoint;
    return e->ops->isend(e, &t->send, 1 - e->rank, wires->tag, wires->out, (size_t)which->n, 0);
}

static fo_status end_receive(fo_measure_wires *wires, const fo_measure_case *which, transfer *t)
{
    fo_status status = fo_transport_wait_request(wires->endpoint, &t->receive, "calibrate");
    if (status == FO_OK && which->view)
        wires->endpoint->ops->release(wires->endpoint, &t->receive);
    return status;
}

static fo_status end_send(fo_measure_wires *wires, transfer *t)
{
    return fo_transport_wait_request(wires->endpoint, &t->send, "calibrate");
}

/* Rank 0 sends and has it sent back: two ways. Or both send to each other at the same time. */
static fo_status trip(fo_measure_wires *wires, const fo_measure_case *which)
{
    transfer t = {0};
    bool first = wires->endpoint->rank == 0;
    fo_status status = post_receive(wires, which, &t);
    if (status == FO_OK && !first && !which->both)
        status = end_receive(wires, which, &t);
    if (status == FO_OK)
        status = post_send(wires, which, &t);
    if (status == FO_OK && (first || which->both))
        status = end_receive(wires, which, &t);
    return status == FO_OK ? end_send(wires, &t) : status;
}

static fo_status sample_message(fo_measure_wires *wires, const fo_measure_case *which, int calls,
                                double *seconds)
{
    fo_status status = FO_OK;
    if (wires->endpoint->rank > 1)
        return FO_OK;
    int64_t begin = fo_base_clock_ns();
    for (int i = 0; status == FO_OK && i < calls; i++)
        status = trip(wires, which);
    *seconds = (double)(fo_base_clock_ns() - begin) * 1e-9 / calls / (which->both ? 1 : 2);
    return status;
}

/* The processor's time of this rank in an exchange: in copies each of the two moves bytes. */
static fo_status sample_processor(fo_measure_wires *wires, const fo_measure_case *which, int calls,
                                  double *seconds)
{
    fo_measure_case exchange = *which;
    struct timespec begin, end;
    double elapsed;
    exchange.both = true;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    fo_status status = sample_message(wires, &exchange, calls, &elapsed);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    if (wires->endpoint->rank <= 1)
        *seconds =
            ((double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9) /
            calls;
    return status;
}

/* Rank 1 lets rank 0 fall asleep and sends it the time; by the clock of the machine that both are on. */
static fo_status sample_wake(fo_measure_wires *wires, double *seconds)
{
    fo_endpoint *e = wires->endpoint;
    const struct timespec nap = {.tv_nsec = NAP_NS};
    fo_request request = {0};
    int64_t sent_ns = 0;
    fo_status status = FO_OK;
    if (e->rank > 1)
        return FO_OK;
    if (e->rank == 1) {
        nanosleep(&nap, NULL);
        sent_ns = fo_base_clock_ns();
        status = e->ops->isend(e, &request, 0, wires->tag, &sent_ns, sizeof sent_ns, 0);
        return status == FO_OK ? fo_transport_wait_request(e, &request, "calibrate") : status;
    }
    status = e->ops->irecv(e, &request, 1, wires->tag, &sent_ns, sizeof sent_ns);
    if (status == FO_OK)
        status = fo_transport_wait_request(e, &request, "calibrate");
    *seconds = (double)(fo_base_clock_ns() - sent_ns) * 1e-9;
    return status;
}

/* ---- tasks --------------------------------------------------------------------------------------- */

static fo_status add_plan(fo_measure_wires *wires, const char *overlap, fo_plan **plan)
{
    fo_plan_desc desc = {.op = FO_ROW_FORWARD,
                         .rows = (int64_t)PLAN_ROWS * fo_group_size(wires->group),
                         .in = PLAN_WIDTH,
                         .out = PLAN_WIDTH,
                         .overlap = overlap,
                         .name = "calibrate"};
    int at = wires->plan_count;
    fo_status status = fo_plan_create(wires->group, &desc, &wires->plans[at]);
    if (status != FO_OK)
        return status;
    snprintf(wires->names[at], sizeof wires->names[at], "%s", overlap);
    *plan = wires->plans[at];
    wires->plan_count++;
    return FO_OK;
}

static fo_status find_plan(fo_measure_wires *wires, const char *overlap, fo_plan **plan)
{
    for (int i = 0; i < wires->plan_count; i++) {
        *plan = wires->plans[i];
        if (!strcmp(wires->names[i], overlap))
            return FO_OK;
    }
    if (wires->plan_count == PLANS)
        return fo_base_error(FO_INTERNAL, "calibrate: more than %d plans", PLANS);
    return add_plan(wires, overlap, plan);
}

/* What is left of an execution when computing and waiting are taken away, for each task. */
static fo_status sample_task(fo_measure_wires *wires, const fo_measure_case *which, int calls,
                             double *seconds)
{
    fo_plan_args args = {.x = wires->x, .w = wires->w, .y = wires->y, .w_version = 1};
    fo_plan *plan = NULL;
    fo_report report;
    fo_status status = find_plan(wires, which->name, &plan);
    if (status != FO_OK)
        return status;
    fo_plan_report_reset(plan);
    for (int i = 0; status == FO_OK && i < calls; i++)
        status = fo_plan_execute(plan, &args);
    fo_plan_report(plan, &report);
    double left = (double)(report.total_ns - report.compute_ns - report.exposed_ns) * 1e-9;
    *seconds = report.tasks && left > 0 ? left / (double)report.tasks : 0;
    return status;
}

/* ---- making -------------------------------------------------------------------------------------- */

fo_status fo_measure_wires_make(const fo_measure_calibration *c, fo_group *group,
                                fo_measure_wires **result)
{
    int64_t rows = (int64_t)PLAN_ROWS * fo_group_size(group);
    *result = NULL;
    fo_measure_wires *wires = calloc(1, sizeof *wires);
    if (!wires)
        return fo_base_error(FO_NO_MEMORY, "calibrate: no memory for messages");
    *result = wires;
    wires->group = group;
    wires->endpoint = fo_group_endpoint(group);
    wires->tag = fo_group_next_tag(group, 1);
    wires->out = fo_group_alloc(group, (size_t)c->most_bytes + 64);
    wires->in = fo_group_alloc(group, (size_t)c->most_bytes + 64);
    wires->x = fo_group_alloc(group, (size_t)rows * PLAN_WIDTH * 4);
    wires->y = fo_group_alloc(group, (size_t)rows * PLAN_WIDTH * 4);
    wires->w = fo_group_alloc(group, (size_t)PLAN_WIDTH * PLAN_WIDTH * 4);
    if (!wires->out || !wires->in || !wires->x || !wires->y || !wires->w)
        return FO_NO_MEMORY;
    memset(wires->out, 1, (size_t)c->most_bytes + 64);
    memset(wires->in, 2, (size_t)c->most_bytes + 64);
    return FO_OK;
}

void fo_measure_wires_free(fo_measure_wires *wires)
{
    if (!wires)
        return;
    for (int i = 0; i < wires->plan_count; i++)
        fo_plan_destroy(wires->plans[i]);
    void *memory[] = {wires->out, wires->in, wires->x, wires->y, wires->w};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (memory[i])
            fo_group_free(wires->group, memory[i]);
    free(wires);
}

fo_status fo_measure_wires_sample(fo_measure_wires *wires, const fo_measure_case *which, int calls,
                                  double *seconds)
{
    fo_kernel_set_threads(which->threads);
    switch (which->kind) {
    case FO_MEASURE_MESSAGE: return sample_message(wires, which, calls, seconds);
    case FO_MEASURE_PROCESSOR: return sample_processor(wires, which, calls, seconds);
    case FO_MEASURE_WAKE: return sample_wake(wires, seconds);
    default: return sample_task(wires, which, calls, seconds);
    }
}
