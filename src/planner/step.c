/* A training step: priced, chosen, put together, reported. */
#include "planner/step.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "planner/memory.h"
#include "planner/model.h"
#include "planner/step_state.h"
#include "sim/cost.h"
#include "sim/profile.h"

void fo_step_defaults(fo_step_options *options)
{
    *options = (fo_step_options){.tp = 1,
                                 .dp = 1,
                                 .pp = 1,
                                 .interleave = 1,
                                 .batch = 1,
                                 .micro_batch = 1,
                                 .sequence_parallel = true,
                                 .flash_attention = true,
                                 .dtype = FO_BF16,
                                 .wire = FO_BF16,
                                 .sharded_optimizer = true,
                                 .overlap_dp = true,
                                 .optimizer = true,
                                 .slow_rank = -1,
                                 .slow_speed = 1};
}

/* ---- the report -------------------------------------------------------------------------------------- */

double fo_planner_step_rate(const fo_sim_device *d, fo_dtype dtype)
{
    double rate = d->flops_per_s[dtype];
    for (int e = 0; e < d->entry_count; e++) {
        const fo_sim_entry *entry = &d->entries[e];
        bool product = entry->work == FO_SIM_GEMM || entry->work == FO_SIM_WGRAD;
        double flops =
            fo_sim_cost_flops(entry->work, (double)entry->rows, (double)entry->k, (double)entry->n);
        if (product && entry->dtype == dtype && entry->time_s > 0 && entry->threads > 0)
            rate = fmax(rate, flops / entry->time_s / entry->threads);
    }
    return rate;
}

static void report_rates(const fo_planner_state *s, fo_step_report *r)
{
    const fo_step_options *o = &s->split.options;
    const fo_model_sizes *m = &o->model;
    double tokens = (double)o->batch * (double)s->split.context, layers = (double)m->layers;
    double square = layers * (double)(m->heads * m->head_dim) * (double)s->split.context;
    double again = 0, ranks = (double)o->tp * o->dp * o->pp;
    const fo_sim_device *device = &s->machine->device;
    double peak = fmax(device->peak_flops_per_s[o->dtype], fo_planner_step_rate(device, o->dtype));
    if (o->recompute == FO_RECOMPUTE_FULL)
        again = 2 * layers * fo_planner_layer_parameters(m) + 4 * square;
    else if (o->recompute == FO_RECOMPUTE_SELECTIVE && !o->flash_attention)
        again = 4 * square;
    r->flops = tokens * (6 * fo_planner_multiplied_parameters(m) + 12 * square);
    r->tokens_per_s = r->step_s > 0 ? tokens / r->step_s : 0;
    double most = peak * ranks * r->step_s;
    r->mfu = most > 0 ? r->flops / most : 0;
    r->hfu = most > 0 ? (r->flops + tokens * again) / most : 0;
}

static void report_memory(const fo_planner_state *s, fo_step_report *r)
{
    fo_planner_memory m = fo_planner_memory_most(&s->split);
    double has = s->machine->device.memory_bytes;
    r->weight_bytes = m.weights;
    r->gradient_bytes = m.gradients;
    r->optimizer_bytes = m.optimizer;
    r->activation_bytes = m.activations;
    r->memory_bytes = m.weights + m.gradients + m.optimizer + m.activations;
    r->fits = !(has > 0) || r->memory_bytes <= has;
}

/* The step, and the same with nothing overlapped and with data slicing. */
typedef struct three_steps {
    fo_planner_step_time chosen, none;
    double slice_s;
} three_steps;

static fo_status compare(fo_planner_state *s, three_steps *steps)
{
    fo_planner_state apart = *s;
    fo_planner_step_time slice;
    apart.split.options.overlap_dp = false;
    fo_status status = fo_planner_state_time(&apart, fo_planner_not_overlapped, &steps->none);
    if (status == FO_OK)
        status = fo_planner_state_time(s, fo_planner_sliced, &slice);
    steps->slice_s = fmin(steps->slice_s, slice.total_s);
    return status;
}

static fo_status fill(fo_planner_state *s, fo_step_report *r)
{
    three_steps steps = {.slice_s = INFINITY};
    bool search =
        s->how & FO_PLANNER_CLOSED; /* many ways, of which nothing but the time is looked at */
    fo_status status = FO_OK;
    if (!search)
        status = fo_planner_state_choose(s, &steps.slice_s);
    if (status == FO_OK)
        status = fo_planner_state_time(s, fo_planner_as_chosen, &steps.chosen);
    const fo_planner_step_time *time = &steps.chosen;
    steps.none = *time;
    if (status == FO_OK && (s->how & FO_PLANNER_COMPARE))
        status = compare(s, &steps);
    else
        steps.slice_s = time->total_s;
    if (status == FO_OK && !search)
        status = fo_planner_state_rows(s, time, &steps.none);
    if (status != FO_OK)
        return status;
    r->step_s = time->total_s;
    r->none_s = steps.none.total_s;
    r->slice_s = steps.slice_s;
    r->compute_s = fo_planner_state_work_s(s, fo_planner_computing);
    r->tp_exposed_s = fmax(0, time->work_s - r->compute_s); /* to rounding */
    r->dp_exposed_s = time->gradients_s + time->parameters_s;
    r->pp_exposed_s = time->pipeline_s - time->work_s + time->table_s;
    r->optimizer_s = time->optimizer_s;
    report_rates(s, r);
    report_memory(s, r);
    return FO_OK;
}

fo_status fo_planner_step_run(fo_planner_prices *prices, const fo_step_options *options,
                              unsigned how, fo_step_report *report)
{
    fo_planner_state state = {.prices = prices, .how = how, .report = report};
    int64_t before = fo_planner_prices_events(prices);
    state.machine = fo_planner_prices_machine(prices);
    memset(report, 0, sizeof *report);
    snprintf(report->machine, sizeof report->machine, "%s", state.machine->name);
    fo_status status = fo_planner_split_make(options, state.machine->network.locals, &state.split);
    if (status == FO_OK)
        status = fo_planner_state_price(&state);
    if (status == FO_OK) {
        fo_planner_state_find_busiest(&state);
        status = fill(&state, report);
    }
    report->events = fo_planner_prices_events(prices) - before;
    return status;
}

fo_status fo_step_simulate(const fo_step_options *options, fo_step_report *report)
{
    fo_sim_machine machine;
    fo_planner_prices *prices;
    if (!options->machine)
        return fo_base_error(FO_INVALID,
                             "step: no machine was given, expected the name of a profile, such "
                             "as h100-sxm, or a file");
    fo_status status = fo_sim_profile_read(options->machine, &machine);
    if (status != FO_OK)
        return status;
    status = fo_planner_prices_create(&machine, &prices);
    if (status == FO_OK)
        status =
            fo_planner_step_run(prices, options, FO_PLANNER_COMPARE | FO_PLANNER_EXPLAIN, report);
    fo_planner_prices_free(prices);
    fo_sim_machine_free(&machine);
    return status;
}
