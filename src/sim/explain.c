/* Where the time above the bound goes: one effect after another is taken away, and the rest is run again. */
#include "sim/explain.h"

#include <math.h>

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

/* What is left above the bound, of a machine without some effects. */
static double gap_of(const fo_sim_report *report)
{
    return fmax(0, report->total_s - report->bound_s);
}

/* An effect costs what the gap falls by without it: the bound has the latency once, and what both fall by is no loss.
 * An effect that something else hides costs nothing; where the gap is larger without it, because the bound falls by
 * more or because messages come in another order, it hid something, and what it hid is what comes after it. */
fo_status fo_sim_operation_explain(const fo_sim_machine *machine, const fo_sim_operation *operation,
                                   fo_sim_report *report)
{
    static void (*const without[])(fo_sim_state *) = {without_imbalance, without_contention,
                                                      without_overhead, without_latency,
                                                      without_slicing};
    fo_sim_losses losses = {0};
    double *parts[] = {&losses.imbalance, &losses.contention, &losses.overhead, &losses.latency,
                       &losses.slicing};
    fo_sim_state state;
    fo_sim_report left;
    double total_s, gap = 0;
    fo_status status = fo_sim_state_make(machine, operation, &state);
    if (status == FO_OK)
        status = fo_sim_state_run(&state, &total_s, report);
    if (status == FO_OK)
        gap = gap_of(report);
    state.operation.watch = NULL;
    for (int i = 0; status == FO_OK && i < 5; i++) {
        without[i](&state);
        status = fo_sim_state_run(&state, &total_s, &left);
        if (status != FO_OK)
            break;
        *parts[i] = fmax(0, gap - gap_of(&left));
        gap -= *parts[i];
    }
    losses.tail = gap;
    if (status == FO_OK)
        report->losses = losses;
    fo_sim_state_free(&state);
    return status;
}

fo_status fo_sim_explain_least(const fo_sim_machine *machine, const fo_sim_operation *operation,
                               double *least_s)
{
    fo_sim_state state;
    fo_status status = fo_sim_state_make(machine, operation, &state);
    if (status == FO_OK)
        *least_s = fo_sim_state_least_s(&state);
    fo_sim_state_free(&state);
    return status;
}
