/* A training step: what its parts take, put together by pipeline, replicas and optimizer. */
#include "planner/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "planner/memory.h"
#include "planner/model.h"
#include "planner/step_state.h"
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

/* ---- parts ------------------------------------------------------------------------------------------- */

static fo_status price_parts(fo_planner_state *s)
{
    fo_status status = FO_OK;
    for (int p = 0; p < FO_PLANNER_PARTS && status == FO_OK; p++) {
        status = fo_planner_state_price(s, (fo_planner_part)p, false, &s->equal.part[p]);
        s->slow.part[p] = s->equal.part[p];
        if (status == FO_OK && s->split.options.slow_rank >= 0)
            status = fo_planner_state_price(s, (fo_planner_part)p, true, &s->slow.part[p]);
    }
    return status;
}

/* Which of the three steps: as chosen, nothing overlapped, data slicing; or computation alone, or transfers. */
typedef double (*pick)(const fo_planner_seconds *seconds);

static double as_chosen(const fo_planner_seconds *seconds)
{
    return seconds->total_s;
}

static double not_overlapped(const fo_planner_seconds *seconds)
{
    return seconds->none_s;
}

static double sliced(const fo_planner_seconds *seconds)
{
    return seconds->slice_s;
}

static double computing(const fo_planner_seconds *seconds)
{
    return seconds->compute_s;
}

static double transferring(const fo_planner_seconds *seconds)
{
    return seconds->transfer_s;
}

/* All of a stage's work in a step. */
static double work_s(const fo_planner_state *s, const fo_planner_parts *parts, int stage, pick of)
{
    double seconds = 0;
    for (int p = 0; p < FO_PLANNER_PARTS; p++)
        seconds += fo_planner_state_count(s, (fo_planner_part)p, stage) * of(&parts->part[p]);
    return seconds;
}

static void find_busiest(fo_planner_state *s)
{
    double most = -1;
    for (int stage = 0; stage < s->split.options.pp; stage++) {
        double seconds = work_s(s, &s->equal, stage, as_chosen);
        if (seconds > most) {
            most = seconds;
            s->busiest = stage;
        }
    }
}

/* ---- the pipeline ------------------------------------------------------------------------------------ */

/* Arrays by virtual stage and by stage. */
typedef struct timeline {
    double *forward_s, *backward_s, *ready_s, *transfer_s, *end_s;
    fo_planner_pipeline_end *ends;
    double *memory;
} timeline;

static fo_status make_timeline(const fo_planner_split *split, timeline *t)
{
    size_t all = (size_t)split->virtual_stages, stages = (size_t)split->options.pp;
    memset(t, 0, sizeof *t);
    t->memory = calloc(3 * all + 2 * stages, sizeof(double));
    t->ends = calloc(all, sizeof *t->ends);
    if (!t->memory || !t->ends)
        return fo_base_error(FO_NO_MEMORY, "no memory for %d stages", split->virtual_stages);
    t->forward_s = t->memory;
    t->backward_s = t->forward_s + all;
    t->ready_s = t->backward_s + all;
    t->transfer_s = t->ready_s + all;
    t->end_s = t->transfer_s + stages;
    return FO_OK;
}

static void free_timeline(timeline *t)
{
    free(t->memory);
    free(t->ends);
}

/* A rank sends its share of a micro-batch's activations; where they are not sharded, the group gathers them again, as
 * Megatron-LM does (arXiv 2104.04473, section 4.1). */
static double transfer_s(const fo_planner_state *s, int stage)
{
    const fo_planner_split *split = &s->split;
    const fo_sim_network *network = &s->machine->network;
    int tp = split->options.tp;
    double all = (double)split->rows * (double)split->options.model.dim * split->element;
    fo_planner_link between = fo_planner_links_stage(s->machine, split, stage);
    fo_planner_link inside = {network->link.bytes_per_s, network->link.latency_s,
                              &network->link.efficiency, false};
    double gather =
        split->options.sequence_parallel ? 0 : fo_planner_links_ring_s(&inside, tp, all);
    return fo_planner_links_message_s(&between, all / tp) + gather;
}

