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

/* Squares of the gradients that are complete already, piece by piece, while sums travel. */
typedef struct squares_job {
    const fo_model *model;
    double *of; /* [parameter_count] */
    int next;
} squares_job;

static bool ready_early(const fo_model *m, int index)
{
    return m->parameters[index].sharding != FO_REPLICATED &&
           !(m->by_table && index == FO_MODEL_WTE);
}

static bool squares_piece(void *arg)
{
    squares_job *job = arg;
    const fo_model *m = job->model;
    while (job->next < m->parameter_count && !ready_early(m, job->next))
        job->next++;
    if (job->next == m->parameter_count)
        return false;
    const fo_parameter *p = &m->parameters[job->next];
    job->of[job->next++] = m->kernel->sum_squares(p->grad, p->count);
    return true;
}

/* Every element is summed by the rank whose shard it is in, so all ranks have the same bits. */
static fo_status sum_replicated(fo_model *m, squares_job *job)
{
    fo_plan_args scatter = {.x = m->sum,
                            .y = m->sum_shard,
                            .meanwhile = squares_piece,
                            .meanwhile_arg = job};
    fo_plan_args gather = scatter;
    gather.x = m->sum_shard;
    gather.y = m->sum;
    move_all(m, false);
    fo_status status = fo_model_embedding_reduce(m, squares_piece, job);
    if (status == FO_OK)
        status = fo_plan_execute(m->plans[FO_MODEL_PLAN_SUM], &scatter);
    if (status == FO_OK)
        status = fo_plan_execute(m->plans[FO_MODEL_PLAN_SUM_ALL], &gather);
    if (status == FO_OK)
        move_all(m, true);
    return status;
}

/* In the order of the table, whenever each was taken. */
static double squares(squares_job *job, bool replicated)
{
    const fo_model *m = job->model;
    double sum = 0.0;
    for (int i = 0; i < m->parameter_count; i++) {
        const fo_parameter *p = &m->parameters[i];
        if ((p->sharding == FO_REPLICATED) != replicated)
            continue;
        if (!ready_early(m, i))
            job->of[i] = m->kernel->sum_squares(p->grad, p->count);
        sum += job->of[i];
    }
    return sum;
}

static fo_status norm_of_all(fo_model *m, squares_job *job, double *all, double *norm)
{
    int64_t begin = fo_trace_clock();
    while (squares_piece(job))
        ;
    double mine = squares(job, false);
    fo_status status = fo_group_allgather(m->group, &mine, sizeof mine, all);
    double sum = squares(job, true); /* the same on every rank, counted once */
    for (int r = 0; status == FO_OK && r < m->ranks; r++)
        sum += all[r];
    *norm = sqrt(sum);
    fo_trace_local(m->group, "gradient norm", begin);
    return status;
}

fo_status fo_model_reduce_gradients(fo_model *m, double *norm)
{
    fo_model_parameters_changed(m); /* what follows is an update */
    squares_job job = {.model = m, .of = calloc((size_t)m->parameter_count + 1, sizeof *job.of)};
    double *all = malloc((size_t)m->ranks * sizeof *all);
    fo_status status = FO_OK;
    if (!all || !job.of)
        status = fo_base_error(FO_NO_MEMORY, "no memory for the norms of %d ranks", m->ranks);
    if (status == FO_OK)
        status = sum_replicated(m, &job);
    if (status == FO_OK)
        status = norm_of_all(m, &job, all, norm);
    free(job.of);
    free(all);
    return status;
}
