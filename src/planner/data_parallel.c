/* Buckets between replicas. */
#include "planner/data_parallel.h"

#include <math.h>

/* ---- buckets ----------------------------------------------------------------------------------------- */

/* Whole gradients have to come back where every replica updates everything: the other half of an all-reduce. */
static double gradients_s(const fo_planner_replicas *r, double parameters)
{
    const fo_step_options *o = &r->split->options;
    double one = fo_planner_links_ring_s(&r->link, o->dp, parameters * r->split->wire);
    return (o->sharded_optimizer ? 1 : 2) * one;
}

static double parameters_s(const fo_planner_replicas *r, double parameters)
{
    const fo_step_options *o = &r->split->options;
    if (!o->sharded_optimizer)
        return 0;
    return fo_planner_links_ring_s(&r->link, o->dp, parameters * r->split->element);
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
    const fo_planner_replicas *r;
    double end_s; /* of the stage's computing; until then the tp group takes its part of the link */
    double free_s; /* the link */
    double lag_s;  /* of the stage, which computes more slowly while messages are in flight */
} flight;

/* The link is never idle while there is something to send: what the tp group takes of it delays the rest by no more. */
static void send(flight *f, double ready_s, double seconds)
{
    double begin_s = fmax(f->free_s, ready_s + f->lag_s), part = 1 - f->r->busy;
    double shared_s = fmax(0, f->end_s + f->lag_s - begin_s);
    bool behind = seconds < shared_s * part;
    f->free_s = begin_s + (behind ? seconds / part : seconds + shared_s * (1 - part));
}

/* The link takes bucket after bucket as they become ready: layers in equal parts of their chunk's backward pass, the
 * head with the first of them, the table with the last. That messages of the tp group slow computing down is in what it
 * takes; those of replicas do so for the rest of the time: a layer all of which they are beside takes each / (1 - slowed). */
static void reduce_chunk(const fo_planner_replicas *r, int j, const fo_planner_pipeline_end *end,
                         flight *f)
{
    int64_t layers = fo_planner_split_layers(r->split, j);
    double layer = gradients_s(r, fo_planner_split_layer_parameters(r->split));
    double rest = gradients_s(r, fo_planner_split_end_parameters(r->split, j));
    double each = (end->end_s - end->begin_s) / (double)layers;
    double slowed = r->contention / (1 + r->contention) * (1 - r->busy);
    bool head = j == r->split->virtual_stages - 1 && j > 0;
    if (head)
        send(f, end->begin_s, rest);
    for (int64_t l = 0; l < layers; l++) {
        double begin = end->begin_s + each * (double)l + f->lag_s;
        f->lag_s += slowed * fmax(0, fmin(each / (1 - slowed), f->free_s - begin));
        send(f, end->begin_s + each * (double)(l + 1), layer);
    }
    if (!head)
        send(f, end->end_s, rest);
}

static double stage_reduced_s(const fo_planner_replicas *r, int stage,
                              const fo_planner_pipeline_end *ends, double end_s)
{
    flight f = {.r = r, .end_s = end_s};
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

/* When the link has moved `work` seconds of parameters, the first `alone` of them before anything is computed, the rest
 * beside `computed` seconds of computing, whose messages take their part. */
static double arrived_s(const fo_planner_replicas *r, double work, double alone, double computed)
{
    double rest = fmax(0, work - alone), part = 1 - r->busy;
    double taken = computed * r->busy;
    return work + (part > 0 ? fmin(taken, rest * r->busy / part) : taken);
}

void fo_planner_replicas_ready_s(const fo_planner_replicas *r, const double *forward_s,
                                 double *ready_s)
{
    int pp = r->split->options.pp;
    double layer = parameters_s(r, fo_planner_split_layer_parameters(r->split));
    for (int stage = 0; stage < pp; stage++) {
        double work = 0, alone = -1, computed = 0; /* seconds of the link; of chunks before */
        for (int j = stage; j < r->split->virtual_stages; j += pp) {
            int64_t layers = fo_planner_split_layers(r->split, j);
            double rest = parameters_s(r, fo_planner_split_end_parameters(r->split, j));
            bool head = j == r->split->virtual_stages - 1 && j > 0;
            double each = forward_s[j] / (double)layers;
            work += head ? 0 : rest;
            ready_s[j] = 0;
            for (int64_t l = 0; l < layers; l++) {
                double before = each * (double)l;
                work += layer;
                alone = alone < 0 ? work : alone;
                ready_s[j] =
                    fmax(ready_s[j], arrived_s(r, work, alone, computed + before) - before);
            }
            if (head) {
                work += rest;
                ready_s[j] = fmax(ready_s[j], arrived_s(r, work, alone, computed + forward_s[j]) -
                                                  forward_s[j]);
            }
            computed +=
                pp * forward_s[j]; /* a round of micro-batches passes before the next chunk */
        }
    }
}