static void fill_timeline(const fo_planner_state *s, pick of, timeline *t)
{
    const fo_planner_split *split = &s->split;
    int all = split->virtual_stages, pp = split->options.pp;
    for (int j = 0; j < all; j++) {
        const fo_planner_seconds *part = (j % pp == s->busiest ? &s->slow : &s->equal)->part;
        double layers = (double)fo_planner_split_layers(split, j);
        t->forward_s[j] = layers * of(&part[FO_PLANNER_FORWARD]);
        t->backward_s[j] = layers * (of(&part[FO_PLANNER_AGAIN]) + of(&part[FO_PLANNER_BACKWARD]));
        if (j == 0) {
            t->forward_s[j] += of(&part[FO_PLANNER_EMBEDDING_FORWARD]);
            t->backward_s[j] += of(&part[FO_PLANNER_EMBEDDING_BACKWARD]);
        }
        if (j == all - 1) {
            t->forward_s[j] += of(&part[FO_PLANNER_HEAD_FORWARD]);
            t->backward_s[j] += of(&part[FO_PLANNER_HEAD_BACKWARD]);
        }
    }
    for (int stage = 0; stage < pp; stage++)
        t->transfer_s[stage] = pp > 1 ? transfer_s(s, stage) : 0;
}

/* A stage ends with the last backward pass of its chunks. */
static void find_ends(const fo_planner_split *split, timeline *t)
{
    for (int stage = 0; stage < split->options.pp; stage++)
        t->end_s[stage] = 0;
    for (int j = 0; j < split->virtual_stages; j++)
        t->end_s[j % split->options.pp] = fmax(t->end_s[j % split->options.pp], t->ends[j].end_s);
}

/* The first and the last stage have a table each that is one parameter: an all-reduce of two. */
static double shared_table_s(const fo_planner_state *s)
{
    const fo_planner_split *split = &s->split;
    int pp = split->options.pp;
    if (!split->options.model.tied || pp == 1)
        return 0;
    fo_planner_link link = fo_planner_links_stage(s->machine, split, pp - 1);
    double bytes = (double)split->vocabulary * (double)split->options.model.dim * split->wire;
    return 2 * fo_planner_links_ring_s(&link, 2, bytes);
}

/* ---- the optimizer ----------------------------------------------------------------------------------- */

static double optimizer_s(const fo_planner_state *s)
{
    const fo_step_options *o = &s->split.options;
    double most = 0, bytes = fo_planner_layer_optimizer_bytes(&s->split);
    for (int stage = 0; stage < o->pp && o->optimizer; stage++) {
        double parameters = fo_planner_split_parameters(&s->split, stage);
        parameters /= o->sharded_optimizer ? o->dp : 1;
        double seconds = fo_sim_cost_pass(&s->machine->device, parameters * bytes);
        bool slow = o->slow_rank >= 0 && stage == s->busiest;
        most = fmax(most, slow ? seconds / o->slow_speed : seconds);
    }
    return most;
}

/* ---- the step ---------------------------------------------------------------------------------------- */

typedef struct step_time {
    double total_s, pipeline_s, dp_exposed_s, table_s;
} step_time;

static fo_planner_replicas replicas_of(const fo_planner_state *s, pick of)
{
    fo_planner_replicas r = {.split = &s->split,
                             .link = fo_planner_links_replicas(s->machine, &s->split),
                             .contention = s->machine->contention};
    double all = work_s(s, &s->equal, s->busiest, of);
    if (!r.link.between_machines && all > 0) /* the tp group's messages go through the same port */
        r.busy = fmin(0.9, work_s(s, &s->equal, s->busiest, transferring) / all);
    return r;
}

/* Parameters come while the first micro-batch passes, or before it. */
static fo_status gathered_s(const fo_planner_state *s, const fo_planner_replicas *r,
                            fo_planner_pipeline *pipeline, timeline *t, double without_s,
                            double *exposed_s)
{
    const fo_step_options *o = &s->split.options;
    double with_s;
    *exposed_s = 0;
    if (o->dp == 1 || !o->sharded_optimizer)
        return FO_OK;
    if (!o->overlap_dp) {
        for (int stage = 0; stage < o->pp; stage++)
            *exposed_s = fmax(*exposed_s, fo_planner_replicas_parameters_s(r, stage));
        return FO_OK;
    }
    fo_planner_replicas_ready_s(r, t->forward_s, t->ready_s);
    pipeline->ready_s = t->ready_s;
    fo_status status = fo_planner_pipeline_run(pipeline, &with_s, NULL);
    *exposed_s = with_s - without_s;
    return status;
}

