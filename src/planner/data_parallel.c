/* Buckets between replicas. */
#include "planner/data_parallel.h"

#include <math.h>

/* ---- buckets ----------------------------------------------------------------------------------------- */

/* Whole gradients have to come back where every replica updates everything: the other half of an all-reduce. */
static double gradients_s(const fo_planner_replicas *r, double parameters)
{
    const fo_step_options *o = &r->split->options;
    double one = fo_planner_links_ring_s(&r->link, o->dp, parameters * r->split->wire);
    return (o->sharded_optimizer ? 1 : 2) * one / (1 - r->busy);
}

static double parameters_s(const fo_planner_replicas *r, double parameters)
{
    const fo_step_options *o = &r->split->options;
    if (!o->sharded_optimizer)
        return 0;
    return fo_planner_links_ring_s(&r->link, o->dp, parameters * r->split->element) / (1 - r->busy);
}

typedef double (*bucket_s)(const fo_planner_replicas *r, double parameters);

static double stage_s(const fo_planner_replicas *r, int stage, bucket_s of)
{
    double layer = of(r, fo_planner_split_layer_parameters(r->split)), seconds = 0;
    for (int j = stage; j < r->split->virtual_stages; j += r->split->options.pp)
        seconds += (double)fo_planner_split_layers(r->split, j) * layer +
                   of(r, fo_planner_split_end_parameters(r->split, j));
    return seconds;
}

double fo_planner_replicas_gradients_s(const fo_planner_replicas *r, int stage)
{
    return stage_s(r, stage, gradients_s);
}

double fo_planner_replicas_parameters_s(const fo_planner_replicas *r, int stage)
{
    return stage_s(r, stage, parameters_s);
}

/* ---- gradients --------------------------------------------------------------------------------------- */

/* A stage's last backward passes with messages beside them. */
typedef struct flight {
    double free_s; /* the link */
    double lag_s;  /* of the stage, which computes more slowly while messages are in flight */
} flight;

static void send(flight *f, double ready_s, double seconds)
{
    f->free_s = fmax(f->free_s, ready_s + f->lag_s) + seconds;
}

/* The link takes bucket after bucket as they become ready: layers in equal parts of their chunk's backward pass, the
 * head with the first of them, the table with the last. */
static void reduce_chunk(const fo_planner_replicas *r, int j, const fo_planner_pipeline_end *end,
                         flight *f)
{
    int64_t layers = fo_planner_split_layers(r->split, j);
    double layer = gradients_s(r, fo_planner_split_layer_parameters(r->split));
    double rest = gradients_s(r, fo_planner_split_end_parameters(r->split, j));
    double each = (end->end_s - end->begin_s) / (double)layers;
    double slowed = r->contention / (1 + r->contention);
    bool head = j == r->split->virtual_stages - 1 && j > 0;
    if (head)
        send(f, end->begin_s, rest);
    for (int64_t l = 0; l < layers; l++) {
        double begin = end->begin_s + each * (double)l + f->lag_s;
        f->lag_s += slowed * fmax(0, fmin(each, f->free_s - begin));
        send(f, end->begin_s + each * (double)(l + 1), layer);
    }
    if (!head)
        send(f, end->end_s, rest);
}

static double stage_reduced_s(const fo_planner_replicas *r, int stage,
                              const fo_planner_pipeline_end *ends, double end_s)
{
    flight f = {0, 0};
    if (!r->split->options.overlap_dp)
        return end_s + fo_planner_replicas_gradients_s(r, stage);
    for (int c = r->split->options.interleave - 1; c >= 0; c--) {
        int j = c * r->split->options.pp + stage;
        reduce_chunk(r, j, &ends[j], &f);
    }
    return fmax(f.free_s, end_s + f.lag_s);
}

double fo_planner_replicas_reduced_s(const fo_planner_replicas *r,
                                     const fo_planner_pipeline_end *ends, const double *end_s)
{
    double last = 0;
    for (int stage = 0; stage < r->split->options.pp; stage++)
        last = fmax(last, r->split->options.dp > 1 ? stage_reduced_s(r, stage, ends, end_s[stage])
                                                   : end_s[stage]);
    return last;
}

/* ---- parameters -------------------------------------------------------------------------------------- */

void fo_planner_replicas_ready_s(const fo_planner_replicas *r, const double *forward_s,
                                 double *ready_s)
{
    int pp = r->split->options.pp;
    double layer = parameters_s(r, fo_planner_split_layer_parameters(r->split));
    for (int stage = 0; stage < pp; stage++) {
        double arrived = 0;
        for (int j = stage; j < r->split->virtual_stages; j += pp) {
            int64_t layers = fo_planner_split_layers(r->split, j);
            double rest = parameters_s(r, fo_planner_split_end_parameters(r->split, j));
            bool head = j == r->split->virtual_stages - 1 && j > 0;
            double first = arrived + layer + (head ? 0 : rest);
            double last = first + (double)(layers - 1) * layer;
            double before = forward_s[j] * (double)(layers - 1) / (double)layers;
            ready_s[j] = fmax(first, last - before);
            arrived = last;
            if (head) {
                arrived += rest;
                ready_s[j] = fmax(ready_s[j], arrived - forward_s[j]);
            }
        }
    }
}
