/* Whom the plans of a model waited for. */
#include "model/state.h"

/* The rank, among all, of a rank of one of the model's groups. */
static int rank_of(const fo_model *model, const fo_group *group, int peer)
{
    if (group == model->group)
        return model->replica * model->ranks + peer;
    return group == model->replicas ? peer * model->ranks + model->rank : peer;
}

static void add(const fo_model *model, const fo_group *group, const fo_plan *plan, double *seconds)
{
    fo_report report;
    if (!plan)
        return;
    fo_plan_report(plan, &report);
    for (int w = 0; w < report.wait_count; w++) {
        const fo_wait *wait = &report.waits[w];
        if (wait->peer >= 0 && wait->peer < fo_group_size(group))
            seconds[rank_of(model, group, wait->peer)] += (double)wait->exposed_ns * 1e-9;
    }
}

void fo_model_waits(const fo_model *model, double *seconds_by_rank)
{
    for (int i = 0; i < FO_MODEL_PLAN_COUNT; i++)
        add(model, model->group, model->plans[i], seconds_by_rank);
    add(model, model->world, model->lookup, seconds_by_rank);
    add(model, model->world, model->lookup_backward, seconds_by_rank);
    for (int b = 0; b < model->bucket_count; b++) {
        const fo_model_bucket *bucket = &model->buckets[b];
        add(model, bucket->group, bucket->reduce, seconds_by_rank);
        add(model, bucket->group, bucket->gather, seconds_by_rank);
    }
}