static fo_status time_step(const fo_planner_state *s, pick of, step_time *time)
{
    timeline t;
    double gather_s = 0;
    fo_status status = make_timeline(&s->split, &t);
    if (status == FO_OK) {
        fill_timeline(s, of, &t);
        fo_planner_replicas r = replicas_of(s, of);
        fo_planner_pipeline pipeline = {.stages = s->split.options.pp,
                                        .chunks = s->split.options.interleave,
                                        .micro_batches = s->split.micro_batches,
                                        .forward_s = t.forward_s,
                                        .backward_s = t.backward_s,
                                        .transfer_s = t.transfer_s};
        status = fo_planner_pipeline_run(&pipeline, &time->pipeline_s, t.ends);
        find_ends(&s->split, &t);
        double reduced_s = fo_planner_replicas_reduced_s(&r, t.ends, t.end_s);
        if (status == FO_OK)
            status = gathered_s(s, &r, &pipeline, &t, time->pipeline_s, &gather_s);
        time->dp_exposed_s = reduced_s - time->pipeline_s + gather_s;
        time->table_s = shared_table_s(s);
        time->total_s = time->pipeline_s + time->dp_exposed_s + time->table_s + optimizer_s(s);
    }
    free_timeline(&t);
    return status;
}

/* ---- the report -------------------------------------------------------------------------------------- */

static void report_rates(const fo_planner_state *s, fo_step_report *r)
{
    const fo_step_options *o = &s->split.options;
    const fo_model_sizes *m = &o->model;
    double tokens = (double)o->batch * (double)s->split.context, layers = (double)m->layers;
    double square = layers * (double)(m->heads * m->head_dim) * (double)s->split.context;
    double again = 0, ranks = (double)o->tp * o->dp * o->pp;
    const fo_sim_device *device = &s->machine->device;
    double peak = device->peak_flops_per_s[o->dtype];
    peak = peak > 0 ? peak : device->flops_per_s[o->dtype];
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

static void add_row(fo_step_report *r, const char *name, const char *overlap, double count,
                    double total_s, double exposed_s, bool computes)
{
    if (r->row_count == FO_STEP_ROWS || !(count > 0) || !(total_s > 0))
        return;
    fo_step_row *row = &r->rows[r->row_count++];
    *row = (fo_step_row){.count = count,
                         .total_s = total_s,
                         .none_s = total_s,
                         .exposed_s = exposed_s};
    snprintf(row->name, sizeof row->name, "%s", name);
    snprintf(row->overlap, sizeof row->overlap, "%s", overlap);
    *(computes ? &row->compute_s : &row->transfer_s) = total_s;
    row->bound_s = computes ? total_s : 0;
}

static void report_other_rows(const fo_planner_state *s, const step_time *time, fo_step_report *r)
{
    const fo_step_options *o = &s->split.options;
    fo_planner_replicas replicas = replicas_of(s, as_chosen);
    const char *behind = o->overlap_dp ? "behind" : "none";
    add_row(r, "optimizer", "", 1, r->optimizer_s, 0, true);
    if (o->dp > 1) {
        add_row(r, "gradients over dp", behind, 1,
                fo_planner_replicas_gradients_s(&replicas, s->busiest), time->dp_exposed_s, false);
        add_row(r, "parameters over dp", behind, 1,
                fo_planner_replicas_parameters_s(&replicas, s->busiest), 0, false);
    }
    if (o->pp > 1)
        add_row(r, "between stages", "", 2.0 * (double)s->split.micro_batches * o->interleave,
                transfer_s(s, s->busiest), 0, false);
}

static fo_status fill(fo_planner_state *s, fo_step_report *r)
{
    step_time time, none, slice;
    fo_status status = time_step(s, as_chosen, &time);
    none = slice = time;
    if (status == FO_OK && (s->how & FO_PLANNER_COMPARE)) {
        fo_planner_state apart = *s;
        apart.split.options.overlap_dp = false;
        status = time_step(&apart, not_overlapped, &none);
        if (status == FO_OK)
            status = time_step(s, sliced, &slice);
    }
    if (status == FO_OK)
        status = fo_planner_state_rows(s);
    if (status != FO_OK)
        return status;
    double work = work_s(s, &s->slow, s->busiest, as_chosen);
    r->step_s = time.total_s;
    r->none_s = none.total_s;
    r->slice_s = slice.total_s;
    r->compute_s = work_s(s, &s->slow, s->busiest, computing);
    r->tp_exposed_s = work - r->compute_s;
    r->dp_exposed_s = time.dp_exposed_s;
    r->pp_exposed_s = time.pipeline_s - work + time.table_s;
    r->optimizer_s = optimizer_s(s);
    report_rates(s, r);
    report_memory(s, r);
    report_other_rows(s, &time, r);
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
        status = price_parts(&state);
    if (status == FO_OK) {
        find_busiest(&state);
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
