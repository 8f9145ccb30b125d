/* Where the time above the bound goes: one effect after another is taken away, and the rest is run again. */
#include "sim/operation.h"

#include "sim/operation_state.h"

/* Ranks of one speed that begin together. */
static void without_imbalance(fo_sim_state *s)
{
    s->operation.speed = NULL;
    s->operation.start_s = NULL;
}

static void without_contention(fo_sim_state *s)
{
    s->machine.contention = 0;
    s->machine.cpu_s_per_byte = 0;
    s->machine.device.comm_units = 0;
}

static void without_overhead(fo_sim_state *s)
{
    s->machine.task_s = 0;
    s->machine.message_s = 0;
    s->machine.wake_s = 0;
}

static void without_latency(fo_sim_state *s)
{
    s->machine.network.link.latency_s = 0;
    s->machine.network.outer.latency_s = 0;
}

/* A slice takes its part of the unsliced computation. */
static void without_slicing(fo_sim_state *s)
{
    s->unsliced = true;
}

fo_status fo_sim_operation_explain(const fo_sim_machine *machine, const fo_sim_operation *operation,
                                   fo_sim_report *report)
{
    static void (*const without[])(fo_sim_state *) = {without_imbalance, without_contention,
                                                      without_overhead, without_latency,
                                                      without_slicing};
    fo_sim_losses *losses = &report->losses;
    double *parts[] = {&losses->imbalance, &losses->contention, &losses->overhead, &losses->latency,
                       &losses->slicing};
    fo_sim_state state;
    fo_sim_report before = {0}, after;
    double total_s;
    fo_status status = fo_sim_state_make(machine, operation, &state);
    if (status == FO_OK)
        status = fo_sim_state_run(&state, &total_s, report);
    if (status == FO_OK)
        before = *report;
    state.operation.watch = NULL;
    for (int i = 0; status == FO_OK && i < 5; i++) {
        without[i](&state);
        status = fo_sim_state_run(&state, &total_s, &after);
        if (status != FO_OK)
            break;
        /* the bound has the latency once; what it falls by was no loss */
        *parts[i] = before.total_s - after.total_s - (before.bound_s - after.bound_s);
        before = after;
    }
    if (status == FO_OK)
        losses->tail = before.total_s - before.bound_s;
    fo_sim_state_free(&state);
    return status;
}
