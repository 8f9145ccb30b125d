/* Replicated gradients: their sum over ranks, and the norm of all gradients. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "flashoverlap/trace.h"
#include "model/state.h"

/* All replicated gradients one after another, to or from m->sum; what pads the last row stays 0. */
static void move_all(fo_model *m, bool out)
{
    float *at = m->sum;
    for (int i = 0; i < m->parameter_count; i++) {
        fo_parameter *p = &m->parameters[i];
        if (p->sharding != FO_REPLICATED)
            continue;
        memcpy(out ? p->grad : at, out ? at : p->grad, (size_t)p->count * sizeof *at);
        at += p->count;
    }
}

/* Every element is summed by the rank whose shard it is in, so all ranks have the same bits. */
static fo_status sum_replicated(fo_model *m)
{
    fo_plan_args scatter = {.x = m->sum, .y = m->sum_shard},
                 gather = {.x = m->sum_shard, .y = m->sum};
    move_all(m, false);
    fo_status status = fo_plan_execute(m->plans[FO_MODEL_PLAN_SUM], &scatter);
    if (status == FO_OK)
        status = fo_plan_execute(m->plans[FO_MODEL_PLAN_SUM_ALL], &gather);
    if (status == FO_OK)
        move_all(m, true);
    return status;
}

static double squares(const fo_model *m, bool replicated)
{
    double sum = 0.0;
    for (int i = 0; i < m->parameter_count; i++) {
        const fo_parameter *p = &m->parameters[i];
        if ((p->sharding == FO_REPLICATED) == replicated)
            sum += m->kernel->sum_squares(p->grad, p->count);
    }
    return sum;
}

fo_status fo_model_reduce_gradients(fo_model *m, double *norm)
{
    fo_model_parameters_changed(m); /* what follows is an update */
    double mine, *all = malloc((size_t)m->ranks * sizeof *all);
    if (!all)
        return fo_base_error(FO_NO_MEMORY, "no memory for the norms of %d ranks", m->ranks);
    fo_status status = sum_replicated(m);
    int64_t begin = fo_trace_clock();
    if (status == FO_OK) {
        mine = squares(m, false);
        status = fo_group_allgather(m->group, &mine, sizeof mine, all);
    }
    if (status == FO_OK) {
        double sum = squares(m, true); /* the same on every rank, counted once */
        for (int r = 0; r < m->ranks; r++)
            sum += all[r];
        *norm = sqrt(sum);
    }
    fo_trace_local(m->group, "gradient norm", begin);
    free(all);
    return status;
}
