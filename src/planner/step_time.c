/* How long a step takes: parts put together by pipeline, replicas and optimizer. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "planner/step_state.h"

double fo_planner_as_chosen(const fo_planner_seconds *seconds)
{
    return seconds->total_s;
}

double fo_planner_not_overlapped(const fo_planner_seconds *seconds)
{
    return seconds->none_s;
}

double fo_planner_sliced(const fo_planner_seconds *seconds)
{
    return seconds->slice_s;
}

double fo_planner_computing(const fo_planner_seconds *seconds)
{
    return seconds->compute_s;
}

static double transferring(const fo_planner_seconds *seconds)
{
    return seconds->transfer_s;
}

/* All of a stage's work in a step. */
static double work_s(const fo_planner_state *s, const fo_planner_parts *parts, int stage,
                     fo_planner_pick of)
{
    double seconds = 0;
    for (int p = 0; p < FO_PLANNER_PARTS; p++)
        seconds += fo_planner_state_count(s, (fo_planner_part)p, stage) * of(&parts->part[p]);
    return seconds;
}

double fo_planner_state_work_s(const fo_planner_state *s, fo_planner_pick of)
{
    return work_s(s, &s->slow, s->busiest, of);
}

/* By computing alone, which no strategy changes: steps that are compared have the slow rank on the same stage. */
void fo_planner_state_find_busiest(fo_planner_state *s)
{
    double most = -1;
    for (int stage = 0; stage < s->split.options.pp; stage++) {
        double seconds = work_s(s, &s->equal, stage, fo_planner_computing);
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
double fo_planner_state_message_s(const fo_planner_state *s, int stage)
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

static void fill_timeline(const fo_planner_state *s, fo_planner_pick of, timeline *t)
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
        t->transfer_s[stage] = pp > 1 ? fo_planner_state_message_s(s, stage) : 0;
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

/* ---- optimizer, replicas ----------------------------------------------------------------------------- */

/* `equal`: were all ranks as fast as stated. */
static double optimizer_s(const fo_planner_state *s, bool equal)
{
    const fo_step_options *o = &s->split.options;
    double most = 0, bytes = fo_planner_layer_optimizer_bytes(&s->split);
    for (int stage = 0; stage < o->pp && o->optimizer; stage++) {
        double parameters = fo_planner_split_parameters(&s->split, stage);
        parameters /= o->sharded_optimizer ? o->dp : 1;
        double seconds = fo_sim_cost_pass(&s->machine->device, parameters * bytes);
        bool slow = !equal && o->slow_rank >= 0 && stage == s->busiest;
        most = fmax(most, slow ? seconds / o->slow_speed : seconds);
    }
    return most;
}

/* Where replicas use the link of the tp group, its messages go first. */
fo_planner_replicas fo_planner_state_replicas(const fo_planner_state *s, fo_planner_pick of)
{
    fo_planner_replicas r = {.split = &s->split,
                             .link = fo_planner_links_replicas(s->machine, &s->split),
                             .contention = s->machine->contention};
    double all = work_s(s, &s->equal, s->busiest, of);
    if (!r.link.between_machines && all > 0)
        r.busy = fmin(1, work_s(s, &s->equal, s->busiest, transferring) / all);
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
    *exposed_s = fmax(0, with_s - without_s);
    return status;
}

/* ---- the step ---------------------------------------------------------------------------------------- */

fo_status fo_planner_state_time(const fo_planner_state *s, fo_planner_pick of,
                                fo_planner_step_time *time)
{
    timeline t;
    fo_status status = make_timeline(&s->split, &t);
    memset(time, 0, sizeof *time);
    if (status == FO_OK) {
        fill_timeline(s, of, &t);
        fo_planner_replicas r = fo_planner_state_replicas(s, of);
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
            status = gathered_s(s, &r, &pipeline, &t, time->pipeline_s, &time->parameters_s);
        time->work_s = fo_planner_state_work_s(s, of);
        time->pipeline_s = fmax(time->pipeline_s, time->work_s); /* to rounding */
        time->gradients_s = fmax(0, reduced_s - time->pipeline_s);
        time->table_s = shared_table_s(s);
        time->optimizer_s = optimizer_s(s, false);
        time->equal_optimizer_s = optimizer_s(s, true);
        time->total_s = time->pipeline_s + time->gradients_s + time->parameters_s + time->table_s +
                        time->optimizer_s;
    }
    free_timeline(&t);
    return status;
}

fo_status fo_planner_state_without(const fo_planner_state *s, fo_planner_pick of,
                                   fo_planner_step_without *without)
{
    fo_sim_machine machine = *s->machine;
    fo_planner_state other = *s;
    fo_planner_step_time time = {0};
    other.machine = &machine;
    machine.contention = 0;
    fo_status status = fo_planner_state_time(&other, of, &without->contention);
    machine.network.link.latency_s = machine.network.outer.latency_s = 0;
    if (status == FO_OK)
        status = fo_planner_state_time(&other, of, &without->latency);
    machine.network.link.bytes_per_s = machine.network.outer.bytes_per_s = 0;
    if (status == FO_OK)
        status = fo_planner_state_time(&other, of, &time);
    without->pipeline_s = time.pipeline_s;
    return status;
}
