/* An emulated link whose speed follows from a measurement of this machine. */
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/quantile.h"
#include "flashoverlap/plan.h"
#include "train/train.h"

enum { REPEATS = 7 };

/* The second layer of the model's MLP, forward. */
typedef struct layer {
    fo_group *group;
    fo_plan *plan;
    fo_plan_args args;
    void *x;
    float *w, *y;
} layer;

static void layer_free(layer *l)
{
    if (l->plan)
        fo_plan_destroy(l->plan);
    free(l->x);
    free(l->w);
    free(l->y);
}

static fo_status layer_make(const fo_train_job *job, fo_group *group, layer *l)
{
    int ranks = fo_group_size(group), rank = fo_group_rank(group);
    const fo_train_options *o = &job->options;
    fo_plan_desc desc = {.op = FO_ROW_FORWARD,
                         .rows = fo_shard_rows(o->batch, job->config.dp, 0) * o->context,
                         .in = fo_shard_rows(4 * o->dim, ranks, rank),
                         .out = o->dim,
                         .dtype = o->dtype,
                         .wire = o->wire,
                         .overlap = "none",
                         .name = "link measurement"};
    *l = (layer){.group = group};
    fo_status status = fo_plan_create(group, &desc, &l->plan);
    if (status != FO_OK)
        return status;
    size_t inputs = (size_t)(desc.rows * desc.in), weights = (size_t)(desc.in * desc.out);
    l->x = calloc(inputs + 16, fo_dtype_size(desc.dtype));
    l->w = calloc(weights + 16, sizeof *l->w);
    l->y = calloc((size_t)(desc.rows * desc.out) + 16, sizeof *l->y);
    if (!l->x || !l->w || !l->y)
        return fo_base_error(FO_NO_MEMORY, "no memory to measure the link's speed");
    for (size_t i = 0; i < inputs; i++) {
        float value = (float)(i % 11) * 0.125f - 0.625f;
        if (desc.dtype == FO_BF16)
            ((fo_bf16 *)l->x)[i] = fo_base_bf16_from_f32(value);
        else
            ((float *)l->x)[i] = value;
    }
    for (size_t i = 0; i < weights; i++)
        l->w[i] = (float)(i % 13) * 0.0625f - 0.375f;
    l->args = (fo_plan_args){.x = l->x, .w = l->w, .y = l->y};
    return FO_OK;
}

/* The computation alone: median over repeats of the slowest rank, seconds. */
static fo_status layer_time(layer *l, double *seconds)
{
    double times[REPEATS];
    fo_status status = fo_plan_execute_local(l->plan, &l->args); /* warms up */
    for (int i = 0; status == FO_OK && i < REPEATS; i++) {
        status = fo_group_barrier(l->group);
        int64_t begin = fo_base_clock_ns();
        if (status == FO_OK)
            status = fo_plan_execute_local(l->plan, &l->args);
        double mine = (double)(fo_base_clock_ns() - begin) * 1e-9;
        if (status == FO_OK)
            status = fo_train_agree_max(l->group, mine, &times[i]);
    }
    if (status == FO_OK)
        *seconds = fo_base_median(times, REPEATS);
    return status;
}

/* Within a replica. */
static fo_status measure(const fo_train_job *job, fo_group *replica, double *seconds, double *bytes)
{
    layer l;
    fo_status status = layer_make(job, replica, &l);
    if (status == FO_OK)
        status = layer_time(&l, seconds);
    *bytes = status == FO_OK ? (double)fo_plan_wire_bytes(l.plan) : 0;
    layer_free(&l);
    return status;
}

fo_status fo_train_link(const fo_train_job *job, fo_group *group)
{
    if (job->options.link_ratio <= 0 || fo_group_size(group) == 1)
        return FO_OK;
    fo_group *replica;
    double seconds = 0, bytes = 0;
    fo_status status = fo_group_split(group, fo_group_rank(group) / job->config.tp, &replica);
    if (status != FO_OK)
        return status;
    status = measure(job, replica, &seconds, &bytes);
    fo_group_close(replica);
    if (status == FO_OK)
        status = fo_train_agree_max(group, seconds, &seconds);
    if (status == FO_OK)
        status = fo_train_agree_max(group, bytes, &bytes);
    fo_link link = fo_group_link(group);
    link.topology = job->options.group.link.topology;
    link.latency_s = job->options.group.link.latency_s;
    if (status == FO_OK && bytes > 0 && seconds > 0) {
        link.bytes_per_s = bytes / (job->options.link_ratio * seconds);
        status = fo_group_set_link(group, &link);
    }
    return status;
}
